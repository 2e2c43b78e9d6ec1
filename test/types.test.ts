import { describe, expectTypeOf, it } from 'vitest';
import { encodeIdentityNumber } from '../src/formats.ts';
import {
  type ChangeBatch,
  type Claim,
  createBackend,
  createEndpointSlice,
  createService,
  type DeleteOutcome,
  type IPCache,
  type IPCacheEntry,
  type IPCacheListener,
  type IPCacheStatus,
  type KvstoreBackend,
  type NodeHandler,
  type NodeManager,
  type NodeSpec,
  type NodeUpdateOutcome,
  type NumericIdentity,
  type OwnerListener,
  parseService,
  RESERVED_IDENTITIES,
  type Service,
  type ServiceCache,
  type ServiceListener,
  type Source,
  type Unsubscribe,
  type UpsertOutcome,
} from '../src/index.ts';

// Checks of types by the compiler. At run time only the functions that make values run.

describe('an outcome', () => {
  it('is one of its words', () => {
    expectTypeOf<ReturnType<IPCache['upsert']>>().toEqualTypeOf<UpsertOutcome>();
    expectTypeOf<UpsertOutcome>().toEqualTypeOf<
      'applied' | 'unchanged' | 'overruled' | 'invalid' | 'capacity'
    >();
    expectTypeOf<DeleteOutcome>().toEqualTypeOf<'applied' | 'not-found' | 'not-owner' | 'invalid'>();
    expectTypeOf<ReturnType<NodeManager['nodeUpdated']>>().toEqualTypeOf<NodeUpdateOutcome>();
    expectTypeOf<NodeUpdateOutcome>().not.toEqualTypeOf<string>();
  });

  it('narrows: a batch of changes has changes, a resync a snapshot, and neither the other', () => {
    expectTypeOf<Extract<ChangeBatch, { kind: 'changes' }>>().not.toHaveProperty('snapshot');
    expectTypeOf<Extract<ChangeBatch, { kind: 'resync' }>>().not.toHaveProperty('changes');
    const parsed = parseService({});
    if (parsed.value !== undefined) expectTypeOf(parsed.value).toEqualTypeOf<Service>();
  });
});

describe('a listener', () => {
  it('is synchronous: an async function does not type-check', () => {
    type Async = () => Promise<void>;
    expectTypeOf<Async>().not.toExtend<IPCacheListener['onChanges']>();
    expectTypeOf<Async>().not.toExtend<NonNullable<IPCacheListener['onSynced']>>();
    expectTypeOf<Async>().not.toExtend<OwnerListener['onOwnerChanges']>();
    expectTypeOf<Async>().not.toExtend<ServiceListener['onEvents']>();
    expectTypeOf<() => PromiseLike<number>>().not.toExtend<ServiceListener['onEvents']>();
  });

  it('may return anything else, so that a short function needs no braces', () => {
    expectTypeOf<() => void>().toExtend<IPCacheListener['onChanges']>();
    expectTypeOf<() => number>().toExtend<IPCacheListener['onChanges']>();
    expectTypeOf<() => Set<string>>().toExtend<IPCacheListener['onChanges']>();
    expectTypeOf<() => Unsubscribe>().toExtend<ServiceListener['onEvents']>();
  });

  it('of nodes is a handler, and may be asynchronous', () => {
    expectTypeOf<() => Promise<void>>().toExtend<NodeHandler['nodeAdd']>();
    expectTypeOf<() => void>().toExtend<NodeHandler['nodeAdd']>();
  });

  it('is ended by a call or by `using`', () => {
    expectTypeOf<ReturnType<ServiceCache['subscribe']>>().toExtend<(() => void) & Disposable>();
  });
});

describe('an identity', () => {
  it('is a number to writers, and branded to readers', () => {
    expectTypeOf<Claim['identity']>().toEqualTypeOf<number>();
    expectTypeOf<IPCacheEntry['identity']>().toEqualTypeOf<NumericIdentity>();
    expectTypeOf<NumericIdentity>().toExtend<number>();
    expectTypeOf<number>().not.toExtend<NumericIdentity>();
    expectTypeOf(encodeIdentityNumber).toBeCallableWith(RESERVED_IDENTITIES.host);
  });
});

describe('an argument', () => {
  it('may be native collections or arrays', () => {
    const id = { namespace: 'shop', name: 'checkout' };
    const port = { port: 80, protocol: 6, nodePort: 0 };
    const service = createService({
      id,
      ports: new Map([['http', port]]),
      externalIPs: new Set(['192.0.2.1']),
    });
    expectTypeOf(service).toEqualTypeOf<Service>();
    expectTypeOf(createService).toBeCallableWith({
      id,
      clusterIPs: ['172.16.0.1'],
      labels: [['app', 'shop']],
    });
    expectTypeOf(createBackend).toBeCallableWith({
      address: '10.0.0.1',
      ports: [],
      forZones: new Set(['a']),
    });
    expectTypeOf(createEndpointSlice).toBeCallableWith({ service: id, backends: [] });
  });

  it('names a source of the table, and no unknown one', () => {
    expectTypeOf<'k8s'>().toExtend<Source>();
    expectTypeOf<string>().not.toExtend<Source>();
    // @ts-expect-error: a field that is misspelt in a literal
    const claim: Claim = { identity: 1, source: 'k8s', hostIp: '10.0.0.1' };
    // @ts-expect-error: a node without a source
    const node: NodeSpec = { cluster: 'a', name: 'n' };
    void [claim, node];
  });
});

describe('a result', () => {
  it('is read-only', () => {
    const change = (entry: IPCacheEntry): void => {
      // @ts-expect-error: an entry is immutable
      entry.encryptKey = 1;
    };
    void change;
    expectTypeOf<ReturnType<IPCache['lookupByIdentity']>>().toEqualTypeOf<readonly string[]>();
  });
});

describe('a status', () => {
  it('is plain data: no Map, Set, bigint or function in it', () => {
    type Plain<T> = T extends string | number | boolean | null | undefined
      ? true
      : T extends readonly (infer E)[]
        ? Plain<E>
        : T extends
              | ((...args: never) => unknown)
              | ReadonlyMap<unknown, unknown>
              | ReadonlySet<unknown>
              | bigint
          ? false
          : { [K in keyof T]-?: Plain<T[K]> }[keyof T];
    expectTypeOf<Plain<IPCacheStatus>>().toEqualTypeOf<true>();
    expectTypeOf<Plain<ReturnType<NodeManager['status']>>>().toEqualTypeOf<true>();
    expectTypeOf<Plain<ReturnType<ServiceCache['status']>>>().toEqualTypeOf<true>();
    expectTypeOf<Plain<ReturnType<KvstoreBackend['status']>>>().toEqualTypeOf<true>();
  });
});
