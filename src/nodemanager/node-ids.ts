import { checkArguments, ITERABLE, objectWith } from '../base/arguments.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import type { Node } from './node.ts';
import type { NodeHandler } from './node-handler.ts';

const NONE: ReadonlySet<string> = new Set();

/** Ids are 16 bits wide in datapaths, and 0 means that there is none. */
export const MAX_NODE_ID = 0xffff;

/** No id is free: every one of them stands for an address in use. The handler is called again later. */
export class NodeIDsExhaustedError extends Error {
  override readonly name = 'NodeIDsExhaustedError';
  readonly code = 'node-ids-exhausted';
  readonly retryable = true;
}

/** An address and its id, as {@link NodeIDs} gives them out and takes them back. */
export interface NodeIDPair {
  readonly ip: string;
  readonly id: number;
}

/**
 * Small numbers for node addresses, for datapaths that have no room for an address: 1 to 65,535, one for each address
 * of a node (health and ingress IPs have none).
 *
 * Stable: an address that goes and comes back has the id that it had, and ids of an earlier run can be restored.
 * Reusable: when all ids have been given out once, the one that has been unused for longest is given to a new
 * address; so traffic that still carries an id is not taken for another node's.
 *
 * A handler like any other: subscribe it before those that ask it, and they find the ids of the nodes that they receive.
 */
export class NodeIDs implements NodeHandler {
  readonly name = 'node-ids';
  readonly #max: number;
  readonly #ids = new Map<string, number>();
  readonly #ips = new Map<number, string>();
  /** How many nodes have an address; absent when it is in use by none. */
  readonly #uses = new Map<string, number>();
  /** The addresses of each node, by its full name, as far as they are in use. */
  readonly #counted = new Map<string, ReadonlySet<string>>();
  /** Addresses that no node has, in the order in which they were freed. */
  readonly #unused = new Set<string>();
  /** No id from here on was ever given out. */
  #fresh = 1;

  constructor(max: number = MAX_NODE_ID) {
    this.#max = max;
  }

  /** The id of an address (canonical), also while no node has it, until the id is needed for another one. */
  idOf(ip: string): number | undefined {
    return this.#ids.get(ip);
  }

  /** The address behind an id. */
  ipOf(id: number): string | undefined {
    return this.#ips.get(id);
  }

  /** Every id that is given out, for a checkpoint. Those in use come last, so that they are the last to go. Costs a copy. */
  pairs(): readonly NodeIDPair[] {
    const pairOf = (ip: string): NodeIDPair => ({ ip, id: this.#ids.get(ip) ?? 0 });
    return [...Array.from(this.#unused, pairOf), ...Array.from(this.#uses.keys(), pairOf)];
  }

  /**
   * Takes the ids of an earlier run over. They count as unused until a node has their address. A pair that is wrong
   * or contradicts what is known is rejected; gives the rejections.
   */
  restore(pairs: Iterable<NodeIDPair>): readonly Rejection[] {
    const rejected: Rejection[] = [];
    for (const pair of pairs) {
      const fault = this.#faultOf(pair);
      if (fault === undefined) this.#assign(pair.ip, pair.id);
      else rejected.push(fault);
    }
    return rejected;
  }

  nodeAdd(node: Node): void {
    this.#count(node.fullName, addressesOf(node));
  }

  nodeUpdate(_old: Node, node: Node): void {
    this.#count(node.fullName, addressesOf(node));
  }

  nodeDelete(node: Node): void {
    this.#count(node.fullName, NONE);
  }

  /** A node has these addresses. Those before are what was counted of it: a call that has failed is undone by another. */
  #count(node: string, after: ReadonlySet<string>): void {
    const before = this.#counted.get(node) ?? NONE;
    this.#acquireAll([...after].filter((ip) => !before.has(ip)));
    for (const ip of before) if (!after.has(ip)) this.#release(ip);
    if (after.size > 0) this.#counted.set(node, after);
    else this.#counted.delete(node);
  }

  /** All or nothing: a call that fails is made again, and must not count addresses twice. */
  #acquireAll(ips: Iterable<string>): void {
    const acquired: string[] = [];
    for (const ip of ips) {
      if (this.#acquire(ip)) {
        acquired.push(ip);
        continue;
      }
      for (const taken of acquired) this.#release(taken);
      throw new NodeIDsExhaustedError(`all ${this.#max} node ids are in use; ${ip} gets none`);
    }
  }

  #acquire(ip: string): boolean {
    if (!this.#ids.has(ip)) {
      const id = this.#freeID();
      if (id === undefined) return false;
      this.#assign(ip, id);
    }
    this.#uses.set(ip, (this.#uses.get(ip) ?? 0) + 1);
    this.#unused.delete(ip);
    return true;
  }

  #release(ip: string): void {
    const uses = this.#uses.get(ip);
    if (uses === undefined) return;
    if (uses > 1) {
      this.#uses.set(ip, uses - 1);
      return;
    }
    this.#uses.delete(ip);
    this.#unused.add(ip);
  }

  /** A fresh id, else the one that has been unused for longest. */
  #freeID(): number | undefined {
    while (this.#ips.has(this.#fresh)) this.#fresh++; // ids that were restored
    if (this.#fresh <= this.#max) return this.#fresh;
    const [oldest] = this.#unused;
    if (oldest === undefined) return undefined;
    const id = this.#ids.get(oldest);
    this.#unused.delete(oldest);
    this.#ids.delete(oldest);
    return id;
  }

  #assign(ip: string, id: number): void {
    this.#ids.set(ip, id);
    this.#ips.set(id, ip);
    this.#unused.add(ip);
  }

  #faultOf(pair: NodeIDPair): Rejection | undefined {
    if (!isObject(pair)) return rejection('wrong-type', 'pair', pair, 'must be an object', 'node ids');
    const { ip, id } = pair;
    if (typeof ip !== 'string' || canonicalAddress(ip) !== ip) {
      return rejection('invalid-address', 'ip', ip, 'is not a canonical IP address', 'node ids');
    }
    if (!Number.isInteger(id) || id < 1 || id > this.#max) {
      return rejection('invalid-node-id', 'id', id, `must be 1 to ${this.#max}`, `node ids: ${ip}`);
    }
    if (this.#ips.has(id) || this.#ids.has(ip)) {
      return rejection(
        'duplicate-node-id',
        'id',
        id,
        'the id, or the address, has been given out',
        `node ids: ${ip}`,
      );
    }
    return undefined;
  }
}

const NODE = objectWith({ fields: objectWith({ addresses: ITERABLE }) });

checkArguments(NodeIDs, {
  restore: { pairs: ITERABLE },
  nodeAdd: { node: NODE },
  nodeUpdate: { old: NODE, node: NODE },
  nodeDelete: { node: NODE },
});

function addressesOf(node: Node): ReadonlySet<string> {
  return new Set(node.fields.addresses.map(({ ip }) => ip));
}
