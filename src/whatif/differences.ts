import { SplitMap } from '../columns/split-map.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { Node } from '../nodemanager/node.ts';
import type { ServiceEvent } from '../servicecache/events.ts';
import { formatServiceID } from '../servicecache/service-id.ts';

/**
 * The kind of a change of a prefix. `gone`: it has no entry any more. `changed`: it has another entry. `revealed`: the
 * CIDR that an endpoint IP shadowed becomes visible. `created`: it has a new entry.
 */
export type PrefixDifferenceKind = 'gone' | 'changed' | 'revealed' | 'created';

/** The change of a prefix, as listeners would receive it. */
export interface PrefixDifference {
  readonly kind: PrefixDifferenceKind;
  /** Canonical CIDR text. */
  readonly prefix: string;
  readonly old: CompleteClaim | undefined;
  readonly new: CompleteClaim | undefined;
  /** If the prefix is gone: the longest prefix that would contain it, and its claim; undefined if there is none. */
  readonly coveredBy?: { readonly prefix: string; readonly claim: CompleteClaim } | undefined;
}

/** The change of an effective node. */
export interface NodeDifference {
  readonly kind: 'gone' | 'changed';
  /** `cluster/name`. */
  readonly node: string;
  readonly old: Node;
  readonly new: Node | undefined;
  /** If the node is gone: number of its addresses. */
  readonly addresses: number;
  /** If the node is gone: number of its pod CIDRs, which are routes of a datapath. */
  readonly podCIDRs: number;
}

/**
 * The kind of a change of a service. `gone`: deleted. `empty`: it has backends now, and would have none. `fewer`: it
 * would lose some of its backends. `created`: a new service. `changed`: any other change.
 */
export type ServiceDifferenceKind = 'gone' | 'empty' | 'fewer' | 'changed' | 'created';

/** The change of an announced service. */
export interface ServiceDifference {
  readonly kind: ServiceDifferenceKind;
  /** `namespace/name`. */
  readonly service: string;
  /** The event that listeners would receive. */
  readonly event: ServiceEvent;
  /** Numbers of backends before and after the change. */
  readonly before: number;
  readonly after: number;
  /** Number of backends existing only before the change. */
  readonly lost: number;
}

/** The numbers of addresses and pod CIDRs of a node. */
export type NodeSizes = Pick<NodeDifference, 'addresses' | 'podCIDRs'>;

export function sizesOf({ fields }: Node): NodeSizes {
  const { ipv4AllocCIDR, ipv6AllocCIDR, ipv4SecondaryAllocCIDRs, ipv6SecondaryAllocCIDRs } = fields;
  const first = [ipv4AllocCIDR, ipv6AllocCIDR].filter((cidr) => cidr !== undefined).length;
  return {
    addresses: fields.addresses.length,
    podCIDRs: first + ipv4SecondaryAllocCIDRs.length + ipv6SecondaryAllocCIDRs.length,
  };
}

/** Returns the difference of an effective node; `undefined` if there is none. */
export function nodeDifference(old: Node | undefined, next: Node | undefined): NodeDifference | undefined {
  if (old === undefined || old === next) return undefined;
  const { fullName: node } = old;
  if (next === undefined) return { kind: 'gone', node, old, new: next, ...sizesOf(old) };
  return { kind: 'changed', node, old, new: next, addresses: 0, podCIDRs: 0 };
}

/** Returns the difference of a service from the event that listeners would receive. */
export function serviceDifference(event: ServiceEvent): ServiceDifference {
  const { action, id, endpoints, oldEndpoints, oldService } = event;
  const oldBackends = oldEndpoints?.backends;
  const before = oldBackends?.size ?? 0;
  const after = action === 'delete' ? 0 : endpoints.backends.size;
  const removed = oldBackends?.count((_, address) => !endpoints.backends.has(address)) ?? 0;
  const lost = action === 'delete' ? before : removed;
  const difference = { service: formatServiceID(id), event, before, after, lost };
  if (action === 'delete') return { kind: 'gone', ...difference };
  if (oldService === undefined) return { kind: 'created', ...difference };
  if (before > 0 && after === 0) return { kind: 'empty', ...difference };
  return { kind: lost > 0 ? 'fewer' : 'changed', ...difference };
}

/** Differences by key. All are counted; the first ones of each kind are kept. */
export class Differences<D extends { readonly kind: string }> {
  readonly #limit: number;
  /** The kind of each difference, so that a key can be evaluated again. */
  readonly #kinds = new SplitMap<D['kind']>();
  readonly #kept = new Map<string, D>();
  readonly #counts = new Map<D['kind'], { all: number; kept: number }>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Replaces the difference of a key; `undefined` means none. */
  set(key: string, difference: D | undefined): void {
    const previousKind = this.#kinds.get(key);
    if (previousKind !== undefined) {
      const counts = this.#countsOf(previousKind);
      counts.all--;
      if (this.#kept.delete(key)) counts.kept--;
      if (difference === undefined) this.#kinds.delete(key);
    }
    if (difference === undefined) return;
    const counts = this.#countsOf(difference.kind);
    counts.all++;
    this.#kinds.set(key, difference.kind);
    if (counts.kept >= this.#limit) return;
    counts.kept++;
    this.#kept.set(key, difference);
  }

  count(kind: D['kind']): number {
    return this.#counts.get(kind)?.all ?? 0;
  }

  get kept(): readonly D[] {
    return [...this.#kept.values()];
  }

  #countsOf(kind: D['kind']): { all: number; kept: number } {
    const known = this.#counts.get(kind);
    if (known !== undefined) return known;
    const counts = { all: 0, kept: 0 };
    this.#counts.set(kind, counts);
    return counts;
  }
}
