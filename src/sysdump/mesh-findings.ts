import { counted, listText } from '../base/show-value.ts';
import { type NodePods, overlappingPods } from '../ciliumdump/compare-nodes.ts';
import type { SourceState } from '../ciliumdump/source-state.ts';
import { clusterIDOf, MINIMAL_ALLOCATED_IDENTITY } from '../model/numeric-identity.ts';
import type { Disagreements } from './disagreements.ts';
import type { Findings } from './findings.ts';
import type { SourceStateBuilder } from './source-state-builder.ts';

/** Maximum number of objects that a finding lists for an address. The others are counted. */
const MAX_CLAIMANTS = 10;

/** The findings and notes of a sysdump. The functions of this module add to them. */
interface Report {
  readonly findings: Findings;
  readonly notes: string[];
}

/** Adds a note for each kind of object that the sources do not have. */
export function noteMissing({ kinds }: SourceState, { notes }: Report): void {
  const missing: readonly (readonly [boolean, string])[] = [
    [kinds.endpoints, 'no CiliumEndpoints: the entries of pods are compared between nodes only'],
    [kinds.nodes, 'no CiliumNodes: the addresses of nodes are not compared'],
    [kinds.services, 'no Services, or no EndpointSlices or Endpoints: services are not compared'],
    [kinds.identities, 'no CiliumIdentities: identities are not looked up'],
  ];
  for (const [isPresent, text] of missing) if (!isPresent) notes.push(text);
}

/** Adds a finding for each address that several objects of the sources have. */
export function addSharedAddresses(builder: SourceStateBuilder, { findings }: Report): void {
  for (const [address, claimants] of builder.sharedAddresses()) {
    const texts = claimants
      .map(({ object, identity, hostIP }) =>
        hostIP === undefined ? object : `${object} (identity ${identity} at host ${hostIP})`,
      )
      .sort();
    findings.add({ kind: 'claimed-twice', subject: address, text: listText(texts, MAX_CLAIMANTS) });
  }
}

/** Adds a finding for each identity of an endpoint without a CiliumIdentity, if the sources have CiliumIdentities. */
export function addUnknownIdentities(sources: SourceState, { findings, notes }: Report): void {
  if (!sources.kinds.identities) return;
  const unknown = new Map<number, { count: number; first: string }>();
  for (const [prefix, { identity, kind, name }] of sources.prefixes) {
    const isAllocated = kind === 'endpoint' && identity >= MINIMAL_ALLOCATED_IDENTITY;
    if (!isAllocated || sources.labelsOf(identity) !== undefined) continue;
    const known = unknown.get(identity);
    if (known === undefined) unknown.set(identity, { count: 1, first: `${prefix} of ${name}` });
    else known.count++;
  }
  if (sources.incomplete.has('identities')) {
    if (unknown.size > 0)
      notes.push(
        `not decidable: ${counted(unknown.size, 'identity', 'identities')} without a CiliumIdentity, because not all CiliumIdentities could be read`,
      );
    return;
  }
  for (const [identity, { count, first }] of unknown) {
    const other =
      clusterIDOf(identity) === sources.clusterID ? '' : `, of cluster id ${clusterIDOf(identity)}`;
    const text = `${counted(count, 'endpoint')}, such as ${first}; no CiliumIdentity has this number${other}`;
    findings.add({ kind: 'unknown-identity', subject: String(identity), text });
  }
}

/** Adds a finding for each prefix with different values on different nodes, and each node without the usual one. */
export function addDisagreements(disagreements: Disagreements, { findings, notes }: Report): void {
  for (const { prefix, values } of disagreements.all()) {
    const text = values
      .map(({ value, nodes }) => `${value ?? 'none'} at ${counted(nodes.length, 'node')}`)
      .join(', ');
    const minorities = values.slice(1); // the first value is that of the most nodes
    for (const node of minorities.flatMap(({ nodes }) => nodes))
      findings.add({ kind: 'disagreement', subject: prefix, text, node });
  }
  if (disagreements.omitted > 0)
    notes.push(
      `${counted(disagreements.omitted, 'entry', 'entries')} of other clusters not compared between nodes: too many`,
    );
}

/** Adds a finding for each pod CIDR that overlaps one of another node, of this cluster or a remote one. */
export function addOverlaps(
  sources: SourceState,
  remotePods: Iterable<NodePods>,
  { findings }: Report,
): void {
  const localPods = Array.from(sources.nodes, ([node, { podCIDRs }]) =>
    podCIDRs.map((podCIDR) => ({ node, podCIDR })),
  );
  for (const { inner, outer, more } of overlappingPods([...localPods.flat(), ...remotePods])) {
    const others = more === 0 ? '' : `, and ${counted(more, 'other')}`;
    const text = `${outer.podCIDR} of ${outer.node} and ${inner.podCIDR} of ${inner.node}${others}`;
    findings.add({ kind: 'overlapping-pod-cidrs', subject: inner.podCIDR, text });
  }
}
