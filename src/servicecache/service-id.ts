/** What a service is called. Names are compared whole and kept as they are written. */
export interface ServiceID {
  readonly namespace: string;
  readonly name: string;
}

/** `namespace/name`: the key of a service in every map of this room. Neither part can hold a `/` in Kubernetes. */
export function formatServiceID(id: ServiceID): string {
  return `${id.namespace}/${id.name}`;
}

/**
 * The service that a DNS name stands for: `name.namespace`, with whatever follows (`.svc.cluster.local`).
 * `undefined` when there is no dot. Says nothing about whether there is such a service, and takes empty parts
 * as they are, as the original does.
 */
export function parseServiceIDFrom(fqdn: string): ServiceID | undefined {
  const [name, namespace] = fqdn.split('.', 2);
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}
