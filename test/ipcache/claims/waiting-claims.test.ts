import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WaitingClaims } from '../../../src/ipcache/claims/waiting-claims.ts';
import type { CompleteClaim } from '../../../src/ipcache/row-reader.ts';
import type { Source } from '../../../src/model/source.ts';

const SOURCES: readonly Source[] = ['kvstore', 'k8s', 'generated']; // strongest first
const OWNERS = ['', 'a', 'b'] as const;
const KEYS = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'] as const;
const LIMIT = 3;

function claim(source: Source, owner = '', identity = 300): CompleteClaim {
  const k8s = { namespace: 'shop', podName: `web-${identity}` };
  return { source, owner, identity, hostIP: undefined, encryptKey: 0, k8s } as unknown as CompleteClaim;
}

const strength = (of: CompleteClaim): string => `${SOURCES.indexOf(of.source)} ${of.owner}`;
const sameWriter = (a: CompleteClaim, b: CompleteClaim): boolean => strength(a) === strength(b);

/** A waiting key with its claims. */
interface Place {
  readonly key: string;
  readonly claims: readonly CompleteClaim[];
}

/** A naive model of the waiting claims: keys in the order of their sources. */
class NaiveWaiting {
  places: readonly Place[] = [];
  dropped = 0;

  claimsOn(key: string): readonly CompleteClaim[] {
    return this.places.find((place) => place.key === key)?.claims ?? [];
  }

  set(key: string, claims: readonly CompleteClaim[]): void {
    const sorted = claims.toSorted((a, b) => (strength(a) < strength(b) ? -1 : 1));
    const at = this.places.findIndex((place) => place.key === key);
    const stays = this.places[at]?.claims[0]?.source === sorted[0]?.source;
    const others = this.places.filter((place) => place.key !== key);
    if (sorted.length === 0) this.places = others;
    else if (stays) this.places = this.places.with(at, { key, claims: sorted });
    else this.places = [...others, { key, claims: sorted }];
  }

  put(key: string, put: CompleteClaim): void {
    const claims = this.claimsOn(key);
    if (claims.length === 0 && this.places.length >= LIMIT) this.dropped++;
    else this.set(key, [...claims.filter((other) => !sameWriter(other, put)), put]);
  }

  list(): readonly unknown[] {
    const ranked = SOURCES.flatMap((source) =>
      this.places.filter(({ claims }) => claims[0]?.source === source),
    );
    return ranked.flatMap(({ key, claims }) => claims.map((held) => ({ ...held, key })));
  }
}

type Step =
  | {
      readonly do: 'put' | 'remove' | 'remove-pod' | 'withdraw';
      readonly key: string;
      readonly claim: CompleteClaim;
    }
  | { readonly do: 'take-next' }
  | { readonly do: 'batch'; readonly steps: readonly Step[]; readonly throws: boolean };

const claims = fc
  .tuple(fc.constantFrom(...SOURCES), fc.constantFrom(...OWNERS), fc.integer({ min: 300, max: 301 }))
  .map(([source, owner, identity]) => claim(source, owner, identity));
const change = fc.record({
  do: fc.constantFrom(
    'put' as const,
    'put' as const,
    'put' as const,
    'remove' as const,
    'remove-pod' as const,
    'withdraw' as const,
  ),
  key: fc.constantFrom(...KEYS),
  claim: claims,
});
const plain = fc.oneof(
  { weight: 6, arbitrary: change },
  { weight: 1, arbitrary: fc.constant<Step>({ do: 'take-next' }) },
);
const batchOf = (steps: fc.Arbitrary<Step>): fc.Arbitrary<Step> =>
  fc.record({
    do: fc.constant('batch' as const),
    steps: fc.array(steps, { maxLength: 6 }),
    throws: fc.boolean(),
  });
const step = fc.oneof(
  { weight: 6, arbitrary: plain },
  {
    weight: 1,
    arbitrary: batchOf(fc.oneof({ weight: 4, arbitrary: plain }, { weight: 1, arbitrary: batchOf(plain) })),
  },
);

class Fault extends Error {}

/** Applies a step to both. Their answers must be equal. */
function play(what: Step, waiting: WaitingClaims, naive: NaiveWaiting): void {
  if (what.do === 'batch') {
    const before = naive.places;
    try {
      waiting.batch(() => {
        for (const each of what.steps) play(each, waiting, naive);
        if (what.throws) throw new Fault();
      });
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      naive.places = before;
    }
  } else if (what.do === 'take-next') {
    const key = waiting.next();
    expect(key).toBe((naive.list()[0] as { key: string } | undefined)?.key);
    if (key === undefined) return;
    const taken = waiting.removeAll(key);
    expect(taken).toEqual(naive.claimsOn(key).map((held) => ({ ...held, key })));
    naive.set(key, []);
  } else if (what.do === 'put') {
    waiting.put(what.key, what.claim);
    naive.put(what.key, what.claim);
  } else if (what.do === 'withdraw') {
    const isMeant = (held: CompleteClaim): boolean => sameWriter(held, what.claim);
    const keys = naive.places.filter((place) => place.claims.some(isMeant)).map(({ key }) => key);
    // One by one, because the order of the keys is not specified.
    while (keys.length > 0) {
      expect(waiting.withdraw(what.claim, 1)).toBe(1);
      const left = new Set(
        Array.from(waiting.list())
          .filter(isMeant)
          .map(({ key }) => key),
      );
      const [key = ''] = keys.splice(
        keys.findIndex((each) => !left.has(each)),
        1,
      );
      naive.set(
        key,
        naive.claimsOn(key).filter((held) => !isMeant(held)),
      );
    }
    expect(waiting.withdraw(what.claim, 1)).toBe(0);
  } else {
    const { source, owner, k8s } = what.claim;
    const ifPod = what.do === 'remove-pod' ? k8s : undefined;
    const isMeant = (held: CompleteClaim): boolean =>
      sameWriter(held, what.claim) && (ifPod === undefined || held.k8s?.podName === ifPod.podName);
    const claimsOn = naive.claimsOn(what.key);
    expect(waiting.remove(what.key, { source, owner, ifPod })).toBe(claimsOn.some(isMeant));
    naive.set(
      what.key,
      claimsOn.filter((held) => !isMeant(held)),
    );
  }
}

describe('the waiting claims', () => {
  it('equal those of a sorted list, also after batches that threw', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const waiting = new WaitingClaims(LIMIT);
        const naive = new NaiveWaiting();
        for (const each of steps) {
          play(each, waiting, naive);
          expect([...waiting.list()]).toEqual(naive.list());
          expect([waiting.size, waiting.dropped]).toEqual([naive.places.length, naive.dropped]);
          for (const source of SOURCES)
            for (const owner of OWNERS) {
              const holds = naive.places.some((place) =>
                place.claims.some((held) => sameWriter(held, claim(source, owner))),
              );
              expect(waiting.holds({ source, owner })).toBe(holds);
            }
        }
      }),
    );
  });

  it('are admitted by source, then by arrival; a claim of the same strength keeps its place', () => {
    const waiting = new WaitingClaims(10);
    waiting.put('a', claim('k8s'));
    waiting.put('b', claim('k8s'));
    waiting.put('c', claim('kvstore'));
    waiting.put('a', claim('k8s', '', 301));
    expect([...waiting.list()].map(({ key }) => key)).toEqual(['c', 'a', 'b']);
    waiting.put('a', claim('kvstore'));
    waiting.remove('a', { source: 'kvstore' });
    expect([...waiting.list()].map(({ key }) => key)).toEqual(['c', 'b', 'a']);
  });

  it('are withdrawn at most as many at a time as given', () => {
    const waiting = new WaitingClaims(10);
    for (const key of ['a', 'b', 'c']) waiting.put(key, claim('k8s'));
    expect([waiting.withdraw({ source: 'k8s' }, 2), waiting.size]).toEqual([2, 1]);
    expect([waiting.withdraw({ source: 'k8s' }, 2), waiting.size]).toEqual([1, 0]);
    expect([waiting.withdraw({ source: 'k8s' }, 2), waiting.next()]).toEqual([0, undefined]);
  });

  it('have their places back after a batch that threw, including the first one', () => {
    const waiting = new WaitingClaims(10);
    for (const key of ['a', 'b', 'c']) waiting.put(key, claim('k8s'));
    expect(waiting.next()).toBe('a');
    expect(() =>
      waiting.batch(() => {
        for (const key of ['a', 'b']) waiting.removeAll(key);
        expect(waiting.next()).toBe('c');
        throw new Fault();
      }),
    ).toThrow(Fault);
    expect([waiting.next(), [...waiting.list()].map(({ key }) => key)]).toEqual(['a', ['a', 'b', 'c']]);
  });

  it('keep their first one if another is deleted', () => {
    const waiting = new WaitingClaims(10);
    for (const key of ['a', 'b', 'c']) waiting.put(key, claim('k8s'));
    expect(waiting.next()).toBe('a');
    waiting.remove('b', { source: 'k8s' });
    expect(waiting.next()).toBe('a');
    waiting.remove('a', { source: 'k8s' });
    expect(waiting.next()).toBe('c');
  });

  it('are admitted after a batch that threw in which they had become stronger and were deleted', () => {
    const waiting = new WaitingClaims(10);
    waiting.put('a', claim('k8s'));
    expect(() =>
      waiting.batch(() => {
        waiting.put('a', claim('kvstore'));
        waiting.removeAll('a');
        throw new Fault();
      }),
    ).toThrow(Fault);
    expect(waiting.next()).toBe('a');
  });

  it('are not dropped for lack of room if their key is waiting already', () => {
    const waiting = new WaitingClaims(1);
    waiting.put('a', claim('k8s'));
    waiting.put('a', claim('k8s', '', 301));
    waiting.put('a', claim('kvstore'));
    waiting.put('b', claim('kvstore'));
    expect([waiting.size, waiting.dropped, [...waiting.list()].length]).toEqual([1, 1, 2]);
  });
});
