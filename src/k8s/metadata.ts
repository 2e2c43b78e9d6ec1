import type { ServiceID } from '../servicecache/service-id.ts';
import { FieldReader, field, type ParseOptions } from './field-reader.ts';

/** Where an object without a namespace belongs, as for Kubernetes' own clients. */
const DEFAULT_NAMESPACE = 'default';

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '?';
}

/** A reader whose rejections name the object: `file.yaml:12 Service shop/checkout`. */
export function readerFor(kind: string, object: unknown, options: ParseOptions): FieldReader {
  const metadata = field(object, 'metadata');
  const name = `${textOf(field(metadata, 'namespace'))}/${textOf(field(metadata, 'name'))}`;
  const place = options.at === undefined ? '' : `${options.at} `;
  return new FieldReader(`${place}${kind} ${name}`);
}

/** Namespace and name; `undefined`, and refused, when there is no usable name. */
export function readID(object: unknown, reader: FieldReader): ServiceID | undefined {
  if (reader.object(object, 'object') === undefined) {
    if (reader.rejections.length === 0) reader.refuse('wrong-type', 'object', object, 'must be an object');
    return undefined;
  }
  const metadata = reader.object(field(object, 'metadata'), 'metadata');
  const name = namePart(field(metadata, 'name'), 'metadata.name', reader);
  const namespace = namePart(field(metadata, 'namespace') ?? DEFAULT_NAMESPACE, 'metadata.namespace', reader);
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

function namePart(value: unknown, path: string, reader: FieldReader): string | undefined {
  if (typeof value === 'string' && value !== '' && !value.includes('/')) return value;
  reader.refuse('invalid-name', path, value, 'must be a name: a string, not empty, without /');
  return undefined;
}
