import { afterEach, beforeEach, expect, it } from 'vitest';
import { DesiredServices } from '../../../../src/datapath/linux/services/desired-services.ts';
import { HostAddresses } from '../../../../src/datapath/linux/services/host-addresses.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import { PROTOCOL_NUMBERS } from '../../../../src/net/port.ts';
import { createService } from '../../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';
import { ManualClock } from '../../../base/support/manual-clock.ts';
import { until } from '../../../base/support/until.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';

const { TCP } = PROTOCOL_NUMBERS;

describeOnLinux('node ports', ['namespaces', 'ip'], () => {
  let scratch: Scratch;
  let host: Namespace;
  const kernel = new Kernel();

  beforeEach(() => {
    scratch = new Scratch();
    host = scratch.namespace('host');
  });
  afterEach(() => scratch[Symbol.dispose]());

  it('answer on an address that the host gets, and no longer on one that it loses', async () => {
    const clock = new ManualClock();
    using addresses = new HostAddresses(kernel, { namespace: host.path, clock });
    const cache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
    const desired = new DesiredServices({
      nodePort: { enabled: true, ...addresses.current },
      nodeName: '',
      clients: 'inside',
    });
    cache.markSynced();
    cache.subscribe(desired.listener(() => {}));
    for (const [name, nodePort] of [
      ['web', 30080],
      ['inner', 0],
    ] as const)
      cache.updateService(
        createService({
          id: { namespace: 'shop', name },
          type: 'NodePort',
          addressing: 'assigned',
          clusterIPs: [nodePort === 0 ? '172.16.0.2' : '172.16.0.1', 'fd00:16::1'],
          ports: [['web', { port: nodePort === 0 ? 81 : 80, protocol: TCP, nodePort }]],
        }),
      );
    const marked: string[][] = [];
    addresses.follow((all) => void marked.push([...desired.setNodePort({ enabled: true, ...all })].sort()));
    const change = async (...words: readonly string[]): Promise<readonly string[]> => {
      const before = marked.length;
      host.run('ip', ...words);
      await until('the addresses have changed', () => {
        clock.advance(100);
        return marked.length > before;
      });
      return marked.slice(before).flat();
    };
    const nodePorts = (): readonly string[] =>
      Array.from(desired.entries(), ([key]) => key).filter((key) => key.includes(':30080'));
    expect([...nodePorts()].sort()).toEqual(['127.0.0.1:30080/TCP', '[::1]:30080/TCP']);

    expect(await change('address', 'add', '192.0.2.7/24', 'dev', 'lo')).toEqual(['192.0.2.7:30080/TCP']);
    expect(await change('address', 'add', 'fd00:9::7/64', 'dev', 'lo', 'nodad')).toEqual([
      '[fd00:9::7]:30080/TCP',
    ]);
    expect(nodePorts()).toHaveLength(4);
    expect(desired.get('192.0.2.7:30080/TCP')).toMatchObject({ backends: [], affinitySeconds: 0 });
    expect(await change('address', 'delete', '192.0.2.7/24', 'dev', 'lo')).toEqual(['192.0.2.7:30080/TCP']);
    expect(desired.get('192.0.2.7:30080/TCP')).toBeUndefined();
    // A service that is added afterwards, and one that is deleted, have the current addresses.
    cache.deleteService({ namespace: 'shop', name: 'web' });
    expect([nodePorts(), desired.size]).toEqual([[], 4]);
  });

  it('do not follow changes of a link alone, and end with their socket', async () => {
    const clock = new ManualClock();
    const addresses = new HostAddresses(kernel, { namespace: host.path, clock });
    let changes = 0;
    addresses.follow(() => void changes++);
    host.run('ip', 'address', 'add', 'fe80::7/64', 'dev', 'lo', 'nodad');
    await until('the event has arrived', () => clock.pending > 0);
    clock.advance(100);
    addresses[Symbol.dispose]();
    expect([changes, addresses.current.ipv6, addresses.problems()]).toEqual([0, ['::1'], []]);
    host.run('ip', 'address', 'add', '192.0.2.7/24', 'dev', 'lo');
    await new Promise((resolve) => setImmediate(resolve));
    expect(clock.pending).toBe(0);
  });

  it('are read once for all parts that follow them, until they end', async () => {
    const clock = new ManualClock();
    using addresses = new HostAddresses(kernel, { namespace: host.path, clock });
    const calls: string[] = [];
    addresses.follow(({ ipv4 }) => void calls.push(`services ${ipv4.join(' ')}`));
    const end = addresses.follow(({ ipv4 }) => void calls.push(`prefixes ${ipv4.join(' ')}`));
    const change = async (verb: string): Promise<void> => {
      const { length } = calls;
      host.run('ip', 'address', verb, '192.0.2.7/24', 'dev', 'lo');
      await until('the addresses have changed', () => {
        clock.advance(100);
        return calls.length > length;
      });
    };
    await change('add');
    end();
    await change('delete');
    const both = '127.0.0.1 192.0.2.7';
    expect(calls).toEqual([`services ${both}`, `prefixes ${both}`, 'services 127.0.0.1']);
  });

  it('follow the addresses although another part fails (regression: the others kept the former addresses)', async () => {
    const clock = new ManualClock();
    using addresses = new HostAddresses(kernel, { namespace: host.path, clock });
    const calls: string[] = [];
    let fails = true;
    addresses.follow(() => {
      if (fails) throw new Error('no memory');
    });
    addresses.follow(({ ipv4 }) => void calls.push(ipv4.join(' ')));
    const change = async (address: string): Promise<void> => {
      host.run('ip', 'address', 'add', address, 'dev', 'lo');
      await until('the event has arrived', () => clock.pending > 0);
      clock.advance(100);
    };
    await change('192.0.2.7/24');
    expect(addresses.problems()).toEqual(['cannot apply the addresses of this host: no memory']);
    expect([calls, clock.pending]).toEqual([['127.0.0.1 192.0.2.7'], 0]);
    fails = false;
    await change('192.0.2.8/24');
    expect([calls.length, addresses.problems()]).toEqual([2, []]);
  });

  it('read the addresses again if a read fails, also without another event', async () => {
    const clock = new ManualClock();
    const refusing = new RefusingKernel();
    using addresses = new HostAddresses(refusing, { namespace: host.path, clock });
    addresses.follow(() => {});
    refusing.refuses = true;
    host.run('ip', 'address', 'add', '192.0.2.7/24', 'dev', 'lo');
    await until('the event has arrived', () => clock.pending > 0);
    clock.advance(100);
    expect(addresses.problems()).toEqual([expect.stringContaining('cannot read the addresses of this host')]);
    refusing.refuses = false;
    await until('it reads again', () => clock.pending > 0);
    clock.advance(100);
    expect([addresses.has('192.0.2.7'), addresses.problems()]).toEqual([true, []]);
  });
});

/** A kernel that can refuse new sockets. */
class RefusingKernel extends Kernel {
  refuses = false;

  override socket(domain: number, type: number, protocol: number): number {
    if (this.refuses) throw new SyscallError('socket', 24);
    return super.socket(domain, type, protocol);
  }
}
