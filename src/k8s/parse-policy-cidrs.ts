import { Prefix } from '../net/prefix.ts';
import { formatServiceID } from '../servicecache/service-id.ts';
import { type ObjectFields, readClusterScopedName, readID, readStringMap } from './parse-object.ts';

/** Maximum length of each list of a policy: rules, peers and CIDRs. */
const MAX_ITEMS = 16_384;
/** Maximum number of exceptions of a CIDR. */
const MAX_EXCEPTIONS = 1_024;

/** The CIDRs of a policy, exceptions included (KUBERNETES 48). */
export interface PolicyCIDRs {
  /** `namespace/name`, or only the name if the policy is cluster-scoped. */
  readonly id: string;
  readonly cidrs: readonly Prefix[];
}

/** Returns a CIDR, or an address as a CIDR of full length, as Cilium policies do. */
function readPrefix(fields: ObjectFields, name: string | number): Prefix | undefined {
  const text = fields.string(name);
  if (text === undefined) return undefined;
  return Prefix.parse(text.trim()) ?? fields.reject(name, 'invalid-cidr', 'is not a valid CIDR');
}

function readPrefixes(list: ObjectFields): readonly Prefix[] {
  return list.items(readPrefix);
}

function readItems(fields: ObjectFields, name: string): readonly ObjectFields[] {
  return fields.list(name, MAX_ITEMS).items((items, index) => items.item(index));
}

/** Collects the CIDRs of a policy. */
class CIDRCollector {
  readonly #cidrs: Prefix[] = [];

  policy(id: string): PolicyCIDRs {
    return { id, cidrs: this.#cidrs };
  }

  /**
   * Adds `cidr` and `except`. If an exception is invalid, adds nothing, because without the exception the CIDR would be
   * too large.
   */
  addBlock(fields: ObjectFields): void {
    const listed = fields.list('except', MAX_EXCEPTIONS);
    const except = readPrefixes(listed);
    if (except.length < listed.size || (listed.size === 0 && this.#hasExceptions(fields))) return;
    const cidr = readPrefix(fields, 'cidr');
    if (cidr !== undefined) this.#cidrs.push(cidr);
    this.#cidrs.push(...except);
  }

  /** Returns false if `except` is absent or empty. `Fields.list` returns an empty list also for an invalid one. */
  #hasExceptions(fields: ObjectFields): boolean {
    const except = fields.value('except');
    return except !== undefined && !(Array.isArray(except) && except.length === 0);
  }

  /** Adds the lists of a Cilium rule, such as `fromCIDR` and `fromCIDRSet`. */
  addCiliumRule(rule: ObjectFields, direction: 'from' | 'to'): void {
    for (const cidr of readPrefixes(rule.list(`${direction}CIDR`, MAX_ITEMS))) this.#cidrs.push(cidr);
    for (const block of readItems(rule, `${direction}CIDRSet`)) this.addBlock(block);
  }
}

const DIRECTIONS = [
  ['ingress', 'from'],
  ['egress', 'to'],
] as const;

/** Returns the CIDRs of a `networking.k8s.io/v1` `NetworkPolicy`. */
export function readNetworkPolicyCIDRs(fields: ObjectFields): PolicyCIDRs | undefined {
  const id = readID(fields);
  const spec = fields.map('spec');
  const collected = new CIDRCollector();
  for (const [rules, peers] of DIRECTIONS) {
    for (const peer of readItems(spec, rules).flatMap((rule) => readItems(rule, peers))) {
      const block = peer.object('ipBlock');
      if (block !== undefined) collected.addBlock(block);
    }
  }
  return id && collected.policy(formatServiceID(id));
}

/** Returns `namespace/name`, or only the name if the policy is cluster-scoped. */
function readPolicyID(fields: ObjectFields): string | undefined {
  if (fields.map('metadata').value('namespace') === undefined) return readClusterScopedName(fields);
  const id = readID(fields);
  return id && formatServiceID(id);
}

/** Returns the CIDRs of a `cilium.io/v2` `CiliumNetworkPolicy` or `CiliumClusterwideNetworkPolicy`. */
export function readCiliumPolicyCIDRs(fields: ObjectFields): PolicyCIDRs | undefined {
  const id = readPolicyID(fields);
  if (id === undefined) return undefined;
  const collected = new CIDRCollector();
  const spec = fields.object('spec');
  for (const rules of [...(spec === undefined ? [] : [spec]), ...readItems(fields, 'specs')]) {
    for (const [side, direction] of DIRECTIONS) {
      for (const rule of [...readItems(rules, side), ...readItems(rules, `${side}Deny`)])
        collected.addCiliumRule(rule, direction);
    }
  }
  return collected.policy(id);
}

/** The CIDRs and labels of a `cilium.io` `CiliumCIDRGroup`. */
export interface ParsedCIDRGroup {
  readonly name: string;
  readonly cidrs: readonly Prefix[];
  readonly labels: ReadonlyMap<string, string>;
}

/** The fields read by {@link readCIDRGroup}. */
export const CIDR_GROUP_FIELDS: readonly string[] = ['metadata.labels', 'spec.externalCIDRs'];

/** Returns the CIDRs and labels of a CIDR group. */
export function readCIDRGroup(fields: ObjectFields): ParsedCIDRGroup | undefined {
  const name = readClusterScopedName(fields);
  if (name === undefined) return undefined;
  const cidrs = readPrefixes(fields.map('spec').list('externalCIDRs', MAX_ITEMS));
  return { name, cidrs, labels: readStringMap(fields.map('metadata'), 'labels') };
}
