import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import type { StateFile, StateFolder, StateSink } from '../../../src/base/files/state-folder.ts';

/**
 * A folder in memory that may be full or read-only, and records its calls. Most calls take effect in a later turn, so
 * that tests fail if a caller does not wait for them.
 */
export class MemoryFolder implements StateFolder {
  readonly files: Map<string, Uint8Array> = new Map();
  /** The effect of each call, in order. */
  readonly calls: string[] = [];
  /** Free bytes. */
  room: number = Number.POSITIVE_INFINITY;
  /** The error of every call that would change something. */
  readOnly: Error | undefined;

  /** Number of files that are open for reading. */
  opened = 0;

  async names(): Promise<readonly string[]> {
    return [...this.files.keys()];
  }

  open(name: string): Promise<StateFile | undefined> {
    const bytes = this.files.get(name);
    if (bytes !== undefined) this.opened++;
    return Promise.resolve(
      bytes && {
        size: bytes.length,
        read: (into, position) => {
          const part = bytes.subarray(position, position + into.length);
          into.set(part);
          return Promise.resolve(part.length);
        },
        close: async () => {
          await eventLoopTurn();
          this.opened--;
        },
      },
    );
  }

  async create(name: string): Promise<StateSink> {
    this.#change(`create ${name}`);
    this.files.set(name, new Uint8Array());
    return {
      write: async (bytes) => {
        const used = [...this.files.values()].reduce((sum, { length }) => sum + length, 0);
        if (used + bytes.length > this.room) {
          throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
        }
        this.files.set(name, Buffer.concat([this.files.get(name) ?? new Uint8Array(), bytes]));
      },
      sync: async () => {
        await eventLoopTurn();
        this.calls.push(`sync ${name}`);
      },
      close: async () => {
        await Promise.resolve();
        this.calls.push(`close ${name}`);
      },
    };
  }

  async rename(from: string, to: string): Promise<void> {
    await eventLoopTurn();
    this.#change(`rename ${from} ${to}`);
    const bytes = this.files.get(from);
    if (bytes === undefined) throw new Error(`there is no ${from}`);
    this.files.delete(from);
    this.files.set(to, bytes);
  }

  async remove(name: string): Promise<void> {
    await eventLoopTurn();
    this.#change(`remove ${name}`);
    this.files.delete(name);
  }

  #change(call: string): void {
    if (this.readOnly !== undefined) throw this.readOnly;
    this.calls.push(call);
  }
}
