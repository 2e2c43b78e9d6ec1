import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { UsageError } from '../../../src/base/arguments.ts';
import { encodeIPIdentityPair } from '../../../src/kvstore/codec/ip-identity-pair.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { ipKey } from '../../../src/kvstore/codec/keys.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import type { LeaseID } from '../../../src/kvstore/session/transport.ts';
import { ClusterNameError } from '../../../src/model/cluster-name.ts';
import { parseLabels } from '../../../src/model/labels.ts';
import { ClusterPublisher } from '../../../src/operator/publish/cluster-publisher.ts';
import { PublishedPrefix } from '../../../src/operator/publish/published-prefix.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { heldOf } from '../../clustermesh/support/mesh-laws.ts';
import { Agent, coldStart } from '../../clustermesh/support/mesh-world.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const CLUSTER = 'a';
const ID = 1;

/** Objects of the cluster, by their name in a reader; each has two values. */
const THINGS = ['a/n0', 'a/n1', '10.0.0.1', '10.0.0.2', 'ns/s0', 'ns/s1', 'id/65792', 'id/65793'] as const;
type Thing = (typeof THINGS)[number];

function say(publisher: ClusterPublisher, thing: Thing, value: number): void {
  const [kind = '', name = ''] = thing.split('/');
  if (kind === 'a')
    publisher.upsertNode({
      name,
      encryptionKey: 0,
      nodeIdentity: 0,
      wireguardPubKey: '',
      bootID: `${value}`,
      addresses: [{ type: 'InternalIP', ip: `192.168.0.${name === 'n0' ? 1 : 2}` }],
      ipv4SecondaryAllocCIDRs: [],
      ipv6SecondaryAllocCIDRs: [],
      labels: new Map(),
      annotations: new Map(),
    });
  else if (kind === 'ns')
    publisher.upsertService({
      namespace: 'ns',
      name,
      frontends: new Map(),
      labels: new Map(),
      selector: new Map(),
      backends: new Map([[`10.1.0.${value}`, new Map([['http', { port: 80, protocol: 6 }]])]]),
      includeExternal: true,
      shared: true,
    });
  else if (kind === 'id') publisher.upsertIdentity(Number(name), parseLabels(`k8s:a=${value};`) ?? []);
  else publisher.upsertIP({ key: thing, identity: 65792 + value, encryptKey: 0 });
}

function unsay(publisher: ClusterPublisher, thing: Thing): void {
  const [kind = '', name = ''] = thing.split('/');
  if (kind === 'a') publisher.deleteNode(name);
  else if (kind === 'ns') publisher.deleteService({ namespace: 'ns', name });
  else if (kind === 'id') publisher.deleteIdentity(Number(name));
  else publisher.deleteIP(thing);
}

type Happening =
  | { readonly do: 'want'; readonly thing: Thing; readonly value: number | undefined }
  /** The process dies, immediately or after this number of writes. */
  | { readonly do: 'kill'; readonly writes: number }
  /** It is cut off from the kvstore without noticing. */
  | { readonly do: 'cut-off' }
  | { readonly do: 'reach' }
  | { readonly do: 'start' }
  /** Leases expire in their order. */
  | { readonly do: 'lose'; readonly all: boolean }
  | { readonly do: 'pass'; readonly ms: number };

const happenings = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        do: fc.constant('want' as const),
        thing: fc.constantFrom(...THINGS),
        value: fc.option(fc.constantFrom(1, 2), { nil: undefined, freq: 3 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('kill' as const), writes: fc.nat({ max: 14 }) }) },
    {
      weight: 4,
      arbitrary: fc.constantFrom<Happening>(
        { do: 'cut-off' },
        { do: 'reach' },
        { do: 'start' },
        { do: 'start' },
      ),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('lose' as const), all: fc.boolean() }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('pass' as const),
        ms: fc.constantFrom(0, 1000, 61_000, 545_000, 910_000),
      }),
    },
  ),
  { maxLength: 18, size: 'max' },
);

/** One life of the publishing process. */
class Life {
  readonly backend: FaultyMemoryBackend;
  readonly publisher: ClusterPublisher;
  readonly #stopped = new AbortController();
  readonly #running: Promise<void>;

  constructor(server: MemoryServer, clock: ManualClock, wanted: ReadonlyMap<Thing, number>) {
    const random = (): number => 0.5;
    this.backend = new FaultyMemoryBackend({ server, clock, random });
    this.publisher = new ClusterPublisher({
      backend: this.backend,
      clock,
      random,
      clusterName: CLUSTER,
      clusterID: ID,
    });
    this.#running = this.publisher.run(this.#stopped.signal);
    void this.#begin(wanted);
  }

  /** Wanted content is announced some time after the kvstore has been read, as if from elsewhere. */
  async #begin(wanted: ReadonlyMap<Thing, number>): Promise<void> {
    await settle(12);
    for (const [thing, value] of wanted) say(this.publisher, thing, value);
    void this.publisher.markSynced();
  }

  /** From now on none of its writes reaches the kvstore. */
  kill(): void {
    this.backend.link.down();
    this.#stopped.abort();
    void this.#running.then(() => this.backend.close({ keepLeases: true }));
  }
}

class World {
  readonly clock = new ManualClock();
  readonly server = new MemoryServer({ clock: this.clock, clusterID: CLUSTER });
  readonly reader = new Agent(this.clock);
  readonly wanted = new Map<Thing, number>();
  #life: Life | undefined;
  /** Items that the reader had after the last event and that have been wanted since. */
  #kept: ReadonlySet<string> = new Set();

  constructor() {
    const txn = this.server.txn.bind(this.server);
    this.server.txn = (request) => {
      const answer = txn(request);
      if (this.#writesLeft !== undefined && --this.#writesLeft < 0) this.#kill();
      return answer;
    };
  }

  #writesLeft: number | undefined;

  #kill(): void {
    this.#writesLeft = undefined;
    this.#life?.kill();
    this.#life = undefined;
  }

  async begin(): Promise<void> {
    this.#life = new Life(this.server, this.clock, this.wanted);
    await settle(6);
    await this.reader.add(CLUSTER, this.server);
    await settle(6);
  }

  async do(what: Happening): Promise<void> {
    if (what.do === 'want') {
      const { thing, value } = what;
      if (value === undefined) this.wanted.delete(thing);
      else this.wanted.set(thing, value);
      if (value === undefined) this.#kept = new Set([...this.#kept].filter((one) => one !== thing));
      const publisher = this.#life?.publisher;
      if (publisher !== undefined)
        value === undefined ? unsay(publisher, thing) : say(publisher, thing, value);
    } else if (what.do === 'kill') {
      if (what.writes === 0) this.#kill();
      else this.#writesLeft = what.writes;
    } else if (what.do === 'start') {
      this.#life ??= new Life(this.server, this.clock, this.wanted);
    } else if (what.do === 'cut-off') this.#life?.backend.link.down();
    else if (what.do === 'reach') this.#life?.backend.link.up();
    else if (what.do === 'lose') await this.#lose(what.all);
    else await advance(this.clock, what.ms);
    await settle(6);
    this.check(JSON.stringify(what));
  }

  /** Expires leases, that of the configuration first. */
  async #lose(all: boolean): Promise<void> {
    const leases = [...this.server.leases];
    const isFirst = (lease: LeaseID): boolean =>
      [...(this.server.snapshot().leases.get(lease)?.keys ?? [])].some((key) =>
        key.startsWith('cilium/cluster-config/'),
      );
    const first = leases.filter(isFirst);
    for (const lease of first) this.server.expireLease(lease);
    if (all) for (const lease of leases) if (!first.includes(lease)) this.server.expireLease(lease);
    await settle(6);
  }

  /** A reader never loses an item that it had and that is still wanted. */
  check(when: string): void {
    const held = new Set(heldOf(this.reader, CLUSTER).keys());
    const lost = [...this.#kept].filter((thing) => !held.has(thing));
    expect(lost, when).toEqual([]);
    this.#kept = new Set([...held].filter((thing) => this.wanted.has(thing as Thing)));
  }

  async end(): Promise<void> {
    this.#kill();
    const life = new Life(this.server, this.clock, this.wanted);
    await advance(this.clock, 61_000);
    this.check('the end');
    expect(life.publisher.status().synced).toBe(true);
    expect([...heldOf(this.reader, CLUSTER).keys()].sort()).toEqual([...this.wanted.keys()].sort());
    expect(this.reader.view()).toEqual(await coldStart(this.clock, new Map([[CLUSTER, this.server]])));
    const { kvs } = this.server.range(prefixRange('cilium/state/'));
    const services = [...this.wanted.keys()].filter((thing) => thing.startsWith('ns/'));
    expect(kvs.length).toBe(this.wanted.size + services.length); // a service has a slice, too
    life.kill();
    await this.reader.stop();
  }
}

async function run(script: readonly Happening[]): Promise<void> {
  const world = new World();
  await world.begin();
  for (const what of script) await world.do(what);
  await world.end();
}

// Each run takes minutes of simulated time, and about 100 ms of real time.
const { numRuns = 300 } = fc.readConfigureGlobal();
const RUNS = Math.ceil(numRuns / 8);

describe('a published cluster', () => {
  it('never loses an existing object for its readers, whenever the publisher dies and leases expire, and ends in the desired state', async () => {
    await fc.assert(fc.asyncProperty(happenings, run), { numRuns: RUNS });
  });
});

it('deletes the keys of a service that changes its address family, of a deleted service, and of a deleted export', async () => {
  const clock = new ManualClock();
  const server = new MemoryServer({ clock });
  const options = { clock, random: () => 0.5 };
  const backend = new FaultyMemoryBackend({ server, ...options });
  const publisher = new ClusterPublisher({
    backend,
    ...options,
    clusterName: CLUSTER,
    clusterID: ID,
    serviceExports: true,
  });
  const ended = new AbortController();
  const running = publisher.run(ended.signal);
  const id = { namespace: 'ns', name: 'web' };
  const publishAt = (address: string): void =>
    publisher.upsertService({
      ...id,
      frontends: new Map(),
      labels: new Map(),
      selector: new Map(),
      backends: new Map([[address, new Map([['http', { port: 80, protocol: 6 }]])]]),
      includeExternal: true,
      shared: true,
    });
  const keys = async (): Promise<readonly string[]> => {
    await advance(clock, 10_000);
    const { kvs } = server.range(prefixRange('cilium/state/'));
    return kvs.map(({ key }) => key.slice('cilium/state/'.length));
  };
  publisher.upsertServiceExport({
    ...id,
    createdAt: 0,
    type: 'ClusterSetIP',
    ports: [],
  });
  publishAt('10.1.0.1');
  void publisher.markSynced();
  const [service, exported] = ['services/v1/a/ns/web', 'serviceexports/v1/a/ns/web'];
  expect(await keys()).toEqual(['endpointslices/v1/a/ns/web-ipv4-0', exported, service]);
  publishAt('fd00::1');
  expect(await keys()).toEqual(['endpointslices/v1/a/ns/web-ipv6-0', exported, service]);
  publisher.deleteService(id);
  expect(await keys()).toEqual([exported]);
  // The slices of a deleted service are forgotten: a cluster with ever new services would need ever more memory.
  const deleted = vi.spyOn(PublishedPrefix.prototype, 'delete');
  publisher.deleteService(id);
  expect(deleted.mock.calls).toEqual([['ns/web']]);
  publisher.deleteServiceExport(id);
  expect(await keys()).toEqual([]);
  ended.abort();
  await running;
  await backend.close();
});

it('publishes a node and a service without optional fields like those with the zero values', async () => {
  const clock = new ManualClock();
  const keysOf = async (publish: (publisher: ClusterPublisher) => void): Promise<readonly unknown[]> => {
    const backend = new FaultyMemoryBackend({ clock });
    const publisher = new ClusterPublisher({ backend, clusterName: CLUSTER, clusterID: ID, clock });
    const end = new AbortController();
    const running = publisher.run(end.signal);
    publish(publisher);
    void publisher.markSynced();
    await settle(50);
    const found = [...(await backend.listPrefix('cilium/state/'))];
    end.abort();
    await running;
    await backend.close();
    return found.map(({ key, value }) => [key, Buffer.from(value).toString()]);
  };
  const frontends = new Map([['172.16.0.1', new Map([['http', { port: 80, protocol: 6 }]])]]);
  const service = { namespace: 'ns', name: 's', frontends, backends: new Map() };
  const short = await keysOf((publisher) => {
    publisher.upsertNode({ name: 'n0' });
    publisher.upsertService(service);
  });
  const long = await keysOf((publisher) => {
    publisher.upsertNode({
      name: 'n0',
      addresses: [],
      ipv4SecondaryAllocCIDRs: [],
      ipv6SecondaryAllocCIDRs: [],
      encryptionKey: 0,
      labels: new Map(),
      annotations: new Map(),
      nodeIdentity: 0,
      wireguardPubKey: '',
      bootID: '',
    });
    const empty = new Map();
    publisher.upsertService({
      ...service,
      labels: empty,
      selector: empty,
      includeExternal: true,
      shared: true,
    });
  });
  expect(short).toEqual(long);
  expect(short).toContainEqual(['cilium/state/nodes/v1/a/n0', expect.stringContaining('"Name":"n0"')]);
  expect(short).toContainEqual([
    'cilium/state/services/v1/a/ns/s',
    expect.stringContaining('"includeExternal":true,"shared":true'),
  ]);
});

it('keeps the addresses of another cluster, whose kvstore was given by mistake', async () => {
  const clock = new ManualClock();
  const server = new MemoryServer({ clock });
  const options = { clock, random: () => 0.5 };
  const backend = new FaultyMemoryBackend({ server, ...options });
  const names = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'];
  for (const [index, identity] of [131_500, 0, 6, 65_800].entries()) {
    const key = names[index] ?? '';
    await backend.update(ipKey(key), encodeIPIdentityPair({ key, identity, encryptKey: 0 }));
  }
  const publisher = new ClusterPublisher({ backend, ...options, clusterName: CLUSTER, clusterID: ID });
  const ended = new AbortController();
  const running = publisher.run(ended.signal);
  publisher.upsertIP({ key: '10.0.0.5', identity: 65_801, encryptKey: 0 });
  void publisher.markSynced();
  await advance(clock, 10_000);
  const { kvs } = server.range(prefixRange(ipKey('')));
  // Only 131500 is an identity of another cluster.
  expect(kvs.map(({ key }) => key)).toEqual([ipKey('10.0.0.1'), ipKey('10.0.0.5')]);
  ended.abort();
  await running;
  await backend.close();
});

it.each(['', 'A', 'a_b', '-a', 'a-', 'a.b', 'a/b', 'a'.repeat(33)])(
  'does not publish a cluster that is named %j',
  (clusterName) => {
    const backend = new FaultyMemoryBackend({
      server: new MemoryServer({ clock: new ManualClock() }),
      clock: new ManualClock(),
      random: () => 0.5,
    });
    const publisher = (): unknown => new ClusterPublisher({ backend, clusterName, clusterID: ID });
    expect(publisher).toThrow(ClusterNameError);
    expect(publisher).toThrow(`clusterName ${JSON.stringify(clusterName)} must have at most 32 characters`);
  },
);

it.each([
  [0, undefined, '1 to 255'],
  [256, undefined, '1 to 255'],
  [-3, undefined, '1 to 255'],
  [1.5, undefined, '1 to 255'],
  [512, 511, '1 to 511'],
] as const)(
  'does not publish a cluster with the id %s of at most %s',
  (clusterID, maxConnectedClusters, range) => {
    const clock = new ManualClock();
    const backend = new FaultyMemoryBackend({ server: new MemoryServer({ clock }), clock });
    const options = { backend, clusterName: CLUSTER, clock, maxConnectedClusters };
    expect(() => new ClusterPublisher({ ...options, clusterID })).toThrow(
      new UsageError(
        'invalid-argument',
        `new ClusterPublisher: options.clusterID must be an integer from ${range}, not ${clusterID}`,
      ),
    );
    expect(() => new ClusterPublisher({ ...options, clusterID: maxConnectedClusters ?? 255 })).not.toThrow();
  },
);

it('rejects an identity that Cilium would ignore: a reserved number, and one without labels', () => {
  const clock = new ManualClock();
  const backend = new FaultyMemoryBackend({ server: new MemoryServer({ clock }), clock });
  const onReject = vi.fn();
  const publisher = new ClusterPublisher({ backend, clusterName: CLUSTER, clusterID: ID, clock, onReject });
  const labels = parseLabels('k8s:app=web;') ?? [];
  publisher.upsertIdentity(65_801, labels);
  expect(publisher.status().resources.identities).toMatchObject({ keys: 1, rejected: 0 });
  publisher.upsertIdentity(65_801, []); // no longer published
  publisher.upsertIdentity(0, labels);
  publisher.upsertIdentity(255, labels);
  publisher.upsertIdentity(256, labels); // in the range of no mesh
  publisher.upsertIdentity(-1, labels);
  publisher.upsertIdentity(1.5, labels); // regression: the message was that it is reserved
  const at = 'cilium/state/identities/v1/id/';
  expect(onReject.mock.calls.map(([{ reason, message }]) => `${reason} ${message}`)).toEqual([
    `invalid-labels ${at}65801: labels "": must not be empty`,
    `identity-out-of-range ${at}0: key 0 is reserved`,
    `identity-out-of-range ${at}255: key 255 is reserved`,
    `identity-out-of-range ${at}256: key 256: must be reserved or in the range of the cluster, 65536 to 131071`,
    `invalid-key ${at}-1: key "-1" is not an identity number`,
    `invalid-key ${at}1.5: key "1.5" is not an identity number`,
  ]);
  expect(publisher.status().resources.identities).toMatchObject({ keys: 0, rejected: 6 });
});

it('a second run of a running publisher is rejected once, and the first one continues', async () => {
  const clock = new ManualClock();
  const server = new MemoryServer({ clock });
  const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
  const onFailure = vi.fn();
  const publisher = new ClusterPublisher({ backend, clusterName: CLUSTER, clusterID: ID, clock, onFailure });
  const ended = new AbortController();
  const running = publisher.run(ended.signal);
  await expect(publisher.run(ended.signal)).rejects.toMatchObject({
    name: 'UsageError',
    code: 'invalid-call',
    message: 'run: the publisher is running already',
  });
  publisher.upsertIP({ key: '10.0.0.5', identity: 65_801, encryptKey: 0 });
  void publisher.markSynced();
  await advance(clock, 10_000);
  expect(onFailure).not.toHaveBeenCalled();
  expect(publisher.status().synced).toBe(true);
  ended.abort();
  await running;
  await publisher.run(AbortSignal.abort()); // a run after the end of the last one is allowed
  await backend.close();
});
