import type { ChangeType } from '../api/change-types.ts';
import type { NodeDocument } from '../api/documents.ts';
import type { EngineViews } from '../api/read-model.ts';
import { counted } from '../base/show-value.ts';
import type { IPCacheChange, IPCacheEntry } from '../ipcache/types.ts';
import { labelName } from '../model/label-name.ts';
import { reservedIdentityName } from '../model/numeric-identity.ts';
import type { Source } from '../model/source.ts';
import type { Node } from '../nodemanager/node.ts';

/** An addition, a change or a deletion. */
export type ChangeSign = '+' | '~' | '-';

/** Returns the sign of a change. `before` is undefined for an addition, `after` for a deletion. */
export function changeSign(before: unknown, after: unknown): ChangeSign {
  if (after === undefined) return '-';
  return before === undefined ? '+' : '~';
}

/** A change in words. Its names come from untrusted sources: see `printable`. */
export interface ChangeText {
  readonly sign: ChangeSign;
  readonly kind: ChangeType;
  readonly subject: string;
  readonly detail: string;
}

/** Returns the name of an identity (`app=checkout`); `undefined` if unknown. */
export type IdentityName = (identity: number) => string | undefined;

/** Returns a function that names identities by their labels. */
export function identityNames({ labelsOf }: EngineViews): IdentityName {
  return (identity) => {
    const labels = labelsOf(identity);
    return labels && labelName(labels);
  };
}

const ARROW = '→';

/** Marks an entry that only a checkpoint provides, because it may be outdated. */
function restoredMark(source: string | undefined): string[] {
  return source === 'restored' ? ['restored'] : [];
}

/** Returns `shop/checkout-1`; `undefined` if the entry has no pod. */
export function podText({ k8s }: IPCacheEntry): string | undefined {
  if (k8s === undefined || (k8s.namespace === '' && k8s.podName === '')) return undefined;
  return `${k8s.namespace}/${k8s.podName}`;
}

/** Returns an identity with its name: `66536 (app=checkout)`, `health`. */
export function identityText(identity: number, nameOf: IdentityName): string {
  const reserved = reservedIdentityName(identity);
  if (reserved !== undefined) return reserved;
  const name = nameOf(identity);
  return name === undefined ? String(identity) : `${identity} (${name})`;
}

export function entryText(entry: IPCacheEntry, nameOf: IdentityName): string {
  const pod = podText(entry);
  return [
    ...(pod === undefined ? [] : [`pod ${pod}`]),
    `identity ${identityText(entry.identity, nameOf)}`,
    ...(entry.hostIP === undefined ? [] : [`on ${entry.hostIP}`]),
    ...(entry.encryptKey === 0 ? [] : [`key ${entry.encryptKey}`]),
  ].join(', ');
}

/** Returns `name before → after`; empty if both are equal. */
export function difference(name: string, before: string | undefined, after: string | undefined): string[] {
  return before === after ? [] : [`${name} ${before ?? 'none'} ${ARROW} ${after ?? 'none'}`];
}

function entryDifference(before: IPCacheEntry, after: IPCacheEntry, nameOf: IdentityName): string {
  const differences = [
    ...difference('pod', podText(before), podText(after)),
    ...difference(
      'service account',
      before.k8s?.serviceAccount || undefined,
      after.k8s?.serviceAccount || undefined,
    ),
    ...difference('identity', identityText(before.identity, nameOf), identityText(after.identity, nameOf)),
    ...difference('host', before.hostIP, after.hostIP),
    ...difference('key', String(before.encryptKey), String(after.encryptKey)),
  ];
  return differences.length === 0 ? 'named ports' : differences.join(', ');
}

/** Returns a change of a prefix in words. `source` is the source of its current claim. */
export function prefixChangeText(
  change: IPCacheChange,
  nameOf: IdentityName,
  source: Source | undefined,
): ChangeText {
  const { old, new: now, prefix } = change;
  const shown = now ?? old;
  const described = shown === undefined ? '' : [entryText(shown, nameOf), ...restoredMark(source)].join(', ');
  if (now === undefined) return { sign: '-', kind: 'ip', subject: prefix, detail: described };
  if (old === undefined) return { sign: '+', kind: 'ip', subject: prefix, detail: described };
  return { sign: '~', kind: 'ip', subject: prefix, detail: entryDifference(old, now, nameOf) };
}

function addressText({ type, ip }: Addresses[number]): string {
  return `${type} ${ip}`;
}

/** The shown fields of a node. `NodeFields` and documents have them. */
type ShownNode = Omit<NodeDocument, 'cluster' | 'name' | 'clusterID' | 'labels' | 'restored' | 'past'>;
type Addresses = ShownNode['addresses'];

/** Returns the changed addresses of each type: `InternalIP 10.0.0.1 → 10.0.0.2`. */
function addressDifferences(before: Addresses, after: Addresses): string[] {
  const without = (all: Addresses, others: Addresses): Addresses =>
    all.filter((address) => !others.some((other) => addressText(other) === addressText(address)));
  const removed = without(before, after);
  const added = without(after, before);
  const types = new Set([...removed, ...added].map(({ type }) => type));
  const list = (addresses: Addresses, type: string): string | undefined =>
    addresses
      .filter((address) => address.type === type)
      .map(({ ip }) => ip)
      .join(' ') || undefined;
  return [...types].flatMap((type) => difference(type, list(removed, type), list(added, type)));
}

/** Returns the changed fields of a node: `InternalIP 10.0.0.1 → 10.0.0.2, boot a → b`. */
export function nodeDifference(before: ShownNode, after: ShownNode): string {
  const differences = [
    ...addressDifferences(before.addresses, after.addresses),
    ...difference('key', String(before.encryptionKey), String(after.encryptionKey)),
    ...difference('IPv4 pods', before.ipv4AllocCIDR, after.ipv4AllocCIDR),
    ...difference('IPv6 pods', before.ipv6AllocCIDR, after.ipv6AllocCIDR),
    ...difference('IPv4 health', before.ipv4HealthIP, after.ipv4HealthIP),
    ...difference('IPv6 health', before.ipv6HealthIP, after.ipv6HealthIP),
    ...difference('IPv4 ingress', before.ipv4IngressIP, after.ipv4IngressIP),
    ...difference('IPv6 ingress', before.ipv6IngressIP, after.ipv6IngressIP),
    ...difference('WireGuard key', before.wireguardPubKey, after.wireguardPubKey),
    ...difference('source', before.source, after.source),
    ...difference('boot', before.bootID, after.bootID),
  ];
  return differences.length === 0 ? 'labels or other attributes' : differences.join(', ');
}

/** Returns a node in one line: its addresses and its pod CIDRs. */
export function nodeText(node: ShownNode): string {
  const internal = node.addresses.filter(({ type }) => type === 'InternalIP');
  const addresses = internal.length === 0 ? node.addresses : internal;
  const primary = [node.ipv4AllocCIDR, node.ipv6AllocCIDR].filter((cidr) => cidr !== undefined);
  const { ipv4SecondaryAllocCIDRs = [], ipv6SecondaryAllocCIDRs = [] } = node;
  const pods = [...primary, ...ipv4SecondaryAllocCIDRs, ...ipv6SecondaryAllocCIDRs];
  return [
    addresses.map(({ ip }) => ip).join(' ') || 'no address',
    ...(pods.length === 0 ? [] : [`pods ${pods.join(' ')}`]),
    ...(node.encryptionKey === 0 ? [] : [`key ${node.encryptionKey}`]),
    ...restoredMark(node.source),
  ].join(', ');
}

/** Returns a change of a node in words. `before` is undefined for an added node, `after` for a deleted one. */
export function nodeChangeText(before: Node | undefined, after: Node | undefined): ChangeText {
  const subject = (after ?? before)?.fullName ?? '';
  if (after === undefined)
    return { sign: '-', kind: 'node', subject, detail: before ? nodeText(before.fields) : '' };
  if (before === undefined) return { sign: '+', kind: 'node', subject, detail: nodeText(after.fields) };
  return { sign: '~', kind: 'node', subject, detail: nodeDifference(before.fields, after.fields) };
}

/** Returns the number of backends, in total and by cluster: `24 backends (12 baltic, 12 caspian)`. */
export function backendsText(backends: Iterable<{ readonly cluster?: string | undefined }>): string {
  const byCluster = new Map<string, number>();
  let total = 0;
  for (const { cluster = '' } of backends) {
    byCluster.set(cluster, (byCluster.get(cluster) ?? 0) + 1);
    total++;
  }
  const parts = [...byCluster]
    .sort()
    .map(([cluster, count]) => `${count} ${cluster === '' ? 'local' : cluster}`);
  return counted(total, 'backend') + (parts.length === 0 ? '' : ` (${parts.join(', ')})`);
}
