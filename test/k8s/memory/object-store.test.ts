import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  ObjectStore,
  type ObjectStoreSnapshot,
  type StoredWrite,
} from '../../../src/k8s/memory/object-store.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';

const RESOURCES = ['/pods', '/nodes'];

type Happening =
  | { readonly do: 'put' | 'delete'; readonly resource: string; readonly key: string }
  | { readonly do: 'compact'; readonly back: number }
  | { readonly do: 'backup' | 'restore' };

const happening: fc.Arbitrary<Happening> = fc.oneof(
  ...[1, 2].map(() =>
    fc.record({
      do: fc.constantFrom('put' as const, 'delete' as const),
      resource: fc.constantFrom(...RESOURCES),
      key: fc.constantFrom('b', 'a', 'c'),
    }),
  ),
  fc.record({ do: fc.constant('compact' as const), back: fc.nat(3) }),
  fc.record({ do: fc.constantFrom('backup' as const, 'restore' as const) }),
);

/** All past states as full copies: by version, from the last compaction on. */
class NaiveStore {
  states: ReadonlyMap<number, ReadonlyMap<string, string>> = new Map([[1, new Map()]]);
  writes: readonly (readonly [number, string])[] = [];
  version = 1;
  compacted = 1;

  write(resource: string, key: string, value: string | undefined): void {
    const next = new Map(this.states.get(this.version));
    next.delete(`${resource} ${key}`);
    if (value !== undefined) next.set(`${resource} ${key}`, value);
    this.version++;
    this.states = new Map([...this.states, [this.version, next]]);
    this.writes = [...this.writes, [this.version, resource]];
  }

  compact(version: number): void {
    this.compacted = Math.max(this.compacted, version);
    this.writes = this.writes.filter(([at]) => at > version);
  }

  /** In the form of {@link seen}. */
  seen(): readonly string[] {
    const lines = [`${this.compacted} to ${this.version}`];
    for (let at = this.compacted; at <= this.version; at++) {
      for (const resource of RESOURCES) {
        const all = [...(this.states.get(at) ?? [])].filter(([name]) => name.startsWith(`${resource} `));
        const listed = all.map(([name, value]) => `${name.slice(resource.length + 1)}=${value}`).sort();
        const versions = this.writes.filter(([, of]) => of === resource).map(([version]) => version);
        const since = versions.filter((version) => version > at);
        const last = Math.max(this.compacted, ...versions.filter((version) => version <= at));
        lines.push(`${resource} at ${at}: ${listed}; since: ${since}; last: ${last}`);
      }
    }
    return lines;
  }
}

function object(resourceVersion: string): KubernetesObject {
  return { metadata: { name: 'x', uid: 'u', resourceVersion } };
}

it('keeps every state since the last compaction, and the writes between them; a restored one goes back', () => {
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 16 }), (happenings) => {
      const store = new ObjectStore();
      let naive = new NaiveStore();
      let backup: { readonly snapshot: ObjectStoreSnapshot; readonly naive: NaiveStore } | undefined;
      const told: StoredWrite[] = [];
      store.watch((write) => void told.push(write));
      let writes = 0;
      for (const what of happenings) {
        if (what.do === 'put' || what.do === 'delete') {
          store.write(what.resource, what.key, what.do === 'put' ? object : () => undefined);
          naive.write(what.resource, what.key, what.do === 'put' ? String(naive.version + 1) : undefined);
          writes++;
        } else if (what.do === 'compact') {
          const version = Math.max(1, store.version - what.back);
          store.compact(version);
          naive.compact(version);
        } else if (what.do === 'backup') {
          backup = { snapshot: store.snapshot(), naive };
        } else if (backup !== undefined) {
          store.restore(backup.snapshot);
          const { version } = backup.snapshot;
          naive = new NaiveStore();
          naive.states = new Map([[version, backup.naive.states.get(version) ?? new Map()]]);
          naive.version = version;
          naive.compacted = version;
        }
        expect(told).toHaveLength(writes);
        expect(seen(store)).toEqual(naive.seen());
      }
    }),
  );
});

/** Returns everything that a store remembers, as text: each version since the last compaction. */
function seen(store: ObjectStore): readonly string[] {
  const lines = [`${store.compacted} to ${store.version}`];
  for (let at = store.compacted; at <= store.version; at++) {
    for (const resource of RESOURCES) {
      const listed = store
        .list(resource, at)
        .map(([key, { metadata }]) => `${key}=${metadata.resourceVersion}`);
      const since = store.since(resource, at).map(({ version }) => version);
      lines.push(`${resource} at ${at}: ${listed}; since: ${since}; last: ${store.lastWrite(resource, at)}`);
    }
  }
  return lines;
}

it('notifies of each write with the old and the new state, until unsubscribed', () => {
  const store = new ObjectStore();
  const told: unknown[] = [];
  const end = store.watch(({ before, after, ...write }) => {
    told.push([write, before?.metadata.resourceVersion, after?.metadata.resourceVersion]);
  });
  store.write('/pods', 'a', object);
  store.write('/pods', 'a', object);
  expect(store.get('/pods', 'a')?.metadata.resourceVersion).toBe('3');
  store.write('/pods', 'a', () => undefined);
  expect(store.get('/pods', 'a')).toBeUndefined();
  expect(store.get('/nodes', 'a')).toBeUndefined();
  end();
  store.write('/pods', 'a', object);
  const write = (version: number): object => ({ version, resource: '/pods', key: 'a' });
  expect(told).toEqual([
    [write(2), undefined, '2'],
    [write(3), '2', '3'],
    [write(4), '3', undefined],
  ]);
});
