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

const ignore: RejectField<undefined> = () => undefined;

/** The object's name in its rejections, valid or not: `Service shop/checkout`. */
function nameOf(kind: string, object: unknown): string {
  const metadata = Fields.of(object, ignore, '')?.map('metadata');
  return `${kind} ${metadata?.string('namespace') ?? '?'}/${metadata?.string('name') ?? '?'}`;
}

/** Reads an untrusted object. `read` returns `undefined` for one that cannot be used. Never throws. */
export function parseObject<T>(
  kind: string,
  object: unknown,
  { at }: ParseOptions,
  read: (fields: ObjectFields) => T | undefined,
): Parsed<T> {
  const rejections: Rejection[] = [];
  const place = `${at === undefined ? '' : `${at} `}${nameOf(kind, object)}`;
  const reject: RejectField<undefined> = (reason, field, value, why) => {
    rejections.push(rejection(reason, field, value, why, place));
    return undefined;
  };
  const fields = Fields.of(object, reject, 'object');
  return { value: fields && read(fields), rejections };
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
  if (typeof value === 'string' && value !== '' && !value.includes('/')) return value;
  return metadata.reject(part, 'invalid-name', 'must be a name: a string, not empty, without /', value);
}
