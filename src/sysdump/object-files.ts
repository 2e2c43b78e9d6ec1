import type { Rejection } from '../base/rejection.ts';
import { parseBlockYaml, UnusualYamlError } from '../ciliumdump/block-yaml.ts';
import { isObject } from '../net/fields.ts';
import { parseManifests } from '../recording/manifests.ts';
import { parseYaml } from '../recording/yaml-documents.ts';

/** A Kubernetes object. Its fields are unchecked, except that it has a kind. */
export interface DumpedObject {
  readonly kind: string;
  readonly object: Readonly<Record<string, unknown>>;
}

/**
 * Files of objects, by the plural of their kind: `ciliumendpoints-20260101-120000.yaml`, `k8s-services-….yaml`, `pods.json`. Slices
 * come before endpoints, because the rest of their name could be a suffix.
 */
const FILE =
  /^(?:k8s-|kubernetes-)?(cilium-?endpoint-?slices?|ces|cilium-?endpoints?|cep|cilium-?nodes?|cn|cilium-?identit(?:y|ies)|cid|services?|svc|endpoint-?slices?|endpoints|pods?|cilium-config(?:map)?)(?:-[\dT:.Z<>a-z-]*)?\.(?:ya?ml|json)$/i;

/**
 * Returns true if a file contains objects that are read. `name` may have a path. Returns false for files in folders of command
 * outputs.
 */
export function isObjectFile(name: string): boolean {
  return FILE.test(name.slice(name.lastIndexOf('/') + 1));
}

/** Returns the kind of service endpoints that a file has, or undefined. */
export function serviceEndpointsIn(name: string): 'endpointslices' | 'endpoints' | undefined {
  const kind = FILE.exec(name.slice(name.lastIndexOf('/') + 1))?.[1]?.toLowerCase() ?? '';
  if (/^endpoint-?slices?$/.test(kind)) return 'endpointslices';
  return kind === 'endpoints' ? 'endpoints' : undefined;
}

/** Returns true if a file has the settings of Cilium, which name the cluster. */
export function isConfigFile(name: string): boolean {
  return /(?:^|\/)cilium-config(?:map)?(?:-[^/]*)?\.(?:ya?ml|json)$/i.test(name);
}

/** Returns true if a file has the CiliumIdentities. */
export function isIdentityFile(name: string): boolean {
  return /^(?:cid|cilium-?identit)/i.test(FILE.exec(name.slice(name.lastIndexOf('/') + 1))?.[1] ?? '');
}

/** Returns true if a file has the CiliumEndpointSlices, or the CiliumEndpoints. */
export function isEndpointFile(name: string): 'endpoints' | 'slices' | undefined {
  const kind =
    FILE.exec(name.slice(name.lastIndexOf('/') + 1))?.[1]
      ?.toLowerCase()
      .replaceAll('-', '') ?? '';
  if (kind === 'ces' || kind.startsWith('ciliumendpointslice')) return 'slices';
  return kind === 'cep' || kind.startsWith('ciliumendpoint') ? 'endpoints' : undefined;
}

const ITEMS = /^items:\s*$/m;

/**
 * Yields the objects of a YAML or JSON file, one at a time. The file is a list or has single documents. Lists in the format of
 * kubectl are parsed item by item, other lists as a whole. An invalid part is passed to `onReject`, and the others are still
 * yielded.
 */
export async function* objectsOf(
  text: string,
  file: string,
  onReject: (rejection: Rejection) => void,
): AsyncGenerator<DumpedObject, void, void> {
  const items = ITEMS.exec(text);
  const isOneList =
    items !== null &&
    !/^---\s/m.test(text.slice(4)) &&
    text.startsWith('- ', items.index + items[0].length + 1);
  if (!isOneList) {
    for await (const { object } of parseManifests(text, file, onReject)) yield* withKind(object, '');
    return;
  }
  const end = listEnd(text, items.index + items[0].length + 1);
  // The kind of the list is after its items, because the fields are sorted.
  const around = `${text.slice(0, items.index)}\n${text.slice(end)}`;
  const listKind = /^kind: (\w+)List\s*$/m.exec(around)?.[1] ?? '';
  for (const item of itemsOf(text, items.index + items[0].length + 1, end)) {
    const value = itemValue(item);
    if (isObject(value)) yield* withKind(value, listKind);
    else
      onReject({
        reason: 'malformed-manifest',
        field: 'items',
        value: '',
        at: file,
        message: `${file}: an item is no object`,
      });
  }
}

function* withKind(
  object: Readonly<Record<string, unknown>>,
  implied: string,
): Generator<DumpedObject, void, void> {
  const { kind } = object;
  const known = typeof kind === 'string' && kind !== '' ? kind : implied;
  if (known !== '') yield { kind: known, object };
}

/** Returns the end of the items of a list: the offset of the next line without indent and dash. */
function listEnd(text: string, from: number): number {
  const after = /^[^\s-]/m;
  const end = text.slice(from).search(after);
  return end < 0 ? text.length : from + end;
}

/** Yields the items of a list with their dash replaced by a blank. */
function* itemsOf(text: string, from: number, to: number): Generator<string, void, void> {
  for (let begin = from; begin < to; ) {
    const next = text.indexOf('\n- ', begin);
    const end = next < 0 || next >= to ? to : next + 1;
    yield ` ${text.slice(begin + 1, end)}`;
    begin = end;
  }
}

function itemValue(item: string): unknown {
  try {
    return parseBlockYaml(item);
  } catch (error) {
    if (!(error instanceof UnusualYamlError)) throw error;
    const parsed = parseYaml(item);
    return typeof parsed === 'string' ? undefined : parsed.value;
  }
}
