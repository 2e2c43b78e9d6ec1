// biome-ignore lint/style/noRestrictedImports: a file of grpc-js, which does not export its decoder
import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';

/** Private parts of the decoder of grpc-js 1.14. */
interface DecoderParts {
  /** Bytes of the current message that have not arrived. */
  readonly readMessageRemaining: number;
  /** Chunks of the current message. After its last chunk, they are also in the returned message, as a copy. */
  readPartialMessage: readonly Buffer[];
  write(data: Buffer): Buffer[];
}

/**
 * Makes all decoders of grpc-js release the chunks of a message with its last chunk. Otherwise a decoder keeps them
 * until the next message, and Node keeps the decoder of an ended call until the next collection of the old generation:
 * 40 MB of chunks during a large listing.
 */
export function releaseReceivedChunks(): void {
  const decoder = StreamDecoder.prototype as unknown as DecoderParts;
  const { write } = decoder;
  decoder.write = function (data) {
    const messages = write.call(this, data);
    if (messages.length > 0 && this.readMessageRemaining === 0) this.readPartialMessage = [];
    return messages;
  };
}
