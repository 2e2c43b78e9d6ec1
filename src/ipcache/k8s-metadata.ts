import type { K8sMetadata, NamedPorts } from './types.ts';

function sameNamedPorts(a: NamedPorts | undefined, b: NamedPorts | undefined): boolean {
  if (a === b) return true;
  if ((a?.size ?? 0) !== (b?.size ?? 0)) return false;
  for (const [name, port] of a ?? []) {
    const other = b?.get(name);
    if (other?.port !== port.port || other.protocol !== port.protocol) return false;
  }
  return true;
}

/** Returns true if two metadata objects are equal. A missing field equals an empty one. */
export function sameMetadata(a: K8sMetadata | undefined, b: K8sMetadata | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined) return false;
  return (
    a.podName === b.podName &&
    a.namespace === b.namespace &&
    (a.serviceAccount ?? '') === (b.serviceAccount ?? '') &&
    sameNamedPorts(a.namedPorts, b.namedPorts)
  );
}

/** Returns undefined if all fields of the metadata are empty. */
export function metadataOrNone(k8s: K8sMetadata | undefined): K8sMetadata | undefined {
  if (k8s === undefined) return undefined;
  const isNamed = k8s.podName !== '' || k8s.namespace !== '' || (k8s.serviceAccount ?? '') !== '';
  return isNamed || (k8s.namedPorts?.size ?? 0) > 0 ? k8s : undefined;
}
