import { type Rejection, rejection } from '../../base/rejection.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
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
import { type KindReader, runSteps } from './object-feed.ts';
import type { PrefixMetadata } from './prefix-metadata.ts';

/** Maximum number of CIDRs per policy, so that one policy cannot fill the IPCache. */
const MAX_CIDRS = 65_536;

/** Changes of CIDRs per step; 256 take about 1 ms. */
const CHANGES_PER_STEP = 256;

/** A policy and the CIDRs written for it. */
interface WrittenPolicy {
  readonly kind: string;
  readonly policy: PolicyCIDRs;
  /** Number of rules and groups that contain each CIDR. Incomplete if the limit is exceeded. */
  cidrs: Map<string, number>;
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

/** Work that yields after each change of a CIDR. */
type Steps = Generator<undefined, void, void>;

const NO_CIDRS: CIDRsByText = new Map();

/** Returns the CIDRs which are not in `others`. */
function without(cidrs: CIDRsByText, others: CIDRsByText): CIDRsByText {
  return new Map([...cidrs].filter(([text]) => !others.has(text)));
}

/** Yields the texts of what remains of CIDRs without the exceptions. */
function* remainders(cidrs: CIDRsByText, except: readonly Prefix[]): Generator<string, void, void> {
  if (except.length === 0) yield* cidrs.keys();
  else for (const cidr of cidrs.values()) yield* subtractPrefixes(cidr, except, MAX_CIDRS + 1).map(String);
}

/**
 * The CIDRs of policies, each with a node-local identity (KUBERNETES 48 to 50). Their source is `generated`, which is
 * weaker than the source of a pod. Each policy is a resource, so a CIDR stays while any policy contains it. Exceptions
 * are subtracted. A policy may arrive before its CIDR groups (KUBERNETES 54). Each group is a resource, too, and adds
 * its labels to its CIDRs. A change of a group is applied in steps, because hundreds of policies may refer to it; the
 * groups of a first list are applied immediately, so that a caller that waits for the list finds their labels.
 */
export class PolicyCIDRTable {
  readonly #metadata: PrefixMetadata;
  readonly #world: WorldLabels;
  readonly #policies = new Map<string, WrittenPolicy>();
  /** The CIDRs of each group, by text. A received group that is not applied yet has its previous CIDRs. */
  readonly #groups = new Map<string, CIDRsByText>();
  /** The groups that are not applied yet; undefined for a deleted group. */
  readonly #received = new Map<string, ParsedCIDRGroup | undefined>();
  /** Applies the received groups; undefined if there are none. */
  #steps: Steps | undefined;
  /** True while a list of groups arrives. */
  #isListing = false;
  /** Policies by the group that they refer to. */
  readonly #byGroup = new Map<string, Set<string>>();
  readonly #onReject: (rejection: Rejection) => void;
  readonly #gate: TurnGate | undefined;

  /**
   * @param onReject receives a policy when it first exceeds the limit of 65,536 CIDRs
   * @param gate distributes the changes of groups over turns of the event loop. Default: one turn
   */
  constructor(
    metadata: PrefixMetadata,
    world: WorldLabels,
    onReject: (rejection: Rejection) => void,
    gate?: TurnGate,
  ) {
    this.#metadata = metadata;
    this.#world = world;
    this.#onReject = onReject;
    this.#gate = gate;
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
      start: () => {
        this.#isListing = true;
      },
      listed: () => {
        this.#isListing = false;
      },
      change: (current, previous) => {
        this.#received.set((current ?? previous)?.name ?? '', current);
        const isRunning = this.#steps !== undefined;
        this.#steps ??= this.#applyReceived();
        if (this.#isListing && current !== undefined) runSteps(undefined, this.#steps);
        else if (!isRunning) runSteps(this.#gate, this.#steps);
      },
    };
  }

  *#applyReceived(): Steps {
    let changes = 0;
    try {
      for (const [group, received] of this.#received) {
        this.#received.delete(group);
        for (const _ of this.#applyGroup(group, received)) if (++changes % CHANGES_PER_STEP === 0) yield;
      }
    } finally {
      this.#steps = undefined; // also if the metadata throws, so that later changes are applied
    }
  }

  *#applyGroup(group: string, received: ParsedCIDRGroup | undefined): Steps {
    const before = this.#groups.get(group) ?? NO_CIDRS;
    const after = new Map(received?.cidrs.map((cidr) => [cidr.toString(), cidr]));
    const change = { group, added: without(after, before), removed: without(before, after) };
    if (received === undefined) this.#groups.delete(group);
    else this.#groups.set(group, after);
    const policies = [...(this.#byGroup.get(group) ?? [])].map(
      (resource) => [resource, this.#policies.get(resource)] as const,
    );
    yield* this.#labelGroup(change, after.keys(), received?.labels ?? new Map());
    for (const [resource, written] of policies)
      if (written !== undefined) yield* this.#writeGroup(resource, written, change);
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
    const written = this.#policies.get(resource);
    for (const { group } of previous?.groups ?? []) this.#removeReference(group, resource);
    for (const { group } of current?.groups ?? [])
      this.#byGroup.set(group, (this.#byGroup.get(group) ?? new Set()).add(resource));
    if (current !== undefined) {
      const { cidrs = new Map<string, number>(), exceedsLimit = false } = written ?? {};
      const next = { kind, policy: current, cidrs, exceedsLimit };
      this.#policies.set(resource, next);
      this.#write(resource, next);
    } else if (written !== undefined) {
      this.#policies.delete(resource);
      for (const cidr of written.cidrs.keys()) this.#metadata.removeMetadata(cidr, resource);
    }
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

  /** Returns the current CIDRs of a policy, at most one more than the limit. */
  #cidrsOf(policy: PolicyCIDRs): Map<string, number> {
    const cidrs = new Map<string, number>();
    for (const text of this.#textsOf(policy)) {
      cidrs.set(text, (cidrs.get(text) ?? 0) + 1);
      if (cidrs.size > MAX_CIDRS) break;
    }
    return cidrs;
  }

  /** Drops the CIDR above the limit. Reports the policy if it did not exceed the limit before. */
  #dropExcess(written: WrittenPolicy, cidrs: Map<string, number>): void {
    const exceededLimit = written.exceedsLimit;
    written.exceedsLimit = cidrs.size > MAX_CIDRS;
    if (!written.exceedsLimit) return;
    const last = [...cidrs.keys()].at(-1) ?? '';
    cidrs.delete(last);
    if (exceededLimit) return;
    const { kind, policy } = written;
    const why = `must have at most ${MAX_CIDRS} CIDRs: further CIDRs are ignored`;
    this.#onReject(rejection('too-many', 'spec', last, why, `${kind} ${policy.id}`));
  }

  /** Updates the labels of the CIDRs of a policy. */
  #write(resource: string, written: WrittenPolicy): void {
    const previous = written.cidrs;
    const current = this.#cidrsOf(written.policy);
    this.#dropExcess(written, current);
    written.cidrs = current;
    for (const cidr of current.keys()) if (!previous.has(cidr)) this.#add(resource, cidr);
    for (const cidr of previous.keys()) if (!current.has(cidr)) this.#metadata.removeMetadata(cidr, resource);
  }

  /**
   * Applies a change of a group to a policy. Linear in the changed CIDRs, unless the policy exceeds the limit. Ends if
   * the policy changes in the meantime, because its CIDRs are then computed from the changed group.
   */
  *#writeGroup(resource: string, written: WrittenPolicy, { group, added, removed }: GroupChange): Steps {
    const { policy } = written;
    function* remaindersOf(changed: CIDRsByText): Generator<string, void, void> {
      for (const { group: name, except } of policy.groups)
        if (name === group) yield* remainders(changed, except);
    }
    const isCurrent = (): boolean => this.#policies.get(resource) === written;
    if (!isCurrent()) return;
    const { cidrs, exceedsLimit } = written;
    if (exceedsLimit) {
      this.#write(resource, written);
      return;
    }
    for (const cidr of remaindersOf(added)) {
      const count = cidrs.get(cidr) ?? 0;
      if (count === 0 && cidrs.size === MAX_CIDRS) {
        this.#write(resource, written);
        return;
      }
      cidrs.set(cidr, count + 1);
      if (count === 0) this.#add(resource, cidr);
      yield;
      if (!isCurrent()) return;
    }
    for (const cidr of remaindersOf(removed)) {
      const remaining = (cidrs.get(cidr) ?? 0) - 1;
      if (remaining > 0) cidrs.set(cidr, remaining);
      else {
        cidrs.delete(cidr);
        this.#metadata.removeMetadata(cidr, resource);
      }
      yield;
      if (!isCurrent()) return;
    }
  }

  #add(resource: string, cidr: string): void {
    this.#metadata.upsertMetadata(cidr, 'generated', resource, cidrLabels(cidr, this.#world));
  }
}
