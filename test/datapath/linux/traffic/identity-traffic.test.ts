import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Bpf, type BpfCommand } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { loadProgram } from '../../../../src/datapath/linux/bpf/program.ts';
import { DesiredIPCache, IPCacheTable, markPrefixes } from '../../../../src/datapath/linux/ipcache-map.ts';
import { KeptTable } from '../../../../src/datapath/linux/kept-table.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import { attachProgram } from '../../../../src/datapath/linux/traffic/attached-program.ts';
import {
  type IdentityFlow,
  IdentityTraffic,
} from '../../../../src/datapath/linux/traffic/identity-traffic.ts';
import { IPCache } from '../../../../src/ipcache/ipcache.ts';
import { ipcacheMark } from '../bpf/programs/ipcache-mark-images.ts';
import { batch, cable } from '../paths/support/path-network.ts';
import { ManualTurns } from '../support/fake-table.ts';
import { bitsOf, NaiveTrie } from '../support/naive-trie.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { exec, type Namespace, Scratch } from '../support/scratch.ts';

/** Sends a UDP datagram for each pair of addresses, and exits. */
const SENDER = `const { createSocket } = require('node:dgram');
(async () => {
  const sockets = new Map();
  for (const [source, destination] of JSON.parse(process.argv[1])) {
    if (!sockets.has(source)) {
      const socket = createSocket(source.includes(':') ? 'udp6' : 'udp4').on('error', () => {});
      await new Promise((resolve) => socket.bind({ address: source }, resolve));
      sockets.set(source, socket);
    }
    await new Promise((resolve, reject) =>
      sockets.get(source).send('x', 9, destination, (error) => (error ? reject(error) : resolve())));
  }
  for (const socket of sockets.values()) socket.close();
})();`;

/**
 * Addresses as eight or four numbers. Prefixes contain each other, and some addresses of the pod are in no
 * prefix.
 */
const SOURCES = [
  ['10.1.0.9', [10, 1, 0, 9]],
  ['10.1.0.10', [10, 1, 0, 10]],
  ['192.0.2.9', [192, 0, 2, 9]],
  ['fd00:1::9', [0xfd, 0, 0, 1, ...Array(11).fill(0), 9]],
  ['fd00:2::9', [0xfd, 0, 0, 2, ...Array(11).fill(0), 9]],
] as const;
const PREFIXES: readonly (readonly [prefix: string, bytes: readonly number[], bits: number])[] = [
  ['10.1.0.0/24', [10, 1, 0, 0], 24],
  ['10.1.0.9/32', [10, 1, 0, 9], 32],
  ['10.7.0.0/16', [10, 7, 0, 0], 16],
  ['10.7.3.0/24', [10, 7, 3, 0], 24],
  ['10.7.3.4/32', [10, 7, 3, 4], 32],
  ['fd00:1::/32', [0xfd, 0, 0, 1, ...Array(12).fill(0)], 32],
  ['fd00:7::/32', [0xfd, 0, 0, 7, ...Array(12).fill(0)], 32],
  ['fd00:7::304/128', [0xfd, 0, 0, 7, ...Array(10).fill(0), 3, 4], 128],
];
const PACKETS = 400;
/** An Ethernet frame with IPv4, UDP and one byte; IPv6 has 20 bytes more. */
const FRAME = 14 + 20 + 8 + 1;

/** Returns pairs in the order of their identities, without packets of IPv6 itself, which have no identity. */
function shown(flows: readonly IdentityFlow[]): readonly IdentityFlow[] {
  return flows
    .filter(({ source, destination }) => source !== 0 || destination !== 0)
    .sort((a, b) => a.source - b.source || a.destination - b.destination);
}

describeOnLinux('packets of a pod', ['maps', 'namespaces', 'ip', 'tc', 'bpftool'], () => {
  let scratch: Scratch;
  let node: Namespace;
  let pod: Namespace;
  let path = '';
  let ipcache: IPCache;
  let written: () => Promise<unknown>;
  const trie = { 4: new NaiveTrie(), 6: new NaiveTrie() };

  beforeAll(async () => {
    scratch = new Scratch();
    [node, pod] = [scratch.namespace('node'), scratch.namespace('pod')];
    cable(
      [node, 'pod0', ['10.1.0.1/24', 'fd00:1::1/64']],
      [pod, 'eth0', SOURCES.map(([address]) => `${address}/${address.includes(':') ? 64 : 24}`)],
    );
    // Static neighbours, because neighbour discovery of IPv6 would be counted.
    const macOf = (at: Namespace): string =>
      JSON.parse(at.run('ip', '-j', 'link', 'show', 'type', 'veth'))[0].address;
    batch(
      node,
      SOURCES.map(([address]) => `neigh replace ${address} lladdr ${macOf(pod)} dev pod0 nud permanent`),
    );
    batch(
      pod,
      ['10.1.0.1', 'fd00:1::1'].flatMap((gateway) => [
        `neigh replace ${gateway} lladdr ${macOf(node)} dev eth0 nud permanent`,
        `route add default via ${gateway} dev eth0`,
      ]),
    );

    path = join(scratch.bpffs(), 'ipcache');
    const bpf = new Bpf(new Kernel());
    const table = IPCacheTable.open(bpf, { path });
    ipcache = new IPCache();
    const turns = new ManualTurns();
    const kept = new KeptTable(table, new DesiredIPCache(ipcache), turns);
    ipcache.subscribe(markPrefixes((prefix) => kept.mark(prefix)));
    scratch.defer(() => table[Symbol.dispose]());
    await turns.until(kept.adopt());
    written = () => turns.settle();
    for (const [at, [prefix, bytes, bits]] of PREFIXES.entries()) {
      ipcache.upsert(prefix, { identity: 100 + at, source: 'kvstore' });
      trie[prefix.includes(':') ? 6 : 4].set(bitsOf(Uint8Array.from(bytes)).slice(0, bits), 100 + at);
    }
    await written();
  });

  afterAll(() => scratch[Symbol.dispose]());

  const send = (pairs: readonly (readonly [string, string])[]): void =>
    void pod.run(process.execPath, '-e', SENDER, JSON.stringify(pairs));

  /** Returns random pairs of addresses, and the flows that a model counts for them. */
  function drawn(): { readonly pairs: [string, string][]; readonly flows: readonly IdentityFlow[] } {
    const pairs: [string, string][] = [];
    const flows = new Map<string, IdentityFlow>();
    for (let at = 0; at < PACKETS; at++) {
      const [from, fromBytes] = SOURCES[at % SOURCES.length] ?? SOURCES[0];
      const isSix = from.includes(':');
      const round = Math.floor(at / SOURCES.length);
      const [net, high, low] = [round % 3 === 2 ? 8 : 7, round % 4, round % 5];
      const to = isSix ? `fd00:${net}::${high}0${low}` : `10.${net}.${high}.${low}`;
      const bytes = isSix ? [0xfd, 0, 0, net, ...Array(10).fill(0), high, low] : [10, net, high, low];
      const find = (address: readonly number[]): number =>
        trie[isSix ? 6 : 4].lookup(bitsOf(Uint8Array.from(address)));
      const [source, destination] = [find(fromBytes), find(bytes)];
      const before = flows.get(`${source} ${destination}`) ?? { packets: 0, bytes: 0 };
      flows.set(`${source} ${destination}`, {
        source,
        destination,
        packets: before.packets + 1,
        bytes: before.bytes + FRAME + (isSix ? 20 : 0),
      });
      pairs.push([from, to]);
    }
    return { pairs, flows: shown([...flows.values()]) };
  }

  it.each(['tcx', 'clsact'] as const)(
    'are counted by the identities that a model finds, received and sent, by %s',
    (by) => {
      const { pairs, flows } = drawn();
      expect(flows.length).toBeGreaterThan(10);
      using received = IdentityTraffic.open({
        ipcache: path,
        by,
        interface: 'pod0',
        direction: 'ingress',
        namespace: node.path,
      });
      using sent = IdentityTraffic.open({
        ipcache: path,
        by,
        interface: 'eth0',
        direction: 'egress',
        namespace: pod.path,
      });
      expect([received.by, sent.by]).toEqual([by, by]);
      send(pairs);
      expect(shown(sent.flows())).toEqual(flows);
      expect(shown(received.flows())).toEqual(flows);
    },
  );

  it('are counted by the identities of the cache at that time', async () => {
    const place = { interface: 'pod0', direction: 'ingress', namespace: node.path } as const;
    using traffic = IdentityTraffic.open({ ipcache: path, ...place });
    send([['10.1.0.9', '10.7.3.4']]);
    ipcache.upsert('10.7.3.4/32', { identity: 777, source: 'kvstore' });
    ipcache.delete('10.1.0.9/32', { source: 'kvstore' });
    await written();
    send([
      ['10.1.0.9', '10.7.3.4'],
      ['10.1.0.9', '10.7.3.4'],
    ]);
    expect(shown(traffic.flows())).toEqual([
      { source: 100, destination: 777, packets: 2, bytes: 2 * FRAME },
      { source: 101, destination: 104, packets: 1, bytes: FRAME },
    ]);
  });

  it('are counted by a filter of clsact if the kernel has no TCX, and once however often it is attached (regression: the end of a replaced one ended the next)', () => {
    class OldBpf extends Bpf {
      override call(command: BpfCommand, what = ''): number {
        if (command === 'LINK_CREATE')
          throw new SyscallError('bpf(LINK_CREATE)', constants.errno.EINVAL, what);
        return super.call(command, what);
      }
    }
    const kernel = new Kernel();
    const bpf = new OldBpf(kernel);
    using table = IPCacheTable.open(bpf, { path });
    const maps = new Map([['ipcache', table.map.fd]]);
    const program = loadProgram(bpf, ipcacheMark, { type: 'schedCls', maps });
    const place = { interface: 'pod0', direction: 'ingress', namespace: node.path } as const;
    expect(() => attachProgram({ kernel, bpf }, program, place, 'tcx')).toThrow(/LINK_CREATE.*EINVAL/);
    const first = attachProgram({ kernel, bpf }, program, place);
    const second = attachProgram({ kernel, bpf }, program, place);
    expect([first.by, second.by]).toEqual(['clsact', 'clsact']);
    closeSync(program);
    const filters = (): number =>
      node.run('tc', 'filter', 'show', 'dev', 'pod0', 'ingress').match(/ handle 0x1 /g)?.length ?? 0;
    expect(filters()).toBe(1);
    first[Symbol.dispose]();
    expect(filters()).toBe(1);
    second[Symbol.dispose]();
    expect(filters()).toBe(0);
  });

  it('leave no clsact after the last of them, unless it existed before or others have a filter in it', () => {
    const place = { ipcache: path, by: 'clsact', interface: 'pod0', namespace: node.path } as const;
    const shown = (): string => node.run('tc', 'qdisc', 'show', 'dev', 'pod0');
    const received = IdentityTraffic.open({ ...place, direction: 'ingress' });
    const sent = IdentityTraffic.open({ ...place, direction: 'egress' });
    received[Symbol.dispose]();
    received[Symbol.dispose](); // regression: freed its memory again, and released the clsact of the other one
    expect(() => received.flows()).toThrow('flows must not be called after dispose');
    expect(shown()).toContain('clsact');
    sent[Symbol.dispose]();
    expect(shown()).not.toContain('clsact');

    const third = IdentityTraffic.open({ ...place, direction: 'ingress' });
    node.run('tc', ...'filter add dev pod0 egress prio 7 bpf bytecode'.split(' '), '1,6 0 0 0,');
    third[Symbol.dispose]();
    expect(node.run('tc', 'filter', 'show', 'dev', 'pod0', 'egress')).toContain('pref 7');
    node.run('tc', 'qdisc', 'delete', 'dev', 'pod0', 'clsact');

    node.run('tc', 'qdisc', 'add', 'dev', 'pod0', 'clsact');
    IdentityTraffic.open({ ...place, direction: 'ingress' })[Symbol.dispose]();
    expect(shown()).toContain('clsact');
    node.run('tc', 'qdisc', 'delete', 'dev', 'pod0', 'clsact');
  });

  it('are not counted without an interface or a map of the right kind, and the missing one is named', () => {
    const place = { interface: 'pod0', direction: 'ingress', namespace: node.path } as const;
    const open = (options: Partial<Parameters<typeof IdentityTraffic.open>[0]>) => () =>
      IdentityTraffic.open({ ipcache: path, ...place, ...options });
    expect(open({ interface: 'pod1' })).toThrow('interface pod1: ENODEV');
    expect(open({ ipcache: `${path}-1_8` })).toThrow(`open ${path}-1_8: ENOENT`);
    const foreign = `${path}-foreign`;
    exec('bpftool', ...`map create ${foreign} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    expect(open({ ipcache: foreign })).toThrow(`${foreign} is a different map`);
  });
});
