import { type Rejection, rejection } from '../../base/rejection.ts';
import { cidrGroupLabels, cidrLabels, type WorldLabels } from '../../metadata/cidr-labels.ts';
import { cutOut } from '../../net/cut-out.ts';
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

/** A policy and the CIDRs written for it. */
interface WrittenPolicy {
  readonly kind: string;
  readonly policy: PolicyCIDRs;
  cidrs: ReadonlySet<string>;
  /** True if CIDRs above the limit were dropped. */
  exceedsLimit: boolean;
}

/**
 * The CIDRs of policies, each with a node-local identity (KUBERNETES 48 to 50). Their source is `generated`, which is
 * weaker than the source of a pod. Each policy is a resource, so a CIDR stays while any policy contains it. Exceptions
 * are subtracted. A policy may arrive before its CIDR groups (KUBERNETES 54). Each group is a resource, too, and adds
 * its labels to its CIDRs.
 */
export class PolicyCIDRTable {
  readonly #metadata: PrefixMetadata;
  readonly #world: WorldLabels;
  readonly #policies = new Map<string, WrittenPolicy>();
  readonly #groups = new Map<string, ParsedCIDRGroup>();
  /** Policies by the group that they refer to. */
  readonly #byGroup = new Map<string, Set<string>>();
  readonly #onReject: (rejection: Rejection) => void;

  /** @param onReject receives a policy when it first exceeds the limit of 65,536 CIDRs */
  constructor(metadata: PrefixMetadata, world: WorldLabels, onReject: (rejection: Rejection) => void) {
    this.#metadata = metadata;
    this.#world = world;
    this.#onReject = onReject;
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
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        this.#labelGroup(name, current, previous);
        if (current === undefined) this.#groups.delete(name);
        else this.#groups.set(name, current);
        for (const resource of this.#byGroup.get(name) ?? []) {
          const written = this.#policies.get(resource);
          if (written !== undefined) this.#write(resource, written);
        }
      },
    };
  }

  /** Adds the labels of a group to its CIDRs, whether a policy refers to the group or not. */
  #labelGroup(
    name: string,
    current: ParsedCIDRGroup | undefined,
    previous: ParsedCIDRGroup | undefined,
  ): void {
    const resource = `cidrgroup/${name}`;
    const cidrs = new Set(current?.cidrs.map(String));
    for (const cidr of cidrs) {
      const labels = cidrGroupLabels(name, current?.labels ?? new Map(), cidr, this.#world);
      this.#metadata.upsertMetadata(cidr, 'generated', resource, labels);
    }
    for (const cidr of new Set(previous?.cidrs.map(String)))
      if (!cidrs.has(cidr)) this.#metadata.removeMetadata(cidr, resource);
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
      const { cidrs = new Set<string>(), exceedsLimit = false } = written ?? {};
      const next = { kind, policy: current, cidrs, exceedsLimit };
      this.#policies.set(resource, next);
      this.#write(resource, next);
    } else if (written !== undefined) {
      this.#policies.delete(resource);
      for (const cidr of written.cidrs) this.#metadata.removeMetadata(cidr, resource);
    }
  }

  #removeReference(group: string, resource: string): void {
    const resources = this.#byGroup.get(group);
    resources?.delete(resource);
    if (resources?.size === 0) this.#byGroup.delete(group);
  }

  /** Returns the current CIDRs of a policy and of its groups, at most one more than the limit. */
  #cidrsOf({ rules, groups }: PolicyCIDRs): Set<string> {
    const ofGroups = groups.flatMap(({ group, except }) =>
      (this.#groups.get(group)?.cidrs ?? []).map((cidr) => ({ cidr, except })),
    );
    const cidrs = new Set<string>();
    for (const { cidr, except } of [...rules, ...ofGroups]) {
      for (const left of cutOut(cidr, except, MAX_CIDRS + 1)) {
        cidrs.add(left.toString());
        if (cidrs.size > MAX_CIDRS) return cidrs;
      }
    }
    return cidrs;
  }

  /** Drops the CIDR above the limit. Reports the policy if it did not exceed the limit before. */
  #dropExcess(written: WrittenPolicy, cidrs: Set<string>): void {
    const exceededLimit = written.exceedsLimit;
    written.exceedsLimit = cidrs.size > MAX_CIDRS;
    if (!written.exceedsLimit) return;
    const last = [...cidrs].at(-1) ?? '';
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
    for (const cidr of current)
      if (!previous.has(cidr))
        this.#metadata.upsertMetadata(cidr, 'generated', resource, cidrLabels(cidr, this.#world));
    for (const cidr of previous) if (!current.has(cidr)) this.#metadata.removeMetadata(cidr, resource);
  }
}
