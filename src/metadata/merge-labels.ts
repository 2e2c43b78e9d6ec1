import type { Label, Labels } from '../model/labels.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { compareWriters, type Source } from '../model/source.ts';
import { cidrLabels, reservedLabel, type WorldLabels, worldName } from './cidr-labels.ts';

/** The labels of a prefix from one resource. */
export interface ResourceLabels {
  readonly source: Source;
  readonly resource: string;
  readonly labels: Labels;
  /** The source and the labels as text: equal for resources which add the same labels in the same order. */
  readonly text: string;
}

/** Labels by key. The label added first is kept. */
export type LabelsByKey = Map<string, Label>;

const WORLD: ReadonlySet<string> = new Set(['world', 'world-ipv4', 'world-ipv6']);

/** Returns the resources by source, strongest first, then by name, whatever their order of arrival (I2). */
export function strongestFirst(resources: Iterable<ResourceLabels>): readonly ResourceLabels[] {
  return [...resources].sort((a, b) =>
    compareWriters({ source: a.source, owner: a.resource }, { source: b.source, owner: b.resource }),
  );
}

/**
 * Adds the labels whose keys are missing in `merged`. Adds no second label of source `cidr`; call it with the longest
 * prefix first.
 */
export function addLabels(merged: LabelsByKey, labels: Iterable<Label>): void {
  let hasCIDR = hasSource(merged, 'cidr');
  for (const label of labels) {
    const isCIDR = label.source === 'cidr';
    if (merged.has(label.key) || (isCIDR && hasCIDR)) continue;
    merged.set(label.key, label);
    hasCIDR ||= isCIDR;
  }
}

/** The result of merging: a reserved identity, or labels for a node-local identity. */
export type Resolved =
  | { readonly kind: 'reserved'; readonly identity: number }
  | { readonly kind: 'labels'; readonly labels: Labels };

/**
 * Resolves the merged labels of a prefix (Cilium: `resolveLabels`, pkg/ipcache, 1.17). Addresses in the cluster
 * (hosts, nodes, health and ingress endpoints) have reserved identities. All other addresses get the world label. An
 * API server outside the cluster also gets a CIDR label, so that CIDR policies select it.
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
  // All remaining addresses are outside the cluster.
  const outside = new Map(
    [...merged].filter(([key, { source }]) => source !== 'reserved' || !WORLD.has(key)),
  );
  if (has('kube-apiserver') && !hasSource(outside, 'cidr')) addLabels(outside, cidrLabels(cidr, world));
  const name = worldName(cidr, world);
  if ([...outside.keys()].every((key) => WORLD.has(key)))
    return { kind: 'reserved', identity: RESERVED_IDENTITIES[name] };
  outside.set(name, reservedLabel(name));
  return { kind: 'labels', labels: [...outside.values()] };
}

/** Returns the label for the identity of a node address (`host`, `remote-node`); undefined for other identities. */
export function nodeLabel(identity: number): Label | undefined {
  if (identity === RESERVED_IDENTITIES.host) return reservedLabel('host');
  return identity === RESERVED_IDENTITIES['remote-node'] ? reservedLabel('remote-node') : undefined;
}

function hasSource(labels: ReadonlyMap<string, Label>, source: string): boolean {
  for (const label of labels.values()) if (label.source === source) return true;
  return false;
}
