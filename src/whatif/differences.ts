import { SplitMap } from '../columns/split-map.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { Node } from '../nodemanager/node.ts';
import type { ServiceEvent } from '../servicecache/events.ts';

/**
 * The kind of a change of a prefix. `gone`: it has no entry any more. `changed`: it has another entry. `revealed`: the
 * CIDR that an endpoint IP shadowed becomes visible. `created`: it has a new entry.
 */
export type PrefixKind = 'gone' | 'changed' | 'revealed' | 'created';

/** The change of a prefix, as listeners would receive it. */
export interface PrefixDifference {
  readonly kind: PrefixKind;
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
export type ServiceKind = 'gone' | 'empty' | 'fewer' | 'changed' | 'created';

/** The change of an announced service. */
export interface ServiceDifference {
  readonly kind: ServiceKind;
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
