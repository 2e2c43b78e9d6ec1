import type { Rejection } from '../base/rejection.ts';
import { showValue } from '../base/show-value.ts';
import {
  claimRejection,
  hostRejection,
  ifPodRejection,
  writerRejection,
} from '../ipcache/claims/claim-rejection.ts';
import type { PrefixClaims } from '../ipcache/ipcache.ts';
import { metadataOrNone } from '../ipcache/k8s-metadata.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import type { NumericIdentity } from '../model/numeric-identity.ts';
import { canonicalAddress, formatPrefixOf, type KeyForm, parseKey, prefixRegister } from '../net/prefix.ts';
import type { AddressClaim } from '../nodemanager/address-claims.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import {
  comparison,
  type Edit,
  EditError,
  orderAfter,
  podScope,
  removalsByScope,
  scopesOfWriter,
  writerText,
} from './edits.ts';

/** The claim of a writer on a key after an edit; if `claim` is absent, the edit deletes it. */
interface KeyEdit {
  readonly form: KeyForm;
  readonly writer: ClaimWriter;
  readonly claim: CompleteClaim | undefined;
  /** Deletes only a claim of this pod. */
  readonly ifPod?: { readonly namespace: string; readonly podName: string } | undefined;
}

export interface OverlaidClaim {
  readonly claim: CompleteClaim;
  readonly form: KeyForm;
}

const register = prefixRegister();

/** Returns the prefix and the form of a key; undefined if it is invalid. */
function parsePrefix(key: string): { readonly prefix: string; readonly form: KeyForm } | undefined {
  return parseKey(key, register) ? { prefix: formatPrefixOf(key, register), form: register.form } : undefined;
}

/** Returns the claim that listeners see: the strongest on the endpoint, else the strongest on the CIDR (I4). */
export function visibleOf({ endpoint, cidr }: PrefixClaims): OverlaidClaim | undefined {
  const [onEndpoint] = endpoint;
  if (onEndpoint !== undefined) return { claim: onEndpoint, form: 'endpoint' };
  const [onCIDR] = cidr;
  return onCIDR && { claim: onCIDR, form: 'cidr' };
}

/**
 * Computes the claims of prefixes after the edits. The caller passes the current claims with each call, because they
 * may change. Edits apply in their order, after the changes of nodes.
 */
export class ClaimOverlay {
  readonly #edits: readonly Edit[];
  /** Edits of single claims, by prefix, in their order. */
  readonly #keyEdits = new Map<string, KeyEdit[]>();
  /** The index of the edit that sets a claim. */
  readonly #setAt = new Map<CompleteClaim, number>();
  /** The changed address claims of nodes, by prefix, then by node. */
  readonly #nodeEdits = new Map<string, Map<string, readonly KeyEdit[]>>();
  /** The addresses of each drained node. */
  readonly #drainedHosts = new Map<string, ReadonlySet<string>>();
  readonly #compare: ReturnType<typeof comparison>;
  readonly #removals: ReturnType<typeof removalsByScope>;
  readonly #nodes: NodeManager | undefined;

  /** Throws {@link EditError} if a claim or key of an edit is invalid. */
  constructor(edits: readonly Edit[], nodes?: NodeManager) {
    this.#edits = edits;
    this.#nodes = nodes;
    this.#compare = comparison(orderAfter(edits));
    this.#removals = removalsByScope(edits);
    for (const [index, edit] of edits.entries()) {
      if (edit.edit !== 'upsert' && edit.edit !== 'delete') continue;
      const parsed = parsePrefix(edit.key);
      if (parsed === undefined)
        throw new EditError(`key ${showValue(edit.key)} must be an IP address or a CIDR`, {
          index,
          field: 'key',
          value: edit.key,
        });
      const { prefix, form } = parsed;
      const ofKey = keyEdit(edit, form, index);
      if (ofKey.claim !== undefined) this.#setAt.set(ofKey.claim, index);
      const keyEdits = this.#keyEdits.get(prefix);
      if (keyEdits === undefined) this.#keyEdits.set(prefix, [ofKey]);
      else keyEdits.push(ofKey);
    }
  }

  /** The prefixes on which an edit sets or deletes a claim. */
  get namedPrefixes(): Iterable<string> {
    return this.#keyEdits.keys();
  }

  /** Returns true if an edit removes claims of this writer. */
  readonly removes = (writer: ClaimWriter): boolean => this.#lastRemoval(writer) >= 0;

  /** True if an edit changes the order of sources. */
  get changesOrder(): boolean {
    return this.#edits.some(({ edit }) => edit === 'rank');
  }

  /**
   * Replaces the edits of a node's address claims by the differences between `before` and `after`, and returns their
   * prefixes. `previous` is the result of the last call for this node.
   */
  setNode(
    fullName: string,
    previous: readonly string[],
    before: Iterable<AddressClaim>,
    after: Iterable<AddressClaim>,
  ): readonly string[] {
    for (const prefix of previous) {
      const nodes = this.#nodeEdits.get(prefix);
      nodes?.delete(fullName);
      if (nodes?.size === 0) this.#nodeEdits.delete(prefix);
    }
    const next = new Map([...after].map((claim) => [claim.ip, claim]));
    const edits = new Map<string, KeyEdit[]>();
    const add = (ip: string, edit: Omit<KeyEdit, 'form'>): void => {
      const parsed = parsePrefix(ip);
      if (parsed === undefined) return;
      const { prefix, form } = parsed;
      edits.set(prefix, [...(edits.get(prefix) ?? []), { form, ...edit }]);
    };
    for (const claim of before) {
      const same = next.get(claim.ip);
      if (same?.equals(claim) === true) next.delete(claim.ip);
      else add(claim.ip, { writer: writerOf(claim), claim: undefined });
    }
    for (const claim of next.values())
      add(claim.ip, { writer: writerOf(claim), claim: completeClaim(claim) });
    for (const [prefix, list] of edits) {
      const nodes = this.#nodeEdits.get(prefix) ?? new Map<string, readonly KeyEdit[]>();
      this.#nodeEdits.set(prefix, nodes.set(fullName, list));
    }
    return [...edits.keys()];
  }

  /** Sets the addresses of a node that an edit drains. Returns the addresses before and after. */
  setDrained(fullName: string, hosts: Iterable<string>): ReadonlySet<string> {
    const next = new Set(hosts);
    const before = this.#drainedHosts.get(fullName) ?? [];
    this.#drainedHosts.set(fullName, next);
    return new Set([...before, ...next]);
  }

  /** Returns the claim that listeners would see. `claims` are the current claims of the prefix. */
  after(claims: PrefixClaims): OverlaidClaim | undefined {
    const endpoint = this.#afterOn(claims.prefix, 'endpoint', claims.endpoint);
    if (endpoint !== undefined) return { claim: endpoint, form: 'endpoint' };
    const cidr = this.#afterOn(claims.prefix, 'cidr', claims.cidr);
    return cidr && { claim: cidr, form: 'cidr' };
  }

  #afterOn(prefix: string, form: KeyForm, current: readonly CompleteClaim[]): CompleteClaim | undefined {
    let strongest: CompleteClaim | undefined;
    for (const claim of this.#edited(prefix, form, current)) {
      if (Math.max(this.#lastRemoval(claim), this.#lastDrain(claim)) > (this.#setAt.get(claim) ?? -1))
        continue;
      if (strongest === undefined || this.#compare(claim, strongest) < 0) strongest = claim;
    }
    return strongest;
  }

  /** Returns the claims after the edits of single claims and of nodes, without the effect of removals. */
  #edited(prefix: string, form: KeyForm, current: readonly CompleteClaim[]): Iterable<CompleteClaim> {
    const ofNodes = this.#nodeEdits.get(prefix);
    const ofKeys = this.#keyEdits.get(prefix);
    if (ofNodes === undefined && ofKeys === undefined) return current;
    const claims = new Map(current.map((claim) => [writerText(claim), claim]));
    for (const edits of [...(ofNodes?.values() ?? []), ofKeys ?? []])
      for (const edit of edits) if (edit.form === form) applyEdit(claims, edit);
    return claims.values();
  }

  /** Returns the index of the last edit that removes the claims of a writer; -1 if there is none. */
  #lastRemoval(writer: ClaimWriter): number {
    if (this.#removals.size === 0 || this.#followsLocalNode(writer)) return -1;
    return Math.max(...scopesOfWriter(writer).map((scope) => this.#removals.get(scope)?.last ?? -1));
  }

  /**
   * Returns true for the address claims of the local node if another source announces it. Their source is `local`, but
   * they are removed with the node.
   */
  #followsLocalNode({ source, owner }: ClaimWriter): boolean {
    if (source !== 'local' || !owner.includes('/')) return false;
    return (this.#nodes?.get(owner)?.source ?? 'local') !== 'local';
  }

  /** Returns the index of the last edit that drains the node of a pod; -1 if there is none. */
  #lastDrain({ hostIP, k8s }: CompleteClaim): number {
    let last = -1;
    if (hostIP === undefined || k8s === undefined) return last;
    for (const [fullName, hosts] of this.#drainedHosts)
      if (hosts.has(hostIP)) last = Math.max(last, this.#removals.get(podScope(fullName))?.last ?? -1);
    return last;
  }
}

function writerOf({ source, owner }: AddressClaim): ClaimWriter {
  return { source, owner };
}

function completeClaim({ source, owner, identity, hostIP, encryptKey }: AddressClaim): CompleteClaim {
  return { source, owner, identity, hostIP, encryptKey, k8s: undefined };
}

/** Applies an edit to the claims on a key, by writer. */
function applyEdit(claims: Map<string, CompleteClaim>, { writer, claim, ifPod }: KeyEdit): void {
  const text = writerText(writer);
  const { k8s } = claims.get(text) ?? {};
  if (ifPod !== undefined && (k8s?.namespace !== ifPod.namespace || k8s.podName !== ifPod.podName)) return;
  if (claim === undefined) claims.delete(text);
  else claims.set(text, claim);
}

/** Returns the checked edit of one claim. Throws {@link EditError} if a field is invalid. */
function keyEdit(edit: Extract<Edit, { edit: 'upsert' | 'delete' }>, form: KeyForm, index: number): KeyEdit {
  if (edit.edit === 'delete') {
    throwIfFault(index, writerRejection(edit.by, edit.key) ?? ifPodRejection(edit.by.ifPod, edit.key));
    const { source, owner = '', ifPod } = edit.by;
    return { form, writer: { source, owner }, claim: undefined, ifPod };
  }
  const { claim, key } = edit;
  throwIfFault(index, claimRejection(claim, key) ?? writerRejection(claim, key));
  const { source, owner = '', identity, encryptKey = 0, k8s } = claim;
  const hostIP = claim.hostIP === undefined ? undefined : canonicalAddress(claim.hostIP);
  if (claim.hostIP !== undefined && hostIP === undefined)
    throwIfFault(index, hostRejection(claim.hostIP, key));
  // Checked by claimRejection.
  const fields = { source, owner, hostIP, encryptKey, identity: identity as NumericIdentity };
  return { form, writer: { source, owner }, claim: { ...fields, k8s: metadataOrNone(k8s) } };
}

/** Throws {@link EditError} if `fault` is defined. */
function throwIfFault(index: number, fault: Rejection | undefined): void {
  if (fault === undefined) return;
  const { field, value, message } = fault;
  throw new EditError(message, { index, field, value });
}
