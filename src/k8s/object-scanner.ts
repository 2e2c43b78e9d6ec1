import { assert } from '../base/assert.ts';
import { parseTime } from '../base/system-clock.ts';
import { InternedBytes } from '../columns/interned-bytes.ts';
import { isObject, parseJson } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { ByteCursor, nameBytes } from './byte-cursor.ts';
import { isName, type ObjectFields, parseObject } from './parse-object.ts';
import { type ObjectScanner, ScannedObject } from './resource.ts';
import { SharedValues } from './shared-values.ts';

/*
 * Fast parsers of objects in the form in which API servers send them: no white space, and no escapes in the fields that
 * are read. A parser is a table of readers by field name. It reads the bytes once and creates only the value, not a
 * parsed JSON object. The general decoder reads all other objects and reports rejected fields.
 */

const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;
const LETTER_Z = 0x5a;
const ZERO = 0x30;

/** Maximum number of texts of a field whose values are kept. */
const KEPT_TEXTS = 4096;
/** Initial number of bytes of the fields of a {@link FieldGroup}. */
const GROUP_BYTES = 512;
const NOT_ASCII = /[^ -~]/;

/** Reads the value of a field. Returns false if the general decoder must read the object. */
export type ScanField = (cursor: ByteCursor) => boolean;

/** The readers of fields by name. */
export type FieldScans = Readonly<Record<string, ScanField>>;

/** Leaves the object to the general decoder. */
export const leaveToDecoder: ScanField = () => false;

/** Reads a string; `take` returns false if it is invalid. */
function scanString(take: (text: string) => boolean): ScanField {
  return (cursor) => {
    const text = cursor.string();
    return text !== undefined && take(text);
  };
}

/** Reads a string that many objects have. `decode` returns undefined if it is invalid. */
export function scanShared<V>(decode: (text: string) => V | undefined, take: (value: V) => void): ScanField {
  const values = new InternedBytes(decode, KEPT_TEXTS);
  return (cursor) => {
    if (!cursor.skipString()) return false;
    const value = cursor.interned(values);
    if (value === undefined) return false;
    take(value);
    return true;
  };
}

/** Reads an RFC 3339 time as milliseconds since the epoch. */
export function scanTime(take: (time: number) => void): ScanField {
  const days = new InternedBytes((date) => parseTime(`${date}00:00:00Z`), KEPT_TEXTS);
  return (cursor) => {
    if (!cursor.skipString()) return false;
    const time = timeInUTC(cursor, days) ?? parseTime(cursor.text());
    if (time === undefined) return false;
    take(time);
    return true;
  };
}

/** Returns a time such as `2026-01-05T10:00:00Z`. Days are cached, because their conversion is slow. */
function timeInUTC(cursor: ByteCursor, days: InternedBytes<number | undefined>): number | undefined {
  const { bytes, from, to } = cursor;
  if (
    to - from !== 20 ||
    bytes[from + 13] !== COLON ||
    bytes[from + 16] !== COLON ||
    bytes[from + 19] !== LETTER_Z
  )
    return undefined;
  const hours = twoDigits(bytes, from + 11);
  const minutes = twoDigits(bytes, from + 14);
  const seconds = twoDigits(bytes, from + 17);
  if (!(hours < 24 && minutes < 60 && seconds < 60)) return undefined;
  const day = cursor.interned(days, from + 11);
  return day === undefined ? undefined : day + ((hours * 60 + minutes) * 60 + seconds) * 1000;
}

/** Returns a number of two digits, or NaN. */
function twoDigits(bytes: Uint8Array, at: number): number {
  const tens = (bytes[at] ?? 0) - ZERO;
  const ones = (bytes[at + 1] ?? 0) - ZERO;
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : Number.NaN;
}

/** Reads an IP address in canonical form. */
export function scanAddress(take: (address: string) => void): ScanField {
  return scanString((text) => {
    if (canonicalAddress(text) !== text) return false;
    take(text);
    return true;
  });
}

/** Reads a list of at most `maxSize` elements. */
export function scanList(scanItem: ScanField, maxSize: number = Number.POSITIVE_INFINITY): ScanField {
  return (cursor) => {
    if (!cursor.skip(OPEN_LIST)) return false;
    if (cursor.skip(CLOSE_LIST)) return true;
    for (let size = 0; size < maxSize; size++) {
      if (!scanItem(cursor)) return false;
      if (!cursor.skip(COMMA)) return cursor.skip(CLOSE_LIST);
    }
    return false;
  };
}

/** Reads an object with any strings, such as labels. */
export function scanStrings(take: (name: string, text: string) => boolean): ScanField {
  return (cursor) => {
    if (!cursor.skip(OPEN_OBJECT)) return false;
    if (cursor.skip(CLOSE_OBJECT)) return true;
    do {
      const name = cursor.string();
      if (name === undefined || !cursor.skip(COLON)) return false;
      const text = cursor.string();
      if (text === undefined || !take(name, text)) return false;
    } while (cursor.skip(COMMA));
    return cursor.skip(CLOSE_OBJECT);
  };
}

/** Reads an object. Other fields are skipped. An object that repeats a field is left to the general decoder. */
export function scanObject(scans: FieldScans): ScanField {
  return fieldTable(scans, false);
}

/**
 * Reads an object with only these fields, in this order; each of them may be missing. Any other object is left to the
 * general decoder, because its result depends on the order of the fields, or on the validity of other fields.
 */
export function scanWholeObject(scans: FieldScans): ScanField {
  return fieldTable(scans, true);
}

function fieldTable(scans: FieldScans, isWhole: boolean): ScanField {
  const names = Object.keys(scans).map(nameBytes);
  assert(names.length <= 32, 'a table has one bit of `seen` for each field');
  const readers = Object.values(scans);
  /** The field that followed in the last object: at 0, the first field; at i + 1, the field after field i. */
  const following = names.map((_, index) => index);
  return (cursor) => {
    if (!cursor.skip(OPEN_OBJECT)) return false;
    if (cursor.skip(CLOSE_OBJECT)) return true;
    let seen = 0;
    let next = 0;
    do {
      let index = following[next] ?? 0;
      const expected = names[index];
      if (expected === undefined || !cursor.skipName(expected)) {
        index = cursor.skipOneOf(names);
        if (index < 0) {
          if (!cursor.skipAnyName() || isWhole || !cursor.skipValue()) return false;
          continue;
        }
        following[next] = index;
      }
      const bit = 1 << index;
      if ((seen & bit) !== 0 || (isWhole && index < next)) return false;
      seen |= bit;
      next = index + 1;
      if (readers[index]?.(cursor) !== true) return false;
    } while (cursor.skip(COMMA));
    return cursor.skip(CLOSE_OBJECT);
  };
}

/**
 * Fields that many objects have with equal values, such as ports and policies. The general decoder reads their text,
 * once for equal texts.
 */
export class FieldGroup<T extends object> {
  readonly #read: (fields: ObjectFields) => T | undefined;
  readonly #shape: (fields: Readonly<Record<string, unknown>>) => object;
  readonly #values = new InternedBytes((text) => this.#decode(text), KEPT_TEXTS);
  /** The fields of the current object, with their names. */
  #bytes: Uint8Array = new Uint8Array(GROUP_BYTES);
  #view: DataView = new DataView(this.#bytes.buffer);
  #size = 0;

  /**
   * @param read the general decoder
   * @param shape converts an object with the fields of the group to the form that `read` expects. Default: no change
   */
  constructor(
    read: (fields: ObjectFields) => T | undefined,
    shape: (fields: Readonly<Record<string, unknown>>) => object = (fields) => fields,
  ) {
    this.#read = read;
    this.#shape = shape;
  }

  /** Returns a table of these fields, which are added to the group. */
  fields(names: readonly string[]): FieldScans {
    return Object.fromEntries(names.map((name) => [name, this.#add]));
  }

  /** Must be called before the fields of an object are read. */
  begin(): void {
    this.#size = 0;
  }

  /**
   * Returns the value of the fields read since {@link FieldGroup.begin}, or undefined if one of them was rejected. The
   * value must not be changed.
   */
  value(): T | undefined {
    return this.#values.get(this.#view, 0, this.#size);
  }

  readonly #add: ScanField = (cursor) => {
    const { bytes, nameStart } = cursor;
    if (!cursor.skipValue()) return false;
    this.#copy(bytes, nameStart, cursor.at);
    return true;
  };

  /** Appends a field, and a comma before it unless it is the first one. */
  #copy(bytes: Uint8Array, from: number, to: number): void {
    let size = this.#size;
    if (size + 1 + to - from > this.#bytes.length) this.#grow(size + 1 + to - from);
    const copy = this.#bytes;
    if (size > 0) copy[size++] = COMMA;
    // A loop, because most fields are short and views of them cost more.
    for (let at = from; at < to; at++) copy[size++] = bytes[at] ?? 0;
    this.#size = size;
  }

  #grow(size: number): void {
    const grown = new Uint8Array(2 * size);
    grown.set(this.#bytes.subarray(0, this.#size));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }

  #decode(text: string): T | undefined {
    const fields = NOT_ASCII.test(text) ? undefined : parseJson(`{${text}}`);
    if (!isObject(fields)) return undefined;
    const { value, rejections } = parseObject('', this.#shape(fields), {}, this.#read);
    return rejections.length > 0 ? undefined : value;
  }
}

/** The readers of the objects of a kind, and the value that they read. */
export interface ScannedKind<T> {
  /** Fields of the metadata, in addition to those that identify the object. */
  readonly metadata: FieldScans;
  /** Other fields of the object. */
  readonly fields: FieldScans;
  /** Called before an object is read. */
  begin(): void;
  /** Returns the value of the object; undefined if the general decoder must read it. */
  value(id: ServiceID, uid: string): T | undefined;
}

/** Returns a scanner of the objects of a namespaced kind. Its results equal those of the general decoder. */
export function objectScanner<T>(kind: ScannedKind<T>): ObjectScanner<T> {
  const cursor = new ByteCursor();
  const namespaces = new SharedValues<string>();
  let name = '';
  let namespace = '';
  let uid = '';
  let resourceVersion = '';
  const scan = scanObject({
    metadata: scanObject({
      name: scanString((text) => {
        name = text;
        return isName(text);
      }),
      namespace: scanShared(
        (text) => (isName(text) ? namespaces.share(text, text) : undefined),
        (text) => {
          namespace = text;
        },
      ),
      uid: scanString((text) => {
        uid = text;
        return text !== '';
      }),
      resourceVersion: scanString((text) => {
        resourceVersion = text;
        return text !== '';
      }),
      ...kind.metadata,
    }),
    ...kind.fields,
  });
  return {
    get end() {
      return cursor.at;
    },
    scan(bytes, from) {
      name = '';
      namespace = '';
      uid = '';
      resourceVersion = '';
      kind.begin();
      cursor.set(bytes, from);
      if (!scan(cursor)) return undefined;
      const isNamed = name !== '' && namespace !== '' && uid !== '' && resourceVersion !== '';
      const value = isNamed ? kind.value({ namespace, name }, uid) : undefined;
      if (value !== undefined) return new ScannedObject({ name, namespace, uid, resourceVersion }, value);
      cursor.at = from; // not the end of the bytes, because the object is complete
      return undefined;
    },
  };
}
