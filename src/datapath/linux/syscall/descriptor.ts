import { closeSync } from 'node:fs';

/** Returns what `use` returns for a descriptor, and closes the descriptor, also if `use` throws. */
export function useDescriptor<T>(fd: number, use: (fd: number) => T): T {
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}
