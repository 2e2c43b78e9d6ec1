import { closeSync, mkdirSync, readdirSync, unlinkSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/system-clock.ts';
import { Bpf } from '../../../../src/datapath/linux/bpf/bpf.ts';
import { BpfMap } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import { attachToCgroup } from '../../../../src/datapath/linux/bpf/link.ts';
import { pin } from '../../../../src/datapath/linux/bpf/pin.ts';
import {
  type AttachType,
  linkImage,
  loadProgram,
  type ProgramImage,
  withoutHelper,
} from '../../../../src/datapath/linux/bpf/program.ts';
import {
  socketConnect4,
  socketConnect6,
  socketRecvmsg4,
} from '../../../../src/datapath/linux/bpf/programs/sockets-images.ts';
import { KeptTable } from '../../../../src/datapath/linux/kept-table.ts';
import { DesiredServices } from '../../../../src/datapath/linux/services/desired-services.ts';
import type { ServiceCapacity } from '../../../../src/datapath/linux/services/service-layout.ts';
import { ServicePins, unpinServiceMaps } from '../../../../src/datapath/linux/services/service-pins.ts';
import { ServiceMapTable } from '../../../../src/datapath/linux/services/service-table.ts';
import {
  attachSocketPrograms,
  detachSocketPrograms,
} from '../../../../src/datapath/linux/services/socket-programs.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { PROTOCOL_NUMBERS } from '../../../../src/net/port.ts';
import {
  type BackendState,
  createBackend,
  createEndpointSlice,
} from '../../../../src/servicecache/backend.ts';
import { createService, type ServiceFields } from '../../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { exec, Scratch } from '../support/scratch.ts';
import { type PeerProtocol, SocketPeer } from '../support/socket-peer.ts';

const { TCP, UDP } = PROTOCOL_NUMBERS;
const ID = { namespace: 'shop', name: 'web' };
const BACKENDS = ['10.1.0.1', '10.2.0.1', 'fd00:1::1', 'fd00:2::1'];
const [OWN, REMOTE, OWN6, REMOTE6] = BACKENDS as [string, string, string, string];
const CAPACITY: ServiceCapacity = { slots: 4096, backends: 256, clients: 4096 };
const FOREIGN_MAP = 'type hash key 4 value 4 entries 5 name foreign';
const VIP = '172.16.0.10';
const VIP6 = 'fd00:16::10';
const NODE = '192.0.2.7';
const EXTERNAL = '203.0.113.9';
const PORTS = new Map([
  ['web', { port: 8080, protocol: TCP }],
  ['dns', { port: 5353, protocol: UDP }],
]);

/** One life of the agent: its maps and programs. */
class Process {
  readonly cache: ServiceCache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  readonly table: ServiceMapTable;
  readonly kept: KeptTable<{ readonly backends: readonly string[]; readonly affinitySeconds: number }>;
  readonly #bpf: Bpf = new Bpf(new Kernel());
  readonly #folder: string;
  readonly pins: ServicePins;

  constructor(folder: string, capacity: ServiceCapacity = CAPACITY) {
    this.#folder = folder;
    this.pins = new ServicePins(this.#bpf, { folder, capacity });
    this.table = new ServiceMapTable(this.pins.maps);
    const desired = new DesiredServices({
      nodePort: { enabled: true, ipv4: [NODE] },
      nodeName: 'here',
      clients: 'inside',
    });
    this.kept = new KeptTable(this.table, desired, {
      clock: systemClock,
      random: Math.random,
      nextTurn: setImmediate,
    });
    this.cache.markSynced();
    this.cache.subscribe(desired.listener((frontend) => this.kept.mark(frontend)));
  }

  async start(cgroup: string): Promise<void> {
    for (const _ of this.pins.resize(() => this.attach(cgroup))) await new Promise(setImmediate);
    this.table.replaceMaps(this.pins.maps);
    await this.kept.adopt();
    this.kept.allowDeletes();
    await this.kept.flushed();
    this.attach(cgroup);
    this.pins.replacePins();
  }

  attach(cgroup: string): void {
    attachSocketPrograms(this.#bpf, {
      folder: this.#folder,
      cgroup,
      maps: this.pins.descriptors,
      hostCookie: 0n,
    });
  }

  async serve(
    own: Readonly<Record<string, BackendState>>,
    remote: readonly string[],
    fields: Partial<ServiceFields> = {},
  ): Promise<void> {
    this.cache.updateService(
      createService({
        id: ID,
        type: 'NodePort',
        addressing: 'assigned',
        clusterIPs: [VIP, VIP6],
        externalIPs: [EXTERNAL],
        ports: [
          ['web', { port: 80, protocol: TCP, nodePort: 30080 }],
          ['dns', { port: 53, protocol: UDP, nodePort: 30053 }],
        ],
        global: true,
        ...fields,
      }),
    );
    const backends = Object.entries(own).map(([address, state]) =>
      createBackend({ address, state, nodeName: 'here', ports: PORTS }),
    );
    this.cache.updateEndpoints(createEndpointSlice({ service: ID, name: 'slice', backends }));
    this.cache.mergeExternalServiceUpdate({
      ...ID,
      cluster: 'east',
      clusterID: 2,
      shared: true,
      includeExternal: true,
      frontends: new Map(),
      labels: new Map(),
      selector: new Map(),
      backends: new Map(remote.map((ip) => [ip, PORTS])),
    });
    await this.kept.flushed();
  }

  stop(): void {
    this.kept[Symbol.dispose]();
    this.pins[Symbol.dispose]();
  }
}

describeOnLinux('sockets that connect to services', ['sockets', 'namespaces', 'bpftool'], () => {
  let scratch: Scratch;
  let folder = '';
  let cgroup = '';
  let peer: SocketPeer;
  let agent: Process;

  beforeAll(async () => {
    scratch = new Scratch();
    folder = scratch.bpffs();
    cgroup = scratch.cgroup();
    const netns = scratch.namespace('pods');
    for (const ip of BACKENDS)
      exec(
        'ip',
        '-n',
        netns.name,
        'addr',
        'add',
        ip.includes(':') ? `${ip}/128` : `${ip}/32`,
        'dev',
        'lo',
        ...(ip.includes(':') ? ['nodad'] : []),
      );
    peer = await SocketPeer.start(scratch, { cgroup, netns: netns.path });
    for (const ip of BACKENDS) {
      expect(await peer.do('serve', { protocol: 'tcp', ip, port: 8080 })).toEqual({});
      expect(await peer.do('serve', { protocol: 'udp', ip, port: 5353 })).toEqual({});
    }
    agent = new Process(folder);
    await agent.start(cgroup);
  });

  afterAll(() => {
    agent?.stop();
    detachSocketPrograms(new Bpf(new Kernel()), folder);
    scratch[Symbol.dispose]();
  });

  beforeEach(() => agent.serve({ [OWN]: 'active', [OWN6]: 'active' }, [REMOTE, REMOTE6]));

  it.each<[PeerProtocol, string, string, string, number]>([
    ['tcp', VIP, OWN, REMOTE, 80],
    ['connected-udp', VIP, OWN, REMOTE, 53],
    ['udp', VIP, OWN, REMOTE, 53],
    ['tcp', VIP6, OWN6, REMOTE6, 80],
    ['connected-udp', VIP6, OWN6, REMOTE6, 53],
    ['udp', VIP6, OWN6, REMOTE6, 53],
  ])(
    'reach by %s to %s the backends of both clusters, evenly, and see the requested address',
    async (protocol, vip, own, remote, port) => {
      const counts = await peer.ask(protocol, vip, port, 2000);
      const target = protocol === 'tcp' ? 8080 : 5353;
      const names = [own, remote].map((ip) => `${ip}:${target} as ${vip} ${port}`);
      expect(Object.keys(counts).sort()).toEqual(names.sort());
      for (const name of names) expect(Math.abs((counts[name] ?? 0) - 1000)).toBeLessThan(100);
    },
  );

  it.each([
    ['a socket of IPv6 that speaks IPv4', `::ffff:${VIP}`, 80],
    ['an external IP', EXTERNAL, 80],
    ['a node port', NODE, 30_080],
  ])('reach them by %s', async (_what, ip, port) => {
    const counts = await peer.ask('tcp', ip, port, 100);
    expect(Object.keys(counts).sort()).toEqual([OWN, REMOTE].map((name) => `${name}:8080 as ${ip} ${port}`));
  });

  it('never reach a removed backend', async () => {
    await agent.serve({ [OWN]: 'active' }, []);
    expect(await peer.ask('tcp', VIP, 80, 500)).toEqual({ [`${OWN}:8080 as ${VIP} 80`]: 500 });
    await agent.serve({}, [REMOTE]);
    expect(await peer.ask('udp', VIP, 53, 500)).toEqual({ [`${REMOTE}:5353 as ${VIP} 53`]: 500 });
  });

  it('are refused if a service has no backend, and unchanged if there is no service', async () => {
    await agent.serve({}, []);
    expect(await peer.ask('tcp', VIP, 80, 10)).toEqual({ ECONNREFUSED: 10 });
    expect(await peer.ask('tcp', VIP6, 80, 10)).toEqual({ ECONNREFUSED: 10 });
    expect(await peer.ask('udp', VIP, 53, 10)).toEqual({ ECONNREFUSED: 10 });
    expect(await peer.ask('tcp', OWN, 8080, 10)).toEqual({ [`${OWN}:8080 as ${OWN} 8080`]: 10 });
  });

  it('are refused at a port that the service does not have (regression: they left by the default route)', async () => {
    for (const ip of [VIP, VIP6, `::ffff:${VIP}`])
      expect(await peer.ask('tcp', ip, 81, 10)).toEqual({ ECONNREFUSED: 10 });
    for (const protocol of ['udp', 'connected-udp'] as const)
      expect(await peer.ask(protocol, VIP, 80, 10)).toEqual({ ECONNREFUSED: 10 });
    expect(await peer.ask('tcp', EXTERNAL, 80, 10)).not.toHaveProperty('ECONNREFUSED');
  });

  it('keep their connections to a backend that terminates, and get no new ones', async () => {
    await agent.serve({ [OWN]: 'active' }, []);
    expect(await peer.do('hold', { ip: VIP, port: 80 })).toEqual({ name: `${OWN}:8080` });
    await agent.serve({ [OWN]: 'terminating' }, [REMOTE]);
    expect(await peer.ask('tcp', VIP, 80, 200)).toEqual({ [`${REMOTE}:8080 as ${VIP} 80`]: 200 });
    expect(await peer.do('echo', { ip: VIP, port: 80 })).toEqual({ echo: 'still here' });
    await agent.serve({ [OWN]: 'terminating' }, []);
    expect(await peer.ask('tcp', VIP, 80, 20)).toEqual({ [`${OWN}:8080 as ${VIP} 80`]: 20 });
  });

  it('stay on the local node if the traffic policy requires it', async () => {
    await agent.serve({ [OWN]: 'active' }, [REMOTE], { internalTrafficPolicy: 'Local' });
    expect(await peer.ask('tcp', VIP, 80, 100)).toEqual({ [`${OWN}:8080 as ${VIP} 80`]: 100 });
    expect(Object.keys(await peer.ask('tcp', EXTERNAL, 80, 100))).toHaveLength(2);
  });

  it('stay with a backend while the affinity lasts and the backend exists', async () => {
    const sticky = { sessionAffinitySeconds: 3600 };
    await agent.serve({ [OWN]: 'active' }, [REMOTE], sticky);
    const first = Object.keys(await peer.ask('tcp', VIP, 80, 1));
    expect(Object.keys(await peer.ask('tcp', VIP, 80, 100))).toEqual(first);
    const seen = new Set<string>();
    for (let round = 0; round < 30; round++) {
      forgetClients(agent);
      for (const name of Object.keys(await peer.ask('tcp', VIP, 80, 1))) seen.add(name);
    }
    expect(seen.size).toBe(2);
    const [now = ''] = Object.keys(await peer.ask('tcp', VIP, 80, 1));
    const isOwn = now.startsWith(OWN);
    await agent.serve(isOwn ? {} : { [OWN]: 'active' }, isOwn ? [REMOTE] : [], sticky);
    const [other = ''] = Object.keys(await peer.ask('tcp', VIP, 80, 50));
    expect(other.startsWith(isOwn ? REMOTE : OWN)).toBe(true);
    await agent.serve({ [OWN]: 'active' }, [REMOTE], sticky);
    expect(Object.keys(await peer.ask('tcp', VIP, 80, 50))).toEqual([other]);
  });

  it('have no error during repeated restarts of the agent', async () => {
    await peer.do('load', { ip: VIP, port: 80, begun: 100 });
    for (let life = 0; life < 5; life++) {
      agent.stop();
      agent = new Process(folder);
      const served = agent.serve({ [OWN]: 'active', [OWN6]: 'active' }, [REMOTE, REMOTE6]);
      await agent.start(cgroup);
      await served;
      expect(agent.kept.status()).toMatchObject({ upserts: 0, deletes: 0 });
    }
    const { errors, connections } = await peer.do('stop');
    expect(errors).toBe(0);
    expect(connections).toBeGreaterThan(100);
  });

  it.each([
    ['IPv4', VIP],
    ['IPv6', VIP6],
  ])(
    'have no error by %s while their maps change size and layout (regression: only after a clean)',
    async (_, vip) => {
      const sizeOf = (name: string): number =>
        JSON.parse(exec('bpftool', '-j', 'map', 'show', 'pinned', `${folder}/${name}`)).max_entries;
      await peer.do('load', { ip: vip, port: 80, begun: 50 });
      for (const capacity of [
        { ...CAPACITY, slots: 8192, backends: 512 },
        { slots: 2048, backends: 128, clients: 2048 },
        CAPACITY,
      ]) {
        agent.stop();
        agent = new Process(folder, capacity);
        const served = agent.serve({ [OWN]: 'active', [OWN6]: 'active' }, [REMOTE, REMOTE6]);
        await agent.start(cgroup);
        await served;
        expect(agent.kept.status()).toMatchObject({ upserts: 0, deletes: 0 });
        expect([sizeOf('services4'), sizeOf('backends6'), sizeOf('peers4')]).toEqual([
          capacity.slots,
          capacity.backends,
          capacity.clients,
        ]);
      }
      // As after a release with other keys: the programs keep using their maps.
      agent.stop();
      for (const family of [4, 6]) {
        unlinkSync(`${folder}/services${family}`);
        exec(
          'bpftool',
          ...`map create ${folder}/services${family} type hash key 8 value 12 entries 5 name services${family} flags 1`.split(
            ' ',
          ),
        );
      }
      agent = new Process(folder);
      expect(agent.pins.hasOtherLayout).toBe(true);
      const served = agent.serve({ [OWN]: 'active', [OWN6]: 'active' }, [REMOTE, REMOTE6]);
      await agent.start(cgroup);
      await served;
      expect([agent.pins.hasOtherLayout, sizeOf('services4')]).toEqual([false, CAPACITY.slots]);
      expect(readdirSync(folder).filter((name) => name.includes('_new'))).toEqual([]);
      await agent.serve({ [OWN]: 'active', [OWN6]: 'active' }, []);
      const { errors, connections } = await peer.do('stop');
      expect(errors).toBe(0);
      expect(connections).toBeGreaterThan(50);
      const own = vip === VIP ? OWN : OWN6;
      expect(await peer.ask('tcp', vip, 80, 50)).toEqual({ [`${own}:8080 as ${vip} 80`]: 50 });
    },
  );

  it('keep the requested addresses of TCP sockets, however many datagrams UDP sends (regression: datagrams evicted them)', async () => {
    expect(await peer.do('hold', { ip: VIP, port: 80 })).toHaveProperty('name');
    const entries = (name: 'peers' | 'datagrams'): number =>
      [...agent.pins.maps[4].maps[name].batches()].reduce((sum, count) => sum + count, 0);
    const before = entries('peers');
    await peer.ask('udp', VIP, 53, 500);
    await peer.ask('connected-udp', VIP, 53, 500);
    expect(entries('peers')).toBe(before);
    expect(entries('datagrams')).toBeGreaterThanOrEqual(900);
  });

  it('are unchanged after the programs are detached', async () => {
    detachSocketPrograms(new Bpf(new Kernel()), folder);
    expect(readdirSync(folder).filter((name) => name.startsWith('socket'))).toEqual([]);
    const counts = await peer.ask('tcp', OWN, 8080, 10);
    expect(counts).toEqual({ [`${OWN}:8080 as ${OWN} 8080`]: 10 });
    await agent.start(cgroup);
  });

  it('stay attached if the programs cannot be attached to another cgroup', () => {
    const before = exec('bpftool', 'cgroup', 'show', cgroup);
    const pinned = readdirSync(folder);
    // Not a cgroup.
    expect(() => agent.attach(folder)).toThrow(/EBADF|EINVAL/);
    expect(readdirSync(folder)).toEqual(pinned);
    expect(exec('bpftool', 'cgroup', 'show', cgroup)).toBe(before);
    expect(before.split('\n').length).toBeGreaterThan(8);
  });

  it('are not attached if a pin is foreign, which is kept', async () => {
    const bpf = new Bpf(new Kernel());
    const pins = scratch.bpffs();
    const group = scratch.cgroup();
    const other = new Process(pins);
    const shown = (): string => exec('bpftool', 'cgroup', 'show', group);
    // Programs of others: by kind, by attach point, and by name.
    const made = (image: ProgramImage, attachType: AttachType): number => {
      const maps = other.pins.descriptors;
      const program = loadProgram(bpf, image, { type: 'cgroupSockAddr', attachType, maps });
      return attachToCgroup(bpf, program, group, attachType);
    };
    const pinned = {
      socket_connect6: () =>
        exec('bpftool', ...`map create ${pins}/socket_connect6 ${FOREIGN_MAP}`.split(' ')),
      socket_connect4: () =>
        pin(
          bpf,
          made({ ...socketRecvmsg4, name: 'socket_connect4' }, 'udp4Sendmsg'),
          `${pins}/socket_connect4`,
        ),
      socket_sendmsg4: () =>
        pin(bpf, made({ ...socketRecvmsg4, name: 'theirs' }, 'udp4Sendmsg'), `${pins}/socket_sendmsg4`),
    };
    for (const [name, pinIt] of Object.entries(pinned)) {
      pinIt();
      const before = shown();
      await expect(other.start(group)).rejects.toThrow(`${pins}/${name} is a foreign BPF object: delete it`);
      expect(shown()).toBe(before);
      detachSocketPrograms(bpf, pins);
      expect(readdirSync(pins).filter((one) => one.startsWith('socket'))).toEqual([name]);
      unlinkSync(`${pins}/${name}`);
    }
    other.stop();
  });

  it('leave their maps for a clean, except a foreign one', () => {
    const pins = `${scratch.bpffs()}/dpcache`;
    mkdirSync(pins);
    const other = new Process(pins);
    other.stop();
    unlinkSync(`${pins}/members6`);
    exec('bpftool', ...`map create ${pins}/members6 ${FOREIGN_MAP}`.split(' '));
    unpinServiceMaps(new Bpf(new Kernel()), pins);
    expect(readdirSync(pins)).toEqual(['members6']);
  });

  it('are loaded without the helper for the reason if the kernel has none (before 5.18)', () => {
    const bpf = new Bpf(new Kernel());
    const other = new Process(scratch.bpffs());
    using host = BpfMap.create(bpf, { type: 'array', keySize: 4, valueSize: 8, maxEntries: 1 }, 'host');
    const maps = new Map([...other.pins.descriptors, ['host', host.fd]]);
    const calls = (code: Uint8Array): number =>
      Array.from({ length: code.length / 8 }, (_, at) => Buffer.from(code).readBigUInt64LE(at * 8)).filter(
        (word) => (word & 0xffffn) === 0x85n && word >> 32n === 187n,
      ).length;
    for (const [image, attachType] of [
      [socketConnect4, 'inet4Connect'],
      [socketConnect6, 'inet6Connect'],
    ] as const) {
      const code = linkImage({ ...image, maps: [] }, new Map());
      const older = withoutHelper(code, 187);
      expect([calls(code) > 0, calls(older), older.length]).toEqual([true, 0, code.length]);
      const replaced = { ...image, code: Buffer.from(older).toString('base64') };
      closeSync(loadProgram(bpf, replaced, { type: 'cgroupSockAddr', attachType, maps }));
    }
    other.stop();
  });

  it('are taken over in another cgroup, even if the first was deleted', async () => {
    const before = scratch.cgroup();
    const pins = scratch.bpffs();
    const other = new Process(pins);
    await other.start(before);
    exec('rmdir', before);
    await other.start(scratch.cgroup());
    other.stop();
    detachSocketPrograms(new Bpf(new Kernel()), pins);
  });
});

/**
 * Two hours before the boot of this machine, which may be less than an hour ago: in ns, as the kernel counts.
 */
const LONG_AGO = BigInt.asUintN(64, -7_200_000_000_000n);

/** Makes all clients appear to have connected long ago. */
function forgetClients({ table }: Process): void {
  const clients = table.families[4].serviceMaps.maps.clients;
  for (const count of clients.batches()) {
    for (let at = 0; at < count; at++) clients.values.view.setBigUint64(at * 16, LONG_AGO, true);
    clients.update(count);
  }
}
