import { type AddressWords, wordMask } from './address-words.ts';
import { containsWords, type KeyForm, type PrefixRegister } from './prefix.ts';

/** Marks the nodes of one edit, which may change in place: nobody else has seen them. */
export type Edit = object;

/**
 * A node: a prefix, what is kept under it as CIDR and (at full length) as endpoint, and the two halves of the rest.
 *
 *             10.0.0.0/8 ─ value
 *            0 ╱        ╲ 1
 *     10.0.0.0/16      10.128.0.0/9 ─ value        a node without values joins two that share its bits
 *
 * Immutable but for the edit that made it.
 */
export interface TrieNode<T> extends AddressWords {
  length: number;
  cidr: T | undefined;
  endpoint: T | undefined;
  zero: TrieNode<T> | undefined;
  one: TrieNode<T> | undefined;
  edit: Edit | undefined;
}

/** One key that differs between two tries, given as what was and what is there. */
export interface TrieDifference<T> {
  readonly node: TrieNode<T>;
  readonly before: TrieNode<T> | undefined;
  readonly after: TrieNode<T> | undefined;
}

type Root<T> = TrieNode<T> | undefined;

function bitAt(words: Readonly<AddressWords>, index: number): 0 | 1 {
  const word = index < 32 ? words.w0 : index < 64 ? words.w1 : index < 96 ? words.w2 : words.w3;
  return ((word >>> (31 - (index & 31))) & 1) as 0 | 1;
}

/** How many leading bits two prefixes share; at most the shorter length. */
function sharedBits(a: Readonly<AddressWords>, b: Readonly<AddressWords>, most: number): number {
  let shared = Math.clz32(a.w0 ^ b.w0);
  if (shared === 32) shared += Math.clz32(a.w1 ^ b.w1);
  if (shared === 64) shared += Math.clz32(a.w2 ^ b.w2);
  if (shared === 96) shared += Math.clz32(a.w3 ^ b.w3);
  return Math.min(shared, most);
}

function bare<T>(words: Readonly<AddressWords>, length: number, edit: Edit): TrieNode<T> {
  return {
    family: words.family,
    w0: words.w0 & wordMask(length),
    w1: words.w1 & wordMask(length - 32),
    w2: words.w2 & wordMask(length - 64),
    w3: words.w3 & wordMask(length - 96),
    length,
    cidr: undefined,
    endpoint: undefined,
    zero: undefined,
    one: undefined,
    edit,
  };
}

/** The node itself if this edit made it, else a copy that this edit may change. */
function editable<T>(node: TrieNode<T>, edit: Edit): TrieNode<T> {
  return node.edit === edit ? node : { ...node, edit };
}

function withChild<T>(node: TrieNode<T>, bit: 0 | 1, child: Root<T>, edit: Edit): TrieNode<T> {
  const changed = editable(node, edit);
  if (bit === 0) changed.zero = child;
  else changed.one = child;
  return changed;
}

/**
 * The trie with `value` under `key`, or with nothing there for `undefined`. Nodes of other edits are left as they
 * are, so a trie that somebody holds never changes. One root holds one family. Cost: O(depth), at most the bits of
 * an address, about log2 of the size.
 */
export function trieSet<T>(
  root: Root<T>,
  key: Readonly<PrefixRegister>,
  value: T | undefined,
  edit: Edit,
): Root<T> {
  if (root === undefined)
    return value === undefined ? undefined : withValue(bare(key, key.length, edit), key.form, value, edit);
  const shared = sharedBits(root, key, Math.min(root.length, key.length));
  if (shared === root.length) {
    if (shared === key.length) return pruned(withValue(root, key.form, value, edit));
    const bit = bitAt(key, shared);
    const child = bit === 0 ? root.zero : root.one;
    const changed = trieSet(child, key, value, edit);
    return changed === child ? root : pruned(withChild(root, bit, changed, edit));
  }
  if (value === undefined) return root;
  const joint = withChild(bare<T>(key, shared, edit), bitAt(root, shared), root, edit);
  return trieSet(joint, key, value, edit);
}

function withValue<T>(node: TrieNode<T>, form: KeyForm, value: T | undefined, edit: Edit): TrieNode<T> {
  if ((form === 'endpoint' ? node.endpoint : node.cidr) === value) return node;
  const changed = editable(node, edit);
  if (form === 'endpoint') changed.endpoint = value;
  else changed.cidr = value;
  return changed;
}

/** A node that holds nothing and joins nothing is not needed. */
function pruned<T>(node: TrieNode<T>): Root<T> {
  if (node.cidr !== undefined || node.endpoint !== undefined) return node;
  if (node.zero === undefined) return node.one;
  return node.one === undefined ? node.zero : node;
}

/** The node of exactly this prefix. */
export function trieGet<T>(root: Root<T>, key: Readonly<PrefixRegister>): Root<T> {
  let node = root;
  while (node !== undefined && node.length < key.length && containsWords(node, node.length, key)) {
    node = bitAt(key, node.length) === 0 ? node.zero : node.one;
  }
  return node?.length === key.length && containsWords(node, node.length, key) ? node : undefined;
}

/** The node with a value whose prefix is the longest that contains the address. */
export function trieMatch<T>(root: Root<T>, address: Readonly<AddressWords>, bits: number): Root<T> {
  let best: Root<T>;
  let node = root;
  while (node !== undefined && containsWords(node, node.length, address)) {
    if (node.cidr !== undefined || node.endpoint !== undefined) best = node;
    if (node.length === bits) break;
    node = bitAt(address, node.length) === 0 ? node.zero : node.one;
  }
  return best;
}

/** Every node with a value, by address, a prefix before what it contains. */
export function* trieNodes<T>(root: Root<T>): Generator<TrieNode<T>, void, void> {
  if (root === undefined) return;
  if (root.cidr !== undefined || root.endpoint !== undefined) yield root;
  yield* trieNodes(root.zero);
  yield* trieNodes(root.one);
}

/**
 * The prefixes at which two tries differ, by identity of what is kept. Shared parts are not entered, so the cost is
 * that of the parts that differ.
 */
export function* trieDiff<T>(a: Root<T>, b: Root<T>): Generator<TrieDifference<T>, void, void> {
  if (a === b) return;
  if (a === undefined || b === undefined) {
    for (const node of trieNodes(a)) yield { node, before: node, after: undefined };
    for (const node of trieNodes(b)) yield { node, before: undefined, after: node };
    return;
  }
  const shared = sharedBits(a, b, Math.min(a.length, b.length));
  if (shared === a.length && shared === b.length) {
    if (a.cidr !== b.cidr || a.endpoint !== b.endpoint) yield { node: b, before: a, after: b };
    yield* trieDiff(a.zero, b.zero);
    yield* trieDiff(a.one, b.one);
  } else if (shared === a.length) {
    if (a.cidr !== undefined) yield { node: a, before: a, after: undefined };
    const bit = bitAt(b, shared);
    yield* trieDiff(a.zero, bit === 0 ? b : undefined);
    yield* trieDiff(a.one, bit === 1 ? b : undefined);
  } else if (shared === b.length) {
    if (b.cidr !== undefined) yield { node: b, before: undefined, after: b };
    const bit = bitAt(a, shared);
    yield* trieDiff(bit === 0 ? a : undefined, b.zero);
    yield* trieDiff(bit === 1 ? a : undefined, b.one);
  } else {
    yield* trieDiff(a, undefined);
    yield* trieDiff(undefined, b);
  }
}
