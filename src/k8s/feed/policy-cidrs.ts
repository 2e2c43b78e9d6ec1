import { type Rejection, rejection } from '../../base/rejection.ts';
import { runNowOrInBackground, type TurnGate } from '../../base/turn-gate.ts';
import { cidrGroupLabels, cidrLabels, type WorldLabels } from '../../metadata/cidr-labels.ts';
import type { Labels } from '../../model/labels.ts';
import type { Prefix } from '../../net/prefix.ts';
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

/** The CIDRs of a policy or group, and their labels. */
interface LabelledCIDRs {
  readonly cidrs: readonly Prefix[];
  labelsOf(cidr: string): Labels;
  /** True if each CIDR always has the same labels. */
  readonly areLabelsFixed: boolean;
  /** Kind and name, for rejections. */
  readonly at: string;
}

/** A policy or group, and the CIDRs written for it. */
interface WrittenResource {
  /** The current state, which may not be written yet; undefined if the object was deleted. */
  current: LabelledCIDRs | undefined;
  /** Incomplete if the limit is exceeded. */
  readonly cidrs: Set<string>;
  /** True if CIDRs above the limit were dropped. */
  exceedsLimit: boolean;
}

/** Work that yields after each CIDR. */
type Steps = Generator<undefined, void, void>;

/**
 * The CIDRs of policies and CIDR groups, each with a node-local identity (KUBERNETES 48 to 50). Their source is
 * `generated`, which is weaker than the source of a pod. Each policy and each group is a resource, so a CIDR stays
 * while one of them contains it. An exception of a CIDR is a CIDR, too, and has an identity of its own (Cilium since
 * 1.17: `GetCIDRPrefixes`, pkg/policy/cidr.go). Changes are applied in steps, because a policy or a group may have tens
 * of thousands of CIDRs. A list of objects counts as complete when the steps of its changes are done.
 */
export class PolicyCIDRTable {
  readonly #metadata: PrefixMetadata;
  readonly #world: WorldLabels;
  readonly #resources = new Map<string, WrittenResource>();
  /** Resources whose changes are not applied yet. */
  readonly #pending = new Set<string>();
  /** Applies the pending changes; undefined if there are none. */
  #steps: Steps | undefined;
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
    return this.#policies('NetworkPolicy', 'networkpolicy', readNetworkPolicyCIDRs);
  }

  ciliumPolicies(): KindReader<PolicyCIDRs> {
    return this.#policies('CiliumNetworkPolicy', 'cnp', readCiliumPolicyCIDRs);
  }

  clusterwidePolicies(): KindReader<PolicyCIDRs> {
    return this.#policies('CiliumClusterwideNetworkPolicy', 'ccnp', readCiliumPolicyCIDRs);
  }

  #policies(
    kind: string,
    prefix: string,
    read: (fields: ObjectFields) => PolicyCIDRs | undefined,
  ): KindReader<PolicyCIDRs> {
    const labelsOf = (cidr: string): Labels => cidrLabels(cidr, this.#world);
    return {
      kind,
      fields: ['spec', 'specs'],
      read,
      pendingSteps: () => this.#steps ?? [],
      change: (current, previous) => {
        const id = (current ?? previous)?.id ?? '';
        const at = `${kind} ${id}`;
        const labelled = current && { cidrs: current.cidrs, labelsOf, areLabelsFixed: true, at };
        this.#change(`${prefix}/${id}`, labelled);
      },
    };
  }

  groups(): KindReader<ParsedCIDRGroup> {
    const kind = 'CiliumCIDRGroup';
    return {
      kind,
      fields: CIDR_GROUP_FIELDS,
      read: readCIDRGroup,
      pendingSteps: () => this.#steps ?? [],
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        this.#change(`cidrgroup/${name}`, current && this.#labelledGroup(current, `${kind} ${name}`));
      },
    };
  }

  #labelledGroup({ name, cidrs, labels }: ParsedCIDRGroup, at: string): LabelledCIDRs {
    const labelsOf = (cidr: string): Labels => cidrGroupLabels(name, labels, cidr, this.#world);
    return { cidrs, labelsOf, areLabelsFixed: false, at };
  }

  /** Sets the state of a resource. It is written after the pending changes. */
  #change(resource: string, current: LabelledCIDRs | undefined): void {
    const written = this.#resources.get(resource);
    if (written !== undefined) written.current = current;
    else this.#resources.set(resource, { current, cidrs: new Set(), exceedsLimit: false });
    this.#pending.add(resource);
    if (this.#steps !== undefined) return;
    this.#steps = this.#applyPending();
    runNowOrInBackground(this.#gate, this.#steps, { signal: this.#signal });
  }

  /** If the metadata throws, applies the other changes, and applies the failed ones again with the next change. */
  *#applyPending(): Steps {
    let changes = 0;
    const errors: unknown[] = [];
    const failed = new Set<string>();
    for (const resource of this.#pending) {
      this.#pending.delete(resource);
      failed.delete(resource);
      try {
        // If the resource changes again, its pending change reads all its CIDRs.
        for (const _ of this.#write(resource)) {
          if (++changes % CHANGES_PER_STEP === 0) yield;
          if (this.#pending.has(resource)) break;
        }
      } catch (error) {
        errors.push(error);
        failed.add(resource);
      }
    }
    this.#steps = undefined;
    for (const resource of failed) this.#pending.add(resource);
    if (errors.length > 0) throw errors[0];
  }

  /** Updates the labels of the CIDRs of a policy or group. */
  *#write(resource: string): Steps {
    const written = this.#resources.get(resource);
    if (written === undefined) return;
    const { current, cidrs } = written;
    const wanted = new Set<string>();
    if (current !== undefined) {
      yield* this.#collect(wanted, current, written);
      for (const cidr of wanted) {
        if (!current.areLabelsFixed || !cidrs.has(cidr))
          this.#metadata.upsertMetadata(cidr, 'generated', resource, current.labelsOf(cidr));
        cidrs.add(cidr);
        yield;
      }
    }
    for (const cidr of cidrs) {
      if (!wanted.has(cidr)) {
        this.#metadata.removeMetadata(cidr, resource);
        cidrs.delete(cidr);
      }
      yield;
    }
    if (current === undefined) this.#resources.delete(resource);
  }

  /** Adds the CIDRs up to the limit. Rejects the first one above it, unless the resource exceeded the limit before. */
  *#collect(wanted: Set<string>, { cidrs, at }: LabelledCIDRs, written: WrittenResource): Steps {
    for (const cidr of cidrs) {
      const text = cidr.toString();
      if (wanted.size === MAX_CIDRS && !wanted.has(text)) {
        const why = `must have at most ${MAX_CIDRS} CIDRs: further CIDRs are ignored`;
        if (!written.exceedsLimit) this.#onReject(rejection('too-many', 'spec', text, why, at));
        written.exceedsLimit = true;
        return;
      }
      wanted.add(text);
      yield;
    }
    written.exceedsLimit = false;
  }
}
