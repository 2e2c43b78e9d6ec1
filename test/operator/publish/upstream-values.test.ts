import { describe, expect, it, onTestFinished } from 'vitest';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterConfig, encodeClusterConfig } from '../../../src/kvstore/codec/cluster-config.ts';
import type { OperatorDutiesOptions } from '../../../src/operator/duties.ts';
import { protoFields, zstdProgram } from '../../kvstore/codec/support/slice-proto.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { OperatorOfCluster } from '../support/operator-of-cluster.ts';

/*
 * The scripts of upstream, and the values that they expect: clustermesh-apiserver/clustermesh/testdata of Cilium 1.20.
 * A slice is decoded by Debian's zstd program and by protobufjs.
 */

const SLICES = 'cilium/state/endpointslices/v1/cluster3/';

async function start(change: Partial<OperatorDutiesOptions>, yaml: string): Promise<OperatorOfCluster> {
  const cluster = new OperatorOfCluster('cluster3', 3);
  await cluster.apply(yaml);
  onTestFinished(cluster.operate(change));
  return cluster;
}

async function slicesOf(cluster: OperatorOfCluster): Promise<Readonly<Record<string, unknown>>> {
  await advance(cluster.clock, 2000);
  return Object.fromEntries(
    [...cluster.published(SLICES)].map(([key, value]) => [
      key.slice(SLICES.length),
      protoFields(zstdProgram(['-d'], value)),
    ]),
  );
}

function namespaceYAML(name: string, global?: string): string {
  const annotations =
    global === undefined ? '' : `, annotations: { clustermesh.cilium.io/global: "${global}" }`;
  return `{ apiVersion: v1, kind: Namespace, metadata: { name: ${name}${annotations} } }\n`;
}

describe('endpointslices.txtar', () => {
  const names = { namespace: 'test', name: 'echo' };
  const serviceYAML = (annotations: object, port = 'http'): string =>
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { ...names, annotations },
      spec: {
        type: 'ClusterIP',
        clusterIP: '10.96.50.104',
        clusterIPs: ['10.96.50.104'],
        selector: { name: 'echo' },
        ports: [{ name: port, port: 80, protocol: 'TCP', targetPort: 8080 }],
      },
    });
  const endpoints = (ip: string): readonly object[] => [
    {
      addresses: [ip],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: 'nodeport-worker',
      zone: 'zone1',
      hints: { forZones: [{ name: 'zone1' }] },
    },
    {
      addresses: ['10.244.1.2'],
      conditions: { ready: false, serving: false, terminating: false },
      nodeName: 'nodeport-worker',
    },
  ];
  const content = (ip: string, port: number, name = 'http'): object => ({
    addressType: 'IPv4',
    endpoints: endpoints(ip),
    ports: [{ name, protocol: 'TCP', port }],
  });
  const labels = { 'kubernetes.io/service-name': 'echo' };
  const sliceYAML = (...args: Parameters<typeof content>): string =>
    JSON.stringify({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { namespace: 'test', name: 'echo-kvlm2', labels },
      ...content(...args),
    });
  const expected = (...args: Parameters<typeof content>): object => ({
    'test/echo-kvlm2': {
      cluster: 'cluster3',
      clusterID: 3,
      namespace: 'test',
      name: 'echo-kvlm2',
      labels,
      ...content(...args),
    },
  });
  const global = 'service.cilium.io/global';
  const shared = 'service.cilium.io/shared';

  it('a slice is written with its changes, and deleted and written again with the annotations of its service', async () => {
    const cluster = await start({}, namespaceYAML('test'));
    await cluster.apply(serviceYAML({ [global]: 'true', [shared]: 'true' }));
    await cluster.apply(sliceYAML('10.244.1.1', 8080));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.1.1', 8080));
    await cluster.apply(sliceYAML('10.244.2.2', 8080));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.2.2', 8080));
    await cluster.apply(sliceYAML('10.244.2.2', 9090));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.2.2', 9090));
    await cluster.delete(sliceYAML('10.244.2.2', 9090));
    expect(await slicesOf(cluster)).toEqual({});
    await cluster.apply(sliceYAML('10.244.2.2', 9090));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.2.2', 9090));
    await cluster.apply(serviceYAML({ [global]: 'false', [shared]: 'true' }));
    expect(await slicesOf(cluster)).toEqual({});
    await cluster.apply(serviceYAML({ [global]: 'true' }));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.2.2', 9090));
    await cluster.apply(serviceYAML({ [global]: 'true', [shared]: 'false' }));
    expect(await slicesOf(cluster)).toEqual({});
    await cluster.apply(serviceYAML({ [global]: 'true', [shared]: 'true' }, ''));
    await cluster.apply(sliceYAML('10.244.2.2', 9090, ''));
    expect(await slicesOf(cluster)).toEqual(expected('10.244.2.2', 9090, ''));
    expect(cluster.rejected).toEqual([]);
  });

  it('an address of another family is left out and counted, because readers would reject the slice', async () => {
    const cluster = await start({}, `${namespaceYAML('test')}---\n${serviceYAML({ [global]: 'true' })}`);
    const yaml = sliceYAML('10.244.1.1', 8080).replace('"10.244.1.2"', '"fd00::1","::ffff:10.244.1.2"');
    await cluster.apply(yaml);
    await cluster.apply(
      yaml.replace('kvlm2', 'kvlm3').replace('"IPv4"', '"IPv6"').replace('"10.244.1.1"', '"fd00::2"'),
    );
    const addresses = Object.values(await slicesOf(cluster)).map((slice) =>
      (slice as { readonly endpoints: { readonly addresses: string[] }[] }).endpoints.flatMap(
        (endpoint) => endpoint.addresses,
      ),
    );
    expect(addresses).toEqual([['10.244.1.1'], ['fd00::2', 'fd00::1', '::ffff:10.244.1.2']]);
    const at = 'EndpointSlice test/echo-kvlm2: wrong-family endpoints[1].addresses';
    expect(cluster.rejected.filter((text) => text.includes('wrong-family'))).toEqual([
      `${at}[0]`,
      `${at}[1]`,
    ]);
  });
});

describe('globalnamespace.txtar', () => {
  const endpointYAML = (namespace: string, name: string, status: string): string =>
    `{ apiVersion: cilium.io/v2, kind: CiliumEndpoint, metadata: { name: ${name}, namespace: ${namespace} },
      status: { service-account: default, state: ready, ${status} } }\n`;
  const objects = [
    namespaceYAML('don', 'true'),
    namespaceYAML('quixote'),
    endpointYAML(
      ...(['don', 'cep-001'] as const),
      'id: 1481, identity: { id: 199472, labels: ["k8s:app=don"] }, networking: { node: 172.18.0.3, addressing: [{ ipv4: 10.244.1.79, ipv6: "fd00:10:244:1::d643" }] }',
    ),
    endpointYAML(
      ...(['quixote', 'cep-002'] as const),
      'id: 1482, encryption: { key: 5 }, identity: { id: 199475, labels: ["k8s:app=quixote"] }, networking: { node: 172.18.0.2, addressing: [{ ipv4: 10.244.2.74, ipv6: "fd00:10:244:2::e024" }] }',
    ),
  ].join('---\n');
  const value = (
    IP: string,
    HostIP: string,
    ID: number,
    Key: number,
    ...[namespace, pod]: string[]
  ): object => ({
    IP,
    Mask: null,
    HostIP,
    ID,
    Key,
    Metadata: '',
    K8sNamespace: namespace,
    K8sPodName: pod,
    K8sServiceAccount: 'default',
  });
  const prefix = 'cilium/state/ip/v1/default/';
  const don = ['10.244.1.79', 'fd00:10:244:1::d643'].map(
    (ip) =>
      [`${prefix}${ip}`, JSON.stringify(value(ip, '172.18.0.3', 199_472, 0, 'don', 'cep-001'))] as const,
  );
  const quixote = ['10.244.2.74', 'fd00:10:244:2::e024'].map(
    (ip) =>
      [`${prefix}${ip}`, JSON.stringify(value(ip, '172.18.0.2', 199_475, 5, 'quixote', 'cep-002'))] as const,
  );

  it('the IPs of global namespaces are published, byte for byte', async () => {
    const cluster = await start({ globalByDefault: false }, objects);
    const ips = async (): Promise<unknown> => {
      await advance(cluster.clock, 2000);
      return Object.fromEntries(
        [...cluster.published(prefix)].map(([key, bytes]) => [key, textOfBytes(bytes)]),
      );
    };
    expect(await ips()).toEqual(Object.fromEntries(don));
    expect([...cluster.published('cilium/synced/').keys()]).toContain(
      'cilium/synced/cluster3/cilium/state/ip/v1',
    );
    await cluster.apply(namespaceYAML('quixote', 'true'));
    expect(await ips()).toEqual(Object.fromEntries([...don, ...quixote]));
    await cluster.apply(namespaceYAML('quixote'));
    expect(await ips()).toEqual(Object.fromEntries(don));
    await cluster.delete(namespaceYAML('don'));
    expect(await ips()).toEqual({});
  });
});

describe('globalnamespace-endpointslices.txtar', () => {
  const objectsOf = (namespace: string, slice: string, ip: string, nodeName: string): readonly string[] => [
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        namespace,
        name: 'echo-service',
        annotations: { 'service.cilium.io/global': 'true', 'service.cilium.io/shared': 'true' },
      },
      spec: { clusterIP: '10.96.0.10', ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
    }),
    JSON.stringify({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      ...contentOf(ip, nodeName),
      metadata: { namespace, name: slice, labels: { 'kubernetes.io/service-name': 'echo-service' } },
    }),
  ];
  const contentOf = (ip: string, nodeName: string): object => ({
    addressType: 'IPv4',
    endpoints: [
      { addresses: [ip], conditions: { ready: true, serving: true, terminating: false }, nodeName },
    ],
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
  });
  const expected = (namespace: string, name: string, ip: string, nodeName: string): object => ({
    [`${namespace}/${name}`]: {
      cluster: 'cluster3',
      clusterID: 3,
      namespace,
      name,
      labels: { 'kubernetes.io/service-name': 'echo-service' },
      ...contentOf(ip, nodeName),
    },
  });

  it('the slices of global namespaces are published', async () => {
    const alpha = ['ns-alpha', 'echo-service-abc12', '10.244.1.10', 'worker1'] as const;
    const beta = ['ns-beta', 'echo-service-def34', '10.244.2.10', 'worker2'] as const;
    const yaml = [
      ...[namespaceYAML('ns-alpha', 'true'), namespaceYAML('ns-beta')],
      ...[...objectsOf(...alpha), ...objectsOf(...beta)],
    ];
    const cluster = await start({ globalByDefault: false }, yaml.join('\n---\n'));
    expect(await slicesOf(cluster)).toEqual(expected(...alpha));
    await cluster.apply(namespaceYAML('ns-beta', 'true'));
    expect(await slicesOf(cluster)).toEqual({ ...expected(...alpha), ...expected(...beta) });
    await cluster.apply(namespaceYAML('ns-beta'));
    expect(await slicesOf(cluster)).toEqual(expected(...alpha));
    await cluster.delete(objectsOf(...alpha)[1] ?? '');
    expect(await slicesOf(cluster)).toEqual({});
  });
});

describe('clusterconfig-endpointslices-only.txtar', () => {
  it('the configuration is read, and written again with the same bytes', () => {
    const capabilities = {
      syncedCanaries: true,
      maxConnectedClusters: 255,
      serviceExportsEnabled: false,
      endpointSlicesExportMode: 'endpointslices-only',
    };
    const text = JSON.stringify({ id: 5, capabilities });
    const decoded = decodeClusterConfig(Buffer.from(text), 'cilium/cluster-config/cluster5');
    expect(decoded).toMatchObject({ ok: true, value: { id: 5, capabilities } });
    expect(decoded.ok && textOfBytes(encodeClusterConfig(decoded.value))).toBe(text);
  });
});
