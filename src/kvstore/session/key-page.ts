import type { KeyValue, RangeResponse } from './transport.ts';
import { WireKeyValue } from './wire-key-value.ts';

/** Reads the keys of a page in order. */
export interface KeyReader {
  /** Returns the next key; `undefined` at the end. The key is valid until the next call: {@link keptKey} returns one to keep. */
  next(): KeyValue | undefined;
}

/** The keys of an answer, read without an object for each. */
export interface KeyPage {
  readonly length: number;
  readonly first: KeyValue | undefined;
  readonly last: KeyValue | undefined;
  /** Returns a reader that begins at the first key. */
  read(): KeyReader;
}

/** Returns the keys of an answer as a page. */
export function pageOf(answer: RangeResponse): KeyPage {
  return answer.page ?? new DecodedPage(answer.kvs);
}

/** The key that a {@link KeyReader} returns and changes with its next key. */
export class CurrentKey extends WireKeyValue {
  /** Returns a copy that does not change. */
  copy(): WireKeyValue {
    const { buffer, keyAt, keyEnd, valueAt, valueEnd, createRevision, modRevision, leaseAt } = this;
    return new WireKeyValue(buffer, keyAt, keyEnd, valueAt, valueEnd, createRevision, modRevision, leaseAt);
  }
}

/** Returns the key, or a copy of it if the next call of its reader changes it. */
export function keptKey<T extends Pick<KeyValue, 'key'>>(kv: T): T | WireKeyValue {
  return kv instanceof CurrentKey ? kv.copy() : kv;
}

class DecodedPage implements KeyPage {
  readonly #kvs: readonly KeyValue[];

  constructor(kvs: readonly KeyValue[]) {
    this.#kvs = kvs;
  }

  get length(): number {
    return this.#kvs.length;
  }

  get first(): KeyValue | undefined {
    return this.#kvs[0];
  }

  get last(): KeyValue | undefined {
    return this.#kvs.at(-1);
  }

  read(): KeyReader {
    let at = 0;
    return { next: () => this.#kvs[at++] };
  }
}
