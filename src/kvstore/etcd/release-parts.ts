// biome-ignore lint/style/noRestrictedImports: grpc-js does not export this class
import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';

/** The private fields of a `StreamDecoder` that refer to received data. */
interface DecoderParts {
  /** 0 between two messages. */
  readonly readState: number;
  readCompressFlag: Buffer;
  readPartialMessage: Buffer[];
}

const NO_BYTES = Buffer.alloc(0);
const { write } = StreamDecoder.prototype;

function writeAndRelease(this: StreamDecoder, data: Buffer): Buffer[] {
  const messages = write.call(this, data);
  const decoder = this as unknown as DecoderParts;
  if (decoder.readState === 0) {
    decoder.readCompressFlag = NO_BYTES;
    decoder.readPartialMessage = [];
  }
  return messages;
}

/**
 * Makes the decoders of grpc-js release the received parts of each complete message. By default, a decoder keeps them
 * until its next message, which a call with one answer does not have. Node keeps the decoder of a call until the next
 * collection of the old generation, so that 40 MB of parts accumulated during a list.
 */
export function releaseParts(): void {
  StreamDecoder.prototype.write = writeAndRelease;
}
