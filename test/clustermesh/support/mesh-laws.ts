import fc from 'fast-check';
import type { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import type { ConfigFile } from '../../../src/clustermesh/config-directory.ts';
import { ConfigFollower } from '../../../src/clustermesh/config-follower.ts';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { CLUSTER_CONFIG_PREFIX } from '../../../src/kvstore/codec/keys.ts';
import { MemoryServer, type ServerSnapshot } from '../../../src/kvstore/memory/memory-server.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';
import type { KeyValue } from '../../../src/kvstore/session/transport.ts';
import { formatServiceID } from '../../../src/servicecache/service-id.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { plain } from '../../servicecache/support/plain.ts';
import { FakeDirectory } from './fake-directory.ts';
import { Agent, coldStart, leaseEverything, newCluster, OWN, write } from './mesh-world.ts';

/** The remote clusters of the laws: `a` has id 1 at first, `b` 2, the local one 9. */
export const REMOTE = ['a', 'b'] as const;
export type Remote = (typeof REMOTE)[number];

/** One event of a mesh. */
export type Happening =
  | { readonly do: 'write'; readonly cluster: string; readonly key: string; readonly value: unknown }
  | { readonly do: 'id'; readonly cluster: Remote; readonly id: number }
  | { readonly do: Fault; readonly cluster: string }
  /**
   * Edits of the configuration directory: a new configuration, the same one again, none, half of one, an
   * unreadable one. `told`: if followers are notified.
   */
  | { readonly do: Edit; readonly cluster: Remote; readonly told: boolean }
  | { readonly do: 'pass'; readonly ms: number };

/** A {@link Happening}, or an event that only the mesh of a test supports. */
export type AnyHappening =
  | Happening
  | { readonly do: 'own'; readonly happen: (mesh: ClusterMesh) => void | Promise<void> };

const EDITS = ['add', 'touch', 'remove', 'tear', 'break'] as const;
export type Edit = (typeof EDITS)[number];

const cluster = fc.constantFrom(...REMOTE, OWN);
const remote = fc.constantFrom(...REMOTE);
const gone = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined, freq: 3 });

const ip = fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.0/24', '10.0.0.1/32', 'fd00::1');
const MASKS: Readonly<Record<string, string>> = { '10.0.0.0/24': '////AA==', '10.0.0.1/32': '/////w==' };
// In the range of cluster 1, of cluster 2, of the local one, reserved, and of no cluster.
const identity = fc.constantFrom(0x1_0100, 0x1_0200, 0x2_0100, 0x9_0100, 2, 0x7_0100, -1);

const ipWrite = fc
  .record({
    cluster,
    ip,
    value: gone(fc.record({ ID: identity, HostIP: fc.constantFrom('', '192.168.0.1', 'bad') })),
  })
  .map(
    ({ cluster: where, ip: name, value }): Happening => ({
      do: 'write',
      cluster: where,
      key: `cilium/state/ip/v1/default/${name}`,
      value: value && { IP: name.split('/')[0], Mask: MASKS[name] ?? null, ...value },
    }),
  );

const address = fc.constantFrom('192.168.0.1', '192.168.0.2', '10.0.0.2');
const nodeWrite = fc
  .record({ cluster, name: fc.constantFrom('n0', 'n1'), named: cluster, value: gone(address) })
  .map(
    ({ cluster: where, name, named, value }): Happening => ({
      do: 'write',
      cluster: where,
      key: `cilium/state/nodes/v1/${where}/${name}`,
      value: value && { Name: name, Cluster: named, IPAddresses: [{ Type: 'InternalIP', IP: value }] },
    }),
  );

const backend = fc.constantFrom('10.0.0.1', '10.0.0.2', 'none');
const serviceWrite = fc
  .record({ cluster: remote, name: fc.constantFrom('s0', 's1', 's2'), value: gone(backend) })
  .map(
    ({ cluster: where, name, value }): Happening => ({
      do: 'write',
      cluster: where,
      key: `cilium/state/services/v1/${where}/ns/${name}`,
      value: value && {
        cluster: where,
        namespace: 'ns',
        name,
        backends: { [value]: { http: { Port: 80, Protocol: 'TCP' } } },
      },
    }),
  );

const labels = fc.constantFrom('k8s:a=1;', 'k8s:a=2;', 'none');
const identityWrite = fc.record({ cluster, id: identity, value: gone(labels) }).map(
  ({ cluster: where, id, value }): Happening => ({
    do: 'write',
    cluster: where,
    key: `cilium/state/identities/v1/id/${id}`,
    value,
  }),
);

const LINK_FAULTS = ['cut', 'down', 'up', 'black-hole'] as const;
const SERVER_FAULTS = ['compact', 'idle-compact', 'backup', 'restore', 'die', 'replace', 'hang'] as const;

/**
 * Faults of a kvstore. `idle-compact`: all history is compacted after an unwatched write. `die`: the
 * publisher and its lease with every key. `replace`: by an empty etcd; a remote cluster by another one with a
 * new configuration file. `hang`: no client can be created. After the fault, dead or replaced clusters
 * publish most of their keys again.
 */
export type Fault = (typeof LINK_FAULTS | typeof SERVER_FAULTS)[number];
const FAULTS: readonly Fault[] = [...LINK_FAULTS, ...SERVER_FAULTS];

/** Generates one event. */
export const happening: fc.Arbitrary<Happening> = fc.oneof(
  { weight: 4, arbitrary: ipWrite },
  { weight: 3, arbitrary: nodeWrite },
  { weight: 3, arbitrary: serviceWrite },
  { weight: 2, arbitrary: identityWrite },
  { weight: 5, arbitrary: fc.record({ do: fc.constantFrom(...FAULTS), cluster }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom(...EDITS), cluster: remote, told: fc.boolean() }),
  },
  // Ids never conflict here, because the first cluster keeps a disputed id, so the result would depend on the
  // order.
  {
    weight: 1,
    arbitrary: fc.constantFrom<Happening>(
      { do: 'id', cluster: 'a', id: 1 },
      { do: 'id', cluster: 'a', id: 3 },
      { do: 'id', cluster: 'b', id: 2 },
      { do: 'id', cluster: 'b', id: 0 },
    ),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(0, 100, 5000, 30_000) }),
  },
);

/** Possible events, in any order. */
export const happenings: fc.Arbitrary<Happening[]> = fc.array(happening, { maxLength: 24, size: 'max' });

export type MakeMesh = NonNullable<ConstructorParameters<typeof Agent>[1]>;

const BROKEN: ConfigFile = { kind: 'unusable', reason: 'may not be read' };

/** Time after which the directory has been read, with or without a notification. */
const RESCANNED_MS = 61_000;

/** Returns the keys of a cluster that its publisher writes after a restart: most of them, the configuration last. */
export function publishedAgain<KV extends { readonly key: string }>(lost: readonly KV[]): readonly KV[] {
  const isConfig = ({ key }: KV): boolean => key.startsWith(CLUSTER_CONFIG_PREFIX);
  const isKept = ({ key }: KV, i: number): boolean => i % 3 > 0 || key.startsWith('cilium/synced/');
  return [...lost.filter((kv) => !isConfig(kv)).filter(isKept), ...lost.filter(isConfig)];
}

/**
 * Returns the state of one remote cluster in an agent, by the ends of its keys, regardless of whether it is effective
 * or shadowed, which depends on other clusters.
 */
export function heldOf({ ipcache, nodes, services, mesh }: Agent, name: string): ReadonlyMap<string, string> {
  const held = new Map<string, string>();
  for (const { key } of ipcache.entries({ includeShadowed: true })) {
    for (const { owner, key: of, identity, hostIP, encryptKey, k8s } of ipcache.explain(key)?.claims ?? [])
      if (owner === name) held.set(of, JSON.stringify({ identity, hostIP, encryptKey, k8s }));
  }
  for (const { fullName } of nodes.nodes()) {
    for (const node of nodes.explain(fullName)?.claims ?? [])
      if (node.source === 'clustermesh' && node.cluster === name)
        held.set(fullName, JSON.stringify(plain(node)));
  }
  for (const part of services.parts())
    if (part.kind === 'offer' && part.cluster === name) held.set(formatServiceID(part.id), '');
  for (const [id, labels] of mesh.identitiesOf(name)?.entries() ?? [])
    held.set(`id/${id}`, JSON.stringify(labels));
  return held;
}

/** Returns the keys that were removed, or changed although no one wrote them. */
export function takenAway(
  before: ReadonlyMap<string, string>,
  now: ReadonlyMap<string, string>,
  isWritten: boolean,
): readonly string[] {
  return [...before]
    .filter(([of, was]) => (isWritten ? !now.has(of) : now.get(of) !== was))
    .map(([of]) => of);
}

/** Returns true if a cluster that has lost everything may lose state after this event. */
export function mayTakeAway(what: AnyHappening): what is Extract<Happening, { readonly cluster: string }> {
  return ['id', 'restore', 'remove', 'tear'].includes(what.do);
}

export class World {
  readonly clock: ManualClock = new ManualClock();
  readonly servers: Map<string, MemoryServer> = new Map([
    ['a', newCluster(this.clock, 'a', 1)],
    ['b', newCluster(this.clock, 'b', 2)],
    [OWN, newCluster(this.clock, OWN, 9)],
  ]);
  readonly agent: Agent;
  readonly added: Set<Remote> = new Set();
  /** Lets time pass; `ms` may be 0. */
  pass = (ms: number): Promise<void> => advance(this.clock, ms);
  readonly #directory = new FakeDirectory();
  readonly #follower: ConfigFollower;
  #versions = 0;
  readonly #backups = new Map<string, ServerSnapshot>();
  /** Keys of clusters whose publisher has died. */
  readonly #lost = new Map<string, readonly KeyValue[]>();
  /** The state of remote clusters when they lost everything, unchanged since. */
  readonly #heldAtLoss = new Map<string, ReadonlyMap<string, string>>();
  readonly #written = new Set<string>();
  readonly #hanging = new Set<string>();

  constructor(makeMesh?: MakeMesh) {
    this.agent = new Agent(this.clock, makeMesh);
    const { mesh } = this.agent;
    this.#follower = new ConfigFollower({ source: this.#directory, mesh, clock: this.clock });
  }

  #server(name: string): MemoryServer {
    const server = this.servers.get(name);
    if (server === undefined) throw new Error(name);
    return server;
  }

  async start(): Promise<void> {
    this.agent.followOwn(this.#server(OWN));
    for (const name of REMOTE) this.#configure(name);
    await this.#follower.start();
  }

  async happen(what: AnyHappening): Promise<void> {
    if (mayTakeAway(what)) this.#heldAtLoss.delete(what.cluster);
    await this.#do(what);
    if (what.do === 'write') this.#written.add(what.cluster);
    for (const [name, held] of this.#heldAtLoss) {
      const gone = takenAway(held, heldOf(this.agent, name), this.#written.has(name));
      expectSame(gone, [], `after ${JSON.stringify(what)} is taken away`);
    }
  }

  async #do(what: AnyHappening): Promise<void> {
    switch (what.do) {
      case 'write':
        return write(this.#server(what.cluster), what.key, what.value);
      case 'id':
        return write(this.#server(what.cluster), `cilium/cluster-config/${what.cluster}`, {
          id: what.id,
          capabilities: { syncedCanaries: true },
        });
      case 'pass':
        return this.pass(what.ms);
      case 'own':
        return what.happen(this.agent.mesh);
      case 'add':
      case 'touch':
      case 'remove':
      case 'tear':
      case 'break':
        return this.#edit(what.do, what.cluster, what.told);
      default:
        return this.#fault(what.do, what.cluster);
    }
  }

  #edit(edit: Edit, name: Remote, told: boolean): void {
    if (edit === 'remove') {
      this.added.delete(name);
      this.#directory.write(name, undefined, { told });
    } else if (edit === 'add') this.#configure(name, { told });
    else if (edit === 'touch') this.#directory.write(name, this.#directory.files.get(name), { told });
    else if (this.added.has(name))
      this.#directory.write(name, edit === 'tear' ? { kind: 'other' } : BROKEN, { told });
  }

  #configure(name: Remote, options: { told: boolean } = { told: true }): void {
    this.added.add(name);
    const connect = (): KvstoreBackend | Promise<KvstoreBackend> =>
      this.#hanging.has(name) ? new Promise(() => {}) : this.agent.connect(name, this.#server(name));
    this.#directory.write(name, { kind: 'config', hash: String(++this.#versions), connect }, options);
  }

  async #fault(fault: Fault, name: string): Promise<void> {
    const server = this.#server(name);
    const link = this.agent.links.get(name)?.link;
    const backup = this.#backups.get(name);
    if (fault === 'cut') link?.cut();
    if (fault === 'down') link?.down();
    if (fault === 'up') link?.up();
    if (fault === 'black-hole') link?.blackHole();
    if (fault === 'compact') server.compact();
    if (fault === 'backup') this.#backups.set(name, server.snapshot());
    if (fault === 'restore' && backup !== undefined) server.restore(backup);
    if (fault === 'idle-compact') {
      write(server, 'unrelated', 'x');
      server.compact();
    }
    if (fault === 'hang') this.#hanging.add(name);
    if (fault === 'die' || fault === 'replace') await this.#lose(name, server, fault === 'replace');
  }

  /** Deletes every key of a cluster. Its state may not change until it is written again. */
  async #lose(name: string, server: MemoryServer, replace: boolean): Promise<void> {
    await settle(8);
    const { kvs } = server.range(prefixRange('cilium/'));
    this.#lost.set(name, [...(this.#lost.get(name) ?? []), ...kvs]);
    const isConfigured = kvs.some(({ key }) => key.startsWith(CLUSTER_CONFIG_PREFIX));
    const isRead = this.agent.mesh.statusOf(name)?.config !== undefined;
    this.#written.delete(name);
    const isToStay = ['config', 'unusable'].includes(this.#directory.files.get(name)?.kind ?? '');
    if (isConfigured && isRead && isToStay) this.#heldAtLoss.set(name, heldOf(this.agent, name));
    if (!replace) server.expireLease(leaseEverything(server));
    else if (name === OWN) server.restore(new MemoryServer({ clock: this.clock }).snapshot());
    else {
      this.agent.links.get(name)?.link.down();
      this.servers.set(
        name,
        new MemoryServer({ clock: this.clock, clusterID: `${name} ${++this.#versions}` }),
      );
      if (this.added.has(name as Remote)) this.#configure(name as Remote, { told: false });
    }
    await settle(4);
  }

  /** Restarts publishers with most of the earlier keys, unless they were written again in the meantime. */
  #publishAgain(): void {
    for (const [name, lost] of this.#lost) {
      const server = this.#server(name);
      const { kvs } = server.range(prefixRange('cilium/'));
      const there = new Set(kvs.map(({ key }) => key));
      const latest = new Map(lost.map((kv) => [kv.key, kv]));
      for (const { key, value } of publishedAgain([...latest.values()]))
        if (!there.has(key)) write(server, key, textOfBytes(value));
    }
  }

  /** Ends every fault, and waits for every backoff and deadline. */
  async heal(): Promise<void> {
    this.#heldAtLoss.clear();
    this.#hanging.clear();
    this.#publishAgain();
    for (const name of this.added) {
      if (this.#directory.files.get(name)?.kind !== 'config') this.#configure(name, { told: false });
    }
    await this.pass(RESCANNED_MS);
    for (const { link } of this.agent.links.values()) link.up();
    await this.pass(50_000);
    await settle(6);
  }

  async stop(): Promise<void> {
    await this.#follower.stop();
    await this.agent.stop();
  }

  /** The servers of the followed clusters. */
  followed(): ReadonlyMap<string, MemoryServer> {
    return new Map([...this.servers].filter(([name]) => name === OWN || this.added.has(name as Remote)));
  }
}

function expectSame(view: unknown, expected: unknown, what: string): void {
  const [left, right] = [JSON.stringify(view), JSON.stringify(expected)];
  if (left !== right) throw new Error(`${what}:\n${left}\nnot\n${right}`);
}

/** I9: after any events, when the faults have ended, the engines equal those of a new agent. */
export async function I9_reconnectIsColdStart(
  script: readonly AnyHappening[],
  makeMesh?: MakeMesh,
): Promise<void> {
  const world = new World(makeMesh);
  await world.start();
  for (const what of script) await world.happen(what);
  await world.heal();
  const view = world.agent.view();
  const fresh = await coldStart(world.clock, world.followed());
  await world.stop();
  expectSame(view, fresh, 'the engines hold');
}

/**
 * I10: a removed cluster leaves no claim, whatever its state and the faults of its connection: the remaining state
 * equals that of an agent that never followed it.
 */
export async function I10_noOrphans(script: readonly AnyHappening[], makeMesh?: MakeMesh): Promise<void> {
  const world = new World(makeMesh);
  await world.start();
  for (const what of script) await world.happen(what);
  await world.happen({ do: 'remove', cluster: 'a', told: true });
  await world.heal();
  const view = world.agent.view();
  const fresh = await coldStart(world.clock, world.followed());
  await world.stop();
  expectSame(view, fresh, 'after the cluster was removed, the engines hold');
}
