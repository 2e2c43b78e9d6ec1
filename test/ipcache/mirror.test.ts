import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EntryMirror } from '../../src/ipcache/change-journal.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { IPCacheEntry } from '../../src/ipcache/types.ts';
import { formatPrefixOf } from '../../src/net/prefix.ts';
import { FoldingListener, plain } from './support/invariants.ts';
import { apply, history } from './support/operations.ts';

/** Collects all changes, and the state of the last revision. */
class Folded implements EntryMirror {
  readonly #entries = new Map<string, IPCacheEntry>();
  published: Record<string, unknown> = {};
  revision = -1;

  set(...[key, old, next]: Parameters<EntryMirror['set']>): void {
    const prefix = formatPrefixOf('', key);
    expect(old).toEqual(this.#entries.get(prefix));
    if (next === undefined) this.#entries.delete(prefix);
    else this.#entries.set(prefix, next);
  }

  publish(revision: number): void {
    this.published = plain(this.#entries);
    this.revision = revision;
  }
}

function dump(cache: IPCache): Record<string, unknown> {
  const fresh = new FoldingListener();
  cache.subscribe(fresh)();
  return plain(fresh.view);
}

describe('a mirror', () => {
  it.each([3, 100])(
    'has the visible entries and the revision after each write, also of batches that throw, with room for %d keys',
    (maxEntries) => {
      fc.assert(
        fc.property(history, fc.nat(10), (operations, before) => {
          const cache = new IPCache({ maxEntries });
          const mirror = new Folded();
          for (const [at, operation] of operations.entries()) {
            if (at === before) cache.mirror(mirror);
            apply(cache, operation);
            if (at < before) continue;
            expect(mirror.published).toEqual(dump(cache));
            expect(mirror.revision).toBe(cache.revision);
          }
        }),
      );
    },
  );

  it('is written before listeners are called, and not after its subscription has ended', () => {
    const cache = new IPCache();
    const mirror = new Folded();
    const seen: number[] = [];
    const end = cache.mirror(mirror);
    cache.subscribe({ onChanges: () => seen.push(mirror.revision) });
    cache.upsert('10.0.0.1', { identity: 7, source: 'k8s' });
    cache.batch(end);
    cache.upsert('10.0.0.2', { identity: 7, source: 'k8s' });
    expect([seen, mirror.revision, Object.keys(mirror.published)]).toEqual([[1, 1], 1, ['10.0.0.1/32']]);
    expect(() => cache.batch(() => cache.mirror(mirror))).toThrow('mirror must not be called inside a batch');
  });
});
