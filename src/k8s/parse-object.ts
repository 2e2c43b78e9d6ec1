import { type Rejection, rejection } from '../base/rejection.ts';
import { Fields, type RejectField } from '../net/fields.ts';
import type { ServiceID } from '../servicecache/service-id.ts';

/**
 * A Kubernetes object that was read field by field, as its API server would store it: defaults filled in, and what
 * an API server would not store rejected.
 */
export interface Parsed<T> {
  /** Undefined when the object cannot be used at all; `rejections` then says why. */
  readonly value: T | undefined;
  /** The fields that were rejected; the others are in `value`. Empty for a valid object. */
  readonly rejections: readonly Rejection[];
}

/** Options of the parsers of Kubernetes objects. */
export interface ParseOptions {
  /** Where the object comes from, for rejections: `file.yaml:12`. Its kind and name are added to it. */
  readonly at?: string | undefined;
}

/** The fields of an object; one that is rejected counts as absent. */
export type ObjectFields = Fields<undefined>;

/** Where an object without a namespace belongs, as for Kubernetes' own clients. */
const DEFAULT_NAMESPACE = 'default';

const NO_TEXTS: ReadonlyMap<string, string> = new Map();
const RFC3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/;
const SLASH = 0x2f;
const DELETE = 0x7f;

const NO_REJECTIONS: readonly Rejection[] = [];

/** The longest name that an API server stores: that of a DNS subdomain. */
const LONGEST_NAME = 253;

/** What an API server stores of all annotations of an object together (`TotalAnnotationSizeLimitB`). */
const MOST_TEXT = 256 * 1024;

const ignore: RejectField<undefined> = () => undefined;

/** The object's name in its rejections, valid or not: `Service shop/checkout`, `CiliumNode n1`. */
function nameOf(kind: string, object: unknown): string {
  const metadata = Fields.of(object, ignore, '')?.map('metadata');
  const namespace = metadata?.string('namespace');
  const name = metadata?.string('name') ?? '?';
  return `${kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;
}

/** Reads an untrusted object. `read` returns `undefined` for one that cannot be used. Never throws. */
export function parseObject<T>(
  kind: string,
  object: unknown,
  { at }: ParseOptions,
  read: (fields: ObjectFields) => T | undefined,
): Parsed<T> {
  const rejections: Rejection[] = [];
  let place: string | undefined;
  const reject: RejectField<undefined> = (reason, field, value, why) => {
    place ??= `${at === undefined ? '' : `${at} `}${nameOf(kind, object)}`;
    rejections.push(rejection(reason, field, value, why, place));
    return undefined;
  };
  const fields = Fields.of(object, reject, 'object');
  const value = fields && read(fields);
  return { value, rejections: rejections.length === 0 ? NO_REJECTIONS : rejections };
}

/** The name of an object that is in no namespace; `undefined`, and rejected, when it is not usable. */
export function readClusterScopedName(fields: ObjectFields): string | undefined {
  return readName(fields.map('metadata'), 'name', undefined);
}

/** Namespace and name; `undefined`, and rejected, when there is no usable name. */
export function readID(fields: ObjectFields): ServiceID | undefined {
  const metadata = fields.map('metadata');
  const name = readName(metadata, 'name', undefined);
  const namespace = readName(metadata, 'namespace', DEFAULT_NAMESPACE);
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

function readName(metadata: ObjectFields, part: string, absent: string | undefined): string | undefined {
  const value = metadata.value(part) ?? absent;
  if (isName(value)) return value;
  return metadata.reject(part, 'invalid-name', 'must be a name: a string, not empty, without /', value);
}

/** Whether a value can be the name of an object. It becomes a part of keys, and is shown. */
export function isName(value: unknown): value is string {
  if (typeof value !== 'string' || value === '' || value.length > LONGEST_NAME) return false;
  for (let at = 0; at < value.length; at++) {
    const code = value.charCodeAt(at);
    if (code <= 0x20 || code === SLASH || code === DELETE) return false;
  }
  return true;
}

/** When the field says that something happened, in milliseconds since the epoch; 0 where it does not. */
export function readTime(fields: ObjectFields, name: string): number {
  const text = fields.string(name) ?? '';
  if (text === '') return 0;
  const time = RFC3339.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(time)) return time;
  fields.reject(name, 'invalid-time', 'is not a time as of RFC 3339', text);
  return 0;
}

/** Labels or annotations; none, and rejected, when they are more than an API server stores. */
export function readTexts(metadata: ObjectFields, name: string): ReadonlyMap<string, string> {
  const texts = metadata.strings(name);
  let size = 0;
  for (const [key, value] of texts) size += key.length + value.length;
  if (size <= MOST_TEXT) return texts;
  metadata.reject(name, 'too-large', `must have at most ${MOST_TEXT} characters`, `${size} characters`);
  return NO_TEXTS;
}
