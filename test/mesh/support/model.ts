import { createHash } from 'node:crypto';
import { KEY } from './objects.ts';
import {
  type Addresses,
  type Cluster,
  identityOf,
  isPublished,
  labelsOf,
  nodeAddresses,
  type Pod,
  podAddresses,
  serviceAddresses,
  splitName,
  type World,
} from './world.ts';

/**
 * The inputs of an agent. `kvstore`: only the kvstores of all clusters. `kubernetes`: the API server of its cluster,
 * and the kvstores of the others. `both`: additionally the kvstore of its cluster. `kvstoremesh`: like `kubernetes`,
 * but from the copies of the other clusters.
 */
export const MODES = ['kvstore', 'kubernetes', 'both', 'kvstoremesh'] as const;

export type Mode = (typeof MODES)[number];

/** Returns true if an agent reads the services of remote clusters as slices, which contain the states of backends. */
export function readsSlices(mode: Mode): boolean {
  return mode === 'both';
}

/** The agent whose answers are expected. */
export interface Viewer {
  readonly cluster: string;
  readonly node: string;
  readonly mode: Mode;
}

/** All answers of an agent, as texts. */
export interface Answers {
  /** Identity, encryption key, host and pod of each prefix. */
  readonly prefixes: Readonly<Record<string, string>>;
  /** Labels of the identities of all clusters. */
  readonly identities: Readonly<Record<string, string>>;
  readonly nodes: Readonly<Record<string, string>>;
  /** The frontends and the backends of each service. */
  readonly services: Readonly<Record<string, readonly string[]>>;
}

/** Returns the text of a prefix. */
export function prefixText(identity: string, key: number, host = '', pod = ''): string {
  return [identity, `key ${key}`, host && `on ${host}`, pod].filter((part) => part !== '').join(' ');
}

/** Returns the text of the frontends of a service. An API server chooses the addresses of derived services. */
export function frontendText(
  name: string,
  addresses: readonly string[],
  port: string,
  nodePort: number | undefined,
): string {
  const places = name.startsWith('derived-') ? [] : addresses;
  return `at ${[...places, port, nodePort || ''].filter(Boolean).join(' ')}`;
}

function wholePrefix(ip: string): string {
  return `${ip}/${ip.includes(':') ? 128 : 32}`;
}

/** Returns the name of the Service that serves the exports of a name in all clusters. */
export function derivedName(fullName: string): string {
  const [namespace] = splitName(fullName);
  const hash = createHash('sha256').update(fullName).digest('hex');
  return `${namespace}/derived-${(BigInt(`0x${hash.slice(0, 13)}`) >> 2n).toString(32).padStart(10, '0')}`;
}

class Model {
  readonly #viewer: Viewer;
  /** The cluster of the agent, then the others that it follows. */
  readonly #clusters: readonly Cluster[];
  readonly #own: Cluster;

  constructor({ clusters }: World, viewer: Viewer) {
    const own = clusters[viewer.cluster];
    if (own === undefined) throw new Error(`no cluster ${viewer.cluster}`);
    this.#viewer = viewer;
    this.#own = own;
    this.#clusters = [own, ...[...own.remotes].flatMap((name) => clusters[name] ?? [])];
  }

  answers(): Answers {
    return {
      prefixes: Object.fromEntries([...this.#groups(), ...this.#pods(), ...this.#nodeAddresses()]),
      identities: Object.fromEntries(this.#identities()),
      nodes: Object.fromEntries(this.#nodes()),
      services: this.#hasKubernetes ? Object.fromEntries(this.#services()) : {},
    };
  }

  get #hasKubernetes(): boolean {
    return this.#viewer.mode !== 'kvstore';
  }

  /** True if the pods and identities of a cluster are read from its kvstore, or from a copy of it. */
  #isPublishedOnly(cluster: Cluster): boolean {
    return cluster !== this.#own || this.#viewer.mode === 'kvstore' || this.#viewer.mode === 'both';
  }

  #isViewer(cluster: Cluster, node: string): boolean {
    return cluster === this.#own && node === this.#viewer.node;
  }

  *#groups(): Iterable<readonly [string, string]> {
    if (!this.#hasKubernetes) return;
    for (const [name, cidrs] of Object.entries(this.#own.groups))
      for (const cidr of cidrs) {
        const world = cidr.includes(':') ? 'world-ipv6' : 'world-ipv4';
        yield [cidr, prefixText(`{cidrgroup:io.cilium.policy.cidrgroupname/${name}=;reserved:${world}=}`, 0)];
      }
  }

  *#pods(): Iterable<readonly [string, string]> {
    for (const cluster of this.#clusters)
      for (const [name, pod] of Object.entries(cluster.pods)) {
        const node = cluster.nodes[pod.node];
        if (node === undefined) continue;
        const [host] = nodeAddresses(cluster, node).internal;
        const isKnown = !this.#isPublishedOnly(cluster) || isPublished(cluster, name);
        const isLocal = this.#isViewer(cluster, pod.node) && this.#hasKubernetes;
        let text: string | undefined;
        if (isKnown && pod.phase !== 'creating')
          text = prefixText(
            String(identityOf(cluster, name, pod)),
            KEY,
            host,
            `${name} ${pod.app} http=8080/6`,
          );
        else if (isLocal) text = prefixText('unmanaged', KEY, host, `${name} http=8080/6`);
        if (text !== undefined) for (const ip of podAddresses(cluster, pod)) yield [wholePrefix(ip), text];
      }
  }

  *#nodeAddresses(): Iterable<readonly [string, string]> {
    for (const cluster of this.#clusters)
      for (const [name, node] of Object.entries(cluster.nodes)) {
        const { internal, router, health, ingress } = nodeAddresses(cluster, node);
        const [host] = internal;
        const identity = this.#isViewer(cluster, name) ? 'host' : 'remote-node';
        const isServer =
          node.isControlPlane === true && identity !== 'host' && cluster === this.#own && this.#hasKubernetes;
        const each = (ips: Addresses, text: string) => ips.map((ip) => [wholePrefix(ip), text] as const);
        yield* each(internal, prefixText(identity, 0, host));
        if (isServer) yield [wholePrefix(host), prefixText('kube-apiserver', 0, host)];
        yield* each(router, prefixText(identity, KEY, host));
        yield* each(health, prefixText('health', KEY, host));
        yield* each(ingress, prefixText('ingress', KEY, host));
      }
  }

  *#identities(): Iterable<readonly [string, string]> {
    for (const cluster of this.#clusters)
      for (const [name, pod] of Object.entries(cluster.pods))
        if (!this.#isPublishedOnly(cluster) || isPublished(cluster, name))
          yield [String(identityOf(cluster, name, pod)), labelsOf(cluster, name, pod).join(';')];
  }

  *#nodes(): Iterable<readonly [string, string]> {
    for (const cluster of this.#clusters)
      for (const [name, node] of Object.entries(cluster.nodes)) {
        const { internal, router, cidr } = nodeAddresses(cluster, node);
        yield [
          `${cluster.name}/${name}`,
          `id ${cluster.id} key ${KEY}: ${[...internal, ...router, ...cidr].join(' ')}`,
        ];
      }
  }

  *#services(): Iterable<readonly [string, readonly string[]]> {
    const own = this.#own;
    for (const [name, service] of Object.entries(own.services)) {
      const { isGlobal, affinity, nodePort } = service;
      const ofClusters = this.#clusters.filter((cluster) => {
        if (cluster === own) return true;
        const offer = cluster.services[name];
        return isGlobal && offer?.isGlobal && offer.isShared !== false && isPublished(cluster, name);
      });
      const frontend = frontendText(name, serviceAddresses(own, service), 'http=80', nodePort);
      yield [name, [frontend, ...this.#backends(name, ofClusters, affinity)]];
    }
    const exported = new Set(this.#clusters.flatMap((cluster) => exportsOf(cluster)));
    for (const name of exported)
      if (isPublished(own, name))
        yield [
          derivedName(name),
          [
            frontendText('derived-', [], 'http=80', undefined),
            ...this.#backends(
              name,
              this.#clusters.filter((cluster) => exportsOf(cluster).includes(name)),
            ),
          ],
        ];
    const servers = Object.values(own.nodes).filter(({ isControlPlane }) => isControlPlane);
    yield [
      'default/kubernetes',
      [
        frontendText('kubernetes', [`172.16.${own.id}.1`], 'https=443', undefined),
        ...servers.map((node) => `${nodeAddresses(own, node).internal[0]} https=6443/TCP`).sort(),
      ],
    ];
  }

  #backends(name: string, clusters: readonly Cluster[], affinity?: 'local' | 'remote'): readonly string[] {
    const all = clusters.flatMap((cluster) => {
      const backends = backendsOf(cluster, name);
      return cluster === this.#own || readsSlices(this.#viewer.mode) ? backends : withoutStates(backends);
    });
    const preferred = all.filter(({ cluster }) => (affinity === 'local') === (cluster === this.#own));
    const isPreferred = affinity !== undefined && preferred.some(({ isActive }) => isActive);
    return (isPreferred ? preferred : all)
      .flatMap(({ cluster, pod, isActive }) =>
        podAddresses(cluster, pod).map((ip) => {
          const state = isActive ? '' : ' terminating';
          return `${ip} http=8080/TCP${state}${cluster === this.#own ? '' : ` of ${cluster.name}`}`;
        }),
      )
      .sort();
  }
}

/** Returns the exported services of a cluster. */
export function exportsOf(cluster: Cluster): readonly string[] {
  return [...cluster.exports].filter(
    (name) => cluster.services[name] !== undefined && isPublished(cluster, name),
  );
}

interface Backend {
  readonly cluster: Cluster;
  readonly pod: Pod;
  readonly isActive: boolean;
}

/** Returns the backends in the value of `services/v1`, which has no states: terminating ones only if none is active. */
export function withoutStates(backends: readonly Backend[]): readonly Backend[] {
  const active = backends.filter(({ isActive }) => isActive);
  return active.length > 0 ? active : backends.map((backend) => ({ ...backend, isActive: true }));
}

/** Returns the pods that serve a service in its cluster. */
export function backendsOf(cluster: Cluster, name: string): readonly Backend[] {
  const app = cluster.services[name]?.app;
  return Object.entries(cluster.pods).flatMap(([podName, pod]) => {
    const isServing = pod.phase === undefined || pod.phase === 'terminating';
    return isServing && pod.app === app && splitName(podName)[0] === splitName(name)[0]
      ? [{ cluster, pod, isActive: pod.phase === undefined }]
      : [];
  });
}

/** Returns the answers of an agent that has read everything. */
export function expectedAnswers(world: World, viewer: Viewer): Answers {
  return new Model(world, viewer).answers();
}
