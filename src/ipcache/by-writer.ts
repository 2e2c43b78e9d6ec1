import type { Writer } from './types.ts';

/** Whether a claim is of a writer. */
export function isOf(claim: Writer, writer: Writer): boolean {
  return claim.source === writer.source && (claim.owner ?? '') === (writer.owner ?? '');
}

/** Places, as the keys of a map. */
export interface Places<P> {
  readonly size: number;
  set(place: P, value: true): unknown;
  delete(place: P): boolean;
  keys(): Iterable<P>;
}

/** For each writer the places where it has a claim: those of a writer are found without a pass over all places. */
export class ByWriter<P> {
  /** By source and owner; sources have no space in them. */
  readonly #places = new Map<string, Places<P>>();
  readonly #newPlaces: () => Places<P>;

  constructor(newPlaces: () => Places<P>) {
    this.#newPlaces = newPlaces;
  }

  /** The places of a writer. They may be deleted and added while their keys are read. */
  of(writer: Writer): Pick<Places<P>, 'size' | 'keys'> {
    return this.#places.get(keyOf(writer)) ?? this.#newPlaces();
  }

  add(writer: Writer, place: P): void {
    const key = keyOf(writer);
    const places = this.#places.get(key) ?? this.#newPlaces();
    places.set(place, true);
    this.#places.set(key, places);
  }

  delete(writer: Writer, place: P): void {
    const key = keyOf(writer);
    const places = this.#places.get(key);
    if (places?.delete(place) && places.size === 0) this.#places.delete(key);
  }
}

function keyOf({ source, owner = '' }: Writer): string {
  return `${source} ${owner}`;
}
