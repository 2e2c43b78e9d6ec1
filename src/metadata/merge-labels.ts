import type { Label, Labels } from '../identity/labels.ts';
import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import { compareWriters, type Source } from '../identity/source.ts';
import { cidrLabels, reservedLabel, type WorldLabels, worldLabel } from './cidr-labels.ts';

/** What one resource says of a prefix. */
export interface Said {
  readonly source: Source;
  readonly resource: string;
  readonly labels: Labels;
}

/** Labels by key: the first one of a key counts. */
export type LabelsByKey = Map<string, Label>;

const WORLD: ReadonlySet<string> = new Set(['world', 'world-ipv4', 'world-ipv6']);

/** Strongest source first, then by the name of the resource: the order does not depend on who came first (I2). */
export function strongestFirst(said: Iterable<Said>): readonly Said[] {
  return [...said].sort((a, b) =>
    compareWriters({ source: a.source, owner: a.resource }, { source: b.source, owner: b.resource }),
  );
}

/** Adds labels whose keys are not there; of source `cidr` at most one in all, so that the longest prefix gives it. */
export function addLabels(merged: LabelsByKey, labels: Iterable<Label>): void {
  let hasCIDR = hasSource(merged, 'cidr');
  for (const label of labels) {
    const isCIDR = label.source === 'cidr';
    if (merged.has(label.key) || (isCIDR && hasCIDR)) continue;
    merged.set(label.key, label);
    hasCIDR ||= isCIDR;
  }
}

/** What merged labels come to: a reserved identity, or labels that want an identity of their own. */
export type Resolved =
  | { readonly kind: 'reserved'; readonly identity: number }
  | { readonly kind: 'labels'; readonly labels: Labels };

/**
 * Completes the merged labels of a prefix (upstream: `resolveLabels`, pkg/ipcache, 1.17). What is in the cluster (hosts,
 * nodes, health and ingress endpoints) is reserved. All else is in the world, and an address of the API server outside of the
 * cluster has a CIDR label too, so that policies for CIDRs select it.
 */
export function resolveLabels(cidr: string, merged: LabelsByKey, world: WorldLabels): Resolved {
  const has = (key: string): boolean => merged.get(key)?.source === 'reserved';
  const { host, health, ingress } = RESERVED_IDENTITIES;
  if (has('host')) return { kind: 'reserved', identity: host };
  if (has('remote-node')) {
    const name = has('kube-apiserver') ? 'kube-apiserver' : 'remote-node';
    return { kind: 'reserved', identity: RESERVED_IDENTITIES[name] };
  }
  if (has('health')) return { kind: 'reserved', identity: health };
  if (has('ingress')) return { kind: 'reserved', identity: ingress };
  const outside = new Map(
    [...merged].filter(([key, { source }]) => source !== 'reserved' || !WORLD.has(key)),
  );
  if (has('kube-apiserver') && !hasSource(outside, 'cidr')) addLabels(outside, cidrLabels(cidr, world));
  const ofWorld = worldLabel(cidr, world);
  if (![...outside.values()].some(({ key }) => !WORLD.has(key)))
    return { kind: 'reserved', identity: worldIdentity(ofWorld.key) };
  outside.set(ofWorld.key, ofWorld);
  return { kind: 'labels', labels: [...outside.values()] };
}

/** The label of a node that another source has found at an address. */
export function nodeLabel(identity: number): Label | undefined {
  if (identity === RESERVED_IDENTITIES.host) return reservedLabel('host');
  return identity === RESERVED_IDENTITIES['remote-node'] ? reservedLabel('remote-node') : undefined;
}

function hasSource(labels: ReadonlyMap<string, Label>, source: string): boolean {
  for (const label of labels.values()) if (label.source === source) return true;
  return false;
}

function worldIdentity(key: string): number {
  const { world, 'world-ipv4': ipv4, 'world-ipv6': ipv6 } = RESERVED_IDENTITIES;
  if (key === 'world') return world;
  return key === 'world-ipv4' ? ipv4 : ipv6;
}
