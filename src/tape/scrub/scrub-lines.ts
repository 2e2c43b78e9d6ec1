import { assert } from '../../base/assert.ts';
import { parseTime } from '../../base/system-clock.ts';
import {
  decodeClusterEndpointSlice,
  encodeClusterEndpointSlice,
} from '../../kvstore/codec/cluster-endpoint-slice.ts';
import { maskLength } from '../../kvstore/codec/mask.ts';
import type { ClusterEndpointSlice } from '../../model/cluster-endpoint-slice.ts';
import { isObject, parseJson } from '../../net/fields.ts';
import { bytesIn, type TapeLine, type TapeValue } from '../tape-line.ts';
import { PROTOCOL_PREFIXES, PROTOCOL_WORDS } from './protocol-words.ts';
import { AddressScrub } from './scrub-addresses.ts';

/** Matches the parts of a text: an address, with or without the length of a prefix, or a word between separators. */
const PARTS =
  /(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]*(?:\/\d{1,3})?|\d+\.\d+\.\d+\.\d+(?:\/\d{1,3})?|[^\s:/=;,@"'`{}[\]()<>|&?#%+!*\\$^]+/g;
/** Matches the words of {@link PARTS}. */
const WORDS = /[^\s:/=;,@"'`{}[\]()<>|&?#%+!*\\$^]+/g;
const NUMBER = /^\d{1,20}$/;

/** Replacement of text that is not JSON. No decoder accepts it; replacing words could turn the text into valid JSON. */
const INVALID_JSON = '{';
/** Replacement of bytes that are not UTF-8. */
const NOT_UTF8: TapeValue = { value64: '/w==' };
/** Replacement of an invalid slice. No decoder accepts it. */
const INVALID_SLICE: TapeValue = { value64: 'AA==' };

/** Lists and objects at this depth become null. No decoder reads so deep, and deeper ones would exceed the stack. */
const MAX_DEPTH = 100;

/**
 * Replaces names and addresses in the lines of a tape. It keeps numbers, times, the words of the formats, the order of
 * names (because rules compare them) and the longest match of addresses. All lines are passed to
 * {@link LineScrub.learn} first, so that each name becomes its rank among all names.
 */
export class LineScrub {
  readonly #addresses: AddressScrub;
  /** The replacement of each name; empty until {@link LineScrub.finish}. */
  readonly #names = new Map<string, string>();
  #isLearning = true;

  /** @param secret decides how addresses are replaced; whoever knows it can find the addresses again */
  constructor(secret: Uint8Array) {
    this.#addresses = new AddressScrub(secret);
  }

  get names(): ReadonlyMap<string, string> {
    return this.#names;
  }

  /** Collects the names of a line. */
  learn(line: TapeLine): void {
    assert(this.#isLearning, 'all lines are learned before the first is replaced');
    this.replaceLine(line); // passes each word to `#replaceWord`
  }

  /** Ends the collection: names receive their replacements. */
  finish(): void {
    this.#isLearning = false;
    const names = [...this.#names.keys()].sort();
    const digits = String(names.length).length;
    for (const [index, name] of names.entries())
      this.#names.set(name, `n${String(index + 1).padStart(digits, '0')}`);
  }

  /**
   * Returns a line with other names and addresses. Digests and notes become empty notes, so that the numbers of lines
   * are kept.
   */
  replaceLine(line: TapeLine): TapeLine {
    switch (line.ev) {
      case 'tape': {
        const { seq, ms, ev, format, version, life, wall, settings } = line;
        const head = { seq, ms, ev, format, version, life, wall };
        return { ...head, settings: this.#object(settings), scrubbed: true };
      }
      case 'digest':
      case 'note':
        return { seq: line.seq, ms: line.ms, ev: 'note', text: '' };
      default: {
        const { seq, ms, ev, value: _, value64: __, ...fields } = line as TapeLine & TapeValue;
        return { seq, ms, ev, ...this.#object(fields), ...this.#valueOf(line) } as unknown as TapeLine;
      }
    }
  }

  #valueOf(line: TapeLine): TapeValue {
    if (line.ev === 'config') return this.#value(line);
    if (line.ev !== 'put') return {};
    return line.from === 'endpointslices' ? this.#slice(line.store, line.key, line) : this.#value(line);
  }

  /** Returns a text with other names and addresses. */
  replaceText(text: string): string {
    if (PROTOCOL_WORDS.has(text) || parseTime(text) !== undefined) return text;
    return this.#addresses.replace(text) ?? text.replace(PARTS, (part) => this.#replacePart(part));
  }

  /** Replaces a match of {@link PARTS}. If an address has an invalid prefix length, only the address is replaced. */
  #replacePart(part: string): string {
    const replaced = this.#addresses.replace(part);
    if (replaced !== undefined) return replaced;
    const slash = part.indexOf('/');
    const [address, length] = slash < 0 ? [part, ''] : [part.slice(0, slash), part.slice(slash)];
    const other = this.#addresses.replace(address);
    return `${other ?? address.replace(WORDS, (word) => this.#replaceWord(word))}${length}`;
  }

  /** Returns the replacement of a word. While names are collected, adds the word to them and returns it. */
  #replaceWord(word: string): string {
    if (PROTOCOL_WORDS.has(word) || NUMBER.test(word)) return word;
    for (const prefix of PROTOCOL_PREFIXES)
      if (word.startsWith(prefix) && word !== prefix)
        return `${prefix}${this.#replaceWord(word.slice(prefix.length))}`;
    if (this.#isLearning) {
      this.#names.set(word, '');
      return word;
    }
    const name = this.#names.get(word);
    assert(name, 'each word was learned');
    return name;
  }

  #json(value: unknown, depth = 0): unknown {
    if (typeof value === 'string') return this.replaceText(value);
    if (depth === MAX_DEPTH) return null;
    if (Array.isArray(value)) return value.map((item) => this.#json(item, depth + 1));
    return isObject(value) ? this.#object(value, depth + 1) : value;
  }

  #object(object: object, depth = 0): Record<string, unknown> {
    const masked = 'IP' in object && 'Mask' in object ? this.#masked(object) : undefined;
    return Object.fromEntries(
      Object.entries(object).map(([key, value]) => [
        this.replaceText(key),
        masked?.get(key) ?? this.#json(value, depth),
      ]),
    );
  }

  /**
   * Returns the replaced fields `IP` and `Mask` of a prefix; undefined if they are invalid. A mask is kept, because it
   * is only a length.
   */
  #masked(prefix: { readonly IP: unknown; readonly Mask: unknown }): ReadonlyMap<string, string> | undefined {
    const { IP: ip, Mask: mask } = prefix;
    if (typeof ip !== 'string' || typeof mask !== 'string') return undefined;
    const length = maskLength(ip.includes(':') ? 6 : 4, mask);
    const replaced = length === undefined ? undefined : this.#addresses.replace(`${ip}/${length}`);
    if (replaced === undefined) return undefined;
    return new Map([
      ['IP', replaced.slice(0, replaced.indexOf('/'))],
      ['Mask', mask],
    ]);
  }

  #value(line: TapeValue): TapeValue {
    const { value, value64 } = line;
    if (value64 !== undefined) return NOT_UTF8;
    if (value === undefined) return {};
    if (!/^\s*[[{]/.test(value)) return { value: this.replaceText(value) };
    const json = parseJson(value);
    return { value: json === undefined ? INVALID_JSON : JSON.stringify(this.#json(json)) };
  }

  #slice(store: string, key: string, line: TapeValue): TapeValue {
    const [name = '', namespace = ''] = key.split('/').reverse();
    const decoded = decodeClusterEndpointSlice(
      { cluster: store, namespace, name },
      bytesIn(line) ?? new Uint8Array(),
      key,
    );
    if (!decoded.ok) return INVALID_SLICE;
    const slice: ClusterEndpointSlice = decoded.value;
    const texts = (map: ReadonlyMap<string, string>): ReadonlyMap<string, string> =>
      new Map([...map].map(([label, value]) => [this.replaceText(label), this.replaceText(value)]));
    const scrubJSON = <T>(value: T): T => this.#json(value) as T;
    const scrubbed: ClusterEndpointSlice = {
      ...scrubJSON({ ...slice, labels: undefined, annotations: undefined, endpoints: [] }),
      labels: texts(slice.labels),
      annotations: texts(slice.annotations),
      endpoints: slice.endpoints.map((endpoint) => ({
        ...scrubJSON({ ...endpoint, deprecatedTopology: undefined }),
        deprecatedTopology: texts(endpoint.deprecatedTopology),
      })),
    };
    const bytes = encodeClusterEndpointSlice(scrubbed);
    return { value64: Buffer.from(bytes).toString('base64') };
  }
}
