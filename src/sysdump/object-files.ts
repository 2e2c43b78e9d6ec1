import type { Rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { findItems, itemsOf } from '../recording/list-items.ts';
import { parseManifests } from '../recording/manifests.ts';
import { parsePart } from '../recording/yaml-documents.ts';

/** A Kubernetes object. Its fields are unchecked, except that it has a kind. */
export interface DumpedObject {
  readonly kind: string;
  readonly object: Readonly<Record<string, unknown>>;
}

/**
 * Files of objects, by the plural of their kind: `ciliumendpoints-20260101-120000.yaml`, `k8s-services-….yaml`,
 * `pods.json`. Slices come before endpoints, because the rest of their name could be a suffix.
 */
const FILE =
  /^(?:k8s-|kubernetes-)?(cilium-?endpoint-?slices?|ces|cilium-?endpoints?|cep|cilium-?nodes?|cn|cilium-?identit(?:y|ies)|cid|services?|svc|endpoint-?slices?|endpoints|pods?|cilium-config(?:map)?)(?:-[\dT:.Z<>a-z-]*)?\.(?:ya?ml|json)$/i;

/**
 * Kinds by the beginning of the name of their files, without dashes. The first match counts, so longer beginnings are
 * first.
 */
const KINDS: readonly (readonly [name: RegExp, kind: string])[] = [
  [/^(?:ciliumendpointslice|ces)/, 'CiliumEndpointSlice'],
  [/^(?:ciliumendpoint|cep)/, 'CiliumEndpoint'],
  [/^(?:ciliumnode|cn)/, 'CiliumNode'],
  [/^(?:ciliumidentit|cid)/, 'CiliumIdentity'],
  [/^ciliumconfig/, 'ConfigMap'],
  [/^(?:service|svc)/, 'Service'],
  [/^endpointslice/, 'EndpointSlice'],
  [/^endpoints/, 'Endpoints'],
  [/^pod/, 'Pod'],
];

/**
 * Returns the kind of the objects in a file; undefined if they are not read. `name` may have a path, which is
 * ignored: callers exclude the folders of command outputs.
 */
export function kindOfFile(name: string): string | undefined {
  const found = FILE.exec(name.slice(name.lastIndexOf('/') + 1))?.[1]
    ?.toLowerCase()
    .replaceAll('-', '');
  return found && KINDS.find(([beginning]) => beginning.test(found))?.[1];
}

/** Returns true if a file has the settings of Cilium, which name the cluster. */
export function isConfigFile(name: string): boolean {
  return /(?:^|\/)cilium-config(?:map)?(?:-[^/]*)?\.(?:ya?ml|json)$/i.test(name);
}

/** The kind of a list in the format of kubectl. */
const LIST_KIND = /^kind: ["']?(\w*)List["']?\s*$/m;

/**
 * Yields the objects of a YAML or JSON file, one at a time. The file is a list or has single documents. Lists in the
 * format of kubectl are parsed item by item, other lists as a whole. An invalid part is passed to `onReject`, and the
 * others are still yielded. The last item of a truncated list is omitted, because it may have wrong values.
 */
export async function* objectsOf(
  text: string,
  file: string,
  onReject: (rejection: Rejection) => void,
): AsyncGenerator<DumpedObject, void, void> {
  const reject = (message: string): void =>
    onReject({
      reason: 'malformed-manifest',
      field: 'items',
      value: '',
      at: file,
      message: `${file}: ${message}`,
    });
  const items = findItems(text);
  const hasOneDocument = !/^---\s/m.test(text.slice('---\n'.length));
  if (items === undefined || !hasOneDocument) {
    let isEmpty = true;
    for await (const { object } of parseManifests(text, file, onReject)) {
      isEmpty = false;
      const { kind } = object;
      if (typeof kind === 'string' && kind !== '') yield { kind, object };
      else reject('an object has no kind');
    }
    if (isEmpty && text.trim() === '') reject('the file is empty');
    return;
  }
  const kindBefore = LIST_KIND.exec(text.slice(0, items.begin));
  // If the fields are sorted, the kind is after the items.
  const kindAfter = LIST_KIND.exec(text.slice(items.end));
  const isTruncated = kindAfter === null && (kindBefore === null || !text.endsWith('\n'));
  const listKind = (kindBefore ?? kindAfter)?.[1] || kindOfFile(file);
  for (const { item, isLast } of itemsOf(text, items)) {
    if (isLast && isTruncated) {
      reject('the file is truncated: its list has no end');
      return;
    }
    const parsed = parsePart(item);
    const value = typeof parsed === 'string' ? undefined : parsed.value;
    const kind = isObject(value) ? value['kind'] || listKind : undefined;
    if (isObject(value) && typeof kind === 'string') yield { kind, object: value };
    else reject('an item is no object');
  }
}
