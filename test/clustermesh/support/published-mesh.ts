import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Agent } from '../../../src/agent/agent.ts';
import type { AgentOptions } from '../../../src/agent/options.ts';
import type { ClusterDocument } from '../../../src/api/status-document.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { clusterStateText } from '../../../src/client/cluster-text.ts';
import { stateDocument } from '../../../src/client/state-document.ts';
import { formatLabels } from '../../../src/model/labels.ts';
import { createLog } from '../../../src/process/log.ts';
import { NO_INPUTS } from '../../agent/support/agent-under-test.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { bundle } from '../../base/support/bundle.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import { BUNDLED, Publisher } from './publisher.ts';

/** Returns the state of an agent, a text for each item: an IP, a node, the backends of a service, an identity. */
export type Known = ReadonlyMap<string, string>;

const CLUSTERS = { own: 9, remote: 1 } as const;
const SERVICES = Array.from({ length: 9 }, (_, i) =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: `s${i}`, namespace: 'ns', annotations: { 'service.cilium.io/global': 'true' } },
    spec: { type: 'ClusterIP', clusterIP: `172.16.0.${i + 1}`, ports: [{ name: 'http', port: 80 }] },
  }),
).join('\n---\n');

function known(agent: Agent): Known {
  const { ipcache, nodes, services } = stateDocument(agent.contents());
  const labels = Object.values(CLUSTERS)
    .flatMap((id) => Array.from({ length: 16 }, (_, i) => (id << 16) + 256 + i))
    .flatMap((id) => {
      const said = agent.labelsOf(id);
      return said === undefined ? [] : [[`identity ${id}`, formatLabels(said)] as const];
    });
  return new Map([
    ...Object.entries(ipcache).map(([key, value]) => [`ip ${key}`, JSON.stringify(value)] as const),
    ...nodes.map((node) => [`node ${node.cluster}/${node.name}`, JSON.stringify(node)] as const),
    ...Object.entries(services).map(([key, value]) => [`service ${key}`, JSON.stringify(value)] as const),
    ...labels,
  ]);
}

/** Returns the items of `held` that are neither in the old nor in the new state. */
export function mixed(held: Known, before: Known, after: Known): readonly string[] {
  const keys = new Set([...held.keys(), ...before.keys(), ...after.keys()]);
  return [...keys].filter((key) => {
    const value = held.get(key);
    return value !== before.get(key) && value !== after.get(key);
  });
}

/**
 * A local and a remote cluster on real etcds, each written by a separate process under one lease, and an
 * agent that follows them.
 */
export class PublishedMesh {
  readonly #etcds: ReadonlyMap<keyof typeof CLUSTERS, EtcdProcess>;
  /** Options of an agent that follows both clusters, and the same as command-line arguments. */
  readonly options: AgentOptions;
  readonly words: readonly string[];
  readonly logged: string[] = [];
  readonly #agent: Agent;
  #publishers: readonly Publisher[] = [];
  /** The state after each change since the last {@link takeSeen}. */
  #seen: Known[] = [];

  private constructor(etcds: ReadonlyMap<keyof typeof CLUSTERS, EtcdProcess>) {
    this.#etcds = etcds;
    const config = (name: keyof typeof CLUSTERS): string => `endpoints: ["${etcds.get(name)?.url}"]\n`;
    const files = { 'mesh/remote': config('remote'), own: config('own'), 'services.yaml': SERVICES };
    const folder = temporaryFolder(files);
    const [kvstoreConfig, clustermeshConfig] = [join(folder, 'own'), join(folder, 'mesh')];
    const manifests = [join(folder, 'services.yaml')];
    this.options = { ...NO_INPUTS, kvstore: 'etcd', kvstoreConfig, clustermeshConfig, manifests };
    this.words = [
      ...['--cluster', 'own', '--kvstore', 'etcd', '--kvstore-config', kvstoreConfig],
      ...['--clustermesh-config', clustermeshConfig],
    ];
    this.#agent = this.#newAgent();
  }

  /** Both clusters, published as this version, and an agent that has synced. */
  static async start(version: number): Promise<PublishedMesh> {
    const names = ['own', 'remote'] as const;
    await bundle([fileURLToPath(new URL('publisher.ts', import.meta.url))], dirname(BUNDLED));
    const started = names.map(async (name) => {
      const [etcd] = await startEtcd();
      if (etcd === undefined) throw new Error('no etcd');
      return [name, etcd] as const;
    });
    const mesh = new PublishedMesh(new Map(await Promise.all(started)));
    await mesh.publish(version);
    const missing = await mesh.#agent.start(new AbortController().signal);
    if (missing.length > 0) throw new Error(missing.join('; '));
    mesh.#follow();
    return mesh;
  }

  /** Publishes this version, by new processes. Rejects if they are killed before it is published. */
  async publish(version: number): Promise<void> {
    this.#publishers = [...this.#etcds].map(
      ([cluster, { url }]) => new Publisher({ url, cluster, id: CLUSTERS[cluster], version }),
    );
    await Promise.all(this.#publishers.map(({ published }) => published));
  }

  /** Kills the processes that publish. */
  async kill(): Promise<void> {
    await Promise.all(this.#publishers.map((publisher) => publisher.kill()));
  }

  /** Resolves when the etcds are empty. */
  untilEmpty(): Promise<void> {
    return until('the leases have ended', async () => {
      const counts = [...this.#etcds.values()].map((etcd) =>
        etcd.ctl(['get', '--prefix', 'cilium', '--keys-only']),
      );
      return (await Promise.all(counts)).every((keys) => keys.trim() === '');
    });
  }

  /** Returns the states of the clusters as text, without times. */
  standing(): Readonly<Record<string, string>> {
    const text = (cluster: ClusterDocument): string =>
      clusterStateText(cluster).replace(/\d{4}-\S+Z/, 'TIME');
    return Object.fromEntries(this.#agent.status().clusters.map((each) => [each.name, text(each)]));
  }

  /** Resolves when every cluster has this state. */
  untilAll(standing: string): Promise<void> {
    return until(`all clusters: ${standing}`, () =>
      Object.values(this.standing()).every((text) => text === standing),
    );
  }

  get known(): Known {
    return known(this.#agent);
  }

  /** Returns the state after each change since the last call. */
  takeSeen(): readonly Known[] {
    return this.#seen.splice(0);
  }

  /** Returns the state of a new agent. */
  async coldStart(): Promise<Known> {
    const agent = this.#newAgent();
    try {
      const missing = await agent.start(new AbortController().signal);
      if (missing.length > 0) throw new Error(missing.join('; '));
      return known(agent);
    } finally {
      await agent.stop();
    }
  }

  async close(): Promise<void> {
    await this.#agent.stop();
    await this.kill();
    await Promise.all([...this.#etcds.values()].map((etcd) => etcd.dispose()));
  }

  #newAgent(): Agent {
    const log = createLog('warn', 'text', { write: (line) => this.logged.push(line.trimEnd()) });
    return new Agent(this.options, { log, clock: systemClock, random: Math.random });
  }

  #follow(): void {
    const { ipcache, services, nodes } = this.#agent;
    const look = (): void => void this.#seen.push(this.known);
    ipcache.subscribe({ onChanges: look });
    services.subscribe({ onEvents: look });
    nodes.subscribe({ name: 'test', nodeAdd: look, nodeUpdate: look, nodeDelete: look });
    this.#seen = [];
  }
}
