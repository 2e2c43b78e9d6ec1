import { checkArgument, checkArguments, ITERABLE, matching, objectWith } from '../base/arguments.ts';
import { assert } from '../base/assert.ts';
import { KeyedQueue } from '../base/keyed-queue.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import type { Node } from './node.ts';
import type { NodeHandler } from './node-handler.ts';

const NONE: ReadonlySet<string> = new Set();

/** Ids have 16 bits in datapaths. 0 means no id. */
export const MAX_NODE_ID = 0xffff;

/** Thrown if all ids are in use. The handler call is retried. */
export class NodeIDsExhaustedError extends Error {
  override readonly name = 'NodeIDsExhaustedError';
  readonly code = 'node-ids-exhausted';
  readonly retryable = true;
}

/** An address and its id, for checkpoints. */
export interface NodeIDPair {
  readonly ip: string;
  readonly id: number;
}

/**
 * Allocates ids from 1 to 65,535 for node addresses, for datapaths whose maps have no room for an address. Health and
 * ingress IPs have no id.
 *
 * Ids are stable: an address that is deleted and added again has the same id, and ids of an earlier run can be
 * restored. If all ids have been allocated once, the one that has been unused longest is reused. So traffic with an old
 * id is not soon attributed to another node.
 *
 * `NodeIDs` is a handler. Subscribe it before the handlers that query it, so that they find the id of each node.
 */
export class NodeIDs implements NodeHandler {
  readonly name = 'node-ids';
  readonly #max: number;
  readonly #ids = new Map<string, number>();
  readonly #ips = new Map<number, string>();
  /** Number of nodes that have each address. Unused addresses are absent. */
  readonly #uses = new Map<string, number>();
  /** The counted addresses of each node, by full name. */
  readonly #counted = new Map<string, ReadonlySet<string>>();
  /** Addresses without a node, the one freed first at the front. */
  readonly #unused = new KeyedQueue<string>();
  /** The next new id. All ids from it on are free, except restored ones. */
  #nextID = 1;

  constructor(max: number = MAX_NODE_ID) {
    checkArgument('new NodeIDs: max', max, MAX);
    this.#max = max;
  }

  /** Returns the id of a canonical address. An unused address keeps its id until the id is reused. */
  idOf(ip: string): number | undefined {
    return this.#ids.get(ip);
  }

  /** Returns the address of an id. */
  ipOf(id: number): string | undefined {
    return this.#ips.get(id);
  }

  /**
   * Returns all allocated ids for a checkpoint. Those in use are last, so that they are reused last after a restore.
   */
  pairs(): readonly NodeIDPair[] {
    const pairOf = (ip: string): NodeIDPair => ({ ip, id: this.#ids.get(ip) ?? 0 });
    return [...Array.from(this.#unused, ([ip]) => pairOf(ip)), ...Array.from(this.#uses.keys(), pairOf)];
  }

  /**
   * Restores the ids of an earlier run. They are unused until a node has their address. Returns the rejections of pairs
   * that are invalid or conflict with allocated ids.
   */
  restore(pairs: Iterable<NodeIDPair>): readonly Rejection[] {
    const rejected: Rejection[] = [];
    for (const pair of pairs) {
      const pairRejection = this.#rejectionOf(pair);
      if (pairRejection === undefined) this.#assign(pair.ip, pair.id);
      else rejected.push(pairRejection);
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

  /** Counts `after` instead of the counted addresses, which differ from the old version's after a failed call. */
  #count(fullName: string, after: ReadonlySet<string>): void {
    const previous = this.#counted.get(fullName) ?? NONE;
    const released = [...previous].filter((ip) => !after.has(ip));
    const added = [...after].filter((ip) => !previous.has(ip));
    this.#checkRoom(added, released);
    for (const ip of released) this.#release(ip);
    for (const ip of added) this.#acquire(ip);
    if (after.size > 0) this.#counted.set(fullName, after);
    else this.#counted.delete(fullName);
  }

  /** Throws if there are too few ids. It is called before any change, because a failed call is retried. */
  #checkRoom(added: readonly string[], released: readonly string[]): void {
    const room = this.#max - this.#uses.size + released.filter((ip) => this.#uses.get(ip) === 1).length;
    const [lacking] = added.filter((ip) => !this.#uses.has(ip)).slice(room);
    if (lacking !== undefined)
      throw new NodeIDsExhaustedError(`no node id for ${lacking}: all ${this.#max} are in use`);
  }

  #acquire(ip: string): void {
    if (!this.#ids.has(ip)) this.#assign(ip, this.#freeID());
    this.#uses.set(ip, (this.#uses.get(ip) ?? 0) + 1);
    this.#unused.delete(ip);
  }

  #release(ip: string): void {
    const uses = this.#uses.get(ip);
    if (uses === undefined) return;
    if (uses > 1) {
      this.#uses.set(ip, uses - 1);
      return;
    }
    this.#uses.delete(ip);
    this.#unused.set(ip, undefined);
  }

  /** Returns a new id, or else the one that has been unused longest. */
  #freeID(): number {
    while (this.#ips.has(this.#nextID)) this.#nextID++; // skips restored ids
    if (this.#nextID <= this.#max) return this.#nextID;
    const [oldest = ''] = this.#unused.shift() ?? [];
    const id = this.#ids.get(oldest);
    assert(id !== undefined, 'an id is free');
    this.#ids.delete(oldest);
    return id;
  }

  #assign(ip: string, id: number): void {
    this.#ids.set(ip, id);
    this.#ips.set(id, ip);
    this.#unused.set(ip, undefined);
  }

  #rejectionOf(pair: NodeIDPair): Rejection | undefined {
    if (!isObject(pair)) return rejection('wrong-type', 'pair', pair, 'must be an object', 'node ids');
    const { ip, id } = pair;
    if (typeof ip !== 'string' || canonicalAddress(ip) !== ip) {
      return rejection('invalid-address', 'ip', ip, 'is not a canonical IP address', 'node ids');
    }
    if (!Number.isInteger(id) || id < 1 || id > this.#max) {
      return rejection(
        'invalid-node-id',
        'id',
        id,
        `must be an integer from 1 to ${this.#max}`,
        `node ids: ${ip}`,
      );
    }
    if (this.#ips.has(id) || this.#ids.has(ip)) {
      return rejection('duplicate-node-id', 'id', id, 'the id or the address is in use', `node ids: ${ip}`);
    }
    return undefined;
  }
}

const NODE = objectWith({ fields: objectWith({ addresses: ITERABLE }) });

const MAX = matching(
  `must be an integer from 1 to ${MAX_NODE_ID}`,
  (value) => Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_NODE_ID,
);

checkArguments(NodeIDs, {
  restore: { pairs: ITERABLE },
  nodeAdd: { node: NODE },
  nodeUpdate: { old: NODE, node: NODE },
  nodeDelete: { node: NODE },
});

function addressesOf(node: Node): ReadonlySet<string> {
  return new Set(node.fields.addresses.map(({ ip }) => ip));
}
