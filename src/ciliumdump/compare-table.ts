import {
  clusterIDOf,
  identityScope,
  LOCAL_IDENTITY_SCOPE,
  MINIMAL_ALLOCATED_IDENTITY,
  REMOTE_NODE_IDENTITY_SCOPE,
  RESERVED_IDENTITIES,
} from '../model/numeric-identity.ts';
import { prefixOfKey } from '../net/prefix.ts';
import type { KnownPrefix, PrefixValue, SourceState } from './source-state.ts';
import type { TableEntry } from './table-entry.ts';

const DIFFERENCES = ['identity', 'stale', 'missing', 'host', 'duplicate'] as const;

/**
 * The kind of a difference between the sources and a table. `missing`: the table lacks the prefix. `stale`: no source
 * has it. `identity`, `host`: both have it with other values. `duplicate`: the table has it more than once.
 */
export type DifferenceKind = (typeof DIFFERENCES)[number];

/**
 * Differences that are no faults. `local-identity`: each node numbers the identities of CIDRs itself. `reserved`:
 * entries that every agent creates. `own-endpoint`: endpoints of the node itself have no host. `other-cluster`: the
 * entry belongs to a cluster that the sources do not contain. `native-routing`: no entry of the table has a host.
 * `unfinished`: the endpoint has no identity yet, or the sources contain no endpoints. `younger`: the entry changed
 * while the archive was written.
 * `undecidable`: a part of the sources that may have the entry cannot be read.
 */
export type ExpectedKind =
  | 'local-identity'
  | 'reserved'
  | 'own-endpoint'
  | 'other-cluster'
  | 'native-routing'
  | 'unfinished'
  | 'younger'
  | 'undecidable';

/** A difference between the sources and a table. */
export interface Difference {
  readonly kind: DifferenceKind;
  readonly prefix: string;
  /** The value of the table; undefined if it lacks the prefix. */
  readonly actual: PrefixValue | undefined;
  /** The value of the sources; undefined if they lack the prefix. */
  readonly known: KnownPrefix | undefined;
}

/** The node whose table is compared. */
export interface TableOwner {
  /** Name of the node in the sources; undefined if it is unknown. */
  readonly name: string | undefined;
  readonly addresses: ReadonlySet<string>;
  /** Addresses of its own endpoints. */
  readonly endpoints: ReadonlySet<string>;
  /** Addresses of nodes of clusters missing in the sources. */
  readonly otherClusterAddresses: ReadonlySet<string>;
  /** False if `otherClusterAddresses` may be incomplete, because the report has no list of the agent's nodes. */
  readonly knowsOtherClusters: boolean;
}

/**
 * The result for one entry. `hostless`: the host is missing, which is a fault only if other entries of the table have
 * hosts.
 */
export type Verdict = 'equal' | 'hostless' | DifferenceKind | ExpectedKind;

function isDifference(verdict: Verdict): verdict is DifferenceKind {
  return DIFFERENCES.some((kind) => kind === verdict);
}

/** The result of comparing a table. */
export interface TableComparisonResult {
  readonly entries: number;
  /** Number of entries equal to the sources. */
  readonly equal: number;
  readonly expected: Readonly<Partial<Record<ExpectedKind, number>>>;
}

const { host, health, ingress, unmanaged } = RESERVED_IDENTITIES;
const REMOTE_NODE = RESERVED_IDENTITIES['remote-node'];
const API_SERVER = RESERVED_IDENTITIES['kube-apiserver'];

/**
 * Returns true if an identity is that of a node: `host`, `remote-node`, `kube-apiserver`, or a number that the agent
 * assigned to a node.
 */
export function isNodeIdentity(identity: number): boolean {
  return (
    identity === host ||
    identity === REMOTE_NODE ||
    identity === API_SERVER ||
    identityScope(identity) === REMOTE_NODE_IDENTITY_SCOPE
  );
}

/** Returns true if an identity is that of another node, its health endpoint or its ingress. */
function isRemoteNodeIdentity(identity: number): boolean {
  const isRemote = identity === REMOTE_NODE || identity === health || identity === ingress;
  return isRemote || identityScope(identity) === REMOTE_NODE_IDENTITY_SCOPE;
}

/** Returns the address of a full-length prefix, else undefined. */
function addressOf(prefix: string): string | undefined {
  const slash = prefix.indexOf('/');
  const length = prefix.slice(slash + 1);
  return length === '32' || length === '128' ? prefix.slice(0, slash) : undefined;
}

/**
 * Compares one table of a node with the sources. Call {@link TableComparison.add} for each entry of the table, in any
 * order, then {@link TableComparison.finish} once. Memory: a few references for each entry of the table; differences
 * are passed on and not kept. Encryption keys are not compared, because they belong to the settings of each node.
 */
export class TableComparison {
  readonly #sources: SourceState;
  readonly #owner: TableOwner;
  readonly #seen = new Set<string>();
  readonly #onDifference: (difference: Difference) => void;
  /** Entries with the verdict `hostless`. */
  readonly #hostless: TableEntry[] = [];
  readonly #expected: Partial<Record<ExpectedKind, number>> = {};
  #entries = 0;
  #equal = 0;
  /** True if the entry of a pod of another node has a host. */
  #hasHosts = false;

  constructor(sources: SourceState, owner: TableOwner, onDifference: (difference: Difference) => void) {
    this.#sources = sources;
    this.#owner = owner;
    this.#onDifference = onDifference;
  }

  /** Compares an entry and returns the verdict. `hostless` becomes `host` or `native-routing` at the end. */
  add(entry: TableEntry): Verdict {
    const { prefix } = entry;
    const known = this.#sources.prefixes.get(prefix);
    this.#entries++;
    const isRepeated = this.#seen.has(prefix);
    this.#seen.add(prefix);
    const verdict = isRepeated ? 'duplicate' : this.#judge(entry, known);
    if (verdict === 'hostless') this.#hostless.push(entry);
    else this.#record(verdict, prefix, entry, known);
    return verdict;
  }

  /** Compares the prefixes that the table lacks, and returns the result. */
  finish(): TableComparisonResult {
    for (const [prefix, known] of this.#sources.prefixes)
      if (!this.#seen.has(prefix)) this.#record(this.#judgeMissing(prefix, known), prefix, undefined, known);
    // Entries of the node's own endpoints have no host. Without the node's addresses, they cannot be distinguished.
    const isUnknownOwner = this.#sources.incomplete.has('nodes') && this.#owner.addresses.size === 0;
    const hostlessVerdict = isUnknownOwner ? 'undecidable' : 'host';
    for (const entry of this.#hostless)
      this.#record(
        this.#hasHosts ? hostlessVerdict : 'native-routing',
        entry.prefix,
        entry,
        this.#sources.prefixes.get(entry.prefix),
      );
    return { entries: this.#entries, equal: this.#equal, expected: this.#expected };
  }

  #record(
    verdict: Exclude<Verdict, 'hostless'>,
    prefix: string,
    actual: PrefixValue | undefined,
    known: KnownPrefix | undefined,
  ): void {
    if (verdict === 'equal') this.#equal++;
    else if (isDifference(verdict)) this.#onDifference({ kind: verdict, prefix, actual, known });
    else this.#expected[verdict] = (this.#expected[verdict] ?? 0) + 1;
  }

  #judge(entry: TableEntry, known: KnownPrefix | undefined): Verdict {
    if (known === undefined) return this.#judgeUnknown(entry);
    const same = [known, ...(known.claims ?? [])].find((value) => sameIdentity(entry, value, known));
    if (same !== undefined) return known.kind === 'endpoint' ? this.#judgeHost(entry, same) : 'equal';
    if (isLocal(entry.identity) && isLocal(known.identity)) return 'local-identity';
    return known.identity === unmanaged ? 'unfinished' : 'identity';
  }

  /** Returns the verdict for an entry that no source has: `stale`, or why this is no fault. */
  #judgeUnknown({ prefix, identity }: TableEntry): Verdict {
    const { clusterID, hasAllClusters, kinds, incomplete } = this.#sources;
    const address = addressOf(prefix);
    if (prefix.includes('@') && !hasAllClusters) return 'other-cluster';
    if (address !== undefined && this.#owner.otherClusterAddresses.has(address)) return 'other-cluster';
    if (identityScope(identity) === LOCAL_IDENTITY_SCOPE) return 'local-identity';
    if (isRemoteNodeIdentity(identity)) {
      if (!hasAllClusters && !this.#owner.knowsOtherClusters) return 'other-cluster';
      if (!kinds.nodes || address === undefined) return 'reserved';
      return incomplete.has('nodes') ? 'undecidable' : 'stale';
    }
    if (identity < MINIMAL_ALLOCATED_IDENTITY) return 'reserved';
    if (!hasAllClusters && clusterIDOf(identity) !== clusterID) return 'other-cluster';
    if (address !== undefined && this.#owner.endpoints.has(address)) return 'own-endpoint';
    if (!kinds.endpoints) return 'unfinished';
    return incomplete.has('endpoints') ? 'undecidable' : 'stale';
  }

  #judgeHost({ hostIP, skipTunnel }: TableEntry, value: PrefixValue): Verdict {
    if (value.hostIP === undefined) return 'equal';
    if (this.#owner.addresses.has(value.hostIP)) {
      if (hostIP === undefined) return 'own-endpoint';
      return this.#owner.addresses.has(hostIP) ? 'equal' : this.#compareHosts(hostIP, value.hostIP);
    }
    if (hostIP === undefined) return skipTunnel ? 'native-routing' : 'hostless';
    this.#hasHosts = true;
    return this.#compareHosts(hostIP, value.hostIP);
  }

  #judgeMissing(prefix: string, { kind, identity }: KnownPrefix): DifferenceKind | ExpectedKind {
    const address = addressOf(prefix);
    if (identity === unmanaged) return 'unfinished';
    if (isLocal(identity)) return 'local-identity';
    const isOwn = address !== undefined && this.#owner.addresses.has(address);
    if (kind === 'node' && isOwn) return 'reserved';
    return kind === 'other' && identity < MINIMAL_ALLOCATED_IDENTITY ? 'reserved' : 'missing';
  }

  /** Returns `equal` if two addresses belong to one node. */
  #compareHosts(actual: string, expected: string): 'equal' | 'host' | 'undecidable' {
    if (actual === expected) return 'equal';
    const [actualNode, expectedNode] = [actual, expected].map((ip) =>
      this.#sources.prefixes.get(prefixOfKey(ip)),
    );
    if (actualNode?.kind !== 'node' || expectedNode?.kind !== 'node')
      return this.#sources.incomplete.has('nodes') ? 'undecidable' : 'host';
    return actualNode.name !== '' && actualNode.name === expectedNode.name ? 'equal' : 'host';
  }
}

/** Returns true if each node numbers an identity itself. */
function isLocal(identity: number): boolean {
  return identityScope(identity) !== 0;
}

/** Returns true if the identities are equal, or both are of nodes and the prefix is an address of a node. */
function sameIdentity(entry: TableEntry, value: PrefixValue, { kind }: KnownPrefix): boolean {
  if (entry.identity === value.identity) return true;
  return kind === 'node' && isNodeIdentity(entry.identity) && isNodeIdentity(value.identity);
}
