import { samePorts } from '../net/port.ts';
import type { K8sMetadata, NamedPorts } from './types.ts';

const NO_PORTS: NamedPorts = new Map();

/**
 * Returns true if two results of {@link metadataOrNone} are equal. Missing named ports equal an empty map.
 */
export function sameMetadata(a: K8sMetadata | undefined, b: K8sMetadata | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined) return false;
  return (
    a.podName === b.podName &&
    a.namespace === b.namespace &&
    a.serviceAccount === b.serviceAccount &&
    samePorts(a.namedPorts ?? NO_PORTS, b.namedPorts ?? NO_PORTS)
  );
}

/** Returns the metadata as stored: without an empty service account; undefined if all fields are empty. */
export function metadataOrNone(k8s: K8sMetadata | undefined): K8sMetadata | undefined {
  if (k8s === undefined) return undefined;
  const { namespace, podName, serviceAccount, namedPorts } = k8s;
  const hasName = podName !== '' || namespace !== '' || (serviceAccount ?? '') !== '';
  const hasPorts = (namedPorts?.size ?? 0) > 0;
  if (!hasName && !hasPorts) return undefined;
  if (serviceAccount !== '') return k8s;
  return namedPorts === undefined ? { namespace, podName } : { namespace, podName, namedPorts };
}
