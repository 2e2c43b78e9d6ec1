/** A file of an archive or folder. */
export interface ArchiveEntry {
  /**
   * Path within the archive, with `/`. For a file of a nested archive, it begins with the path of that archive. The
   * path is for reports, and is never opened on this machine.
   */
  readonly name: string;
  /** Wall time of the last modification in milliseconds since the epoch; undefined if unknown. */
  readonly modifiedAt: number | undefined;
  /**
   * Returns the content. May be called once, before the next entry is requested. Entries that are not opened are
   * skipped.
   */
  readonly content: () => AsyncIterable<Uint8Array>;
}

/** A folder or archive. */
export interface Archive {
  /**
   * Yields all regular files. May be called again after the iteration has ended. `onBroken` receives the error of a
   * subfolder that cannot be read; without it, the error is thrown.
   */
  entries(onBroken?: (error: ArchiveError) => void): AsyncGenerator<ArchiveEntry, void, void>;
  close(): Promise<void>;
}

/** The reason why an archive cannot be read. */
export type ArchiveErrorCode =
  | 'not-an-archive'
  | 'truncated'
  | 'corrupt'
  | 'unreadable'
  | 'unsupported'
  | 'too-many-entries'
  | 'entry-too-large'
  | 'archive-too-large';

/** Thrown if an archive cannot be read. The message names the file and the remedy. */
export class ArchiveError extends Error {
  override readonly name = 'ArchiveError';
  readonly code: ArchiveErrorCode;
  /** The file with the error, with the path of its archive. */
  readonly path: string;

  constructor(code: ArchiveErrorCode, path: string, why: string, options?: ErrorOptions) {
    super(`${path}: ${why}`, options);
    this.code = code;
    this.path = path;
  }
}

/** Limits of an archive and its contents, so that a small file cannot fill the memory. */
export interface ArchiveLimits {
  /** Maximum number of files of an archive or folder, and of each nested archive. */
  readonly entries: number;
  /** Maximum size of one file after decompression, if the file is read as a whole. */
  readonly entryBytes: number;
  /** Maximum size of the archive after decompression, and the same for all nested archives together. */
  readonly archiveBytes: number;
}

/**
 * Default limits. A sysdump of 100 nodes has about 30,000 files and 1 GB; the largest file is the list of endpoints.
 */
export const DEFAULT_LIMITS: ArchiveLimits = {
  entries: 200_000,
  entryBytes: 256 << 20,
  archiveBytes: 64 * 2 ** 30,
};

/** The number of bytes that may still be unpacked. */
export class ByteBudget {
  readonly #limit: number;
  #left: number;

  constructor(limit: number) {
    this.#limit = limit;
    this.#left = limit;
  }

  /** Subtracts bytes from the budget. Throws {@link ArchiveError} if fewer are left. */
  take(bytes: number, path: string): void {
    this.#left -= bytes;
    if (this.#left < 0)
      throw new ArchiveError(
        'archive-too-large',
        path,
        `exceeds the limit of ${this.#limit} bytes for unpacked archives: unpack the part that is needed`,
      );
  }
}

/** Throws if there are more entries than allowed. */
export function checkCount(count: number, path: string, { entries }: ArchiveLimits): void {
  if (count > entries)
    throw new ArchiveError(
      'too-many-entries',
      path,
      `has more than ${entries} files: unpack the part that is needed`,
    );
}
