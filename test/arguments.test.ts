import { describe, expect, it } from 'vitest';
import * as formats from '../src/formats.ts';
import * as api from '../src/index.ts';
import { systemClock, UsageError } from '../src/index.ts';
import * as kubernetes from '../src/kubernetes.ts';
import * as linux from '../src/linux.ts';
import * as shared from '../src/shared.ts';
import * as sysdump from '../src/sysdump.ts';
import * as testing from '../src/testing.ts';
import { ManualClock } from './base/support/manual-clock.ts';

const clock = new ManualClock();
const random = (): number => 0.5;
const ID = { namespace: 'shop', name: 'checkout' };
const NODE = { cluster: 'a', name: 'n', source: 'k8s' };

function ipcache(): api.IPCache {
  const cache = new api.IPCache();
  cache.upsert('10.1.2.3', { identity: 1234, source: 'kvstore' });
  return cache;
}

function services(): api.ServiceCache {
  const cache = new api.ServiceCache({ clusterName: 'a' });
  cache.updateService(api.createService({ id: ID, addressing: 'assigned', clusterIPs: ['172.16.0.1'] }));
  cache.updateEndpoints(api.createEndpointSlice({ service: ID, backends: [] }));
  return cache;
}

function nodes(): api.NodeManager {
  const manager = new api.NodeManager({ ipcache: ipcache(), clock, clusterName: 'a', nodeName: 'here' });
  manager.nodeUpdated({ ...NODE, source: 'k8s', addresses: [] });
  return manager;
}

const backend = new api.MemoryBackend({ clock, random });
const rejections = new api.RejectionLog();
const store = { backend, prefix: 'p/', clock, random, rejections };
const decode = (): api.Decoded<string> => ({ ok: true, value: 'x' });
const observer = { onUpdate: (): void => {}, onDelete: (): void => {} };
const none = (): void => {};
const unsubscribe = Object.assign((): void => {}, { [Symbol.dispose]: none });

function mesh(): api.ClusterMesh {
  return new api.ClusterMesh({ clusterName: 'a', clusterID: 1, clock, random, ipcache: ipcache() });
}

function ownCluster(): api.LocalCluster {
  return new api.LocalCluster({ clusterName: 'a', backend, clock, random });
}

function history(): api.History {
  const history = new api.History({ ipcache: ipcache(), clock });
  history.start();
  return history;
}

/** Returns a state folder that cannot exist, because a wrong call must not write anything. */
function folder(): api.StateFiles {
  return new api.StateFiles('/dev/null/nowhere');
}

/** A source without keys, which never changes. */
class EmptySource extends api.ReadOnlyBackend {
  protected list(): Promise<readonly api.SourceEntry[]> {
    return Promise.resolve([]);
  }

  protected async *changes(
    _prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<readonly api.SourceChange[]> {
    yield [];
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
  }
}

/** Creates an object of each public class for each call. */
const SUBJECTS: Readonly<Record<string, () => object>> = {
  Checkpointer: () =>
    new api.Checkpointer({ folder: folder(), clock, sections: () => [], stateVersion: () => 'unchanged' }),
  ClusterMesh: mesh,
  ConfigFolder: () => new api.ConfigFolder('/nowhere', () => backend),
  ConfigFollower: () =>
    new api.ConfigFollower({
      source: { list: async () => new Map(), watch: () => unsubscribe },
      mesh: mesh(),
      clock,
    }),
  EtcdBackend: () => new api.EtcdBackend({ endpoints: ['http://127.0.0.1:1'] }, { clock, random }),
  History: history,
  GarbageCollector: () =>
    new api.GarbageCollector({ collection: api.lockCollection(backend), clock, intervalMs: 1000 }),
  ClusterPublisher: () =>
    new api.ClusterPublisher({ backend, clock, random, clusterName: 'atlantic', clusterID: 1 }),
  Heartbeat: () => new api.Heartbeat({ backend, clock, random }),
  IPAM: () => new api.IPAM([[api.DEFAULT_POOL, ['10.1.0.0/16']]]),
  IPCache: ipcache,
  IPCacheSnapshot: () => ipcache().snapshot(),
  IdentityAllocator: () =>
    new api.IdentityAllocator({
      backend,
      clock,
      random,
      rejections,
      nodeSuffix: 'n',
      range: api.clusterIdentityRange(1, 255),
    }),
  IdentityResolver: () => new api.IdentityResolver({ local: ownCluster(), mesh: mesh() }),
  KvstoreHealth: () => new api.KvstoreHealth({ backend, clock }),
  MemoryBackend: () => new api.MemoryBackend({ clock, random }),
  MemoryServer: () => new api.MemoryServer({ clock }),
  NodeManager: nodes,
  LocalCluster: ownCluster,
  Prefix: () => api.Prefix.parse('10.1.0.0/16') ?? {},
  ReadOnlyBackend: () => new EmptySource({ kind: 'empty', clock, random }),
  RejectionLog: () => new api.RejectionLog(),
  Restoration: () =>
    new api.Restoration({
      ipcache: ipcache(),
      services: services(),
      nodes: nodes(),
      folder: folder(),
      clusterName: 'a',
      gate: new api.TurnGate({ clock: systemClock, nextTurn: setImmediate }),
    }),
  ServiceCache: services,
  ServiceStream: () => services().stream(),
  SharedLookup: () => new shared.SharedLookup(ipcache(), { maxBytes: 1 << 20 }),
  SharedStore: () => new api.SharedStore({ ...store, decode, observer }),
  StateFiles: folder,
  SyncStore: () => new api.SyncStore(store),
  TurnGate: () => new api.TurnGate({ clock: systemClock, nextTurn: setImmediate }),
  WatchStore: () => new api.WatchStore({ decode, observer, rejections }),
};

/** Members that are reachable at run time but not declared: protected or `@internal`. */
const UNDECLARED = new Set([
  ...['IPCache', 'IPCacheSnapshot'].flatMap((name) => [
    `${name}.visibleSlot`,
    `${name}.entryAt`,
    `${name}.keyAt`,
  ]),
  'History.loseIfTooLarge',
  'IPCache.claimsOfCovering',
  'SyncStore.receiveEventAt',
  ...['range', 'txn', 'txnInTurns', 'watch', 'grantLease', 'keepLeaseAlive', 'revokeLease'].map(
    (name) => `MemoryServer.${name}`,
  ),
]);

const VALUES = [
  ...[
    undefined,
    null,
    true,
    7,
    Number.NaN,
    'x',
    '10.1.2.3',
    'p/',
    none,
    [],
    {},
    [null],
    new Map(),
    new Uint8Array(1),
  ],
  ...[ID, NODE, { id: ID }, { service: ID }, { signal: 7 }, { source: 'k8s' }, { ...NODE, shared: true }],
];

const FURTHER = [null, 7, 'x', none, {}, { signal: 7 }];

/** Lists of arguments: none, one value, and one value followed by wrong ones. */
const ARGUMENTS: readonly (readonly unknown[])[] = [
  [],
  ...VALUES.map((value) => [value]),
  ...VALUES.flatMap((first) => FURTHER.map((second) => [first, second, second, second])),
];

function methodsOf(subject: object): readonly string[] {
  const methods = new Set<string>();
  for (let owner = subject; owner !== Object.prototype; owner = Object.getPrototypeOf(owner)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(owner)))
      if (typeof value === 'function' && name !== 'constructor') methods.add(name);
  }
  return [...methods];
}

/** Functions that change the host if their arguments are valid. */
const CHANGES_HOST: ReadonlySet<string> = new Set(['cleanHost', 'openHostDatapath']);

/** Abstract classes, and those that only this package constructs. */
function isAbstract(name: string): boolean {
  return [
    'CacheReads',
    'ClusterSet',
    'IPCacheSnapshot',
    'IdentityTraffic',
    'KvstoreClient',
    'Prefix',
  ].includes(name);
}

function isClass(value: unknown): value is { readonly prototype: object } {
  return typeof value === 'function' && Function.prototype.toString.call(value).startsWith('class');
}

/** Returns true for errors that JavaScript itself throws, such as for a property of `undefined`. */
function isRaw(error: unknown): boolean {
  return (
    [TypeError, RangeError, SyntaxError, ReferenceError].some((kind) => error instanceof kind) ||
    !(error instanceof Error)
  );
}

/** Makes wrong calls, uses their results for some steps, and collects the raw errors. */
class WrongCalls {
  readonly raw = new Map<string, string>();
  readonly #pending: Promise<unknown>[] = [];

  call(name: string, subject: () => object, method: string): void {
    for (const args of ARGUMENTS) {
      const one = subject();
      this.guard(name, args, () => {
        this.#follow(name, args, Reflect.apply(Reflect.get(one, method), one, args));
        if ('status' in one && typeof one.status === 'function') JSON.stringify(one.status());
      });
    }
  }

  /** Collects the errors of pending promises. */
  async settle(): Promise<void> {
    const turns = async (): Promise<void> => {
      for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve));
    };
    await Promise.race([Promise.all(this.#pending), turns()]);
  }

  /** Runs a call and uses its result for some steps. */
  follow(name: string, args: readonly unknown[], run: () => unknown): void {
    this.guard(name, args, () => this.#follow(name, args, run()));
  }

  guard(name: string, args: readonly unknown[], run: () => unknown): void {
    try {
      run();
    } catch (error) {
      this.#seen(name, args, error);
    }
  }

  #seen(name: string, args: readonly unknown[], error: unknown): void {
    if (isRaw(error) && !this.raw.has(name))
      this.raw.set(
        name,
        `${args.map((arg) => JSON.stringify(arg) ?? String(arg)).join(', ')}: ${String(error)}`,
      );
  }

  #follow(name: string, args: readonly unknown[], result: unknown): void {
    if (typeof result !== 'object' || result === null) return;
    const note = (error: unknown): void => this.#seen(name, args, error);
    if (result instanceof Promise) this.#pending.push(result.then(none, note));
    else if (Symbol.asyncIterator in result && Symbol.iterator in Object(result) === false) {
      const iterable = result as AsyncIterable<unknown>;
      const iterator = iterable[Symbol.asyncIterator]();
      this.#pending.push(
        iterator
          .next()
          .then(() => iterator.return?.())
          .then(none, note),
      );
    } else if ('next' in result && typeof result.next === 'function') {
      for (let i = 0; i < 3; i++) result.next();
    }
  }
}

const CLASSES = Object.entries({ ...api, ...formats, ...shared }).filter(
  ([, value]) => isClass(value) && !(value.prototype instanceof Error),
);

describe('a public method that is called with wrong arguments', () => {
  it('is tried on every public class', () => {
    expect(CLASSES.map(([name]) => name).sort()).toEqual(Object.keys(SUBJECTS).sort());
  });

  const subjects = { ...SUBJECTS, PastReader: () => history().past };

  it.each(Object.entries(subjects))('gives an outcome or an error of ours: %s', async (name, subject) => {
    const calls = new WrongCalls();
    for (const method of methodsOf(subject())) {
      if (!UNDECLARED.has(`${name}.${method}`)) calls.call(`${name}.${method}`, subject, method);
    }
    await calls.settle();
    expect(Object.fromEntries(calls.raw)).toEqual({});
  });
});

/** All public values. */
const VALUES_BY_NAME: Readonly<Record<string, unknown>> = {
  ...api,
  ...formats,
  ...shared,
  ...kubernetes,
  ...linux,
  ...sysdump,
  ...testing,
};

const ERRORS = Object.entries(VALUES_BY_NAME).flatMap(([name, value]) =>
  isClass(value) && value.prototype instanceof Error ? [[name, value] as const] : [],
);
const CONSTRUCTORS = Object.entries(VALUES_BY_NAME).flatMap(([name, value]) =>
  isClass(value) && !(value.prototype instanceof Error) && !isAbstract(name) ? [[name, value] as const] : [],
);
const FUNCTIONS = Object.entries(VALUES_BY_NAME).flatMap(([name, value]) =>
  typeof value === 'function' && !isClass(value) && !CHANGES_HOST.has(name) ? [[name, value] as const] : [],
);

describe('a public error', () => {
  it.each(ERRORS)('%s has its name and a code', (name, error) => {
    const thrown: unknown = Reflect.construct(error as new () => unknown, ['code', 'message', 7]);
    expect(thrown).toMatchObject({ name, code: expect.any(String) });
  });
});

describe('a public constructor that is called with wrong arguments', () => {
  it.each(CONSTRUCTORS)('makes an object or throws an error of ours: %s', async (name, constructed) => {
    const calls = new WrongCalls();
    for (const args of ARGUMENTS)
      calls.guard(name, args, () => Reflect.construct(constructed as new () => unknown, [...args]));
    await calls.settle();
    expect(Object.fromEntries(calls.raw)).toEqual({});
  });

  it.each([
    ['IPCache', { maxEntries: Number.NaN }, 'options.maxEntries must be at least 0, not NaN'],
    ['IPCache', { maxWaiting: -1 }, 'options.maxWaiting must be at least 0, not -1'],
    ['IPCache', { replayChunk: '9' }, 'options.replayChunk must be at least 1, not "9"'],
    ['IPCache', { onReject: {} }, 'options.onReject must be a function, not {}'],
    ['IPCache', null, 'options must be an object, not null'],
    ['ServiceCache', {}, 'options.clusterName must be a string, not undefined'],
    [
      'ServiceCache',
      { clusterName: 'a', nodePort: { enabled: true, ipv4: '10.0.0.1' } },
      'options.nodePort.ipv4 must be a list, not "10.0.0.1"',
    ],
    ['NodeManager', {}, 'options.ipcache must be an object, not undefined'],
    [
      'NodeManager',
      { ipcache: new api.IPCache(), clusterName: 'a', nodeName: 'n', underlay: 'IPv4' },
      'options.underlay must be one of ipv4, ipv6, not "IPv4"',
    ],
    ['ClusterMesh', { clusterName: 'a' }, 'options.clusterID must be a number, not undefined'],
    ['LocalCluster', { clusterName: 'a' }, 'options.backend must be an object, not undefined'],
    ['KubernetesFeed', {}, 'options.source must be an object, not undefined'],
    ['KubernetesClient', {}, 'access.server must be a string, not undefined'],
    ['EtcdBackend', {}, 'config.endpoints must be iterable, not undefined'],
    ['History', {}, 'options.ipcache must be an object, not undefined'],
    ['SharedLookup', undefined, 'ipcache must be an object, not undefined'],
    ['TurnGate', {}, 'options.nextTurn must be a function, not undefined'],
    ['Heartbeat', {}, 'options.backend must be an object, not undefined'],
  ])('names the option and its value: %s %j', (name, options, message) => {
    const constructed = VALUES_BY_NAME[name];
    const call = (): unknown => Reflect.construct(constructed as new () => unknown, [options]);
    expect(call).toThrow(new UsageError('invalid-argument', `new ${name}: ${message}`));
  });
});

describe('a public function that is called with wrong arguments', () => {
  it.each(FUNCTIONS)('gives an outcome or an error of ours: %s', async (name, run) => {
    const calls = new WrongCalls();
    for (const args of ARGUMENTS)
      calls.follow(name, args, () => Reflect.apply(run as () => unknown, undefined, args));
    await calls.settle();
    expect(Object.fromEntries(calls.raw)).toEqual({});
  });

  it.each([...CHANGES_HOST])('rejects a wrong type: %s', (name) => {
    const run = VALUES_BY_NAME[name] as (...args: unknown[]) => unknown;
    for (const value of [undefined, null, 7, {}, []]) expect(() => run(value, value)).toThrow(UsageError);
  });
});
