import { createHash } from 'node:crypto';
import { services } from '../../k8s/feed/kinds.ts';
import type { ResourceKind } from '../../k8s/resource.ts';
import { field } from '../collect/field.ts';

/** The API group of ServiceExports and ServiceImports. */
export const MCS_GROUP = 'multicluster.x-k8s.io';

/** All Services, with any labels, because a ServiceExport may give any labels to its derived Service. */
export const SERVICES: ResourceKind = { ...services({}), labelSelector: '' };

/** The versions of the API, the preferred one first. */
export const MCS_VERSIONS = ['v1beta1', 'v1alpha1'] as const;

export type McsVersion = (typeof MCS_VERSIONS)[number];

/** Returns a kind of the API group. */
export function mcsKind(plural: 'serviceexports' | 'serviceimports', version: McsVersion): ResourceKind {
  return { group: MCS_GROUP, version, plural };
}

/** The label of a derived Service with the name of its ServiceImport. */
export const IMPORT_NAME_LABEL = 'multicluster.kubernetes.io/service-name';
/** The annotation of a ServiceImport with the name of its derived Service. */
export const DERIVED_ANNOTATION = 'multicluster.kubernetes.io/derived-service';
/** The annotation of a ServiceImport with its families that this cluster supports: `IPv4,IPv6`. */
export const FAMILIES_ANNOTATION = 'clustermesh.cilium.io/supported-ip-families';

const BASE32HEX = '0123456789abcdefghijklmnopqrstuv';
const HASH_LENGTH = 10;

/** Returns the number and protocol of a port of a Service: `80/TCP`. */
export function portNumberText(port: unknown): string {
  return `${String(field(port, 'port'))}/${String(field(port, 'protocol') ?? 'TCP')}`;
}

/** Returns the first `length` letters of bytes in the lower-case base32 of RFC 4648, section 7. */
function base32Hex(bytes: Uint8Array, length: number): string {
  let text = '';
  for (let bit = 0; text.length < length; bit += 5) {
    // The 5 bits of a letter may be in two bytes.
    const pair = ((bytes[bit >> 3] ?? 0) << 8) | (bytes[(bit >> 3) + 1] ?? 0);
    text += BASE32HEX.charAt((pair >> (11 - (bit & 7))) & 31);
  }
  return text;
}

/**
 * Returns the name of the derived Service for a ServiceImport. The name is the same in every cluster, so that the
 * backends of all clusters are joined like those of any global service.
 */
export function derivedName(namespace: string, name: string): string {
  const hash = createHash('sha256').update(`${namespace}/${name}`).digest();
  return `derived-${base32Hex(hash, HASH_LENGTH)}`;
}

/** Returns the `namespace/name` of the derived Service of a service. */
export function derivedKey(service: string): string {
  const [namespace = '', name = ''] = service.split('/');
  return `${namespace}/${derivedName(namespace, name)}`;
}
