/** Number of values of a cache. A power of two. */
const SLOTS = 4096;
/** Maximum length of a cached text. */
const MAX_LENGTH = 512;

/** Offset basis and prime of FNV-1a. */
const FNV_BASIS = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/**
 * Values by the bytes of their ASCII text, so that texts which many objects have are not decoded again. A text replaces
 * another text with the same slot. Texts of more than 512 characters are not cached.
 */
export class ByteCache<V> {
  readonly #entries: ({ readonly text: string; readonly value: V } | undefined)[] = Array.from({
    length: SLOTS,
  });

  get(bytes: Uint8Array, from: number, to: number): V | undefined {
    const entry = this.#entries[slotOf(bytes, from, to)];
    if (entry === undefined) return undefined;
    const { text, value } = entry;
    if (text.length !== to - from) return undefined;
    for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) !== bytes[from + i]) return undefined;
    return value;
  }

  /** @param text the text of these bytes */
  set(bytes: Uint8Array, from: number, to: number, text: string, value: V): void {
    if (text.length <= MAX_LENGTH) this.#entries[slotOf(bytes, from, to)] = { text, value };
  }
}

function slotOf(bytes: Uint8Array, from: number, to: number): number {
  let hash = FNV_BASIS;
  for (let i = from; i < to; i++) hash = Math.imul(hash ^ (bytes[i] ?? 0), FNV_PRIME);
  return (hash ^ (hash >>> 15)) & (SLOTS - 1);
}
