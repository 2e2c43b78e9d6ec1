/** A file, open for reading. */
export interface StateFile {
  /** Size in bytes when the file was opened. */
  readonly size: number;
  /**
   * Text that differs after each change of the contents, such as inode, size and times. A reader that has verified the
   * contents need not verify them again while the version is unchanged. Undefined: the contents are verified each time.
   */
  readonly version?: string | undefined;
  /** Reads from `position` until the buffer is full or the file ends; returns the number of bytes. */
  read(into: Uint8Array, position: number): Promise<number>;
  /** Like {@link StateFile.read}, and fills several buffers in turn. Undefined: not supported. */
  readParts?(into: readonly Uint8Array[], position: number): Promise<number>;
  close(): Promise<void>;
}

/** A file, open for writing. */
export interface StateSink {
  /** Appends the bytes; resolves when the caller may reuse the buffer. */
  write(bytes: Uint8Array): Promise<void>;
  /** Resolves when all written bytes are on the disk (`fsync`). */
  sync(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The folder of a checkpoint or a history. All files in it are read and written through this interface. Names contain
 * no `/`. Every call may reject with an error of the file system.
 */
export interface StateFolder {
  /** Returns the names of the files; none if the folder does not exist. */
  names(): Promise<readonly string[]>;
  /** Opens a regular file for reading. Returns undefined if it does not exist. Rejects if it is not a regular file. */
  open(name: string): Promise<StateFile | undefined>;
  /** Creates a file; rejects if the name exists. Creates the folder if it is missing. */
  create(name: string): Promise<StateSink>;
  /** Renames a file, replaces a file that has the new name, and resolves when the folder is on the disk (`fsync`). */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file if it exists. */
  remove(name: string): Promise<void>;
}
