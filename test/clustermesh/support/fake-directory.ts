import type { Unsubscribe } from '../../../src/base/subscription.ts';
import { unsubscribeOnce } from '../../../src/base/subscription.ts';
import type { ConfigFile, ConfigListing } from '../../../src/clustermesh/config-directory.ts';
import type { ConfigSource } from '../../../src/clustermesh/config-follower.ts';

/** A configuration directory in memory, whose notifications can be lost. */
export class FakeDirectory implements ConfigSource {
  readonly files: Map<string, ConfigFile> = new Map();
  /** If set, the directory cannot be read. */
  unreadable: string | undefined;
  listings = 0;
  #onChange: (() => void) | undefined;

  get isWatched(): boolean {
    return this.#onChange !== undefined;
  }

  list(): Promise<ConfigListing> {
    this.listings++;
    if (this.unreadable !== undefined) return Promise.reject(new Error(this.unreadable));
    return Promise.resolve(new Map(this.files));
  }

  watch(onChange: () => void): Unsubscribe {
    this.#onChange = onChange;
    return unsubscribeOnce(() => {
      this.#onChange = undefined;
    });
  }

  /** `undefined` removes the file. */
  write(name: string, file: ConfigFile | undefined, { told = true }: { told?: boolean } = {}): void {
    if (file === undefined) this.files.delete(name);
    else this.files.set(name, file);
    if (told) this.#onChange?.();
  }
}
