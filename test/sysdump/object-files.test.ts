import { expect, it } from 'vitest';
import { kindOfFile } from '../../src/sysdump/object-files.ts';

it.each([
  ['cilium-endpoint-slices-20261127.yaml', 'CiliumEndpointSlice'],
  ['kubernetes/ciliumendpointslices.yaml', 'CiliumEndpointSlice'],
  ['ces.json', 'CiliumEndpointSlice'],
  ['cilium-endpoints-20261127.yaml', 'CiliumEndpoint'],
  ['cep.yaml', 'CiliumEndpoint'],
  ['kubernetes-endpoints.yaml', 'Endpoints'],
  ['k8s-endpoint-slices.yaml', 'EndpointSlice'],
  ['cn.yaml', 'CiliumNode'],
  ['ciliumidentities-20261127.yaml', 'CiliumIdentity'],
  ['cid.json', 'CiliumIdentity'],
  ['k8s-services.yaml', 'Service'],
  ['k8s-pods-20261127.yaml', 'Pod'],
  ['cilium-configmap-20261127.yaml', 'ConfigMap'],
  ['k8s-events.yaml', undefined],
])('the file %s has %s (regression: names with dashes had endpoints)', (name, kind) => {
  expect(kindOfFile(name)).toBe(kind);
});
