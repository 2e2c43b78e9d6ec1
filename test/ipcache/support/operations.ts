import fc from 'fast-check';
import type { Claim, K8sMetadata, Writer } from '../../../src/ipcache/types.ts';
import type { CacheUnderTest } from './invariants.ts';
import type { NaiveIPCache } from './naive-ipcache.ts';

/** A spelling of a key, and its canonical form, derived by hand. */
export interface Spelling {
  readonly text: string;
  readonly key: string;
}

export const SPELLINGS: readonly Spelling[] = [
  { text: '10.0.0.1', key: '10.0.0.1' },
  { text: '::ffff:10.0.0.1', key: '10.0.0.1' },
  { text: '10.0.0.1/32', key: '10.0.0.1/32' },
  { text: '::ffff:a00:1/128', key: '10.0.0.1/32' },
  { text: '10.0.0.2', key: '10.0.0.2' },
  { text: '10.0.0.2/32', key: '10.0.0.2/32' },
  { text: '10.0.0.3/31', key: '10.0.0.2/31' },
  { text: '10.0.0.0/24', key: '10.0.0.0/24' },
  { text: '10.0.0.0', key: '10.0.0.0' },
  { text: '10.9.9.9/8', key: '10.0.0.0/8' },
  { text: '0.0.0.0/0', key: '0.0.0.0/0' },
  { text: 'fd00::1', key: 'fd00::1' },
  { text: 'FD00:0::1/128', key: 'fd00::1/128' },
  { text: 'fd00:0:0:0:1::/16', key: 'fd00::/16' },
  { text: '::/0', key: '::/0' },
  { text: '10.0.0.1@0', key: '10.0.0.1' },
  // The same addresses in the spaces of two clusters.
  { text: '10.0.0.1@5', key: '10.0.0.1@5' },
  { text: '::ffff:10.0.0.1@005', key: '10.0.0.1@5' },
  { text: '10.0.0.1/32@5', key: '10.0.0.1/32@5' },
  { text: '10.0.0.7/24@5', key: '10.0.0.0/24@5' },
  { text: '10.0.0.1@511', key: '10.0.0.1@511' },
  { text: '0.0.0.0/0@511', key: '0.0.0.0/0@511' },
  { text: 'FD00:0::1@5', key: 'fd00::1@5' },
  { text: 'fd00::1/128@5', key: 'fd00::1/128@5' },
];

export const KEYS: readonly string[] = [...new Set(SPELLINGS.map(({ key }) => key))];
export const ADDRESSES: readonly string[] = [
  '10.0.0.1',
  '10.0.0.2',
  '10.0.0.3',
  '10.0.0.0',
  '11.0.0.1',
  'fd00::1',
  'fe80::1',
  '10.0.0.1@5',
  '10.0.0.2@5',
  '10.1.0.1@5',
  '10.0.0.1@511',
  '10.0.0.1@7',
  'fd00::1@5',
  'fd00::2@5',
];

const PODS: readonly (K8sMetadata | undefined)[] = [
  undefined,
  { namespace: 'shop', podName: 'a' },
  { namespace: 'shop', podName: 'b', namedPorts: new Map([['http', { port: 80, protocol: 6 }]]) },
  { namespace: 'shop', podName: 'b', namedPorts: new Map([['http', { port: 8080, protocol: 6 }]]) },
  { namespace: 'shop', podName: 'a', serviceAccount: 'web' },
  { namespace: 'shop', podName: 'a', serviceAccount: '' },
  { namespace: '', podName: '', serviceAccount: 'web' },
  { namespace: '', podName: '' },
];

/** One call, or several in a batch that may throw at its end. */
export type Operation =
  | { readonly op: 'upsert'; readonly at: Spelling; readonly claim: Claim }
  | {
      readonly op: 'delete';
      readonly at: Spelling;
      readonly by: Writer;
      readonly ifPod: K8sMetadata | undefined;
    }
  | { readonly op: 'withdraw'; readonly by: Writer }
  | { readonly op: 'batch'; readonly operations: readonly Operation[]; readonly throws: boolean };

const writer: fc.Arbitrary<Writer> = fc.record({
  source: fc.constantFrom('local', 'kvstore', 'k8s', 'clustermesh', 'generated'),
  owner: fc.constantFrom(undefined, 'baltic', 'atlantic'),
});

const claim: fc.Arbitrary<Claim> = fc
  .record({
    writer,
    identity: fc.constantFrom(100, 200, 300),
    hostIP: fc.constantFrom(undefined, '192.168.0.1', 'fd01::1'),
    encryptKey: fc.constantFrom(0, 0, 7),
    k8s: fc.constantFrom(...PODS),
  })
  .map(({ writer, ...rest }) => ({ ...writer, ...rest }));

const at = fc.constantFrom(...SPELLINGS);

const single: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant('upsert' as const), at, claim }) },
  {
    weight: 4,
    arbitrary: fc.record({
      op: fc.constant('delete' as const),
      at,
      by: writer,
      ifPod: fc.constantFrom(undefined, undefined, PODS[1], PODS[2]),
    }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('withdraw' as const), by: writer }) },
);

function batchOf(part: fc.Arbitrary<Operation>): fc.Arbitrary<Operation> {
  return fc.record({
    op: fc.constant('batch' as const),
    operations: fc.array(part, { maxLength: 8 }),
    throws: fc.boolean(),
  });
}

/** A batch, some of whose parts are batches. */
export const batch: fc.Arbitrary<Operation> = batchOf(
  fc.oneof({ weight: 6, arbitrary: single }, { weight: 1, arbitrary: batchOf(single) }),
);

/** Histories over few keys, writers and values: collisions of every kind are common. */
export const history: fc.Arbitrary<readonly Operation[]> = fc.array(
  fc.oneof({ weight: 6, arbitrary: single }, { weight: 1, arbitrary: batch }),
  { minLength: 1, maxLength: 24, size: 'max' },
);

export const singles: fc.Arbitrary<readonly Operation[]> = fc.array(single, {
  minLength: 1,
  maxLength: 24,
  size: 'max',
});

const FAILURE = new Error('the batch fails');

/** Applies the operation to the cache. Returns its result. */
export function apply(cache: CacheUnderTest, operation: Operation): unknown {
  switch (operation.op) {
    case 'upsert':
      return cache.upsert(operation.at.text, operation.claim);
    case 'delete':
      return cache.delete(operation.at.text, { ...operation.by, ifPod: operation.ifPod });
    case 'withdraw':
      return cache.withdraw(operation.by);
    case 'batch':
      try {
        return cache.batch(() => {
          const outcomes = operation.operations.map((inner) => apply(cache, inner));
          if (operation.throws) throw FAILURE;
          return outcomes;
        });
      } catch (error) {
        if (error !== FAILURE) throw error;
        return 'threw';
      }
  }
}

/** Applies the operation to the model. */
export function applyNaively(model: NaiveIPCache, operation: Operation): unknown {
  switch (operation.op) {
    case 'upsert':
      return model.upsert(operation.at.key, operation.claim);
    case 'delete':
      return model.delete(operation.at.key, operation.by, operation.ifPod);
    case 'withdraw':
      return model.withdraw(operation.by);
    case 'batch': {
      const { operations, throws } = operation;
      const outcomes = model.batch(() => operations.map((inner) => applyNaively(model, inner)), throws);
      return throws ? 'threw' : outcomes;
    }
  }
}
