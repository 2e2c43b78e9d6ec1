import { ProtoReader } from '../codec/proto-reader.ts';
import { CurrentKey, type KeyPage, type KeyReader } from '../session/key-page.ts';
import type { KeyValue } from '../session/transport.ts';
import type { WireKeyValue } from '../session/wire-key-value.ts';
import { etcdError } from './etcd-errors.ts';

/** Number of the field of a range response with a key. */
export const KVS = 2;
/** Number of the field of a key-value with its lease, 0 if none. etcd omits a field that is 0. */
const LEASE = 6;

/** Reads the key-value in `[reader.at, end)` into `kv`, whose buffer is that of the reader. */
export function readKeyValue(reader: ProtoReader, end: number, kv: WireKeyValue): void {
  kv.keyAt = 0;
  kv.keyEnd = 0;
  kv.valueAt = 0;
  kv.valueEnd = 0;
  kv.createRevision = 0;
  kv.modRevision = 0;
  kv.leaseAt = 0;
  while (reader.next(end)) {
    const { field } = reader;
    if (field === 1) {
      kv.keyEnd = reader.open();
      kv.keyAt = reader.at;
      reader.at = kv.keyEnd;
    } else if (field === 5) {
      kv.valueEnd = reader.open();
      kv.valueAt = reader.at;
      reader.at = kv.valueEnd;
    } else if (field === 2) kv.createRevision = reader.number();
    else if (field === 3) kv.modRevision = reader.number();
    else {
      if (field === LEASE) kv.leaseAt = reader.at;
      reader.skip();
    }
  }
}

/**
 * The keys of an encoded range response. Each reader decodes them again, one by one, because objects for all keys of a page live
 * long enough that the garbage collector moves them to the old generation. A reader throws `internal` if a key is malformed.
 */
export class RangePage implements KeyPage {
  readonly length: number;
  readonly #buffer: Buffer;
  readonly #lastAt: number;
  #all: readonly KeyValue[] | undefined;

  /**
   * @param buffer a range response with `length` keys
   * @param lastAt index of the last key
   */
  constructor(buffer: Buffer, length: number, lastAt: number) {
    this.#buffer = buffer;
    this.length = length;
    this.#lastAt = lastAt;
  }

  get first(): KeyValue | undefined {
    return this.length === 0 ? undefined : this.read().next();
  }

  get last(): KeyValue | undefined {
    if (this.length === 0) return undefined;
    return this.#readFrom(this.#lastAt).next();
  }

  /** All keys, decoded by the first access. */
  get all(): readonly KeyValue[] {
    if (this.#all === undefined) {
      const all: KeyValue[] = [];
      const keys = this.read();
      for (let kv = keys.next(); kv !== undefined; kv = keys.next()) all.push(kv.copy());
      this.#all = all;
    }
    return this.#all;
  }

  read(): RangeReader {
    return this.#readFrom(0);
  }

  #readFrom(at: number): RangeReader {
    return new RangeReader(this.#buffer, at);
  }
}

class RangeReader implements KeyReader {
  readonly #reader: ProtoReader;
  readonly #kv: CurrentKey;

  constructor(buffer: Buffer, at: number) {
    this.#reader = new ProtoReader(buffer);
    this.#reader.at = at;
    this.#kv = new CurrentKey(buffer);
  }

  next(): CurrentKey | undefined {
    try {
      return this.#next();
    } catch (error) {
      throw etcdError(error);
    }
  }

  #next(): CurrentKey | undefined {
    const reader = this.#reader;
    while (reader.next(reader.buffer.length)) {
      if (reader.field === KVS) {
        readKeyValue(reader, reader.open(), this.#kv);
        return this.#kv;
      }
      reader.skip();
    }
    return undefined;
  }
}
