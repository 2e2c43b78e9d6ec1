import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type FiveMapsChange, FiveMapsSubject } from '../../bench/peers/five-maps.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim, IPCacheChange } from '../../src/ipcache/types.ts';
import type { Source } from '../../src/model/source.ts';

const IDENTITIES = [1, 2, 3];
const ADDRESSES = [
  '10.0.0.1',
  '10.0.0.3',
  '10.0.2.7',
  '10.9.9.9',
  '11.0.0.1',
  'fd00::1',
  'fd00:1::5',
  'fd00:2::',
];
// Keys that cannot shadow each other, because the original contradicts itself for those: no endpoint with its
// full-length CIDR, and no CIDR whose network address is a key.
const KEYS = ['10.0.0.1', '10.0.0.2', '10.0.2.0/24', '10.0.0.0/8', '10.9.9.9/32', 'fd00::1', 'fd00:1::/64'];

const keys = fc.constantFrom(...KEYS);
const sources = fc.constantFrom<Source>('local', 'kvstore', 'k8s');
const claims: fc.Arbitrary<Claim> = fc.record({
  identity: fc.constantFrom(...IDENTITIES),
  source: sources,
  hostIP: fc.constantFrom('192.168.0.1', '192.168.0.2'),
  encryptKey: fc.integer({ min: 0, max: 1 }),
  k8s: fc.record({ namespace: fc.constant('ns'), podName: fc.constantFrom('a', 'b') }),
});

type Operation =
  | { readonly kind: 'upsert'; readonly key: string; readonly claim: Claim }
  | { readonly kind: 'delete'; readonly key: string; readonly source: Source };

const histories: fc.Arbitrary<Operation[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('upsert' as const), key: keys, claim: claims }),
    fc.record({ kind: fc.constant('delete' as const), key: keys, source: sources }),
  ),
  { maxLength: 30 },
);

/** One change of a listener's view in one line. */
interface Told {
  readonly prefix: string;
  readonly oldHostIP: string | undefined;
  /** Undefined if the prefix was deleted. */
  readonly now: string | undefined;
}

function toldByEngine({ prefix, old, new: next }: IPCacheChange): Told {
  const now = next && [next.identity, next.hostIP, next.encryptKey, next.k8s?.podName].join(' ');
  return { prefix, oldHostIP: old?.hostIP, now };
}

function toldByPeer({ modification, prefix, oldHostIP, ...next }: FiveMapsChange): Told {
  const now = [next.newID, next.newHostIP, next.encryptKey, next.k8s?.podName].join(' ');
  return { prefix, oldHostIP, now: modification === 'delete' ? undefined : now };
}

/** Both caches, and the last change of each. */
class Pair {
  readonly engine = new IPCache({ retainOverruled: false });
  readonly peer: FiveMapsSubject;
  #engineTold: Told | undefined;
  #peerTold: Told | undefined;
  readonly #view = new Map<string, string>();

  constructor() {
    this.engine.subscribe({
      onChanges: ([change]) => {
        this.#engineTold = change && toldByEngine(change);
      },
    });
    this.peer = new FiveMapsSubject((change) => {
      this.#peerTold = toldByPeer(change);
    });
  }

  /** Applies an operation to both caches, and compares results and changes. */
  step(operation: Operation): void {
    this.#engineTold = undefined;
    this.#peerTold = undefined;
    if (operation.kind === 'upsert') {
      const outcome = this.engine.upsert(operation.key, operation.claim);
      expect(this.peer.upsert(operation.key, operation.claim)).toBe(outcome !== 'overruled');
    } else {
      const outcome = this.engine.delete(operation.key, { source: operation.source });
      expect(this.peer.delete(operation.key, operation.source)).toBe(outcome === 'applied');
    }
    this.#compareTold();
  }

  #compareTold(): void {
    const [engine, peer] = [this.#engineTold, this.#peerTold];
    if (engine !== undefined) {
      expect(peer).toEqual(engine);
      if (engine.now === undefined) this.#view.delete(engine.prefix);
      else this.#view.set(engine.prefix, engine.now);
    } else if (peer !== undefined) {
      // The original also reports a write that changes only the source. Listeners here receive no change
      // (I3).
      expect(peer.now).toBe(this.#view.get(peer.prefix));
    }
  }

  /** Compares the results of all reads. */
  compare(): void {
    expect(this.peer.size).toBe(this.engine.size);
    for (const { key, identity, hostIP, encryptKey, k8s } of this.engine.entries()) {
      expect(this.peer.get(key)).toMatchObject({ id: identity, host: { ip: hostIP, key: encryptKey }, k8s });
    }
    for (const identity of IDENTITIES) {
      const keys = [...this.engine.lookupByIdentity(identity)];
      expect([...this.peer.keysOf(identity)].sort()).toEqual(keys.sort());
    }
    for (const address of ADDRESSES) {
      expect(this.peer.lookup(address)?.id).toBe(this.engine.lookup(address)?.identity);
    }
  }
}

describe('the port of the five maps', () => {
  it('agrees with the single-slot ipcache wherever the original is consistent', () => {
    fc.assert(
      fc.property(histories, (history) => {
        const pair = new Pair();
        for (const operation of history) pair.step(operation);
        pair.compare();
      }),
    );
  });
});
