import { afterEach, beforeEach, expect, it } from 'vitest';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import type { NodeConfiguration } from '../../../../src/nodemanager/address-claims.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';
import { batch, cable, DEVICE, internal, node, PathsUnderTest, pod } from './support/path-network.ts';

/** Sends three packets of each family. Throws the output of `ping` if one is lost. */
function ping(from: Namespace | undefined, index: number): void {
  for (const address of [`10.${index}.0.9`, `fd00:${index}::9`])
    from?.run('ping', '-q', '-c', '3', '-i', '0.01', '-W', '2', address);
}

const CONFIGURATION: NodeConfiguration = {
  remoteNodeIdentities: false,
  encryption: false,
  nodeEncryption: false,
  hostFirewall: false,
  underlay: 'ipv4',
};

describeOnLinux(
  'pods of two nodes',
  ['routes', 'tunnel', 'nftables', 'nft', 'namespaces', 'ip', 'ping'],
  () => {
    let scratch: Scratch;
    let kernel: Kernel;
    let hosts: readonly [Namespace, Namespace];

    beforeEach(() => {
      scratch = new Scratch();
      kernel = new Kernel();
      hosts = [scratch.namespace('node1'), scratch.namespace('node2')];
    });

    afterEach(() => {
      kernel[Symbol.dispose]();
      scratch[Symbol.dispose]();
    });

    /** Adds both nodes on both hosts. */
    async function connect(
      addresses: readonly (readonly string[])[],
      underlay: NodeConfiguration['underlay'] = 'ipv4',
    ): Promise<readonly PathsUnderTest[]> {
      const all = hosts.map((host) => new PathsUnderTest(kernel, host));
      for (const [self, under] of all.entries()) {
        scratch.defer(() => under[Symbol.dispose]());
        await under.start();
        under.paths.nodeConfigurationChanged({ ...CONFIGURATION, underlay });
        addresses.forEach((ips, at) => {
          const source = at === self ? 'local' : 'kvstore';
          const cidrs = { ipv4AllocCIDR: `10.${at + 1}.0.0/24`, ipv6AllocCIDR: `fd00:${at + 1}::/64` };
          const one = node(`n${at + 1}`, { source, addresses: internal(...ips), ...cidrs });
          // The local node may be added after others: until then the tunnel does not work.
          try {
            under.paths.nodeAdd(one);
          } catch (error) {
            expect(String(error)).toContain('the tunnel address of this node is unknown');
          }
        });
        await under.settle();
      }
      return all;
    }

    /** Expects that both hosts have written all paths. */
    function expectInSync(all: readonly PathsUnderTest[]): void {
      const states = all.map(({ paths }) => ({ problems: paths.problems(), table: paths.kept.status() }));
      const inSync = { problems: [], table: { state: 'in-sync', failures: [] } };
      expect(states).toMatchObject([inSync, inSync]);
    }

    it('on one link reach each other by direct routes', async () => {
      cable(
        [hosts[0], 'eth0', ['192.168.0.1/24', 'fd00::1/64']],
        [hosts[1], 'eth0', ['192.168.0.2/24', 'fd00::2/64']],
      );
      const pods = hosts.map((host, at) => pod(scratch, host, at + 1));
      const all = await connect([
        ['192.168.0.1', 'fd00::1'],
        ['192.168.0.2', 'fd00::2'],
      ]);
      ping(pods[0], 2);
      expect(
        all.map(({ paths }) => ({ problems: paths.problems(), table: paths.kept.status() })),
      ).toMatchObject([
        { problems: [], table: { state: 'in-sync', actual: 2 } },
        { problems: [], table: { state: 'in-sync', actual: 2 } },
      ]);
      expect(hosts[0].run('ip', '-br', 'link')).not.toContain(DEVICE);
    });

    it('separated by a router reach each other through VXLAN', async () => {
      const router = scratch.namespace('router');
      cable([hosts[0], 'eth0', ['192.168.1.1/24']], [router, 'one', ['192.168.1.254/24']]);
      cable([hosts[1], 'eth0', ['192.168.2.1/24']], [router, 'two', ['192.168.2.254/24']]);
      router.run('sysctl', '-qw', 'net.ipv4.ip_forward=1');
      for (const [at, host] of hosts.entries())
        host.run('ip', 'route', 'add', 'default', 'via', `192.168.${at + 1}.254`);
      const pods = hosts.map((host, at) => pod(scratch, host, at + 1));
      const all = await connect([['192.168.1.1'], ['192.168.2.1']]);
      expectInSync(all);
      ping(pods[0], 2);
      ping(pods[1], 1);
      const [there] = JSON.parse(hosts[0].run('ip', '-j', '-d', 'link', 'show', DEVICE));
      expect(there).toMatchObject({
        mtu: 1450,
        ifalias: 'datapath-cache',
        linkinfo: { info_data: { external: true, port: 8472, learning: false } },
      });
      // The tunnel is removed with the last node that needs it.
      all[0]?.paths.nodeDelete(node('n2', {}));
      await all[0]?.settle();
      expect(hosts[0].run('ip', '-br', 'link')).not.toContain(DEVICE);
      expect(JSON.parse(hosts[0].run('ip', '-j', 'route', 'show', 'proto', '201'))).toEqual([]);
      expect(hosts[0].run('nft', 'list', 'ruleset')).toBe('');
    });

    it('reach each other through VXLAN over IPv6 if that is the underlay', async () => {
      const router = scratch.namespace('router');
      cable([hosts[0], 'eth0', ['fd01::1/64']], [router, 'one', ['fd01::fe/64']]);
      cable([hosts[1], 'eth0', ['fd02::1/64']], [router, 'two', ['fd02::fe/64']]);
      router.run('sysctl', '-qw', 'net.ipv6.conf.all.forwarding=1');
      const pods = hosts.map((host, at) => pod(scratch, host, at + 1));
      for (const [at, host] of hosts.entries())
        host.run('ip', '-6', 'route', 'add', 'default', 'via', `fd0${at + 1}::fe`);
      const all = await connect([['fd01::1'], ['fd02::1']], 'ipv6');
      expectInSync(all);
      ping(pods[0], 2);
      ping(pods[1], 1);
      const [there] = JSON.parse(hosts[0].run('ip', '-j', '-d', 'link', 'show', DEVICE));
      expect(there).toMatchObject({ mtu: 1430 });
    });

    it.each([
      ['ipv4', 'ip', '192.168.1', '192.168.2', '.', '/24'],
      ['ipv6', 'ip6', 'fd01:', 'fd02:', ':', '/64'],
    ] as const)(
      'exchange packets over %s with a node that sends as Cilium: the VNI is an identity, the frame is for another address',
      async (underlay, encap, here, there, dot, length) => {
        const [ours, theirs] = hosts;
        const router = scratch.namespace('router');
        router.run('sysctl', '-qw', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1');
        const [ourAddress, theirAddress] = [`${here}${dot}1`, `${there}${dot}1`];
        for (const [host, net, port] of [
          [ours, here, 'one'],
          [theirs, there, 'two'],
        ] as const) {
          const via = `${net}${dot}ffe`.replace('.ffe', '.254');
          cable([host, 'eth0', [`${net}${dot}1${length}`]], [router, port, [`${via}${length}`]]);
          host.run('ip', via.includes(':') ? '-6' : '-4', 'route', 'add', 'default', 'via', via);
        }
        const [ourPod, theirPod] = hosts.map((host, at) => pod(scratch, host, at + 1));
        const under = new PathsUnderTest(kernel, ours);
        scratch.defer(() => under[Symbol.dispose]());
        await under.start();
        under.paths.nodeConfigurationChanged({
          ...CONFIGURATION,
          underlay,
        });
        under.paths.nodeAdd(node('n1', { source: 'local', addresses: internal(ourAddress) }));
        const cidrs = { ipv4AllocCIDR: '10.2.0.0/24', ipv6AllocCIDR: 'fd00:2::/64' };
        under.paths.nodeAdd(node('n2', { addresses: internal(theirAddress), ...cidrs }));
        await under.settle();
        expect(under.paths.kept.status()).toMatchObject({ state: 'in-sync', failures: [] });
        batch(theirs, [
          'link add cilium_vxlan type vxlan external dstport 8472',
          'link set cilium_vxlan up mtu 1450',
          'neigh add 192.0.0.8 lladdr 0e:00:00:00:00:07 nud permanent dev cilium_vxlan',
          'neigh add fe80::1 lladdr 0e:00:00:00:00:07 nud permanent dev cilium_vxlan',
        ]);
        // Programs of Cilium accept frames to any address.
        for (const line of [
          'add table netdev cilium',
          'add chain netdev cilium in { type filter hook ingress device cilium_vxlan priority 0; }',
          'add rule netdev cilium in meta pkttype set host',
        ])
          theirs.run('nft', line);
        for (const identity of [6, 777, 16_777_215]) {
          // Cilium sends without UDP checksums.
          const header = `encap ${encap} id ${identity} dst ${ourAddress}`;
          batch(theirs, [
            `route replace 10.1.0.0/24 ${header} via 192.0.0.8 dev cilium_vxlan onlink`,
            `-6 route replace fd00:1::/64 ${header} via fe80::1 dev cilium_vxlan`,
          ]);
          ping(ourPod, 2);
          ping(theirPod, 1);
        }
      },
    );
  },
);
