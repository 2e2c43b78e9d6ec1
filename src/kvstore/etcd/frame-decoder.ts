/** Bytes of a gRPC frame before its message: a flag, and the length of the message. */
const HEADER_BYTES = 5;

/**
 * Splits the bytes of a stream into gRPC frames. Each chunk is copied into its frame when it arrives. The decoder of
 * grpc-js 1.14 keeps the chunks and copies all of them when the last one arrives: 3 ms for the 5 MB of a watch whose
 * revision deletes 100,000 keys, and ten times as long in one turn if ten watches receive such a revision.
 */
export class FrameDecoder {
  readonly #maxMessageBytes: number;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** The incomplete frame; undefined while its header is incomplete. */
  #frame: Buffer | undefined;
  /** Number of received bytes of the incomplete frame. */
  #received = 0;

  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  /** Adds a chunk. Returns the frames that are complete then. Throws if a message is too large, like grpc-js. */
  write(chunk: Buffer): Buffer[] {
    const frames: Buffer[] = [];
    for (let at = 0; at < chunk.length; ) {
      if (this.#frame === undefined) {
        at += this.#readHeader(chunk, at);
        if (this.#headerBytes < HEADER_BYTES) break;
        this.#frame = this.#newFrame();
      }
      const copied = chunk.copy(this.#frame, this.#received, at);
      at += copied;
      this.#received += copied;
      if (this.#received < this.#frame.length) break;
      frames.push(this.#frame);
      this.#frame = undefined;
      this.#headerBytes = 0;
    }
    return frames;
  }

  /** Reads bytes of the header. Returns their number. */
  #readHeader(chunk: Buffer, from: number): number {
    const read = chunk.copy(this.#header, this.#headerBytes, from);
    this.#headerBytes += read;
    return read;
  }

  #newFrame(): Buffer {
    const bytes = this.#header.readUInt32BE(1);
    if (bytes > this.#maxMessageBytes)
      throw new Error(`Received message larger than max (${bytes} vs ${this.#maxMessageBytes})`);
    const frame = Buffer.allocUnsafe(HEADER_BYTES + bytes);
    this.#received = this.#header.copy(frame);
    return frame;
  }
}
