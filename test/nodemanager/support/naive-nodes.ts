import { isDeepStrictEqual } from 'node:util';
import type { Claim } from '../../../src/ipcache/types.ts';
import type { NodeConfiguration } from '../../../src/nodemanager/address-claims.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import { NaiveIPCache } from '../../ipcache/support/naive-ipcache.ts';

// The precedence table, written independently.
const RANKS = [
  'unspec',
  'restored',
  'generated',
  'api',
  'directory',
  'clustermesh',
  'k8s',
  'custom-resource',
  'kvstore',
  'local',
  'kube-apiserver',
];

/** Returns the rank of a source; higher is stronger. */
export function rank(source: string): number {
  return RANKS.indexOf(source);
}

/** Returns true if a holder of an address of a node holds back its changes. The node is not the local one. */
export function holdsBack(holder: string, node: NodeSpec): boolean {
  return holder !== 'kube-apiserver' && rank(holder) > rank(node.source);
}

export function fullName({ cluster, name }: { readonly cluster: string; readonly name: string }): string {
  return `${cluster}/${name}`;
}

/** The derived claims of a node, and their configuration. Nodes do not change. */
interface Derived {
  readonly config: NodeConfiguration;
  readonly claims: ReadonlyMap<string, Claim>;
}

const derived = new WeakMap<NodeSpec, Derived>();

/**
 * Returns the claims of a node by address. Derived once for each node and configuration, because laws read
 * them at each step.
 */
export function claimsOf(node: NodeSpec, config: NodeConfiguration): ReadonlyMap<string, Claim> {
  const known = derived.get(node);
  if (known !== undefined && isDeepStrictEqual(known.config, config)) return known.claims;
  const claims = deriveClaims(node, config);
  derived.set(node, { config, claims });
  return claims;
}

/** Derives the claims directly from the sentences of SEMANTICS 4. */
function deriveClaims(node: NodeSpec, config: NodeConfiguration): Map<string, Claim> {
  const given = node.addresses ?? [];
  const ofUnderlay = given.filter(({ ip }) => ip.includes(':') === (config.underlay === 'ipv6'));
  const candidates = ofUnderlay.filter(({ type }) => type !== 'CiliumInternalIP');
  const endpoint =
    candidates.find(({ type }) => type === 'InternalIP') ??
    candidates.findLast(({ type }) => type === 'ExternalIP') ??
    candidates[0];
  const writer = { source: node.source, owner: fullName(node) };
  const key = node.encryptionKey ?? 0;
  const claims = new Map<string, Claim>();
  for (const { type, ip } of given) {
    if (!config.encryption && !config.remoteNodeIdentities && type !== 'CiliumInternalIP') continue;
    const tunnelled = type === 'CiliumInternalIP' || config.encryption || config.hostFirewall;
    const keyless = (type === 'InternalIP' || type === 'ExternalIP') && !config.nodeEncryption;
    claims.set(ip, {
      ...writer,
      identity: node.source === 'local' || !config.remoteNodeIdentities ? 1 : 6,
      hostIP: tunnelled ? endpoint?.ip : undefined,
      encryptKey: keyless ? 0 : key,
    });
  }
  const inside = { ...writer, hostIP: endpoint?.ip, encryptKey: key };
  for (const ip of [node.ipv4HealthIP, node.ipv6HealthIP])
    if (ip !== undefined) claims.set(ip, { ...inside, identity: 4 });
  for (const ip of [node.ipv4IngressIP, node.ipv6IngressIP])
    if (ip !== undefined) claims.set(ip, { ...inside, identity: 8 });
  return claims;
}

/** The rules of SEMANTICS 4 over a plain list of claims. Specs are canonical and compared as text. */
export class NaiveNodes {
  readonly retain: boolean;
  configuration: NodeConfiguration;
  claims: readonly NodeSpec[] = [];
  /** Claims that do not belong to nodes, by key. */
  readonly foreign: NaiveIPCache = new NaiveIPCache(true);
  /** The nodes that handlers know: the only state that depends on history. */
  announced: ReadonlyMap<string, NodeSpec> = new Map();

  constructor(retain: boolean, configuration: NodeConfiguration) {
    this.retain = retain;
    this.configuration = configuration;
  }

  /** Claims on one node, strongest first. */
  on(name: string): readonly NodeSpec[] {
    return this.claims
      .filter((claim) => fullName(claim) === name)
      .sort((a, b) => rank(b.source) - rank(a.source));
  }

  effective(): ReadonlyMap<string, NodeSpec> {
    const effective = new Map<string, NodeSpec>();
    for (const node of this.claims) {
      const other = effective.get(fullName(node));
      if (other === undefined || rank(node.source) > rank(other.source)) effective.set(fullName(node), node);
    }
    return effective;
  }

  /** Returns the expected IPCache if claims are retained. */
  ipcache(): NaiveIPCache {
    const ipcache = new NaiveIPCache(true);
    for (const { key, claim } of this.foreign.claims) ipcache.upsert(key, claim);
    for (const node of this.effective().values()) {
      for (const [ip, claim] of claimsOf(node, this.configuration)) ipcache.upsert(ip, claim);
    }
    return ipcache;
  }

  update(node: NodeSpec): string {
    const [strongest] = this.on(fullName(node));
    const weaker = strongest !== undefined && rank(strongest.source) > rank(node.source);
    const others = this.claims.filter(
      (claim) => fullName(claim) !== fullName(node) || claim.source !== node.source,
    );
    if (this.retain) this.claims = [...others, node];
    else if (!weaker)
      this.claims = [...this.claims.filter((claim) => fullName(claim) !== fullName(node)), node];
    if (weaker) return 'overruled';
    return strongest !== undefined && text(strongest) === text(node) ? 'unchanged' : 'applied';
  }

  delete(name: string, source: string): string {
    const claims = this.on(name);
    if (claims.length === 0) return 'not-found';
    if (!claims.some((claim) => claim.source === source)) return 'not-owner';
    this.claims = this.claims.filter((claim) => fullName(claim) !== name || claim.source !== source);
    return 'applied';
  }

  withdraw(source: string, cluster: string | undefined): number {
    const left = this.claims.filter(
      (claim) => claim.source !== source || (cluster !== undefined && claim.cluster !== cluster),
    );
    const withdrawn = this.claims.length - left.length;
    this.claims = left;
    return withdrawn;
  }

  /**
   * Announces nodes to handlers that are not withheld: no stronger source has one of the node's addresses. An API
   * server withholds nothing.
   */
  announce(): void {
    const announced = new Map(this.announced);
    const ipcache = this.ipcache();
    const effective = this.effective();
    for (const name of announced.keys()) if (!effective.has(name)) announced.delete(name);
    for (const [name, node] of effective) {
      const held = [...claimsOf(node, this.configuration).keys()].some((ip) =>
        holdsBack(ipcache.on(ip)[0]?.claim.source ?? '', node),
      );
      if (!held) announced.set(name, node);
    }
    this.announced = announced;
  }
}

/** Returns a node as text, for comparison. */
export function text(node: NodeSpec): string {
  const {
    name,
    cluster,
    source,
    addresses = [],
    ipv4HealthIP,
    ipv6HealthIP,
    ipv4IngressIP,
    encryptionKey = 0,
    bootID = '',
  } = node;
  return JSON.stringify([
    name,
    cluster,
    source,
    [...addresses].map(({ type, ip }) => [type, ip]),
    ipv4HealthIP ?? null,
    ipv6HealthIP ?? null,
    ipv4IngressIP ?? null,
    encryptionKey,
    bootID,
  ]);
}
