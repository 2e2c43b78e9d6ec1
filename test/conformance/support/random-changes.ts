import type { Random } from '../../../src/base/clock.ts';
import { pick } from '../../kvstore/chaos/support/seeded-random.ts';
import type { Held, KeyDifference } from './operator-rules.ts';
import type { RecordedChanges } from './replay-operator.ts';

type Json = { [field: string]: Json } | Json[] | string | number | boolean | null;

/** Returns functions that change the leaves of a JSON value, one each. */
function leafChanges(json: Json): (() => void)[] {
  if (typeof json !== 'object' || json === null) return [];
  const parent = json as Record<string, Json>;
  return Object.keys(parent).flatMap((name) => {
    const leaf = parent[name] ?? null;
    if (typeof leaf === 'object' && leaf !== null && Object.keys(leaf).length > 0) return leafChanges(leaf);
    return () => {
      if (typeof leaf === 'string') parent[name] = `${leaf}x`;
      else if (typeof leaf === 'number') parent[name] = leaf + 1;
      else if (typeof leaf === 'boolean') parent[name] = !leaf;
      else parent[name] = { x: 'y' };
    };
  });
}

function withChangedLeaf(v: string, random: Random): string {
  const json = (v.startsWith('{') ? JSON.parse(v) : null) as Json;
  const changes = leafChanges(json);
  if (changes.length === 0) return `${v}x`;
  pick(changes, random)();
  return JSON.stringify(json);
}

function withChangedLetter(v: string, random: Random): string {
  const at = Math.floor(random() * v.length);
  return `${v.slice(0, at)}~${v.slice(at + 1)}`;
}

/** Values whose lease was removed. */
const UNLEASED = new WeakSet<Held>();

function unleased({ v }: Held): Held {
  const held = { v, holder: undefined };
  UNLEASED.add(held);
  return held;
}

/** Returns the recorded value changed in one of several ways; undefined if it is removed. */
function changed({ v = '', holder }: Held, random: Random): Held | undefined {
  const changes = [
    () => ({ v: withChangedLeaf(v, random), holder }),
    () => ({ v: withChangedLetter(v, random), holder }),
    () => undefined,
    ...(holder === undefined
      ? []
      : [() => ({ v, holder: undefined }), () => ({ v, holder: 'another lease' })]),
  ];
  return pick(changes, random)();
}

/**
 * Changes recorded values at random, removes the lease of each address, and collects the changes that are not
 * judged to be mismatches.
 */
export class RandomChanges implements RecordedChanges {
  judged = 0;
  readonly unnoticed: string[] = [];
  /** Addresses that have lost their lease: they would never expire. */
  readonly unleased: string[] = [];
  readonly #share: number;
  readonly #random: Random;

  /** @param share of the recorded values that are changed */
  constructor(share: number, random: Random) {
    this.#share = share;
    this.#random = random;
  }

  of({ key, expected }: KeyDifference): readonly (Held | undefined)[] {
    if (expected === undefined) return [];
    const isChanged = this.#random() < this.#share;
    return [
      ...(isChanged ? [changed(expected, this.#random)] : []),
      ...(key.startsWith('cilium/state/ip/') && expected.holder !== undefined ? [unleased(expected)] : []),
    ];
  }

  onJudged({ key, expected, actual }: KeyDifference, isNoticed: boolean): void {
    const isUnleased = expected !== undefined && UNLEASED.has(expected);
    if (!isUnleased) this.judged++;
    if (isNoticed) return;
    const place = `${key}: ${JSON.stringify(expected)} for ${JSON.stringify(actual)}`;
    (isUnleased ? this.unleased : this.unnoticed).push(place);
  }
}
