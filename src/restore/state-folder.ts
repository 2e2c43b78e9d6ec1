/** A file that is read piece by piece. */
export interface StateFile {
  /** In bytes, when it was opened. */
  readonly size: number;
  /** Reads from a position on until the buffer is full or the file ends; gives how many bytes. */
  read(into: Uint8Array, position: number): Promise<number>;
  close(): Promise<void>;
}

/** A file that is being written. */
export interface StateSink {
  /** Resolves when the bytes may be used for something else. */
  write(bytes: Uint8Array): Promise<void>;
  /** Resolves when all that was written is on the disk (`fsync`). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The folder where an agent keeps what it knows: all that this room asks of a file system. Names have no `/`. Every call
 * may reject, as the file system does.
 */
export interface StateFolder {
  /** `undefined` when there is no such file. */
  open(name: string): Promise<StateFile | undefined>;
  /** An empty file of that name, instead of one that is there. Makes the folder where it is missing. */
  create(name: string): Promise<StateSink>;
  /** Puts a file in place of another, or of none, and resolves when the folder on the disk says so (`fsync`). */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file, if it is there. */
  remove(name: string): Promise<void>;
}
