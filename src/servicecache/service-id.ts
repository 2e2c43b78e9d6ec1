import { type Check, checkArgument, shaped, TEXT } from '../base/arguments.ts';
import { type ClusterEndpointSlice, SERVICE_NAME_LABEL } from '../model/cluster-endpoint-slice.ts';

/** The name of a service. Names are compared as a whole and not normalized. */
export interface ServiceID {
  readonly namespace: string;
  readonly name: string;
}

/** Accepts a {@link ServiceID}. */
export const SERVICE_ID: Check = shaped<ServiceID>(
  'must have a namespace and a name',
  ({ namespace, name }) => typeof namespace === 'string' && typeof name === 'string',
);

/** Returns `namespace/name`, the key of a service in maps and texts. Kubernetes names contain no `/`. */
export function formatServiceID(id: ServiceID): string {
  checkArgument('formatServiceID: id', id, SERVICE_ID);
  return `${id.namespace}/${id.name}`;
}

/** Returns the service with a key that {@link formatServiceID} returned. Pods have the same form. */
export function parseServiceKey(key: string): ServiceID {
  const slash = key.indexOf('/');
  return { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/**
 * Returns the service of a DNS name, `name.namespace` with any suffix (`.svc.cluster.local`); `undefined` if it has no
 * dot. The service need not exist. Empty parts are accepted, as Cilium does.
 */
export function parseServiceIDFrom(fqdn: string): ServiceID | undefined {
  checkArgument('parseServiceIDFrom: fqdn', fqdn, TEXT);
  const [name, namespace] = fqdn.split('.', 2);
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

/** Returns the service of a slice; its name is empty if the label is missing. */
export function serviceOfSlice({ namespace, labels }: ClusterEndpointSlice): ServiceID {
  return { namespace, name: labels.get(SERVICE_NAME_LABEL) ?? '' };
}
