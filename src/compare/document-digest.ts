import {
  addToSum,
  BUCKETS,
  bucketTexts,
  type GroupDigest,
  mixOther,
  placeOfLanes,
  sumText,
  textHash,
  totalText,
} from './digest-sums.ts';

/** Number of texts after which a step ends: about a millisecond. A document is read in one step, whatever its size. */
const TEXTS_PER_STEP = 512;

const SEED_A = 0x1b87_3593;
const SEED_B = 0x38b3_4ae5;

/** A node, or the part of a service that one cluster defines or offers. */
export interface ComparedDocument {
  /** The group, such as `services baltic`. */
  readonly writer: string;
  /** Unique in the group. */
  readonly key: string;
  /** Texts by name. Lists are sorted. Fields without a value are absent. */
  readonly fields: Readonly<Record<string, string | readonly string[]>>;
}

/** A document whose fields are created on demand, because a comparison lists the fields of few documents. */
export interface ListedDocument extends Pick<ComparedDocument, 'writer' | 'key'> {
  readonly readFields: () => ComparedDocument['fields'];
}

export interface DocumentDigestOptions {
  /** Yields all documents. The state may change during the iteration. */
  readonly documents: () => Iterable<ListedDocument>;
  /** Returns a text that changes with the documents. */
  readonly revision: () => string;
}

/** The places of one group with their sums, and the sums of its buckets. */
interface DocumentGroup {
  /** Number of its documents; the name is that of {@link GroupDigest}. */
  claims: number;
  readonly buckets: Int32Array;
  readonly places: Map<number, Int32Array>;
}

function placeOfKey(key: string): number {
  return placeOfLanes(textHash(SEED_A, key), textHash(SEED_B, key));
}

/**
 * Sums of documents for each group, like those of a `ClaimDigest`. If the revision has changed,
 * {@link DocumentDigest.read} computes them again: documents are few, and each costs some µs. Its generators yield
 * after each step.
 */
export class DocumentDigest {
  readonly #options: DocumentDigestOptions;
  #groups: ReadonlyMap<string, DocumentGroup> = new Map();
  #revision: string | undefined;

  constructor(options: DocumentDigestOptions) {
    this.#options = options;
  }

  /** Reads the documents if they have changed. */
  *read(): Generator<void, void, void> {
    const revision = this.#options.revision();
    if (revision === this.#revision) return;
    const groups = new Map<string, DocumentGroup>();
    let texts = 0;
    for (const { writer, key, readFields } of this.#options.documents()) {
      const fields = readFields();
      const group = groups.get(writer) ?? {
        claims: 0,
        buckets: new Int32Array(BUCKETS * 2),
        places: new Map(),
      };
      groups.set(writer, group);
      const text = JSON.stringify(fields);
      const a = textHash(textHash(SEED_A, key), text);
      const b = mixOther(textHash(textHash(SEED_B, key), text), text.length);
      const place = placeOfKey(key);
      const sums = group.places.get(place) ?? new Int32Array(2);
      group.places.set(place, sums);
      group.claims++;
      addToSum(sums, 0, a, b);
      addToSum(group.buckets, (place >>> 8) * 2, a, b);
      texts += weightOf(fields);
      if (texts < TEXTS_PER_STEP) continue;
      texts = 0;
      yield;
    }
    this.#groups = groups;
    this.#revision = revision;
  }

  /** Returns the digests of all groups, as of the last {@link DocumentDigest.read}. */
  groups(): readonly GroupDigest[] {
    return Array.from(this.#groups, ([writer, { claims, buckets }]) => ({
      writer,
      claims,
      sum: totalText(buckets),
    }));
  }

  /** Returns the sums of the buckets of a group; undefined for an unknown group. */
  buckets(writer: string): readonly string[] | undefined {
    const group = this.#groups.get(writer);
    return group && bucketTexts(group.buckets);
  }

  /** Returns the sums of the places of a group for which `isWanted` is true, except those without documents. */
  placeSums(writer: string, isWanted: (place: number) => boolean): ReadonlyMap<number, string> {
    const found = new Map<number, string>();
    for (const [place, [a = 0, b = 0]] of this.#groups.get(writer)?.places ?? [])
      if (isWanted(place)) found.set(place, sumText(a, b));
    return found;
  }

  /** Calls `onDocument` for each document of a group at the wanted places. Reads the fields of no other documents. */
  *documentsIn(
    writer: string,
    isWanted: (place: number) => boolean,
    onDocument: (document: ComparedDocument, place: number) => void,
  ): Generator<void, void, void> {
    let texts = 0;
    for (const { writer: group, key, readFields } of this.#options.documents()) {
      const place = group === writer ? placeOfKey(key) : undefined;
      if (place !== undefined && isWanted(place)) {
        const fields = readFields();
        onDocument({ writer, key, fields }, place);
        texts += weightOf(fields);
      }
      if (++texts < TEXTS_PER_STEP) continue;
      texts = 0;
      yield;
    }
  }
}

/** Returns the number of texts of a document, at least one. */
export function weightOf(fields: ComparedDocument['fields']): number {
  let weight = 1;
  for (const value of Object.values(fields)) weight += typeof value === 'string' ? 1 : value.length;
  return weight;
}
