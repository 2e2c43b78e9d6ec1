import { hash, Map as ImmutableMap, List, type ValueObject } from 'immutable';
import type { NodeAddress } from '../model/cluster-node.ts';
import type { Source } from '../model/source.ts';
import { type NodeFields, nodeFullName, type PlainNode, plainNode, sameNode } from './node-spec.ts';

interface NodeCollections {
  readonly addresses: List<NodeAddress>;
  readonly ipv4SecondaryAllocCIDRs: List<string>;
  readonly ipv6SecondaryAllocCIDRs: List<string>;
  readonly labels: ImmutableMap<string, string>;
  readonly annotations: ImmutableMap<string, string>;
}

/**
 * A node (SEMANTICS 4): an immutable value, safe to keep. Two nodes are equal if all fields are, including the source
 * and the order of addresses. `is`, `Map` and `Set` of `immutable` compare it by value. Its immutable collections are
 * created on first access, because most nodes' labels are never read.
 */
export class Node implements ValueObject {
  /** `cluster/name`. */
  readonly fullName: string;
  /** The same node as plain data, for codecs and hot loops. Must not be changed. */
  readonly fields: NodeFields;
  #collections: NodeCollections | undefined;

  /**
   * `fields` must be canonical and are kept; use `parseNode` for input of sources. `fullName` may be the string of
   * another version of the node, so that its hash is computed once.
   */
  constructor(fields: NodeFields, fullName: string = nodeFullName(fields)) {
    this.fullName = fullName;
    this.fields = fields;
  }

  get name(): string {
    return this.fields.name;
  }

  get cluster(): string {
    return this.fields.cluster;
  }

  get source(): Source {
    return this.fields.source;
  }

  get clusterID(): number {
    return this.fields.clusterID;
  }

  get addresses(): List<NodeAddress> {
    return this.#immutable().addresses;
  }

  get ipv4AllocCIDR(): string | undefined {
    return this.fields.ipv4AllocCIDR;
  }

  get ipv6AllocCIDR(): string | undefined {
    return this.fields.ipv6AllocCIDR;
  }

  get ipv4SecondaryAllocCIDRs(): List<string> {
    return this.#immutable().ipv4SecondaryAllocCIDRs;
  }

  get ipv6SecondaryAllocCIDRs(): List<string> {
    return this.#immutable().ipv6SecondaryAllocCIDRs;
  }

  get ipv4HealthIP(): string | undefined {
    return this.fields.ipv4HealthIP;
  }

  get ipv6HealthIP(): string | undefined {
    return this.fields.ipv6HealthIP;
  }

  get ipv4IngressIP(): string | undefined {
    return this.fields.ipv4IngressIP;
  }

  get ipv6IngressIP(): string | undefined {
    return this.fields.ipv6IngressIP;
  }

  get encryptionKey(): number {
    return this.fields.encryptionKey;
  }

  get labels(): ImmutableMap<string, string> {
    return this.#immutable().labels;
  }

  get annotations(): ImmutableMap<string, string> {
    return this.#immutable().annotations;
  }

  get nodeIdentity(): number {
    return this.fields.nodeIdentity;
  }

  get wireguardPubKey(): string {
    return this.fields.wireguardPubKey;
  }

  get bootID(): string {
    return this.fields.bootID;
  }

  equals(other: unknown): boolean {
    return this === other || (other instanceof Node && sameNode(this.fields, other.fields));
  }

  hashCode(): number {
    return hash(this.fullName);
  }

  toJSON(): PlainNode {
    return plainNode(this.fields);
  }

  #immutable(): NodeCollections {
    this.#collections ??= {
      addresses: List(this.fields.addresses.map((address) => Object.freeze({ ...address }))),
      ipv4SecondaryAllocCIDRs: List(this.fields.ipv4SecondaryAllocCIDRs),
      ipv6SecondaryAllocCIDRs: List(this.fields.ipv6SecondaryAllocCIDRs),
      labels: ImmutableMap(this.fields.labels),
      annotations: ImmutableMap(this.fields.annotations),
    };
    return this.#collections;
  }
}
