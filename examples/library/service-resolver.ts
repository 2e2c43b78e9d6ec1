// Resolves a service to its backends, over all clusters: `shop/checkout` and the name or number of a port.
//
// A service is defined in the local Kubernetes cluster. Its backends are in this cluster and, if it is annotated as
// global, in the remote clusters of the mesh. With the affinity `local`, remote backends are used only if there is no
// local one.
import { parseEndpointSlice, parseService, ServiceCache } from 'datapath-cache';

const services = new ServiceCache({ clusterName: 'west' });
const checkout = { namespace: 'shop', name: 'checkout' };

function show(what: string): void {
  const backends = services.resolve(checkout, 'http') ?? [];
  const where = backends.map(
    ({ address, port, backend }) =>
      `${address}:${port} in ${backend.cluster === '' ? 'west' : backend.cluster}`,
  );
  console.log(`${what}: ${where.sort().join(', ') || 'no backend'}`);
}

// Objects in the form of the Kubernetes API. Invalid fields are rejected one by one.
const service = parseService({
  kind: 'Service',
  metadata: {
    ...checkout,
    annotations: { 'service.cilium.io/global': 'true', 'service.cilium.io/affinity': 'local' },
  },
  spec: { clusterIP: '172.20.7.7', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
});
for (const { message } of service.rejections) console.error(message);
if (service.value !== undefined) services.updateService(service.value);

function localBackend(ready: boolean): void {
  const slice = parseEndpointSlice({
    kind: 'EndpointSlice',
    metadata: { namespace: 'shop', name: 'checkout-1', labels: { 'kubernetes.io/service-name': 'checkout' } },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: [{ addresses: ['10.1.0.5'], conditions: { ready } }],
  });
  if (slice.value !== undefined) services.updateEndpoints(slice.value);
}
localBackend(true);

// In an agent, ClusterMesh writes this offer.
const ports = new Map([['http', { port: 8080, protocol: 6 }]]);
services.mergeExternalServiceUpdate({
  ...checkout,
  cluster: 'east',
  clusterID: 2,
  shared: true,
  includeExternal: true,
  frontends: new Map([['172.21.0.9', new Map([['http', { port: 80, protocol: 6 }]])]]),
  backends: new Map([['10.2.0.5', ports]]),
  labels: new Map(),
  selector: new Map(),
});
// Before this call, listeners receive no service without backends, because backends may still arrive.
services.markSynced();

show('with a backend here');
localBackend(false);
show('while none is ready here');
services.withdrawCluster('east');
show('without the other cluster');

// Returns the service of an address, as a proxy needs it.
const match = services.lookupFrontend('172.20.7.7', 80, 6);
console.log(`172.20.7.7:80 is ${match?.id.namespace}/${match?.id.name}, ${match?.frontend.kind}`);
