import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Ask } from '../../src/api/api-client.ts';
import { compareWithTable, type TableOperand } from '../../src/sysdump/compare-with-table.ts';
import { SourceStateBuilder } from '../../src/sysdump/source-state-builder.ts';

const NODES = [
  { cluster: 'atlantic', name: 'a', clusterID: 1, addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }] },
  { cluster: 'atlantic', name: 'b', clusterID: 1, addresses: [{ type: 'InternalIP', ip: '192.168.0.2' }] },
];

function pod(number: number, node: number): object {
  return {
    prefix: `10.0.${node}.${number}/32`,
    identity: 65_536 + 300 + number,
    hostIP: `192.168.0.${node}`,
    namespace: 'shop',
    podName: `pod-${node}-${number}`,
  };
}

/** The lists of an agent: two pods on each of two nodes, their addresses, a CIDR with a local identity. */
const ENTRIES = [
  ...[1, 2].flatMap((node) => [1, 2].map((number) => pod(number, node))),
  { prefix: '192.168.0.1/32', identity: 6, owner: 'atlantic/a' },
  { prefix: '192.168.0.2/32', identity: 6, owner: 'atlantic/b' },
  { prefix: '0.0.0.0/0', identity: 2 },
  { prefix: '203.0.113.0/24', identity: 16_777_217 },
];
const SERVICES = [
  {
    namespace: 'shop',
    name: 'cart',
    clusterIPs: ['10.96.0.1'],
    ports: { http: '80/TCP' },
    global: false,
    backends: [
      { address: '10.0.1.1', ports: { http: '8080/TCP' }, state: 'active' },
      { address: '10.0.2.1', ports: { http: '8080/TCP' }, state: 'terminating' },
    ],
  },
];
const LISTS: Readonly<Record<string, readonly object[]>> = {
  '/v1/ipcache': ENTRIES,
  '/v1/nodes': NODES,
  '/v1/services': SERVICES,
};

/** Answers with pages of two items. */
const ask: Ask = async (path) => {
  if (path === '/v1/status') return { cluster: 'atlantic', clusterID: 1, clusters: [{ name: 'atlantic' }] };
  const { pathname, searchParams } = new URL(path, 'http://agent');
  const from = Number(searchParams.get('continue') ?? '0');
  const list = LISTS[pathname] ?? [];
  const rest = from + 2 < list.length ? { continue: String(from + 2) } : {};
  return { items: list.slice(from, from + 2), ...rest };
};

/** `ip list` of node b. */
const IP_LIST = [
  { cidr: '0.0.0.0/0', identity: 2 },
  { cidr: '10.0.1.1/32', identity: 65_837, hostIP: '192.168.0.1', metadata: { source: 'custom-resource' } },
  { cidr: '10.0.1.2/32', identity: 65_838, hostIP: '192.168.0.1' },
  { cidr: '10.0.2.1/32', identity: 65_837 },
  { cidr: '10.0.2.2/32', identity: 65_838, hostIP: '192.168.0.2' },
  { cidr: '192.168.0.1/32', identity: 7 },
  { cidr: '192.168.0.2/32', identity: 1 },
  { cidr: '203.0.113.0/24', identity: 16_777_299 },
  { cidr: '10.200.0.1/32', identity: 3 * 65_536 + 300, hostIP: '192.168.9.1' },
];
const NODE_LIST = NODES.map(({ name, addresses: [first] }) => ({
  name: `atlantic/${name}`,
  'primary-address': { ipv4: { ip: first?.ip, enabled: true } },
  source: name === 'b' ? 'local' : 'kvstore',
}));
const SERVICE_LIST = [
  {
    spec: {
      id: 1,
      'frontend-address': { ip: '10.96.0.1', port: 80, protocol: 'TCP', scope: 'external' },
      'backend-addresses': [{ ip: '10.0.1.1', port: 8080, state: 'active' }],
      flags: { type: 'ClusterIP', name: 'cart', namespace: 'shop' },
    },
  },
];

interface Difference {
  readonly kind: string;
  readonly subject: string;
}

describe('dpcache diff unix:SOCKET TABLE', () => {
  let folder = '';
  let server: Server | undefined;
  const { signal } = new AbortController();
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'dpcache-diff-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  afterEach(() => server?.close());

  async function differences(operand: TableOperand): Promise<readonly string[]> {
    const report = await compareWithTable(ask, operand, { signal });
    const { differences: all, notListed } = report.json as {
      readonly differences: readonly Difference[];
      readonly notListed: number;
    };
    expect([report.differences, notListed]).toEqual([all.length, 0]);
    return all.map(({ kind, subject }) => `${kind} ${subject}`);
  }

  function fileOf(content: string): TableOperand {
    const path = join(folder, 'output');
    writeFileSync(path, content);
    return { kind: 'file', text: path, path };
  }

  it('finds no difference in the output of ip list of a healthy node, and counts the expected ones apart', async () => {
    const report = await compareWithTable(ask, fileOf(JSON.stringify(IP_LIST)), { signal });
    expect(report.json).toMatchObject({
      compared: 9,
      differences: [],
      expected: { 'own-endpoint': 1, 'local-identity': 1, 'other-cluster': 1 },
    });
    expect(report.lines[0]).toContain('no differences');
  });

  it('finds each kind of difference in ip list', async () => {
    const changed = IP_LIST.flatMap((entry) => {
      if (entry.cidr === '10.0.1.1/32') return [{ ...entry, identity: 65_900 }];
      if (entry.cidr === '10.0.1.2/32') return [{ ...entry, hostIP: '192.168.0.2' }];
      if (entry.cidr === '10.0.2.1/32') return [entry, entry];
      return entry.cidr === '10.0.2.2/32' ? [] : [entry];
    });
    const found = await differences(
      fileOf(JSON.stringify([...changed, { cidr: '10.0.1.9/32', identity: 65_837, hostIP: '192.168.0.1' }])),
    );
    expect([...found].sort()).toEqual([
      'duplicate 10.0.2.1/32',
      'host 10.0.1.2/32',
      'identity 10.0.1.1/32',
      'missing 10.0.2.2/32',
      'stale 10.0.1.9/32',
    ]);
  });

  it.each([
    [
      '1.17',
      (identity: number, host: string) =>
        `identity=${identity} encryptkey=0 tunnelendpoint=${host}, flags=<none>`,
    ],
    ['1.8', (identity: number, host: string) => `${identity} 0 ${host}`],
  ])('reads bpf ipcache list of %s', async (_, value) => {
    const lines = IP_LIST.map(
      ({ cidr, identity, hostIP = '0.0.0.0' }) =>
        `${cidr.padEnd(20)}${value(identity, hostIP === '192.168.0.2' ? '0.0.0.0' : hostIP)}`,
    );
    expect(await differences(fileOf(`IP PREFIX/ADDRESS   IDENTITY\n${lines.join('\n')}\n`))).toEqual([]);
    expect(
      await differences(
        fileOf(
          `# cilium bpf ipcache list\n\n\`\`\`\nIP PREFIX/ADDRESS   IDENTITY\n${lines.slice(2).join('\n')}\n\`\`\`\n`,
        ),
      ),
    ).toEqual(['missing 10.0.1.1/32']);
    const json = Object.fromEntries(
      IP_LIST.map(({ cidr, identity, hostIP = '0.0.0.0' }) => [cidr, [value(identity, hostIP)]]),
    );
    expect(await differences(fileOf(JSON.stringify(json)))).toEqual([]);
  });

  it('compares services and nodes', async () => {
    expect(await differences(fileOf(JSON.stringify(SERVICE_LIST)))).toEqual([]);
    expect(await differences(fileOf(JSON.stringify(SERVICE_LIST).replace('10.0.1.1', '10.0.1.7')))).toEqual([
      'service-backends shop/cart 10.96.0.1:80/TCP',
    ]);
    expect(await differences(fileOf(JSON.stringify(SERVICE_LIST).replace(/\[\{"ip".*?\]/, 'null')))).toEqual([
      'service-no-backends shop/cart 10.96.0.1:80/TCP',
    ]);
    expect(await differences(fileOf(JSON.stringify(NODE_LIST)))).toEqual([]);
    expect(await differences(fileOf(JSON.stringify(NODE_LIST.slice(1))))).toEqual([
      'node-missing atlantic/a',
    ]);
  });

  it('compares a port named `constructor` that a backend does not have (regression: it threw a TypeError)', async () => {
    const service = { ...SERVICES[0], ports: { constructor: '80/TCP' } };
    const withService: Ask = async (path, ...rest) =>
      path.startsWith('/v1/services') ? { items: [service] } : await ask(path, ...rest);
    const report = await compareWithTable(withService, fileOf(JSON.stringify(SERVICE_LIST)), { signal });
    expect(report.json).toMatchObject({ differences: [{ kind: 'service-backends' }] });
  });

  it('a service that only some nodes have may be absent (regression: missing)', async () => {
    const edge = { ...SERVICES[0], name: 'edge', clusterIPs: ['10.96.0.9'], nodeLabel: 'beefy' };
    const withEdge: Ask = async (path, ...rest) =>
      path.startsWith('/v1/services') ? { items: [...SERVICES, edge] } : await ask(path, ...rest);
    const report = await compareWithTable(withEdge, fileOf(JSON.stringify(SERVICE_LIST)), { signal });
    expect(report.json).toMatchObject({ differences: [] });

    const builder = new SourceStateBuilder({
      ...{ clusterName: 'atlantic', clusterID: 1, onReject: ({ message }) => expect.fail(message) },
      ...{ endpoints: 'ciliumendpoints', serviceEndpoints: 'endpointslices' },
    });
    const annotations = { 'service.cilium.io/node-selector': 'zone=a' };
    for (const [name, more] of Object.entries({ cart: {}, edge: { annotations } }))
      builder.add({
        kind: 'Service',
        object: {
          metadata: { namespace: 'shop', name, ...more },
          spec: { clusterIP: name === 'cart' ? '10.96.0.1' : '10.96.0.9', ports: [{ port: 80 }] },
        },
      });
    const { frontends } = await builder.finish();
    expect(Array.from(frontends.values(), ({ service, restricted }) => [service, restricted])).toEqual([
      ['shop/cart', false],
      ['shop/edge', true],
    ]);
  });

  it('a service whose exposed type is another one has no frontends on its cluster IPs (regression: missing)', async () => {
    const exposed = (exposedType: string): Ask => {
      const edge = { ...SERVICES[0], name: 'edge', clusterIPs: ['10.96.0.9'], exposedType };
      return async (path, ...rest) =>
        path.startsWith('/v1/services') ? { items: [...SERVICES, edge] } : await ask(path, ...rest);
    };
    const list = fileOf(JSON.stringify(SERVICE_LIST));
    const differencesOf = async (exposedType: string): Promise<number> =>
      (await compareWithTable(exposed(exposedType), list, { signal })).differences;
    expect(await differencesOf('ClusterIP')).toBe(1);
    expect(await differencesOf('LoadBalancer')).toBe(0);
  });

  it('asks the agent of Cilium over its socket', async () => {
    const socket = join(folder, 'cilium.sock');
    const answers: Readonly<Record<string, unknown>> = {
      '/v1/ip': IP_LIST.slice(0, -1),
      '/v1/service': SERVICE_LIST,
      '/v1/cluster/nodes': { self: 'atlantic/b', 'nodes-added': NODE_LIST },
    };
    server = createServer((request, response) =>
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[request.url ?? ''])),
    );
    await new Promise<void>((resolve) => server?.listen(socket, resolve));
    expect(await differences({ kind: 'cilium', text: `cilium:${socket}`, path: socket })).toEqual([]);
  });

  it.each([
    ['another file', 'hello', 'is not the output of'],
    ['cut JSON', JSON.stringify(IP_LIST).slice(0, -20), 'is not the output of'],
    [
      'a failed command',
      "> Error while running 'cilium ip list -n -o json':  exit status 1\n\n",
      'the command failed: exit status 1',
    ],
  ])('refuses %s with the remedy', async (_, content, message) => {
    await expect(compareWithTable(ask, fileOf(content), { signal })).rejects.toThrow(message);
  });

  it('counts the differences of 150,000 entries, and keeps the first 10,000 of each kind', async () => {
    const address = (at: number): string => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`;
    const items = Array.from({ length: 150_000 }, (_, at) => ({
      prefix: `${address(at)}/32`,
      identity: 70_000,
      namespace: 'shop',
      podName: 'pod',
    }));
    const askMany: Ask = async (path) => (path.startsWith('/v1/ipcache') ? { items } : ask(path));
    // The first 90,000 prefixes have another identity, and 60,000 prefixes are of no source.
    const lines = items.map(
      (_, at) => `${address(at < 90_000 ? at : at + 60_000)}/32 ${at < 90_000 ? 70_001 : 70_000} 0 0.0.0.0`,
    );
    const report = await compareWithTable(
      askMany,
      fileOf(`IP PREFIX/ADDRESS   IDENTITY\n${lines.join('\n')}\n`),
      { signal },
    );
    expect(report.differences).toBe(210_000);
    const json = report.json as { readonly differences: readonly Difference[] };
    expect(json).toMatchObject({
      compared: 150_000,
      counts: { identity: 90_000, stale: 60_000, missing: 60_000 },
      notListed: 180_000,
    });
    expect(json.differences.length).toBe(30_000);
    expect(report.lines.slice(-2)).toEqual([
      '… and 209900 more: see -o json; by kind: identity 90000, stale 60000, missing 60000',
      'Truncated: -o json lists all except 180000 differences.',
    ]);
  });

  it('refuses a missing file and a missing socket', async () => {
    const path = join(folder, 'none');
    await expect(compareWithTable(ask, { kind: 'file', text: path, path }, { signal })).rejects.toThrow(
      'check the path',
    );
    await expect(
      compareWithTable(ask, { kind: 'cilium', text: `cilium:${path}`, path }, { signal }),
    ).rejects.toThrow('check the path');
  });
});
