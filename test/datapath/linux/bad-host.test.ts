import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { DatapathDocument } from '../../../src/api/datapath-document.ts';
import type { TestKey } from '../../agent/support/agent-under-test.ts';
import { AgentProcess, type AskedAgent } from './support/agent-process.ts';
import { dumpPrefixes } from './support/bpftool.ts';
import { describeOnLinux } from './support/requirements.ts';
import { type Namespace, Scratch } from './support/scratch.ts';

const node = (name: string, address: string, octet: number): TestKey => [
  'atlantic',
  `cilium/state/nodes/v1/atlantic/${name}`,
  {
    Name: name,
    Cluster: 'atlantic',
    ClusterID: 1,
    IPAddresses: [{ Type: 'InternalIP', IP: address }],
    IPv4AllocCIDR: { IP: `10.${octet}.0.0`, Mask: '////AA==' },
  },
];
const MESH: readonly TestKey[] = [
  ['atlantic', 'cilium/cluster-config/atlantic', { id: 1, capabilities: {} }],
  [
    'atlantic',
    'cilium/state/ip/v1/default/10.2.0.9',
    { IP: '10.2.0.9', Mask: null, HostIP: '192.168.0.2', ID: 66_000, Key: 0, Metadata: '' },
  ],
  node('own', '192.168.0.1', 1),
  node('near', '192.168.0.2', 2),
  node('far', '198.51.100.3', 3),
];

/** A service with affinity, which nftables rules do not support. */
const STICKY = `
apiVersion: v1
kind: Service
metadata: { name: web, namespace: shop }
spec: { clusterIP: 172.16.0.1, sessionAffinity: ClientIP, ports: [{ name: http, port: 80, protocol: TCP }] }
`;

/** Returns the state of each part. */
function parts({ parts: all }: DatapathDocument): Record<string, string> {
  return Object.fromEntries(all.map(({ name, state, missing }) => [name, [state, ...missing].join(': ')]));
}

const TUNNELLED =
  '10.3.0.0/24  encap ip id 6 src 192.168.0.1 dst 198.51.100.3 ttl 0 tos 0 csum via 192.0.0.8 dev dpcache_vxlan';

const needs = ['sockets', 'tunnel', 'nftables', 'namespaces', 'ip', 'bpftool', 'setpriv'] as const;
describeOnLinux('an agent on a host with missing requirements', needs, () => {
  const scratch = new Scratch();
  let pins = '';
  let host: Namespace;
  let mesh = '';
  beforeAll(() => {
    pins = scratch.bpffs();
    mesh = join(scratch.folder(), 'mesh.jsonl');
    const lines = MESH.map(([store, key, value]) =>
      JSON.stringify({ store, key, value: JSON.stringify(value) }),
    );
    writeFileSync(mesh, lines.join('\n'));
  });
  afterAll(() => scratch[Symbol.dispose]());

  /** A separate host with a link to others, and an agent on it that has only these capabilities. */
  const start = (name: string, capabilities: string, ...words: readonly string[]): AgentProcess => {
    host = scratch.namespace(name);
    for (const line of [
      'link add eth0 type veth peer name eth1',
      'link set eth1 up',
      'address add 192.168.0.1/24 dev eth0',
      'link set eth0 up',
      'route add default via 192.168.0.254',
    ])
      host.run('ip', ...line.split(' '));
    return new AgentProcess(
      scratch,
      [
        ...['--cluster', 'atlantic', '--node-name', 'own', '--load', mesh, '--datapath', 'linux'],
        ...['--datapath-pins', join(pins, name), '--datapath-cgroup', scratch.cgroup(), ...words],
      ],
      // `ip netns exec` would hide the cgroups.
      ['nsenter', `--net=${host.path}`, 'setpriv', `--bounding-set=${capabilities}`],
    );
  };
  const complete = (agent: AskedAgent): Promise<DatapathDocument> =>
    agent.until(
      ({ waitsFor, tables }) => waitsFor.length === 0 && tables.every(({ pending }) => pending === 0),
    );
  const routes = (at: Namespace): string => at.run('ip', 'route', 'show', 'proto', '201');

  it('runs completely with the two capabilities of the guide', async () => {
    const agent = start('two', '-all,+bpf,+net_admin');
    const running = { nodes: 'running', ipcache: 'running', services: 'running' };
    await agent.settled();
    // The tunnel is written after the local node, which may be the last one.
    await agent.until(
      (document) => isDeepStrictEqual(parts(document), running) && routes(host).includes(TUNNELLED),
    );
    expect(dumpPrefixes(join(pins, 'two/ipcache')).get('10.2.0.9/32')).toBe('66000 via 192.168.0.2');
    expect(routes(host)).toContain('10.2.0.0/24 via 192.168.0.2 dev eth0');

    host.run('ip', 'link', 'set', 'eth0', 'name', 'uplink');
    host.run('ip', 'link', 'set', 'dpcache_vxlan', 'name', 'strange');
    // The device, its route and the renamed link are repaired one after the other.
    await agent.until(() => {
      const all = routes(host);
      return (
        !host.run('ip', '-br', 'link').includes('strange') &&
        all.includes('10.2.0.0/24 via 192.168.0.2 dev uplink') &&
        all.includes(TUNNELLED)
      );
    });
    await agent.until((document) => isDeepStrictEqual(parts(document), running));
  });

  it('without CAP_NET_ADMIN reports it, and still writes the map', async () => {
    const agent = start('no-net', '-net_admin');
    const datapath = await complete(agent);
    const missing = 'unavailable: CAP_NET_ADMIN is missing: run as root, or add the capability';
    expect(parts(datapath)).toEqual({ nodes: missing, ipcache: 'running', services: missing });
    expect(dumpPrefixes(join(pins, 'no-net/ipcache')).get('10.2.0.9/32')).toBe('66000 via 192.168.0.2');
    expect(agent.said).toContain('nodes is unavailable: CAP_NET_ADMIN is missing');
    expect(routes(host)).toBe('');
  });

  it('without CAP_BPF reports it and the names of interfaces, and continues with the other parts', async () => {
    const file = join(scratch.folder(), 'services.yaml');
    writeFileSync(file, STICKY);
    const words = ['--datapath-services', 'nftables', '--datapath-routing', 'direct', '--manifests', file];
    const agent = start('no-bpf', '-bpf,-sys_admin', ...words);
    expect(parts(await complete(agent))).toEqual({
      nodes:
        'running: no path to 10.3.0.0/24 of atlantic/far: 198.51.100.3 is not on a local link: its next hop is 192.168.0.254',
      ipcache: 'unavailable: CAP_BPF is missing: run as root, or add the capability',
      services:
        'running: no session affinity for shop/web, because nftables rules select a backend per connection: use --datapath-services socket',
    });
    expect(await agent.ask('/v1/ipcache/lookup/10.2.0.9')).toMatchObject({ identity: 66_000 });
    expect(routes(host)).toContain('10.2.0.0/24 via 192.168.0.2 dev eth0');

    host.run('ip', 'link', 'set', 'eth0', 'down', 'name', 'uplink');
    const gone = 'no path to 10.2.0.0/24 of atlantic/near: route to 192.168.0.2: ENETUNREACH';
    const without = await agent.until((datapath) => parts(datapath)['nodes']?.includes(gone) === true);
    expect([parts(without)['services'], routes(host)]).toEqual([expect.stringMatching(/^running/), '']);
    expect(await agent.ask('/v1/ipcache/lookup/10.2.0.9')).toMatchObject({ identity: 66_000 });
    host.run('ip', 'link', 'set', 'uplink', 'up');
    await agent.until((datapath) => !parts(datapath)['nodes']?.includes(gone));
    await agent.until(() => routes(host) !== '');
    expect(routes(host)).toContain('10.2.0.0/24 via 192.168.0.2 dev uplink');
  });
});
