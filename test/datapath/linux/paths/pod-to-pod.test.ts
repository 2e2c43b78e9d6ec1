import { afterEach, beforeEach, expect, it } from 'vitest';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import type { NodeConfiguration } from '../../../../src/nodemanager/address-claims.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';
import { cable, DEVICE, internal, node, PathsUnderTest, pod } from './support/path-network.ts';

/** Sends three packets of each family. Throws the output of `ping` if one is lost. */
function ping(from: Namespace, index: number): void {
  for (const address of [`10.${index}.0.9`, `fd00:${index}::9`])
    from.run('ping', '-q', '-c', '3', '-i', '0.01', '-W', '2', address);
}

const CONFIGURATION: NodeConfiguration = {
  remoteNodeIdentities: false,
  encryption: false,
  nodeEncryption: false,
  hostFirewall: false,
  underlay: 'ipv4',
};

describeOnLinux('pods of two nodes', ['routes', 'tunnel', 'namespaces', 'ip', 'ping'], () => {
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
    ping(pods[0] ?? hosts[0], 2);
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
    expect(
      all.map(({ paths }) => ({ problems: paths.problems(), table: paths.kept.status() })),
    ).toMatchObject([
      { problems: [], table: { state: 'in-sync', failures: [] } },
      { problems: [], table: { state: 'in-sync', failures: [] } },
    ]);
    ping(pods[0] ?? hosts[0], 2);
    const [there] = JSON.parse(hosts[0].run('ip', '-j', '-d', 'link', 'show', DEVICE));
    expect(there).toMatchObject({
      mtu: 1450,
      address: '02:dc:c0:a8:01:01',
      ifalias: 'datapath-cache',
      linkinfo: { info_data: { id: 6, port: 8472, local: '192.168.1.1', learning: false } },
    });
    expect(JSON.parse(hosts[0].run('bridge', '-j', 'fdb', 'show', 'dev', DEVICE))).toMatchObject([
      { mac: '02:dc:c0:a8:02:01', dst: '192.168.2.1', state: 'permanent' },
    ]);
    // The tunnel is removed with the last node that needs it.
    all[0]?.paths.nodeDelete(node('n2', {}));
    await all[0]?.settle();
    expect(hosts[0].run('ip', '-br', 'link')).not.toContain(DEVICE);
    expect(JSON.parse(hosts[0].run('ip', '-j', 'route', 'show', 'proto', '201'))).toEqual([]);
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
    expect(
      all.map(({ paths }) => ({ problems: paths.problems(), table: paths.kept.status() })),
    ).toMatchObject([
      { problems: [], table: { state: 'in-sync', failures: [] } },
      { problems: [], table: { state: 'in-sync', failures: [] } },
    ]);
    ping(pods[0] ?? hosts[0], 2);
    const [there] = JSON.parse(hosts[0].run('ip', '-j', '-d', 'link', 'show', DEVICE));
    expect(there).toMatchObject({ mtu: 1430, linkinfo: { info_data: { local6: 'fd01::1' } } });
  });
});
