import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import type { IPCacheEntry } from '../../../src/ipcache/types.ts';
import { type CacheUnderTest, FoldingListener, foldEqualsDump } from './invariants.ts';
import {
  attributes,
  longestMatch,
  NaiveIPCache,
  type NaiveOwnerChange,
  writerName,
} from './naive-ipcache.ts';
import {
  ADDRESSES,
  apply,
  applyNaively,
  batch,
  history,
  KEYS,
  type Operation,
  singles,
} from './operations.ts';

/** Makes a cache in one of the two modes. */
export type MakeCache = (retainOverruled: boolean) => CacheUnderTest;

/** A law of the engine, for any engine and mode. Each mutant must break its law. */
export type Law = (
  make: MakeCache,
  retain: boolean,
) => fc.IPropertyWithHooks<never> | fc.IRawProperty<unknown>;

function check(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

function expectEqual(what: string, actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) {
    throw new Error(`${what}: ${JSON.stringify(actual)} but expected ${JSON.stringify(expected)}`);
  }
}

function texts(view: ReadonlyMap<string, IPCacheEntry>): Map<string, string> {
  return new Map([...view].map(([prefix, entry]) => [prefix, attributes(entry)]));
}

function sorted(map: ReadonlyMap<string, string>): readonly (readonly [string, string])[] {
  return [...map].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Returns all readable state, for comparison. */
function everything(cache: CacheUnderTest): unknown {
  const fresh = new FoldingListener();
  cache.subscribe(fresh)();
  return { explained: KEYS.map((key) => cache.explain(key)), dump: sorted(texts(fresh.view)) };
}

function diff(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): readonly string[] {
  const prefixes = new Set([...before.keys(), ...after.keys()]);
  return [...prefixes].filter((prefix) => before.get(prefix) !== after.get(prefix)).sort();
}

/** Runs a history on cache and model, and calls `verify` after every step. */
function together(
  make: MakeCache,
  retain: boolean,
  operations: readonly Operation[],
  verify: (step: {
    cache: CacheUnderTest;
    model: NaiveIPCache;
    folded: FoldingListener;
    before: Map<string, string>;
    operation: Operation;
    outcome: unknown;
    expected: unknown;
  }) => void,
): void {
  const cache = make(retain);
  const model = new NaiveIPCache(retain);
  const folded = new FoldingListener();
  cache.subscribe(folded);
  for (const operation of operations) {
    const before = model.visible();
    const outcome = apply(cache, operation);
    const expected = applyNaively(model, operation);
    verify({ cache, model, folded, before, operation, outcome, expected });
    folded.takeTold();
  }
}

export const I1_foldEqualsDump: Law = (make, retain) =>
  fc.property(history, fc.nat(20), (operations, joinAt) => {
    let late: FoldingListener | undefined;
    let steps = 0;
    together(make, retain, operations, ({ cache, model, folded }) => {
      if (steps++ === joinAt) {
        late = new FoldingListener();
        cache.subscribe(late);
      }
      check([...folded.complaints, ...(late?.complaints ?? []), ...foldEqualsDump(cache, folded)]);
      if (late !== undefined) check(foldEqualsDump(cache, late));
      expectEqual('I1 folded', sorted(texts(folded.view)), sorted(model.visible()));
    });
  });

export const I2_orderDoesNotMatter: Law = (make, retain) =>
  fc.property(history, fc.infiniteStream(fc.nat()), (operations, shuffle) => {
    const [cache, model] = [make(retain), new NaiveIPCache(retain)];
    for (const operation of operations) {
      apply(cache, operation);
      applyNaively(model, operation);
    }
    const order = model.claims.map((claim) => ({ claim, at: shuffle.next().value }));
    const other = make(retain);
    for (const { claim } of order.sort((a, b) => a.at - b.at)) other.upsert(claim.key, claim.claim);
    expectEqual('I2 states', everything(cache), everything(other));
  });

export const I3_noNoise: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ folded, model, before }) => {
      check(folded.complaints);
      expectEqual('I3 prefixes told', [...folded.takeTold()].sort(), diff(before, model.visible()));
    });
  });

export const I4_oneWinner: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ cache, model, outcome, expected }) => {
      expectEqual('I4 outcome', outcome, expected);
      for (const key of KEYS) {
        const [winner] = model.on(key);
        const entry = cache.get(key);
        expectEqual(`I4 ${key}`, entry && attributes(entry), winner && attributes(winner.claim));
        expectEqual(
          `I4 writer of ${key}`,
          entry && [entry.source, entry.owner],
          winner && [winner.claim.source, winner.claim.owner ?? ''],
        );
        const own = cache.explain(key)?.claims.filter((claim) => claim.key === key) ?? [];
        expectEqual(
          `I4 claims on ${key}`,
          own.map(attributes),
          model.on(key).map(({ claim }) => attributes(claim)),
        );
      }
      expectEqual('I4 visible', sorted(visibleByExplain(cache)), sorted(model.visible()));
    });
  });

function visibleByExplain(cache: CacheUnderTest): Map<string, string> {
  const visible = new Map<string, string>();
  for (const key of KEYS) {
    const explained = cache.explain(key);
    const [first] = explained?.claims ?? [];
    if (explained !== undefined && first !== undefined) visible.set(explained.prefix, attributes(first));
  }
  return visible;
}

export const I5_identityIsInverse: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ cache, model }) => {
      for (const id of [100, 200, 300]) {
        const held = KEYS.filter((key) => model.on(key)[0]?.claim.identity === id).sort();
        expectEqual(`I5 identity ${id}`, [...cache.lookupByIdentity(id)].sort(), held);
        expectEqual(`I5 count of identity ${id}`, cache.countByIdentity(id), held.length);
      }
    });
  });

export const I6_longestPrefix: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ cache, model }) => {
      for (const address of ADDRESSES)
        expectEqual(
          `I6 ${address}`,
          cache.lookup(address)?.key,
          longestMatch(model.entries().keys(), address),
        );
    });
  });

export const I7_isolation: Law = (make, retain) =>
  fc.property(history, (operations) => {
    const cache = make(retain);
    const model = new NaiveIPCache(retain);
    const throwing = {
      onChanges(): void {
        throw new Error('this listener always fails');
      },
    };
    const folded = new FoldingListener();
    cache.subscribe(throwing);
    cache.subscribe(folded);
    for (const operation of operations) {
      apply(cache, operation);
      applyNaively(model, operation);
      expectEqual('I7 folded', sorted(texts(folded.view)), sorted(model.visible()));
    }
  });

/**
 * After a batch and the steps that follow, listeners are notified once of each prefix that differs and of
 * each key whose owner changed. A batch that throws leaves nothing, not even in later steps.
 */
export const I8_batches: Law = (make, retain) =>
  fc.property(history, batch, singles, (setup, first, afterwards) => {
    const [cache, model] = [make(retain), new NaiveIPCache(retain)];
    for (const operation of setup) applyBoth(cache, model, operation);
    const folded = new FoldingListener();
    const hands: NaiveOwnerChange[] = [];
    cache.subscribe(folded);
    cache.subscribeOwners({
      onOwnerChanges: (changes) =>
        hands.push(
          ...changes.map(({ key, previous, current }) => ({
            key,
            previous: previous && writerName(previous),
            current: current && writerName(current),
          })),
        ),
    });
    folded.takeTold();
    model.takeOwnerChanges();
    for (const operation of [first, ...afterwards.slice(0, 4)]) {
      const before = model.visible();
      applyBoth(cache, model, operation);
      check([...folded.complaints, ...foldEqualsDump(cache, folded)]);
      expectEqual('I8 folded', sorted(texts(folded.view)), sorted(model.visible()));
      expectEqual('I8 prefixes', [...folded.takeTold()].sort(), diff(before, model.visible()));
      const changed = hands.splice(0).sort((a, b) => (a.key < b.key ? -1 : 1));
      expectEqual('I8 owners', changed, model.takeOwnerChanges());
      expectEqual('I8 claims', claimsOf(cache), naiveClaims(model));
    }
  });

function applyBoth(cache: CacheUnderTest, model: NaiveIPCache, operation: Operation): void {
  expectEqual('outcome', apply(cache, operation), applyNaively(model, operation));
}

/** The claims on every key, strongest first, as text. */
function claimsOf(cache: CacheUnderTest): readonly string[] {
  return KEYS.map((key) =>
    (cache.explain(key)?.claims ?? [])
      .filter((claim) => claim.key === key)
      .map((claim) => `${writerName(claim)} ${attributes(claim)}`)
      .join(),
  );
}

function naiveClaims(model: NaiveIPCache): readonly string[] {
  return KEYS.map((key) =>
    model
      .on(key)
      .map(({ claim }) => `${writerName(claim)} ${attributes(claim)}`)
      .join(),
  );
}

export const I10_noOrphans: Law = (make, retain) =>
  fc.property(
    history,
    fc.constantFrom('kvstore', 'k8s', 'clustermesh'),
    fc.constantFrom('', 'baltic'),
    (operations, source, owner) => {
      together(
        make,
        retain,
        [...operations, { op: 'withdraw', by: { source, owner } }],
        ({ cache, model, operation, outcome, expected }) => {
          if (operation.op !== 'withdraw') return;
          const { by } = operation;
          const left = KEYS.flatMap((key) => cache.explain(key)?.claims ?? []).filter(
            (claim) => claim.source === by.source && claim.owner === (by.owner ?? ''),
          );
          expectEqual('I10 orphans', left, []);
          expectEqual('I10 withdrawn', outcome, expected);
          expectEqual('I10 rest', [...cache.entries({ includeShadowed: true })].length, model.entries().size);
        },
      );
    },
  );

/** Every law with its id and modes. */
export const LAWS: readonly {
  readonly name: string;
  readonly law: Law;
  readonly modes: readonly boolean[];
}[] = [
  { name: 'I1 fold = dump, for early and late listeners', law: I1_foldEqualsDump, modes: [true, false] },
  {
    name: 'I2 the state is a function of the live claims, not of their order',
    law: I2_orderDoesNotMatter,
    modes: [true],
  },
  {
    name: 'I3 listeners receive exactly the prefixes that differ',
    law: I3_noNoise,
    modes: [true, false],
  },
  {
    name: 'I4 one winner: endpoint over CIDR, then source, then owner',
    law: I4_oneWinner,
    modes: [true, false],
  },
  {
    name: 'I5 lookupByIdentity is the inverse of the entries',
    law: I5_identityIsInverse,
    modes: [true, false],
  },
  { name: 'I6 lookup finds the longest prefix', law: I6_longestPrefix, modes: [true, false] },
  { name: 'I7 a listener that throws harms nobody else', law: I7_isolation, modes: [true, false] },
  {
    name: 'I8 a batch delivers its net effect once, or undoes everything',
    law: I8_batches,
    modes: [true, false],
  },
  { name: 'I10 a writer that withdraws takes every claim with it', law: I10_noOrphans, modes: [true, false] },
];
