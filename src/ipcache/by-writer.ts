import type { Writer } from './types.ts';

/** Whether a claim is of a writer. */
export function isOf(claim: Writer, writer: Writer): boolean {
  return claim.source === writer.source && (claim.owner ?? '') === (writer.owner ?? '');
}

/** For each writer the places where it has a claim: those of a writer are found without a pass over all places. */
export class ByWriter<P> {
  /** By source and owner; sources have no space in them. */
  readonly #places = new Map<string, Set<P>>();

  /** The places of a writer, in order of addition. They may be deleted and added meanwhile. */
  of(writer: Writer): ReadonlySet<P> {
    return this.#places.get(keyOf(writer)) ?? new Set();
  }

  add(writer: Writer, place: P): void {
    const key = keyOf(writer);
    const places = this.#places.get(key);
    if (places === undefined) this.#places.set(key, new Set([place]));
    else places.add(place);
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
