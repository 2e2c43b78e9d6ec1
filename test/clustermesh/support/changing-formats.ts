import type { Random } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import type { EndpointSlicesExportMode } from '../../../src/kvstore/codec/cluster-config.ts';
import {
  clusterConfigKey,
  endpointSliceKey,
  serviceKey,
  syncedKey,
} from '../../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { KvstoreMesh } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { until } from '../../base/support/until.ts';
import { pick } from '../../kvstore/chaos/support/seeded-random.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { ClusterEtcd } from './cluster-etcd.ts';
import { Agent, OWN, sliceValue } from './mesh-world.ts';

const ID = 1;
const SERVICES: readonly string[] = ['s0', 's1'];
const MODES: readonly { readonly mode: EndpointSlicesExportMode | undefined }[] = [
  { mode: undefined },
  { mode: 'services-and-endpointslices' },
  { mode: 'endpointslices-only' },
];
/** Faults of the link and of etcd that lose no data. */
const FAULTS = ['none', 'cut', 'down', 'black-hole', 'compact', 'idle-compact'] as const;
/** Backends of a service in addition to the one that it always has. */
const MAX_CHANGING = 5;
const NO_WRITE = 0.3;

type Format = 'services' | 'endpointslices';

/** Numbers of the cycles until now. */
export interface ChangingFigures {
  readonly writes: number;
  readonly flips: number;
  /** Announced states of services, of all agents. */
  readonly states: number;
  /** States without a backend that the cluster had all the time. */
  readonly lost: number;
  /** Announced addresses that the cluster has never exported, and those that an agent kept after a cycle. */
  readonly phantom: number;
}

/**
 * A cluster on a real etcd that changes the formats of its services, and two agents behind a link that fails: one reads
 * slices only if it must, the other whenever it can.
 */
export class ChangingFormats {
  readonly #etcd: ClusterEtcd;
  readonly #random: Random;
  readonly #agents: readonly Agent[];
  readonly #backends: EtcdBackend[] = [];
  /** The etcd that the agents read, if another process copies the cluster into it. */
  readonly #copy: { readonly etcd: EtcdProcess; readonly mesh: KvstoreMesh } | undefined;
  #mode: EndpointSlicesExportMode | undefined;
  /** The changing addresses of each service, besides the fixed one. */
  readonly #content = new Map<string, ReadonlySet<string>>(SERVICES.map((name) => [name, new Set()]));
  readonly #exported = new Set<string>();
  readonly #problems: string[] = [];
  #figures = { writes: 0, flips: 0, states: 0, lost: 0, phantom: 0 };

  private constructor(etcd: ClusterEtcd, random: Random, local: EtcdProcess | undefined) {
    this.#etcd = etcd;
    this.#random = random;
    if (local !== undefined) {
      const runtime = { clusterName: OWN, clusterID: 9, clock: systemClock, random };
      const mesh = new KvstoreMesh({ ...runtime, local: this.#connect(local.url) });
      this.#copy = { etcd: local, mesh };
    }
    this.#agents = (['auto', 'slices'] as const).map(
      (serviceV2) => new Agent(systemClock, (options) => new ClusterMesh({ ...options, serviceV2 })),
    );
  }

  /**
   * Starts a cluster that exports `services/v1`, and the agents.
   *
   * @param through `kvstoremesh`: the agents read a copy of the cluster in another etcd
   */
  static async start(
    random: Random,
    through: 'nothing' | 'kvstoremesh' = 'nothing',
  ): Promise<ChangingFormats> {
    const etcd = await ClusterEtcd.start('a', ID);
    const [local] = through === 'kvstoremesh' ? await startEtcd() : [];
    const world = new ChangingFormats(etcd, random, local);
    for (const name of SERVICES) await world.#change(name);
    void world.#copy?.mesh.add('a', () => world.#connect(etcd.url));
    for (const agent of world.#agents)
      await agent.mesh.add('a', () => world.#connect(local?.url ?? etcd.url));
    await world.#agree();
    for (const agent of world.#agents) agent.services.subscribe({ onEvents: () => world.#check(agent) });
    return world;
  }

  get figures(): ChangingFigures {
    return this.#figures;
  }

  /**
   * Runs a fault, changes the mode and the backends during it, and ends the fault. Returns a sentence for
   * each backend that an agent lost or invented.
   */
  async cycle(): Promise<{ readonly what: string; readonly problems: readonly string[] }> {
    const random = this.#random;
    const fault = pick(FAULTS, random);
    const { mode } = pick(MODES, random);
    const before = this.#mode;
    await this.#write();
    if (fault !== 'none') await this.#etcd.strike(fault, random);
    await this.#flip(mode);
    await this.#write();
    if (random() < 0.5) await this.#etcd.strike('cut', random);
    this.#etcd.heal();
    await this.#write();
    const rest = await this.#agree().catch((error: unknown) => String(error));
    if (rest !== undefined) {
      this.#figures.phantom++;
      this.#problems.push(rest);
    }
    return { what: `${before} to ${mode}, ${fault}`, problems: this.#problems.splice(0) };
  }

  async close(): Promise<void> {
    for (const agent of this.#agents) await agent.stop();
    await this.#copy?.mesh.stop();
    for (const backend of this.#backends) await backend.close();
    await this.#copy?.etcd.dispose();
    await this.#etcd.dispose();
  }

  #connect(url: string): EtcdBackend {
    const backend = new EtcdBackend({ endpoints: [url] });
    this.#backends.push(backend);
    return backend;
  }

  /**
   * Changes the mode like a cluster: new keys, their canary, the configuration; then deletes the old keys.
   */
  async #flip(mode: EndpointSlicesExportMode | undefined): Promise<void> {
    if (mode === this.#mode) return;
    this.#figures.flips++;
    const [old, next] = [formatsOf(this.#mode), formatsOf(mode)];
    const isConfiguredFirst = this.#random() < 0.5;
    if (isConfiguredFirst) await this.#configure(mode);
    this.#mode = mode;
    for (const format of next.filter((each) => !old.includes(each))) {
      for (const name of SERVICES) await this.#export(format, name);
      await this.#etcd.write(syncedKey('a', format), '2026-01-01T00:00:00Z');
    }
    if (!isConfiguredFirst) await this.#configure(mode);
    for (const format of old.filter((each) => !next.includes(each))) {
      await this.#etcd.write(syncedKey('a', format), undefined);
      for (const name of SERVICES) await this.#export(format, name, true);
    }
  }

  #configure(mode: EndpointSlicesExportMode | undefined): Promise<void> {
    const capabilities = { syncedCanaries: true, endpointSlicesExportMode: mode };
    return this.#etcd.write(clusterConfigKey('a'), { id: ID, capabilities });
  }

  async #write(): Promise<void> {
    for (const name of SERVICES) if (this.#random() > NO_WRITE) await this.#change(name);
  }

  async #change(name: string): Promise<void> {
    this.#figures.writes++;
    const addresses = Array.from({ length: Math.floor(this.#random() * MAX_CHANGING) }, () => {
      const n = Math.floor(this.#random() * 200);
      return `10.9.${SERVICES.indexOf(name)}.${n}`;
    });
    for (const address of addresses) this.#exported.add(address);
    this.#content.set(name, new Set(addresses));
    for (const format of formatsOf(this.#mode)) await this.#export(format, name);
  }

  /** Exports a service in a format, as two slices: that of the fixed backend, and that of the others. */
  async #export(format: Format, name: string, isDeleted = false): Promise<void> {
    const fixed = fixedAddress(name);
    const changing = [...(this.#content.get(name) ?? [])];
    if (format === 'services') {
      const backends = Object.fromEntries(
        [fixed, ...changing].map((address) => [address, { http: { Port: 80, Protocol: 'TCP' } }]),
      );
      const value = { cluster: 'a', namespace: 'ns', name, clusterID: ID, shared: true, backends };
      return this.#etcd.write(
        serviceKey({ cluster: 'a', namespace: 'ns', name }),
        isDeleted ? undefined : value,
      );
    }
    const slices = { [`${name}-fixed`]: [fixed], [`${name}-more`]: changing };
    for (const [slice, addresses] of Object.entries(slices)) {
      const named = { cluster: 'a', clusterID: ID, service: name, name: slice };
      const value = isDeleted ? undefined : sliceValue(named, addresses);
      await this.#etcd.write(endpointSliceKey({ cluster: 'a', namespace: 'ns', name: slice }), value);
    }
  }

  #check(agent: Agent): void {
    this.#figures.states++;
    for (const name of SERVICES) {
      const found = addressesOf(agent, name);
      if (!found.has(fixedAddress(name))) {
        this.#figures.lost++;
        this.#problems.push(`${name} lost ${fixedAddress(name)}`);
      }
      for (const address of found) {
        if (address === fixedAddress(name) || this.#exported.has(address)) continue;
        this.#figures.phantom++;
        this.#problems.push(`${name} got ${address}`);
      }
    }
  }

  /** Waits until every agent has exactly the exported backends. Rejects with the difference. */
  async #agree(): Promise<undefined> {
    for (const agent of this.#agents)
      await until('it has what its cluster exports', () => this.#difference(agent) === '').catch(() => {
        throw new Error(this.#difference(agent));
      });
  }

  /** Returns the backends and the state of an agent if they are not those that the cluster exports. */
  #difference(agent: Agent): string {
    const status = agent.mesh.statusOf('a');
    const isSame = SERVICES.every((name) => {
      const expected = [fixedAddress(name), ...(this.#content.get(name) ?? [])];
      const found = addressesOf(agent, name);
      return found.size === expected.length && expected.every((address) => found.has(address));
    });
    if (isSame && status?.state === 'ready') return '';
    const found = SERVICES.map((name) => [
      name,
      [...addressesOf(agent, name)],
      [...(this.#content.get(name) ?? [])],
    ]);
    return JSON.stringify({ found, status });
  }
}

function formatsOf(mode: EndpointSlicesExportMode | undefined): readonly Format[] {
  if (mode === undefined) return ['services'];
  return mode === 'endpointslices-only' ? ['endpointslices'] : ['services', 'endpointslices'];
}

function fixedAddress(service: string): string {
  return `10.1.0.${SERVICES.indexOf(service) + 1}`;
}

function addressesOf(agent: Agent, name: string): ReadonlySet<string> {
  return new Set(agent.services.get({ namespace: 'ns', name })?.endpoints.backends.keys());
}
