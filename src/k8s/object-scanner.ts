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

/** Maximum length of a text that a {@link FieldGroup} caches. Longer texts are decoded again for each object. */
const MAX_CACHED_LENGTH = 512;
const NOT_ASCII = /[^ -~]/;

/** Reads the value of a field. Returns false if the general decoder must read the object. */
export type ScanField = (cursor: ByteCursor) => boolean;

/** The readers of fields by name. */
export type FieldScans = Readonly<Record<string, ScanField>>;

/** Leaves the object to the general decoder. */
export const leaveToDecoder: ScanField = () => false;

/** Reads a string; `take` returns false if it is invalid. */
export function scanString(take: (text: string) => boolean): ScanField {
  return (cursor) => {
    const text = cursor.string();
    return text !== undefined && take(text);
  };
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
 * general decoder, because the result depends on the order of the fields, or because the decoder rejects objects with
 * another field that is invalid.
 */
export function scanWholeObject(scans: FieldScans): ScanField {
  return fieldTable(scans, true);
}

function fieldTable(scans: FieldScans, isWhole: boolean): ScanField {
  const names = Object.keys(scans).map(nameBytes);
  const readers = Object.values(scans);
  return (cursor) => {
    if (!cursor.skip(OPEN_OBJECT)) return false;
    if (cursor.skip(CLOSE_OBJECT)) return true;
    let seen = 0;
    let next = 0;
    do {
      if (!cursor.name()) return false;
      const index = cursor.indexOfName(names, next);
      if (index < 0) {
        if (isWhole || !cursor.skipValue()) return false;
        continue;
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
  readonly #known = new SharedValues<T>();
  #text = '';
  /** Range of the last run of adjacent fields of the group in the bytes. The run is not in `#text` yet. */
  #from = 0;
  #to = 0;

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

  begin(): void {
    this.#text = '';
    this.#from = 0;
    this.#to = 0;
  }

  /**
   * Returns the value of the fields read since {@link FieldGroup.begin}, or undefined if one of them was rejected. The
   * value must not be changed.
   */
  value(cursor: ByteCursor): T | undefined {
    this.#endRun(cursor);
    const text = this.#text;
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const value = this.#decode(text);
    if (value !== undefined && text.length <= MAX_CACHED_LENGTH) this.#known.share(text, value);
    return value;
  }

  readonly #add: ScanField = (cursor) => {
    const from = cursor.nameStart;
    if (!cursor.skipValue()) return false;
    if (from !== this.#to + 1) {
      this.#endRun(cursor);
      this.#from = from;
    }
    this.#to = cursor.at;
    return true;
  };

  #endRun(cursor: ByteCursor): void {
    if (this.#to === 0) return;
    const run = cursor.text(this.#from, this.#to);
    this.#text = this.#text === '' ? run : `${this.#text},${run}`;
    this.#to = 0;
  }

  #decode(text: string): T | undefined {
    const fields = NOT_ASCII.test(text) ? undefined : parseJson(`{${text}}`);
    if (!isObject(fields)) return undefined;
    const { value, rejections } = parseObject('', this.#shape(fields), {}, this.#read);
    return rejections.length > 0 ? undefined : value;
  }
}

/** The fields of one kind. */
export interface ScannedKind<T> {
  /** Fields of the metadata, in addition to those that identify the object. */
  readonly metadata: FieldScans;
  /** Other fields of the object. */
  readonly fields: FieldScans;
  /** Called before an object is read. */
  begin(): void;
  /** Returns the value of the object; undefined if the general decoder must read it. */
  value(id: ServiceID, uid: string, cursor: ByteCursor): T | undefined;
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
      namespace: scanString((text) => {
        if (!isName(text)) return false;
        namespace = namespaces.share(text, text);
        return true;
      }),
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
      if (name === '' || namespace === '' || uid === '' || resourceVersion === '') return undefined;
      const value = kind.value({ namespace, name }, uid, cursor);
      return value && new ScannedObject({ name, namespace, uid, resourceVersion }, value);
    },
  };
}
