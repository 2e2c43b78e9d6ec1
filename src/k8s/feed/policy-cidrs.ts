import { type Rejection, rejection } from '../../base/rejection.ts';
import { runNowOrInBackground, type TurnGate } from '../../base/turn-gate.ts';
import { cidrGroupLabels, cidrLabels, type WorldLabels } from '../../metadata/cidr-labels.ts';
import type { Prefix } from '../../net/prefix.ts';
import { subtractPrefixes } from '../../net/subtract-prefixes.ts';
import type { ObjectFields } from '../parse-object.ts';
import {
  CIDR_GROUP_FIELDS,
  type ParsedCIDRGroup,
  type PolicyCIDRs,
  readCIDRGroup,
  readCiliumPolicyCIDRs,
  readNetworkPolicyCIDRs,
} from '../parse-policy-cidrs.ts';
import type { KindReader } from './object-feed.ts';
import type { PrefixMetadata } from './prefix-metadata.ts';

/** Maximum number of CIDRs per policy, so that one policy cannot fill the IPCache. */
const MAX_CIDRS = 65_536;

/** Changes of CIDRs per step; 256 take about 1 ms. */
const CHANGES_PER_STEP = 256;

/** A policy and the CIDRs written for it. */
interface WrittenPolicy {
  readonly kind: string;
  /** The current policy, which may not be written yet; undefined if it was deleted. */
  policy: PolicyCIDRs | undefined;
  /** Each written CIDR, with the number of rules and groups that contain it. Incomplete if the limit is exceeded. */
  readonly cidrs: Map<string, number>;
  /** True if CIDRs above the limit were dropped. */
  exceedsLimit: boolean;
}

/** CIDRs by text. */
type CIDRsByText = ReadonlyMap<string, Prefix>;

/** A change of the CIDRs of a group. */
interface GroupChange {
  readonly group: string;
  readonly added: CIDRsByText;
  readonly removed: CIDRsByText;
}

/** Work that yields after each CIDR. */
type Steps = Generator<undefined, void, void>;

const NO_CIDRS: CIDRsByText = new Map();

/** Adds those of `cidrs` that are not in `others` to `result`. */
function* addOthers(result: Map<string, Prefix>, cidrs: CIDRsByText, others: CIDRsByText): Steps {
  for (const [text, cidr] of cidrs) {
    if (!others.has(text)) result.set(text, cidr);
    yield;
  }
}

/** Yields the texts of what remains of CIDRs without the exceptions. */
function* remainders(cidrs: CIDRsByText, except: readonly Prefix[]): Generator<string, void, void> {
  if (except.length === 0) {
    yield* cidrs.keys();
    return;
  }
  for (const cidr of cidrs.values())
    for (const remainder of subtractPrefixes(cidr, except)) yield remainder.toString();
}

/**
 * The CIDRs of policies, each with a node-local identity (KUBERNETES 48 to 50). Their source is `generated`, which is
 * weaker than the source of a pod. Each policy is a resource, so a CIDR stays while any policy contains it. Exceptions
 * are subtracted. A policy may arrive before its CIDR groups (KUBERNETES 54). Each group is a resource, too, and adds
 * its labels to its CIDRs. Changes are applied in steps, because a policy or a group may have tens of thousands of
 * CIDRs, and hundreds of policies may refer to a group. A list is complete after the steps of its changes.
 */
export class PolicyCIDRTable {
  readonly #metadata: PrefixMetadata;
  readonly #world: WorldLabels;
  readonly #policies = new Map<string, WrittenPolicy>();
  /** The CIDRs of each group, by text. A group with a pending change has its previous CIDRs. */
  readonly #groups = new Map<string, CIDRsByText>();
  /** Changes of policies and groups that are not applied yet, by resource. */
  readonly #pending = new Map<string, () => Steps>();
  /** Applies the pending changes; undefined if there are none. */
  #steps: Steps | undefined;
  /** Policies by the group that they refer to. */
  readonly #byGroup = new Map<string, Set<string>>();
  readonly #onReject: (rejection: Rejection) => void;
  readonly #gate: TurnGate | undefined;
  readonly #signal: AbortSignal | undefined;

  /**
   * @param onReject receives a policy when it first exceeds the limit of 65,536 CIDRs
   * @param gate distributes changes over turns of the event loop. Default: one turn
   * @param signal if it fires, the remaining steps do not run
   */
  constructor(
    metadata: PrefixMetadata,
    world: WorldLabels,
    onReject: (rejection: Rejection) => void,
    gate?: TurnGate,
    signal?: AbortSignal,
  ) {
    this.#metadata = metadata;
    this.#world = world;
    this.#onReject = onReject;
    this.#gate = gate;
    this.#signal = signal;
  }

  networkPolicies(): KindReader<PolicyCIDRs> {
    return this.#reader('NetworkPolicy', 'networkpolicy', readNetworkPolicyCIDRs);
  }

  ciliumPolicies(): KindReader<PolicyCIDRs> {
    return this.#reader('CiliumNetworkPolicy', 'cnp', readCiliumPolicyCIDRs);
  }

  clusterwidePolicies(): KindReader<PolicyCIDRs> {
    return this.#reader('CiliumClusterwideNetworkPolicy', 'ccnp', readCiliumPolicyCIDRs);
  }

  groups(): KindReader<ParsedCIDRGroup> {
    return {
      kind: 'CiliumCIDRGroup',
      fields: CIDR_GROUP_FIELDS,
      read: readCIDRGroup,
      pendingSteps: () => this.#steps ?? [],
      change: (current, previous) => {
        const group = (current ?? previous)?.name ?? '';
        this.#apply(`cidrgroup/${group}`, () => this.#applyGroup(group, current));
      },
    };
  }

  /** Applies a change after the pending ones. It replaces a pending change of the same resource. */
  #apply(resource: string, steps: () => Steps): void {
    this.#pending.set(resource, steps);
    if (this.#steps !== undefined) return;
    this.#steps = this.#applyPending();
    runNowOrInBackground(this.#gate, this.#steps, { signal: this.#signal });
  }

  /** If the metadata throws, applies the other changes, and applies the failed ones again with the next change. */
  *#applyPending(): Steps {
    let changes = 0;
    const errors: unknown[] = [];
    const failed = new Map<string, () => Steps>();
    for (const [resource, steps] of this.#pending) {
      this.#pending.delete(resource);
      failed.delete(resource);
      try {
        for (const _ of steps()) if (++changes % CHANGES_PER_STEP === 0) yield;
      } catch (error) {
        errors.push(error);
        failed.set(resource, steps);
      }
    }
    this.#steps = undefined;
    for (const [resource, steps] of failed) this.#pending.set(resource, steps);
    if (errors.length > 0) throw errors[0];
  }

  *#applyGroup(group: string, received: ParsedCIDRGroup | undefined): Steps {
    const before = this.#groups.get(group) ?? NO_CIDRS;
    const after = new Map<string, Prefix>();
    for (const cidr of received?.cidrs ?? []) {
      after.set(cidr.toString(), cidr);
      yield;
    }
    const change = { group, added: new Map<string, Prefix>(), removed: new Map<string, Prefix>() };
    yield* addOthers(change.added, after, before);
    yield* addOthers(change.removed, before, after);
    yield* this.#labelGroup(change, after.keys(), received?.labels ?? new Map());
    if (received === undefined) this.#groups.delete(group);
    else this.#groups.set(group, after);
    const errors: unknown[] = [];
    for (const resource of [...(this.#byGroup.get(group) ?? [])]) {
      try {
        yield* this.#untilChanged(resource, this.#writeGroup(resource, change));
      } catch (error) {
        errors.push(error);
        this.#rewrite(resource);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Writes all CIDRs of a policy after the pending changes. */
  #rewrite(resource: string): void {
    const written = this.#policies.get(resource);
    if (written === undefined) return;
    this.#apply(resource, () => this.#untilChanged(resource, this.#write(resource, written)));
  }

  /** Runs the steps of a policy until the policy changes, because its pending change then reads all its CIDRs. */
  *#untilChanged(resource: string, steps: Steps): Steps {
    while (!this.#pending.has(resource) && steps.next().done !== true) yield;
  }

  /** Sets the labels of a group on its CIDRs, whether a policy refers to the group or not. */
  *#labelGroup(
    { group, removed }: GroupChange,
    cidrs: Iterable<string>,
    labels: ParsedCIDRGroup['labels'],
  ): Steps {
    const resource = `cidrgroup/${group}`;
    for (const cidr of cidrs) {
      const groupLabels = cidrGroupLabels(group, labels, cidr, this.#world);
      this.#metadata.upsertMetadata(cidr, 'generated', resource, groupLabels);
      yield;
    }
    for (const cidr of removed.keys()) {
      this.#metadata.removeMetadata(cidr, resource);
      yield;
    }
  }

  #reader(
    kind: string,
    prefix: string,
    read: (fields: ObjectFields) => PolicyCIDRs | undefined,
  ): KindReader<PolicyCIDRs> {
    return {
      kind,
      fields: ['spec', 'specs'],
      read,
      pendingSteps: () => this.#steps ?? [],
      change: (current, previous) => this.#change(kind, prefix, current, previous),
    };
  }

  #change(
    kind: string,
    prefix: string,
    current: PolicyCIDRs | undefined,
    previous: PolicyCIDRs | undefined,
  ): void {
    const resource = `${prefix}/${(current ?? previous)?.id ?? ''}`;
    for (const { group } of previous?.groups ?? []) this.#removeReference(group, resource);
    for (const { group } of current?.groups ?? [])
      this.#byGroup.set(group, (this.#byGroup.get(group) ?? new Set()).add(resource));
    const written = this.#policies.get(resource) ?? {
      kind,
      policy: current,
      cidrs: new Map<string, number>(),
      exceedsLimit: false,
    };
    written.policy = current;
    this.#policies.set(resource, written);
    this.#rewrite(resource);
  }

  #removeReference(group: string, resource: string): void {
    const resources = this.#byGroup.get(group);
    resources?.delete(resource);
    if (resources?.size === 0) this.#byGroup.delete(group);
  }

  /** Yields the current CIDRs of a policy and of its groups, repeated if several rules contain them. */
  *#textsOf({ rules, groups }: PolicyCIDRs): Generator<string, void, void> {
    for (const { cidr, except } of rules) yield* remainders(new Map([[cidr.toString(), cidr]]), except);
    for (const { group, except } of groups) yield* remainders(this.#groups.get(group) ?? NO_CIDRS, except);
  }

  /** Drops the CIDR above the limit. Reports the policy if it did not exceed the limit before. */
  #dropExcess(written: WrittenPolicy, policy: PolicyCIDRs, cidrs: Map<string, number>): void {
    const exceededLimit = written.exceedsLimit;
    written.exceedsLimit = cidrs.size > MAX_CIDRS;
    if (!written.exceedsLimit) return;
    const last = [...cidrs.keys()].at(-1) ?? '';
    cidrs.delete(last);
    if (exceededLimit) return;
    const why = `must have at most ${MAX_CIDRS} CIDRs: further CIDRs are ignored`;
    this.#onReject(rejection('too-many', 'spec', last, why, `${written.kind} ${policy.id}`));
  }

  /** Updates the labels of the CIDRs of a policy. */
  *#write(resource: string, written: WrittenPolicy): Steps {
    const { policy, cidrs } = written;
    const current = new Map<string, number>();
    for (const text of policy === undefined ? [] : this.#textsOf(policy)) {
      current.set(text, (current.get(text) ?? 0) + 1);
      if (current.size > MAX_CIDRS) break;
      yield;
    }
    if (policy !== undefined) this.#dropExcess(written, policy, current);
    for (const [cidr, count] of current) {
      if (!cidrs.has(cidr)) this.#add(resource, cidr);
      cidrs.set(cidr, count);
      yield;
    }
    for (const cidr of cidrs.keys()) {
      if (!current.has(cidr)) this.#remove(resource, cidr, cidrs);
      yield;
    }
    if (policy === undefined) this.#policies.delete(resource);
  }

  /** Applies a change of a group to a policy. Linear in the changed CIDRs, unless the policy exceeds the limit. */
  *#writeGroup(resource: string, { group, added, removed }: GroupChange): Steps {
    const written = this.#policies.get(resource);
    if (written?.policy === undefined) return;
    const { policy, cidrs, exceedsLimit } = written;
    function* remaindersOf(changed: CIDRsByText): Generator<string, void, void> {
      for (const { group: name, except } of policy.groups)
        if (name === group) yield* remainders(changed, except);
    }
    if (exceedsLimit) {
      yield* this.#write(resource, written);
      return;
    }
    for (const cidr of remaindersOf(added)) {
      const count = cidrs.get(cidr) ?? 0;
      if (count === 0 && cidrs.size === MAX_CIDRS) {
        yield* this.#write(resource, written);
        return;
      }
      if (count === 0) this.#add(resource, cidr);
      cidrs.set(cidr, count + 1);
      yield;
    }
    for (const cidr of remaindersOf(removed)) {
      const remaining = (cidrs.get(cidr) ?? 0) - 1;
      if (remaining > 0) cidrs.set(cidr, remaining);
      else this.#remove(resource, cidr, cidrs);
      yield;
    }
  }

  #add(resource: string, cidr: string): void {
    this.#metadata.upsertMetadata(cidr, 'generated', resource, cidrLabels(cidr, this.#world));
  }

  #remove(resource: string, cidr: string, cidrs: Map<string, number>): void {
    this.#metadata.removeMetadata(cidr, resource);
    cidrs.delete(cidr);
  }
}
