import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { batch, cable } from './paths/support/path-network.ts';
import { AgentProcess } from './support/agent-process.ts';
import { describeOnLinux } from './support/requirements.ts';
import { type Namespace, Scratch } from './support/scratch.ts';
import { SocketPeer } from './support/socket-peer.ts';

const NODE_PORT = 30_080;
const LOCAL_NODE_PORT = 30_081;

interface Family {
  readonly name: string;
  readonly vip: string;
  readonly external: string;
  readonly balancer: string;
  readonly node: string;
  readonly loopback: string;
  readonly backend: string;
}

const FAMILIES: readonly Family[] = [
  {
    name: 'IPv4',
    vip: '172.16.0.10',
    external: '203.0.113.9',
    balancer: '203.0.113.10',
    node: '192.168.0.1',
    loopback: '127.0.0.1',
    backend: '10.5.0.9',
  },
  {
    name: 'IPv6',
    vip: 'fd00:16::10',
    external: 'fd00:203::9',
    balancer: 'fd00:203::10',
    node: 'fd01::1',
    loopback: '::1',
    backend: 'fd00:5::9',
  },
];

const list = (pick: (family: Family) => string): string =>
  `[${FAMILIES.map((family) => JSON.stringify(pick(family))).join(', ')}]`;

/**
 * A service of type LoadBalancer with all kinds of frontends, whose backends are in a pod of the node `backendNode`.
 */
function manifest(name: string, nodePort: number, policy: 'Cluster' | 'Local', backendNode: string): string {
  const isMain = policy === 'Cluster';
  const slices = FAMILIES.map(
    ({ name: family, backend }) => `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-${family.toLowerCase()}, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: ${family}
ports: [{ name: http, port: 8080, protocol: TCP }]
endpoints: [{ addresses: ["${backend}"], nodeName: ${backendNode}, conditions: { ready: true } }]
`,
  );
  return `apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec:
  type: LoadBalancer
  externalTrafficPolicy: ${policy}
  clusterIPs: ${list(({ vip }) => (isMain ? vip : vip.replace(/10$/, '11')))}
${isMain ? `  externalIPs: ${list(({ external }) => external)}\n` : ''}  ports: [{ name: http, port: 80, protocol: TCP, nodePort: ${nodePort} }]
${isMain ? `status: { loadBalancer: { ingress: [${FAMILIES.map(({ balancer }) => `{ ip: "${balancer}" }`).join(', ')}] } }\n` : ''}${slices.join('')}---
`;
}

/** A service whose load balancer admits only the pods on the host. */
const LIMITED = `apiVersion: v1
kind: Service
metadata: { name: limited, namespace: shop }
spec:
  type: LoadBalancer
  clusterIPs: ["172.16.0.20"]
  loadBalancerSourceRanges: ["10.6.0.0/24", "192.0.2.1/32"]
  ports: [{ name: http, port: 80, protocol: TCP, nodePort: 30082 }]
status: { loadBalancer: { ingress: [{ ip: "203.0.113.20" }] } }
---
`;

describeOnLinux(
  'from a manifest through the agent to a packet',
  ['sockets', 'nftables', 'namespaces', 'ip'],
  () => {
    let scratch: Scratch;
    let host: Namespace;
    let words: readonly string[] = [];
    let through: readonly string[] = [];
    const peers = new Map<string, SocketPeer>();

    beforeAll(async () => {
      scratch = new Scratch();
      host = scratch.namespace('host');
      const [pod, backend, outside] = ['pod', 'backend', 'outside'].map((name) => scratch.namespace(name));
      if (pod === undefined || backend === undefined || outside === undefined)
        throw new Error('no namespace');
      cable(
        [host, 'eth0', ['192.168.0.1/24', 'fd01::1/64']],
        [outside, 'eth0', ['192.168.0.9/24', 'fd01::9/64']],
      );
      cable([host, 'pod', ['10.6.0.1/24', 'fd00:6::1/64']], [pod, 'eth0', ['10.6.0.9/24', 'fd00:6::9/64']]);
      cable(
        [host, 'backend', ['10.5.0.1/24', 'fd00:5::1/64']],
        [backend, 'eth0', ['10.5.0.9/24', 'fd00:5::9/64']],
      );
      batch(pod, ['route add default via 10.6.0.1', '-6 route add default via fd00:6::1']);
      batch(backend, ['route add default via 10.5.0.1', '-6 route add default via fd00:5::1']);
      batch(outside, ['route add default via 192.168.0.1', '-6 route add default via fd01::1']);
      batch(host, ['route add default via 192.168.0.9', '-6 route add default via fd01::9']);
      host.run('sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1');

      const cgroup = scratch.cgroup();
      const elsewhere = scratch.cgroup();
      for (const [name, { path: netns }, group] of [
        ['the host', host, cgroup],
        ['a pod', pod, cgroup],
        ['the backend', backend, cgroup],
        ['outside', outside, elsewhere],
      ] as const)
        peers.set(name, await SocketPeer.start(scratch, { cgroup: group, netns }));
      for (const { backend: ip, loopback } of FAMILIES) {
        await served('the backend', ip, 8080);
        await served('a pod', loopback, NODE_PORT);
      }

      const file = join(scratch.folder(), 'services.yaml');
      writeFileSync(
        file,
        manifest('web', NODE_PORT, 'Cluster', 'here') +
          manifest('local', LOCAL_NODE_PORT, 'Local', 'there') +
          LIMITED,
      );
      const pins = join(scratch.bpffs(), 'dpcache');
      const steering = ['--datapath', 'linux', '--datapath-pins', pins, '--datapath-cgroup', cgroup];
      words = [...steering, '--datapath-routing', 'off', '--node-name', 'here', '--manifests', file];
      through = ['nsenter', `--net=${host.path}`];
    });

    afterAll(() => scratch[Symbol.dispose]());

    async function served(name: string, ip: string, port: number): Promise<void> {
      expect(await peers.get(name)?.do('serve', { protocol: 'tcp', ip, port })).toEqual({});
    }

    /** Returns the backends of three connections, or the error. */
    async function asked(name: string, ip: string, port: number): Promise<readonly string[]> {
      const counts = (await peers.get(name)?.ask('tcp', ip, port, 3)) ?? {};
      return Object.keys(counts).map((text) => text.split(' ')[0] ?? '');
    }

    /** Returns the elements with source ranges of 24 bits. */
    function limitedTo24(): string {
      return host.run('nft', 'list', 'set', 'ip', 'dpcache', 'from-24');
    }

    const of = (ip: string): readonly string[] => [`${ip}:8080`];

    describe('with --datapath-services socket', () => {
      let agent: AgentProcess;
      beforeAll(async () => {
        agent = new AgentProcess(scratch, words, through);
        await agent.settled();
      });
      afterAll(() => agent.stop());

      it.each(FAMILIES)(
        'the host, a pod and a client outside reach each kind of $name frontend (regression: node ports were never steered)',
        async ({ vip, external, balancer, node, loopback, backend }) => {
          for (const name of ['the host', 'a pod', 'outside']) {
            for (const ip of [...(name === 'outside' ? [] : [vip]), external, balancer])
              expect(await asked(name, ip, 80)).toEqual(of(backend));
            expect(await asked(name, node, NODE_PORT)).toEqual(of(backend));
          }
          expect(await asked('the host', loopback, NODE_PORT)).toEqual(of(backend));
        },
      );

      it.each(FAMILIES)(
        'a pod keeps its own $name loopback address (regression: its server there got none of its connections)',
        async ({ loopback }) => {
          expect(await asked('a pod', loopback, NODE_PORT)).toEqual([`${loopback}:${NODE_PORT}`]);
        },
      );

      it.each(FAMILIES)(
        'externalTrafficPolicy: Local applies to $name clients outside the cluster only (regression: pods got local backends only)',
        async ({ node, backend }) => {
          for (const name of ['the host', 'a pod'])
            expect(await asked(name, node, LOCAL_NODE_PORT)).toEqual(of(backend));
          expect(await asked('outside', node, LOCAL_NODE_PORT)).toEqual(['ECONNREFUSED']);
        },
      );

      it('loadBalancerSourceRanges apply to addresses of the load balancer (regression: to no frontend)', () => {
        expect(limitedTo24()).toContain('{ 203.0.113.20 . tcp . 80 . 10.6.0.0 }');
      });
    });

    describe('with --datapath-services nftables --datapath-source-ranges all', () => {
      let agent: AgentProcess;
      beforeAll(async () => {
        const options = ['--datapath-services', 'nftables', '--datapath-source-ranges', 'all'];
        agent = new AgentProcess(scratch, [...words, ...options], through);
        await agent.settled();
      });
      afterAll(() => agent.stop());

      it.each(FAMILIES)(
        'each kind of $name frontend is reached from the host, from a pod and from outside',
        async ({ vip, external, balancer, node, backend }) => {
          for (const name of ['the host', 'a pod', 'outside']) {
            for (const ip of [vip, external, balancer])
              expect(await asked(name, ip, 80)).toEqual(of(backend));
            expect(await asked(name, node, NODE_PORT)).toEqual(of(backend));
          }
        },
      );

      it('loadBalancerSourceRanges apply to node ports, too', () => {
        expect(limitedTo24()).toContain('192.168.0.1 . tcp . 30082 . 10.6.0.0');
        expect(limitedTo24()).not.toContain('172.16.0.20');
      });

      it('repairs its rules within a second after they were flushed (regression: services timed out, diff was empty)', async () => {
        const { vip, backend, node } = FAMILIES[0] ?? ({} as Family);
        for (const damage of [
          'flush table ip dpcache',
          'flush chain ip dpcache output',
          'delete table ip dpcache',
        ]) {
          host.run('nft', damage);
          await agent.until(() => host.run('nft', 'list', 'ruleset').split('vmap @services').length === 5);
          await agent.settled();
          expect(await asked('the host', vip, 80)).toEqual(of(backend));
          expect(await asked('outside', node, NODE_PORT)).toEqual(of(backend));
        }
        expect((await agent.table('nftables')).repairs).toBeGreaterThan(2);
      });

      it('does not affect 127.0.0.1 and ::1 (regression: packets to a node port there were dropped)', async () => {
        for (const { loopback } of FAMILIES)
          expect(await asked('the host', loopback, NODE_PORT)).toEqual(['ECONNREFUSED']);
      });

      it.each(FAMILIES)(
        'externalTrafficPolicy: Local applies to $name clients outside the cluster',
        async ({ node }) => {
          expect(await asked('outside', node, LOCAL_NODE_PORT)).toEqual(['ECONNREFUSED']);
        },
      );
    });
  },
);
