import type { Source } from '../../model/source.ts';
import type { ClaimWriter, Writer } from '../types.ts';

/** A set of places (slots or keys) at which claims are stored. A `Map` from each place to `true` has this interface. */
export interface ClaimPlaces<P> {
  readonly size: number;
  set(place: P, value: true): unknown;
  delete(place: P): boolean;
  keys(): Iterable<P>;
}

/** Maps each writer to the places of its claims, so that they are found without a scan of all places. */
export class ByWriter<P> {
  /** By source and owner. Sources contain no space. */
  readonly #places = new Map<string, ClaimPlaces<P>>();
  readonly #newPlaces: () => ClaimPlaces<P>;

  constructor(newPlaces: () => ClaimPlaces<P>) {
    this.#newPlaces = newPlaces;
  }

  /** Returns the places of a writer. Places may be deleted and added while the keys are iterated. */
  of(writer: Writer): Pick<ClaimPlaces<P>, 'size' | 'keys'> {
    return this.#places.get(keyOf(writer)) ?? this.#newPlaces();
  }

  /** Yields the writers with a place, unordered. */
  *writers(): Generator<ClaimWriter, void, void> {
    for (const key of this.#places.keys()) {
      const space = key.indexOf(' ');
      yield { source: key.slice(0, space) as Source, owner: key.slice(space + 1) }; // keyOf wrote a source
    }
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
