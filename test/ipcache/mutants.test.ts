import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Unsubscribe } from '../../src/base/subscription.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Explanation, IPCacheListener, KeyedEntry, Writer } from '../../src/ipcache/types.ts';
import {
  I1_foldEqualsDump,
  I2_orderDoesNotMatter,
  I3_noNoise,
  I4_oneWinner,
  I5_identityIsInverse,
  I6_longestPrefix,
  I7_isolation,
  I8_batches,
  I10_noOrphans,
  type Law,
  type MakeCache,
} from './support/properties.ts';

/** Reports no change if only the pod or the key changes, like the original. */
class DeafToMetadata extends IPCache {
  override subscribe(listener: IPCacheListener): Unsubscribe {
    return super.subscribe({
      onChanges: (changes) => {
        const heard = changes.filter(
          (c) => c.old?.identity !== c.new?.identity || c.old?.hostIP !== c.new?.hostIP,
        );
        if (heard.length > 0) listener.onChanges(heard);
      },
      onSynced: () => listener.onSynced?.(),
    });
  }
}

/** Drops overruled claims, although it should keep them. */
class Forgetful extends IPCache {
  constructor() {
    super({ retainOverruled: false });
  }
}

/** Reports every change twice. */
class Noisy extends IPCache {
  override subscribe(listener: IPCacheListener): Unsubscribe {
    return super.subscribe({
      onChanges: (changes) => {
        listener.onChanges(changes);
        listener.onChanges(changes);
      },
      onSynced: () => listener.onSynced?.(),
    });
  }
}

/** Lets the weakest claim win. */
class Upside extends IPCache {
  override get(key: string): KeyedEntry | undefined {
    return super.explain(key)?.claims.findLast((claim) => claim.key === super.get(key)?.key);
  }
}

/** Ignores that CIDRs become shadowed: lists visible entries only. */
class VisibleIdentities extends IPCache {
  override lookupByIdentity(identity: number): readonly string[] {
    return super.lookupByIdentity(identity).filter((key) => super.get(key)?.shadowed === false);
  }
}

/** Finds only the endpoint or the default route. */
class ShortSighted extends IPCache {
  override lookup(ip: string): KeyedEntry | undefined {
    return super.get(ip) ?? super.get(ip.includes(':') ? '::/0' : '0.0.0.0/0');
  }
}

/** Falls back to address space 0. */
class Spaceless extends IPCache {
  override lookup(ip: string): KeyedEntry | undefined {
    return super.lookup(ip) ?? super.lookup(ip.split('@')[0] ?? '');
  }
}

/** A failing listener keeps the change from the others. */
class Fragile extends IPCache {
  readonly #all: IPCacheListener[] = [];
  override subscribe(listener: IPCacheListener): Unsubscribe {
    this.#all.push(listener);
    if (this.#all.length > 1) return super.subscribe({ onChanges: () => {} });
    return super.subscribe({
      onChanges: (changes) => {
        for (const each of this.#all) each.onChanges(changes);
      },
    });
  }
}

/** Runs batches without atomicity. */
class Batchless extends IPCache {
  override batch<T>(write: () => T): T {
    return write();
  }
}

/** Withdraws effective claims and drops overruled ones. */
class Orphaning extends IPCache {
  override withdraw(by: Writer): number {
    const held = [...this.entries({ includeShadowed: true })].filter(
      (entry) => entry.source === by.source && entry.owner === (by.owner ?? ''),
    );
    return this.batch(() => held.filter(({ key }) => this.delete(key, by) === 'applied').length);
  }
}

/** Explains in the order of arrival. */
class Unsorted extends IPCache {
  override explain(key: string): Explanation | undefined {
    const explained = super.explain(key);
    return explained && { ...explained, claims: explained.claims.toReversed() };
  }
}

const MUTANTS: readonly { readonly name: string; readonly law: Law; readonly make: MakeCache }[] = [
  {
    name: 'I1: one that ignores changes of metadata',
    law: I1_foldEqualsDump,
    make: (r) => new DeafToMetadata({ retainOverruled: r }),
  },
  { name: 'I2: one that forgets overruled claims', law: I2_orderDoesNotMatter, make: () => new Forgetful() },
  {
    name: 'I3: one that delivers everything twice',
    law: I3_noNoise,
    make: (r) => new Noisy({ retainOverruled: r }),
  },
  {
    name: 'I4: one that lets the weakest claim win',
    law: I4_oneWinner,
    make: (r) => new Upside({ retainOverruled: r }),
  },
  {
    name: 'I4: one that explains in the wrong order',
    law: I4_oneWinner,
    make: (r) => new Unsorted({ retainOverruled: r }),
  },
  {
    name: 'I5: one that omits shadowed keys of an identity',
    law: I5_identityIsInverse,
    make: (r) => new VisibleIdentities({ retainOverruled: r }),
  },
  {
    name: 'I6: one that skips prefix lengths',
    law: I6_longestPrefix,
    make: (r) => new ShortSighted({ retainOverruled: r }),
  },
  {
    name: 'I6: one that looks in the address space 0 as well',
    law: I6_longestPrefix,
    make: (r) => new Spaceless({ retainOverruled: r }),
  },
  {
    name: 'I7: one whose listeners are not isolated',
    law: I7_isolation,
    make: (r) => new Fragile({ retainOverruled: r }),
  },
  { name: 'I8: one without batches', law: I8_batches, make: (r) => new Batchless({ retainOverruled: r }) },
  {
    name: 'I10: one that keeps overruled claims of a withdrawn writer',
    law: I10_noOrphans,
    make: (r) => new Orphaning({ retainOverruled: r }),
  },
];

describe('a broken engine is detected', () => {
  it.each(MUTANTS)('$name', async ({ law, make }) => {
    const run = await fc.check(law(make, true), { endOnFailure: true });
    expect(run.failed).toBe(true);
  });
});
