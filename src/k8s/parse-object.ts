import { checkArgument, objectWith, optional, TEXT } from '../base/arguments.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { parseTime } from '../base/system-clock.ts';
import { Fields, type RejectField } from '../net/fields.ts';
import type { ServiceID } from '../servicecache/service-id.ts';

/**
 * The result of parsing a Kubernetes object. The parser sets defaults, and rejects fields that an API server would not
 * store.
 */
export interface Parsed<T> {
  /** Undefined if the object is unusable; `rejections` then has the reason. */
  readonly value: T | undefined;
  /** The rejected fields; `value` contains the other fields. Empty if the object is valid. */
  readonly rejections: readonly Rejection[];
}

/** Options of the parsers of Kubernetes objects. */
export interface ParseOptions {
  /** Source of the object for rejections: `file.yaml:12`. The kind and name of the object are appended. */
  readonly at?: string | undefined;
}

/** The fields of an object. A rejected field counts as absent. */
export type ObjectFields = Fields<undefined>;

/** Namespace of objects without one, as in the clients of Kubernetes. */
const DEFAULT_NAMESPACE = 'default';

const NO_TEXTS: ReadonlyMap<string, string> = new Map();
const SLASH = 0x2f;
const DELETE = 0x7f;

const NO_REJECTIONS: readonly Rejection[] = [];

/** Maximum length of a name that an API server stores, which is that of a DNS subdomain. */
const MAX_NAME_LENGTH = 253;
const NAME_REQUIREMENT = `must be a string of 1 to ${MAX_NAME_LENGTH} characters, without spaces, control characters and /`;

/** Maximum size of all annotations of an object that an API server stores (`TotalAnnotationSizeLimitB`). */
const MAX_TEXT_LENGTH = 256 * 1024;

const ignore: RejectField<undefined> = () => undefined;

/**
 * Returns the kind and name of an object for its rejections, even if it is invalid: `Service shop/checkout`,
 * `CiliumNode n1`.
 */
function nameOf(kind: string, object: unknown): string {
  const metadata = Fields.of(object, ignore, '')?.map('metadata');
  const namespace = metadata?.string('namespace');
  const name = metadata?.string('name') ?? '?';
  return `${kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;
}

const OPTIONS = objectWith({ at: optional(TEXT) });

/** Parses an untrusted object with `read`, which returns undefined if it is unusable. Does not throw for any object. */
export function parseObject<T>(
  kind: string,
  object: unknown,
  options: ParseOptions,
  read: (fields: ObjectFields) => T | undefined,
): Parsed<T> {
  checkArgument('parse: options', options, OPTIONS);
  const { at } = options;
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

/** Returns the name of a cluster-scoped object. If the name is invalid, rejects it and returns undefined. */
export function readClusterScopedName(fields: ObjectFields): string | undefined {
  return readName(fields.map('metadata'), 'name', undefined);
}

/** Returns the namespace and name of an object. If one is invalid, rejects it and returns undefined. */
export function readID(fields: ObjectFields): ServiceID | undefined {
  const metadata = fields.map('metadata');
  const name = readName(metadata, 'name', undefined);
  const namespace = readName(metadata, 'namespace', DEFAULT_NAMESPACE);
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

function readName(metadata: ObjectFields, part: string, absent: string | undefined): string | undefined {
  const value = metadata.value(part) ?? absent;
  if (isName(value)) return value;
  return metadata.reject(part, 'invalid-name', NAME_REQUIREMENT, value);
}

/**
 * Returns true if a value is a valid name of an object. The check is strict, because names become parts of keys and are
 * displayed.
 */
export function isName(value: unknown): value is string {
  if (typeof value !== 'string' || value === '' || value.length > MAX_NAME_LENGTH) return false;
  for (let at = 0; at < value.length; at++) {
    const code = value.charCodeAt(at);
    if (code <= 0x20 || code === SLASH || code === DELETE) return false;
  }
  return true;
}

/** Returns the time in a field in milliseconds since the epoch, or 0 if it is missing or invalid. */
export function readTime(fields: ObjectFields, name: string): number {
  const text = fields.string(name) ?? '';
  if (text === '') return 0;
  const time = parseTime(text);
  if (time !== undefined) return time;
  fields.reject(name, 'invalid-time', 'is not an RFC 3339 time', text);
  return 0;
}

/**
 * Returns labels or annotations. If they are larger than an API server stores, rejects them and returns an empty map.
 */
export function readStringMap(metadata: ObjectFields, name: string): ReadonlyMap<string, string> {
  const texts = metadata.strings(name);
  let size = 0;
  for (const [key, value] of texts) size += key.length + value.length;
  if (size <= MAX_TEXT_LENGTH) return texts;
  metadata.reject(name, 'too-large', `must have at most ${MAX_TEXT_LENGTH} characters`, `${size} characters`);
  return NO_TEXTS;
}
