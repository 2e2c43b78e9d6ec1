import { expect, it } from 'vitest';
import { parseEndpointSlice } from '../../src/k8s/parse-endpoint-slice.ts';
import { parseService } from '../../src/k8s/parse-service.ts';
import { PROTOCOL_NUMBERS } from '../../src/net/port.ts';
import type { FrontendKind } from '../../src/servicecache/frontends.ts';
import type { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { cacheOf, SHOP, transcript } from './support/scene.ts';

const { TCP, SCTP } = PROTOCOL_NUMBERS;
const HTTP = { name: 'http', port: 80, nodePort: 31_080 };
const NODE_PORT = { enabled: true, ipv4: ['192.168.0.1'], ipv6: ['fd00::1'] };

/** Writes a Service of this spec, like a reflector. */
function applyService(cache: ServiceCache, spec: object, metadata: object = {}): void {
  const { value, rejections } = parseService({
    metadata: { ...SHOP, ...metadata },
    spec: { clusterIP: '172.16.0.10', ports: [HTTP], ...spec },
  });
  for (const rejection of rejections) cache.reject(rejection);
  if (value !== undefined) cache.updateService(value);
}

/** Writes an EndpointSlice of these endpoints, like a reflector. */
function applySlice(
  cache: ServiceCache,
  endpoints: readonly object[],
  ports: readonly object[] = [HTTP],
): void {
  const { value } = parseEndpointSlice({
    metadata: { ...SHOP, labels: { 'kubernetes.io/service-name': SHOP.name } },
    addressType: 'IPv4',
    ports,
    endpoints,
  });
  if (value !== undefined) cache.updateEndpoints(value);
}

function chosen(cache: ServiceCache, frontend: FrontendKind = 'cluster-ip'): readonly string[] {
  return [...(cache.select(SHOP, frontend)?.keys() ?? [])].sort();
}

const serving = (ip: string, fields: object = {}): object => ({ addresses: [ip], ...fields });

it('a dual-stack node-port service answers in both families, on every given address', () => {
  const cache = cacheOf({ nodePort: NODE_PORT });
  applyService(cache, { type: 'NodePort', clusterIPs: ['172.16.0.10', 'fd02::10'] });
  expect([...cache.uniqueServiceFrontends()].sort()).toEqual([
    '172.16.0.10:80/TCP',
    '192.168.0.1:31080/TCP',
    '[fd00::1]:31080/TCP',
    '[fd02::10]:80/TCP',
  ]);
});

it('an SCTP port is a frontend of its own beside TCP', () => {
  const cache = cacheOf();
  applyService(cache, { ports: [HTTP, { name: 'sigtran', port: 80, protocol: 'SCTP' }] });
  const nameOf = (protocol: number): string | undefined =>
    cache.lookupFrontend('172.16.0.10', 80, protocol)?.frontend.portName;
  expect([nameOf(TCP), nameOf(SCTP)]).toEqual(['http', 'sigtran']);
});

it('a headless service has backends and no frontend', () => {
  const cache = cacheOf();
  applyService(cache, { clusterIP: 'None' });
  applySlice(cache, [serving('10.0.0.1', { hostname: 'checkout-0' })]);
  expect(cache.get(SHOP)?.endpoints.backends.get('10.0.0.1')?.hostname).toBe('checkout-0');
  expect([cache.uniqueServiceFrontends().size, cache.getServiceIP(SHOP)]).toEqual([0, undefined]);
});

it('a headless service has no frontend at its external IPs (regression: connections to them were refused)', () => {
  const cache = cacheOf({ nodePort: { enabled: true } });
  applyService(cache, { clusterIP: 'None', externalIPs: ['192.0.2.80'] });
  expect(cache.lookupFrontend('192.0.2.80', 80, TCP)).toBeUndefined();
});

it('a service without selector has the backends of any slices with its name', () => {
  const cache = cacheOf();
  applyService(cache, {});
  applySlice(cache, [serving('192.0.2.7')]);
  expect(cache.get(SHOP)?.service.selector.size).toBe(0);
  expect(chosen(cache)).toEqual(['192.0.2.7']);
});

it('a service that becomes an ExternalName and back is deleted, and then announced again with its endpoints', () => {
  const cache = cacheOf();
  applyService(cache, {});
  applySlice(cache, [serving('10.0.0.1')]);
  const told = transcript(cache);
  applyService(cache, { type: 'ExternalName', externalName: 'elsewhere.example', clusterIP: '' });
  expect(cache.lookupFrontend('172.16.0.10', 80, TCP)).toBeUndefined();
  applyService(cache, {});
  expect(told.slice(1)).toEqual(['delete shop/checkout 10.0.0.1:80', 'update shop/checkout 10.0.0.1:80']);
});

it('publishNotReadyAddresses includes addresses that are not ready, and excludes them again', () => {
  const cache = cacheOf();
  applyService(cache, {});
  applySlice(cache, [serving('10.0.0.1'), serving('10.0.0.2', { conditions: { ready: false } })]);
  expect(chosen(cache)).toEqual(['10.0.0.1']);
  applyService(cache, { publishNotReadyAddresses: true });
  expect(chosen(cache)).toEqual(['10.0.0.1', '10.0.0.2']);
  applyService(cache, {});
  expect(chosen(cache)).toEqual(['10.0.0.1']);
});

it('terminating backends that still serve are the last resort', () => {
  const cache = cacheOf();
  const leaving = { conditions: { ready: false, serving: true, terminating: true } };
  applyService(cache, {});
  applySlice(cache, [serving('10.0.0.1', leaving), serving('10.0.0.2')]);
  expect(chosen(cache)).toEqual(['10.0.0.2']);
  applySlice(cache, [serving('10.0.0.1', leaving)]);
  expect(chosen(cache)).toEqual(['10.0.0.1']);
});

it('a terminating backend that is ready is active, as published not-ready addresses are (regression: last resort)', () => {
  const cache = cacheOf();
  const leaving = { conditions: { ready: true, serving: true, terminating: true } };
  applyService(cache, { publishNotReadyAddresses: true });
  applySlice(cache, [serving('10.0.0.1', leaving), serving('10.0.0.2')]);
  expect(chosen(cache)).toEqual(['10.0.0.1', '10.0.0.2']);
});

it('a terminating backend serves unless its condition denies it', () => {
  const cache = cacheOf();
  applyService(cache, {});
  applySlice(cache, [serving('10.0.0.1', { conditions: { ready: false, terminating: true } })]);
  expect(chosen(cache)).toEqual(['10.0.0.1']);
});

it('topology hints count if the service requests them, by field or by annotation', () => {
  const cache = cacheOf({ nodeName: 'n1', zone: 'z1' });
  const inZone = (name: string): object => ({ zone: name, hints: { forZones: [{ name }] } });
  applySlice(cache, [serving('10.0.0.1', inZone('z1')), serving('10.0.0.2', inZone('z2'))]);
  applyService(cache, {});
  expect(chosen(cache)).toHaveLength(2);
  applyService(cache, { trafficDistribution: 'PreferClose' });
  expect(chosen(cache)).toEqual(['10.0.0.1']);
  const annotated = (annotations: object): readonly string[] => {
    applyService(cache, {}, { annotations });
    return chosen(cache);
  };
  const [mode, hints] = ['service.kubernetes.io/topology-mode', 'service.kubernetes.io/topology-aware-hints'];
  expect(annotated({ [mode]: 'Auto' })).toEqual(['10.0.0.1']);
  // As in Cilium, other controllers may write hints for their own modes, and the older annotation takes precedence.
  expect(annotated({ [mode]: 'example.com/by-load' })).toEqual(['10.0.0.1']);
  expect(annotated({ [mode]: 'Disabled' })).toHaveLength(2);
  expect(annotated({ [mode]: 'Disabled', [hints]: 'auto' })).toEqual(['10.0.0.1']);
  expect(annotated({ [mode]: 'Auto', [hints]: '' })).toHaveLength(2);
});

it('traffic policies: the internal one applies to the cluster IP, the external one to all other frontends', () => {
  const cache = cacheOf({ nodeName: 'n1', nodePort: NODE_PORT });
  applySlice(cache, [serving('10.0.0.1', { nodeName: 'n1' }), serving('10.0.0.2', { nodeName: 'n2' })]);
  applyService(cache, { type: 'NodePort', externalTrafficPolicy: 'Local' });
  expect([chosen(cache).length, chosen(cache, 'node-port')]).toEqual([2, ['10.0.0.1']]);
  applyService(cache, { type: 'NodePort', internalTrafficPolicy: 'Local' });
  expect([chosen(cache), chosen(cache, 'node-port').length]).toEqual([['10.0.0.1'], 2]);
});

it('a change of only session affinity, source ranges or a policy is reported', () => {
  const cache = cacheOf({ nodePort: NODE_PORT });
  cache.markSynced();
  applyService(cache, { type: 'LoadBalancer' });
  const told = transcript(cache);
  const changes = [
    { sessionAffinity: 'ClientIP' },
    { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } } },
    { loadBalancerSourceRanges: ['10.0.0.0/8'] },
    { internalTrafficPolicy: 'Local' },
    { healthCheckNodePort: 31_000 },
  ];
  for (const change of changes) applyService(cache, { type: 'LoadBalancer', ...change });
  expect(told).toHaveLength(1 + changes.length);
});

it('an invalid source range is counted with its path, and the service keeps the valid ones', () => {
  const cache = cacheOf({ nodePort: NODE_PORT });
  applyService(cache, { type: 'LoadBalancer', loadBalancerSourceRanges: ['10.0.0.0/33', '10.0.0.0/8'] });
  applySlice(cache, [serving('10.0.0.1')]);
  expect([...(cache.get(SHOP)?.service.sourceRanges ?? [])]).toEqual(['10.0.0.0/8']);
  expect(cache.status().rejections.recent.map(({ field }) => field)).toEqual([
    'spec.loadBalancerSourceRanges[0]',
  ]);
});

it('trap: no one of several names for one port is lost, and another name is a change', () => {
  const cache = cacheOf();
  applyService(cache, {});
  applySlice(cache, [serving('10.0.0.1')]);
  const told = transcript(cache);
  applySlice(cache, [serving('10.0.0.1')], [HTTP, { name: 'metrics', port: 80 }]);
  expect(told.slice(1)).toEqual(['update shop/checkout 10.0.0.1:80,80']);
  expect([...(cache.get(SHOP)?.endpoints.backends.get('10.0.0.1')?.ports.keys() ?? [])]).toEqual([
    'http',
    'metrics',
  ]);
});
