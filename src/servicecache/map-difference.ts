import type { Map as ImmutableMap } from 'immutable';
import { assert } from '../base/assert.ts';

/** Receives the values of a key in two maps; undefined if a map does not have it. Returns false to stop. */
export type VisitValues<V> = (before: V | undefined, after: V | undefined) => boolean;

type Entry<V> = readonly [string, V];

/**
 * A node of the trie of `immutable` 3 to 5, which no public method returns. An inner node has `nodes`, by five bits of
 * the hash; with a `bitmap`, only the slots in use. Other nodes have one `entry`, or `entries`.
 */
interface TrieNode<V> {
  readonly nodes?: readonly (TrieNode<V> | undefined)[];
  readonly bitmap?: number;
  readonly entry?: Entry<V>;
  readonly entries?: readonly Entry<V>[];
}

/** Returns the trie of a map; undefined if it is empty or not a trie, such as an `OrderedMap`. */
function trieOf<V>(map: ImmutableMap<string, V>): TrieNode<V> | undefined {
  // The cast is limited to this function: the types of `immutable` do not declare the trie.
  return (map as unknown as { readonly _root?: TrieNode<V> | null })._root ?? undefined;
}

/**
 * Visits the keys whose values are not the same object in two maps, until `visit` returns false. Returns true if it
 * visited all. Shared parts of the maps are skipped: if one map was derived from the other, the cost is linear in the
 * changed keys. If the maps have no comparable tries, it is linear in both.
 */
export function everyMapDifference<V>(
  before: ImmutableMap<string, V>,
  after: ImmutableMap<string, V>,
  visit: VisitValues<V>,
): boolean {
  const [a, b] = [trieOf(before), trieOf(after)];
  const haveTries = (a !== undefined || before.size === 0) && (b !== undefined || after.size === 0);
  // Another copy of `immutable` may hash differently.
  return haveTries && before.constructor === after.constructor
    ? everyNodeDifference(a, b, visit)
    : everyEntryDifference([...before], [...after], visit);
}

function everyNodeDifference<V>(
  before: TrieNode<V> | undefined,
  after: TrieNode<V> | undefined,
  visit: VisitValues<V>,
): boolean {
  if (before === after) return true;
  if (before?.nodes === undefined || after?.nodes === undefined)
    return everyEntryDifference(entriesOf(before), entriesOf(after), visit);
  if (before.bitmap !== undefined && before.bitmap === after.bitmap) {
    const nodes = after.nodes;
    return before.nodes.every((child, at) => everyNodeDifference(child, nodes[at], visit));
  }
  for (let slot = 0; slot < 32; slot++)
    if (!everyNodeDifference(childAt(before, slot), childAt(after, slot), visit)) return false;
  return true;
}

function childAt<V>({ nodes = [], bitmap }: TrieNode<V>, slot: number): TrieNode<V> | undefined {
  if (bitmap === undefined) return nodes[slot];
  const bit = 1 << slot;
  return (bitmap & bit) === 0 ? undefined : nodes[bitCount(bitmap & (bit - 1))];
}

function bitCount(bits: number): number {
  let count = 0;
  for (let rest = bits; rest !== 0; rest &= rest - 1) count++;
  return count;
}

/** Compares in pairs while the keys are equal, as in equal maps, and finds the other entries by their keys. */
function everyEntryDifference<V>(
  before: readonly Entry<V>[],
  after: readonly Entry<V>[],
  visit: VisitValues<V>,
): boolean {
  let equalKeys = 0;
  for (const [key, value] of after) {
    const old = before[equalKeys];
    if (old === undefined || old[0] !== key) break;
    if (old[1] !== value && !visit(old[1], value)) return false;
    equalKeys++;
  }
  if (equalKeys === before.length && equalKeys === after.length) return true;
  const earlier = new Map(before.slice(equalKeys));
  for (const [key, value] of after.slice(equalKeys)) {
    const old = earlier.get(key);
    earlier.delete(key);
    if (old !== value && !visit(old, value)) return false;
  }
  for (const old of earlier.values()) if (!visit(old, undefined)) return false;
  return true;
}

function entriesOf<V>(node: TrieNode<V> | undefined): readonly Entry<V>[] {
  if (node === undefined) return [];
  const { nodes, entry, entries } = node;
  if (entry !== undefined) return [entry];
  if (entries !== undefined) return entries;
  assert(nodes !== undefined, 'unknown node of an immutable map');
  return nodes.flatMap(entriesOf);
}
