import { readdirSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { assert } from '../../../../src/base/assert.ts';
import { NFT_TABLE } from '../../../../src/datapath/linux/kernel-names.ts';
import { NetlinkSocket } from '../../../../src/datapath/linux/netlink/netlink-socket.ts';
import { NftServices } from '../../../../src/datapath/linux/nftables/nft-services.ts';
import type { ServiceItem } from '../../../../src/datapath/linux/services/desired-services.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import { batch, cable } from '../paths/support/path-network.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';
import { Traffic } from './support/traffic.ts';

const TABLE = NFT_TABLE;
const STEPS = 50;
const REFUSED: ServiceItem = { backends: [], affinitySeconds: 0 };
/** Type of the message at the beginning of a transaction. */
const NFNL_MSG_BATCH_BEGIN = 16;

/** Types of the message with elements of a set in a dump, and of its request. */
const NEW_SET_ELEMENT = 12;
const GET_SET_ELEMENT = 13;
const NFTABLES_SUBSYSTEM = 10;

function isElementMessage(message: Uint8Array): boolean {
  return message[4] === NEW_SET_ELEMENT && message[5] === NFTABLES_SUBSYSTEM;
}

/** Returns the entries; undefined marks the end of a piece. */
function entries(services: NftServices): readonly (readonly [string, ServiceItem])[] {
  return [...services.dump()].filter((entry) => entry !== undefined);
}

describeOnLinux('services in nftables', ['nftables', 'namespaces', 'ip', 'nft', 'ss'], () => {
  let scratch: Scratch;
  let kernel: Kernel;
  let host: Namespace;
  let out: Namespace;
  let services: NftServices;

  beforeAll(() => {
    scratch = new Scratch();
    kernel = new Kernel();
    host = scratch.namespace('host');
    for (const address of ['10.0.0.1/32', '10.0.0.2/32', '10.0.0.3/32', 'fd00::1/128', 'fd00::2/128'])
      host.run('ip', 'address', 'add', address, 'dev', 'lo');
    // Frontends are on no interface, but packets to them need a route.
    out = scratch.namespace('out');
    cable([host, 'eth0', ['192.168.0.1/24', 'fd01::1/64']], [out, 'eth0', ['192.168.0.9/24']]);
    batch(host, ['route add default via 192.168.0.254', '-6 route add default via fd01::fe']);
    host.run('nft', 'add table ip others; add chain ip others mine { type nat hook output priority 0; }');
    services = new NftServices(kernel, host.path);
    expect(entries(services)).toEqual([]);
  });

  // A failed test leaves nothing to the next ones.
  afterEach(() => {
    services.remove();
  });

  afterAll(() => {
    services[Symbol.dispose]();
    kernel[Symbol.dispose]();
    scratch[Symbol.dispose]();
  });

  function set(key: string, backends: readonly string[] | undefined, masquerade = false): void {
    const item = backends && { backends, affinitySeconds: 0, masquerade };
    expect(services.apply([{ key, item }])).toEqual([undefined]);
  }

  /** Returns an item as text, backends and ranges sorted. */
  function printed({ backends, sources, ...rest }: ServiceItem): string {
    return services.print({
      ...rest,
      backends: backends.toSorted(),
      sources: sources && { ...sources, ranges: sources.ranges.toSorted() },
    });
  }

  /** Returns the content as another process reads it, backends sorted. */
  function found(): ReadonlyMap<string, readonly string[]> {
    using other = new NftServices(kernel, host.path);
    return new Map(entries(other).map(([key, { backends }]) => [key, backends.toSorted()]));
  }

  it('close the socket of the events if it cannot be polled (regression: it leaked)', () => {
    using other = new NftServices(kernel, host.path);
    vi.spyOn(NetlinkSocket.prototype, 'onEvents').mockImplementationOnce(() => {
      throw new Error('no poll');
    });
    const openFiles = (): number => readdirSync('/proc/self/fd').length;
    const before = openFiles();
    expect(() => other.follow(() => {})).toThrow('no poll');
    expect(openFiles()).toBe(before);
  });

  it('distribute real connections evenly, send none to a removed backend, and keep connected ones', async () => {
    using traffic = new Traffic(host);
    for (const ip of ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1', 'fd00::2'])
      await traffic.listen({ ip, port: 8080 });
    const all = ['10.0.0.1:8080', '10.0.0.2:8080', '10.0.0.3:8080'];
    const four = { ip: '10.96.0.1', port: 80 };
    set(
      '10.96.0.1:80/TCP',
      all.map((backend) => `${backend}/TCP`),
    );
    set(
      '10.96.0.1:80/UDP',
      all.map((backend) => `${backend}/UDP`),
    );
    for (const protocol of ['tcp', 'udp'] as const) {
      const counts = await traffic.count(four, 900, protocol);
      expect(Object.keys(counts).toSorted()).toEqual(all);
      // 300 each on average, with a standard deviation of 14 (√(900 · ⅓ · ⅔)).
      for (const count of Object.values(counts)) expect(Math.abs(count - 300)).toBeLessThan(75);
    }

    const kept = await traffic.keep(four);
    const rest = all.filter((backend) => backend !== kept);
    set(
      '10.96.0.1:80/TCP',
      rest.map((backend) => `${backend}/TCP`),
    );
    expect(Object.keys(await traffic.count(four, 200)).toSorted()).toEqual(rest);
    expect(await traffic.again(kept)).toBe(kept);

    set('[fd00:96::1]:80/TCP', ['[fd00::1]:8080/TCP', '[fd00::2]:8080/TCP']);
    expect(Object.keys(await traffic.count({ ip: 'fd00:96::1', port: 80 }, 100)).toSorted()).toEqual([
      ...['[fd00::1]:8080', '[fd00::2]:8080'],
    ]);

    set('10.96.0.1:80/TCP', []);
    set('[fd00:96::1]:80/TCP', []);
    expect(await traffic.count(four, 3)).toEqual({ ECONNREFUSED: 3 });
    expect(await traffic.count({ ip: 'fd00:96::1', port: 80 }, 3)).toEqual({ ECONNREFUSED: 3 });
    set('10.96.0.1:80/TCP', [`${kept}/TCP`]);
    expect(await traffic.count(four, 3)).toEqual({ [kept]: 3 });
  });

  it('answer a client outside from its own address, or masqueraded (regression: never masqueraded)', async () => {
    const pod = scratch.namespace('pod');
    cable([host, 'pod', ['10.5.0.1/24']], [pod, 'eth0', ['10.5.0.9/24']]);
    batch(pod, ['route add default via 10.5.0.1']);
    host.run('sysctl', '-qw', 'net.ipv4.ip_forward=1');
    using backend = new Traffic(pod);
    using client = new Traffic(out);
    await backend.listen({ ip: '10.5.0.9', port: 8080 });
    set('192.168.0.1:30080/TCP', ['10.5.0.9:8080/TCP']);
    expect(await client.keep({ ip: '192.168.0.1', port: 30080 })).toBe('10.5.0.9:8080');
    expect(pod.run('ss', '-Htn', 'state', 'established', 'sport', '8080')).toContain('192.168.0.9:');
    // If masqueraded, a backend on another node answers through this host, and so does a pod that is the
    // backend of its own connection.
    set('192.168.0.1:30081/TCP', ['10.5.0.9:8080/TCP'], true);
    expect(await client.keep({ ip: '192.168.0.1', port: 30081 })).toBe('10.5.0.9:8080');
    expect(pod.run('ss', '-Htn', 'state', 'established', 'sport', '8080')).toContain('10.5.0.1:');
    expect(await backend.count({ ip: '192.168.0.1', port: 30081 }, 1)).toEqual({ '10.5.0.9:8080': 1 });
    const shown = (): ServiceItem | undefined => new Map(entries(services)).get('192.168.0.1:30081/TCP');
    const masqueraded = shown();
    expect(masqueraded?.masquerade).toBe(true);
    set('192.168.0.1:30081/TCP', ['10.5.0.9:8080/TCP'], false);
    const plain = shown();
    expect(plain?.masquerade).toBe(false);
    expect(masqueraded && plain && services.equal(masqueraded, plain)).toBe(false);
    set('192.168.0.1:30081/TCP', undefined);
    // If not masqueraded, the pod seems to reply to itself.
    expect(await backend.count({ ip: '192.168.0.1', port: 30080 }, 1, 'tcp', 300)).toEqual({ timeout: 1 });
    set('192.168.0.1:30080/TCP', undefined);
  });

  it('admit only clients in the source ranges, packet by packet (regression: ranges were ignored)', async () => {
    const FOUR = ['192.168.0.9', '192.168.0.10', '10.9.1.1', '10.9.2.1'];
    const SIX = ['fd01::9', 'fd09:1::1', 'fd09:2::1'];
    batch(out, [
      ...['192.168.0.10/32', '10.9.1.1/32', '10.9.2.1/32'].map(
        (address) => `address add ${address} dev eth0`,
      ),
      ...['fd01::9/64', 'fd09:1::1/128', 'fd09:2::1/128'].map(
        (address) => `address add ${address} dev eth0 nodad`,
      ),
      'route add 203.0.113.0/24 via 192.168.0.1',
      '-6 route add fd00:203::/64 via fd01::1',
    ]);
    batch(host, ['route add 10.9.0.0/16 via 192.168.0.9', '-6 route add fd09::/16 via fd01::9']);
    using backend = new Traffic(host);
    using client = new Traffic(out);
    await backend.listen({ ip: '10.0.0.1', port: 8080 });
    await backend.listen({ ip: 'fd00::1', port: 8080 });
    const [four, six] = ['203.0.113.1', 'fd00:203::1'];
    /** Checks that these clients reach the service, which may take long on a busy machine, and that others do not. */
    const expectAdmitted = async (admitted: readonly string[]): Promise<void> => {
      const clients = [...FOUR, ...SIX];
      const counts = await Promise.all(
        clients.map((from) => {
          const place = { ip: from.includes(':') ? six : four, port: 80, from };
          return client.count(place, 1, 'tcp', admitted.includes(from) ? undefined : 500);
        }),
      );
      expect(clients.filter((_, at) => counts[at]?.['timeout'] === undefined)).toEqual(admitted);
    };
    const limit = (policy: 'allow' | 'deny', ...ranges: readonly string[]): void => {
      for (const [key, ip, isSix] of [
        [`${four}:80/TCP`, '10.0.0.1:8080/TCP', false],
        [`[${six}]:80/TCP`, '[fd00::1]:8080/TCP', true],
      ] as const) {
        const sources = { policy, ranges: ranges.filter((range) => range.includes(':') === isSix) };
        const item = { backends: [ip], affinitySeconds: 0, sources };
        expect(services.apply([{ key, item }])).toEqual([undefined]);
        expect(services.equal(new Map(entries(services)).get(key) ?? REFUSED, item)).toBe(true);
      }
    };

    set(`${four}:80/TCP`, ['10.0.0.1:8080/TCP']);
    set(`[${six}]:80/TCP`, ['[fd00::1]:8080/TCP']);
    await expectAdmitted([...FOUR, ...SIX]);
    limit('allow', '10.9.1.0/24', '192.168.0.10/32', 'fd09:1::/32', 'fd01::9/128');
    await expectAdmitted(['192.168.0.10', '10.9.1.1', 'fd01::9', 'fd09:1::1']);
    // Processes of the host, and frontends without ranges, are not limited.
    expect(await backend.count({ ip: four, port: 80 }, 1)).toEqual({ '10.0.0.1:8080': 1 });
    set('203.0.113.2:80/TCP', ['10.0.0.1:8080/TCP']);
    expect(await client.count({ ip: '203.0.113.2', port: 80 }, 1)).toEqual({ '10.0.0.1:8080': 1 });
    // Also if the backend has the address and port of the frontend (regression: dropped at `lo`).
    await backend.listen({ ip: '192.168.0.1', port: 8090 });
    const itself = {
      backends: ['192.168.0.1:8090/TCP'],
      affinitySeconds: 0,
      sources: { policy: 'allow', ranges: ['10.9.1.0/24'] },
    } as const;
    services.apply([{ key: '192.168.0.1:8090/TCP', item: itself }]);
    const own = { ip: '192.168.0.1', port: 8090 };
    expect(await backend.count(own, 1)).toEqual({ '192.168.0.1:8090': 1 });
    expect(await client.count({ ...own, from: '192.168.0.9' }, 1, 'tcp', 500)).toEqual({ timeout: 1 });
    using lasting = new Traffic(out);
    const kept = await lasting.keep({ ip: four, port: 80, from: '10.9.1.1' });
    limit('deny', '10.9.1.0/24', '192.168.0.10/32', 'fd09:1::/32', 'fd01::9/128');
    const answer = lasting.again(kept);
    // As in Cilium, the packets of open connections are dropped, too: the clients time out before the answer.
    expect(await Promise.race([answer, expectAdmitted(['192.168.0.9', '10.9.2.1', 'fd09:2::1'])])).toBe(
      undefined,
    );
    limit('allow', '10.9.0.0/16', '10.9.1.0/24', '0.0.0.0/1', 'fd09:1::1/128', 'fd09:2::/33');
    await expectAdmitted(['10.9.1.1', '10.9.2.1', 'fd09:1::1', 'fd09:2::1']);
    expect(await answer).toBe(kept);
    limit('allow', '0.0.0.0/0');
    await expectAdmitted(FOUR);
    limit('deny');
    await expectAdmitted([...FOUR, ...SIX]);
    limit('allow');
    await expectAdmitted([]);
    set(`${four}:80/TCP`, ['10.0.0.1:8080/TCP']);
    await expectAdmitted(FOUR);
    for (const key of found().keys()) set(key, undefined);
    expect(host.run('nft', 'list', 'tables')).toBe('table ip others\n');
  });

  it('are read by the next process as written after random changes', () => {
    const key = fc.constantFrom(
      '10.96.0.1:80/TCP',
      '10.96.0.2:80/UDP',
      '[fd00:96::1]:443/TCP',
      '[fd00:96::2]:80/SCTP',
    );
    const sources = fc.tuple(
      fc.constantFrom('allow' as const, 'deny' as const),
      fc.subarray([
        '0.0.0.0/0',
        '10.0.0.0/8',
        '10.0.0.0/24',
        '10.0.0.7/32',
        'fd00::/8',
        'fd00::/64',
        'fd00::7/128',
      ]),
    );
    const change = fc.tuple(
      key,
      fc.option(fc.uniqueArray(fc.integer({ min: 1, max: 12 }), { maxLength: 8 })),
      fc.option(sources),
    );
    const runs = Math.ceil(Math.max(fc.readConfigureGlobal().numRuns ?? 0, 1_000) / STEPS);
    fc.assert(
      fc.property(
        fc.array(change, { minLength: STEPS, maxLength: STEPS, size: 'max' }),
        fc.nat(),
        (changes, cut) => {
          const model = new Map<string, string>();
          const all = changes.map(([key, numbers, limit]) => {
            const [, protocol = ''] = key.split('/');
            const isSix = key.startsWith('[');
            const backends = numbers?.map(
              (n) => `${isSix ? `[fd00::${n}]` : `10.0.0.${n}`}:8080/${protocol}`,
            );
            const ranges = limit?.[1].filter((range) => range.includes(':') === isSix) ?? [];
            const item = backends && {
              backends,
              affinitySeconds: 0,
              sources: limit === null ? undefined : { policy: limit[0], ranges },
            };
            return { key, item };
          });
          // Some together, as a chunk of the reconciler, in which each key occurs once; the others one by
          // one.
          const once = new Map(all.slice(0, cut % STEPS).map((one) => [one.key, one]));
          expect(services.apply([...once.values()]).filter(Boolean)).toEqual([]);
          for (const one of all.slice(cut % STEPS)) expect(services.apply([one])).toEqual([undefined]);
          for (const { key, item } of all) {
            if (item === undefined) model.delete(key);
            else model.set(key, printed(item));
          }
          using other = new NftServices(kernel, host.path);
          expect(new Map(entries(other).map(([key, item]) => [key, printed(item)]))).toEqual(model);
          for (const key of model.keys()) set(key, undefined);
          expect(found()).toEqual(new Map());
        },
      ),
      { numRuns: runs },
    );
    expect(host.run('nft', 'list', 'tables')).toBe('table ip others\n');
  });

  it('can be loaded again as `nft list ruleset` prints them (regression: datatype mismatch)', () => {
    const four = ['10.0.0.1:8080/TCP', '10.0.0.2:8080/TCP'];
    set('10.96.0.1:80/TCP', four, true);
    set('10.96.0.1:53/UDP', ['10.0.0.1:5353/UDP']);
    set('10.96.0.1:0/ANY', []);
    set('[fd00:96::1]:80/SCTP', ['[fd00::1]:8080/SCTP']);
    set('[fd00:96::1]:81/TCP', []);
    const sources = { policy: 'allow', ranges: ['fd00::/8', 'fd09::9/128', '::/0'] } as const;
    services.apply([{ key: '[fd00:96::1]:81/TCP', item: { ...REFUSED, sources } }]);
    const before = found();
    const saved = host.run('nft', 'list', 'ruleset');
    const path = join(scratch.folder(), 'ruleset');
    writeFileSync(path, `flush ruleset\n${saved}`);
    host.run('nft', '-f', path);
    expect(host.run('nft', 'list', 'ruleset')).toBe(saved);
    expect([before.size, found()]).toEqual([5, before]);
  });

  it('are compared with their rules, chains and sets, and repaired (regression: diff found nothing after a flush)', () => {
    const KEY = '10.96.0.1:80/TCP';
    const RULES = `rules of ip ${TABLE}`;
    const backends = ['10.0.0.1:8080/TCP', '10.0.0.2:8080/TCP'];
    const damages: readonly (readonly [string, string])[] = [
      [`flush chain ip ${TABLE} output`, 'chain output: found 0 rules, expected 1'],
      [`flush chain ip ${TABLE} pick-2`, 'chain pick-2: found 0 rules, expected 3'],
      [`delete chain ip ${TABLE} postrouting`, 'chain postrouting is missing'],
      [`add rule ip ${TABLE} refuse-input drop`, 'chain refuse-input: found 3 rules, expected 2'],
      [`add chain ip ${TABLE} foreign`, 'chain foreign is foreign'],
      [
        `flush chain ip ${TABLE} prerouting; add rule ip ${TABLE} prerouting ip daddr . meta l4proto . th sport vmap @services`,
        'chain prerouting: rule 1 was changed',
      ],
    ];
    set(KEY, backends);
    const whole = host.run('nft', 'list', 'ruleset');
    for (const [damage, words] of damages) {
      host.run('nft', damage);
      const seen = new Map(entries(services));
      expect(seen.get(RULES)?.backends).toEqual([words]);
      expect(seen.get(KEY)?.backends).toEqual(backends);
      expect(services.apply([{ key: RULES, item: undefined }])).toEqual([undefined]);
      expect(found()).toEqual(new Map([[KEY, backends]]));
    }
    expect(host.run('nft', 'list', 'ruleset').split('\n').sort()).toEqual(whole.split('\n').sort());
    // A damaged table is repaired before an item is written.
    host.run('nft', `flush table ip ${TABLE}; delete map ip ${TABLE} backends-udp`);
    expect(new Map(entries(services)).get(RULES)?.backends).toContain('set backends-udp is missing');
    set('10.96.0.1:81/TCP', backends);
    set('10.96.0.1:81/TCP', undefined);
    expect(found()).toEqual(new Map([[KEY, backends]]));
    // A table of the former layout is extended. Its services are kept.
    host.run(
      'nft',
      `delete chain ip ${TABLE} sources; delete map ip ${TABLE} limited; delete chain ip ${TABLE} layout-3; add chain ip ${TABLE} layout-2`,
    );
    expect(new Map(entries(services)).get(KEY)?.backends).toEqual(backends);
    const sources = { policy: 'allow', ranges: ['10.0.0.0/8'] } as const;
    expect(services.apply([{ key: KEY, item: { backends, affinitySeconds: 0, sources } }])).toEqual([
      undefined,
    ]);
    const list = (): string => host.run('nft', 'list', 'table', 'ip', TABLE);
    expect(list()).toMatch(/10\.96\.0\.1 \. tcp \. 80 : goto admit-8/);
    expect(list()).toMatch(/chain layout-3/);
    expect(new Map(entries(services)).get(RULES)?.backends).toEqual(['chain layout-2 is foreign']);
    expect(services.apply([{ key: RULES, item: undefined }])).toEqual([undefined]);
    expect(list()).not.toContain('layout-2');
    set(KEY, backends);
    // If damage to a table cannot be repaired, the table is created again.
    for (const damage of [`add set ip ${TABLE} from-9 { type ipv4_addr; }`, `delete table ip ${TABLE}`]) {
      host.run('nft', damage);
      expect(entries(services)).toEqual([]);
      set(KEY, backends);
      expect(found()).toEqual(new Map([[KEY, backends]]));
    }
    // Removed elements are noticed as before.
    host.run('nft', `flush map ip ${TABLE} services`);
    expect(found().get(KEY)).toEqual(['', ...backends]);
    expect(entries(services)).toHaveLength(1);
    set(KEY, backends);
    expect(found()).toEqual(new Map([[KEY, backends]]));
    set(KEY, undefined);
  });

  it('are written although a foreign chain cannot be deleted (regression: EBUSY for each service)', () => {
    const RULES = { key: `rules of ip ${TABLE}`, item: undefined };
    const backends = ['10.0.0.1:8080/TCP'];
    set('10.96.0.1:80/TCP', backends);
    host.run(
      'nft',
      `add chain ip ${TABLE} a; add chain ip ${TABLE} b; add rule ip ${TABLE} b jump a; flush chain ip ${TABLE} output; add map ip ${TABLE} m { type ipv4_addr : verdict; elements = { 10.0.0.1 : goto a } }`,
    );
    expect(entries(services)).toHaveLength(2);
    set('10.96.0.2:80/TCP', backends);
    set('10.96.0.1:80/TCP', undefined);
    host.run('nft', `flush chain ip ${TABLE} output`);
    expect(services.apply([RULES]).map((error) => error?.code)).toEqual(['EBUSY']);
    expect(new Map(entries(services)).get(RULES.key)?.backends).toEqual([
      'chain a is foreign',
      'chain b is foreign',
    ]);
    host.run('nft', `delete map ip ${TABLE} m`);
    expect(services.apply([RULES])).toEqual([undefined]);
    expect(found()).toEqual(new Map([['10.96.0.2:80/TCP', backends]]));
    set('10.96.0.2:80/TCP', undefined);
  });

  it('find chains and sets of leading zeros foreign (regression: pick-07 was reported as a missing pick-7)', () => {
    const key = '10.96.0.1:80/TCP';
    const item = { backends: ['10.0.0.1:8080/TCP'], affinitySeconds: 0 };
    services.apply([{ key, item }]);
    const type = 'type ipv4_addr . inet_proto . inet_service . ipv4_addr;';
    host.run(
      'nft',
      `add chain ip ${TABLE} pick-07; add chain ip ${TABLE} admit-08; add set ip ${TABLE} from-08 { ${type} elements = { 10.96.0.1 . tcp . 80 . 10.0.0.0 } }`,
    );
    expect(entries(services)).toEqual([
      [
        `rules of ip ${TABLE}`,
        { backends: ['chain pick-07 is foreign', 'chain admit-08 is foreign'], affinitySeconds: 0 },
      ],
      [key, { ...item, masquerade: false }],
    ]);
  });

  it('keep no chain that no service uses (regression: one for each number of backends ever used)', () => {
    const picks = (): readonly string[] =>
      [...host.run('nft', 'list', 'chains', 'ip').matchAll(/chain (pick-\d+)/g)].map(([, name = '']) => name);
    for (let count = 1; count <= 5; count++) {
      set(
        '10.96.0.1:80/TCP',
        Array.from({ length: count }, (_, at) => `10.0.0.${at + 1}:80/TCP`),
      );
      expect(picks()).toEqual([`pick-${count}`]);
    }
    set('10.96.0.2:80/TCP', ['10.0.0.1:80/TCP']);
    expect([...picks()].sort()).toEqual(['pick-1', 'pick-5']);
    set('10.96.0.1:80/TCP', []);
    expect(picks()).toEqual(['pick-1']);
  });

  it('keep a chain that a foreign rule uses, and delete it after that rule (regression: forgotten, then doubled)', () => {
    const [one, two] = ['10.0.0.1:80/TCP', '10.0.0.2:80/TCP'];
    const picks = (): readonly string[] =>
      [...host.run('nft', 'list', 'chains', 'ip').matchAll(/chain (pick-\d+)/g)].map(([, name = '']) => name);
    set('10.96.0.1:80/TCP', [one, two]);
    host.run('nft', `add chain ip ${TABLE} foreign; add rule ip ${TABLE} foreign goto pick-2`);
    set('10.96.0.1:80/TCP', [one]);
    expect([...picks()].sort()).toEqual(['pick-1', 'pick-2']);
    host.run('nft', `flush chain ip ${TABLE} foreign; delete chain ip ${TABLE} foreign`);
    set('10.96.0.1:80/TCP', [one, two]);
    // A doubled rule would be a defect, which is read like a service.
    expect([...found().keys()]).toEqual(['10.96.0.1:80/TCP']);
    set('10.96.0.1:80/TCP', [one]);
    expect(picks()).toEqual(['pick-1']);
  });

  it('that are added together with equally many backends share a chain with its rules once', () => {
    const backends = ['10.0.0.1:80/TCP', '10.0.0.2:80/TCP'];
    const keys = ['10.96.0.1:80/TCP', '10.96.0.2:80/TCP', '10.96.0.3:80/TCP'];
    const all = keys.map((key) => ({ key, item: { backends, affinitySeconds: 0 } }));
    expect(services.apply(all)).toEqual([undefined, undefined, undefined]);
    // A rule that is there twice would be a defect, which is read like a service.
    expect(found()).toEqual(new Map(keys.map((key) => [key, backends])));
  });

  it('are read despite an element with a foreign slot, which is deleted (regression: no memory left)', () => {
    set('10.96.0.1:80/TCP', ['10.0.0.1:80/TCP']);
    const slot = '10.96.0.1 . 80 . 4294967295 : 10.0.0.9 . 80';
    host.run('nft', `add element ip ${TABLE} backends-tcp { ${slot} }`);
    expect(entries(services)).toEqual([
      ['10.96.0.1:80/TCP', expect.objectContaining({ backends: ['', '10.0.0.1:80/TCP'] })],
    ]);
    set('10.96.0.1:80/TCP', ['10.0.0.1:80/TCP']);
    expect(found()).toEqual(new Map([['10.96.0.1:80/TCP', ['10.0.0.1:80/TCP']]]));
    set('10.96.0.1:80/TCP', undefined);
  });

  it('are written despite foreign elements with their keys, which are deleted (regression: ENOENT for ever)', () => {
    const key = '10.96.0.1:80/TCP';
    const foreign = (set: string, verdict = ''): unknown =>
      host.run('nft', `add element ip ${TABLE} ${set} { 10.96.0.1 . tcp . 80${verdict} }`);
    set('10.96.0.2:80/TCP', ['10.0.0.1:80/TCP']);
    for (const verdict of [' : accept', ' : goto layout-3', ' : goto pick-0']) {
      if (verdict.includes('pick')) host.run('nft', `add chain ip ${TABLE} pick-0`);
      foreign('services', verdict);
      expect(entries(services).map(([name]) => name)).toContain(key);
      set(key, undefined);
      expect(found().has(key)).toBe(false);
      foreign('services', verdict);
      entries(services);
      set(key, ['10.0.0.2:80/TCP']);
      expect(found().get(key)).toEqual(['10.0.0.2:80/TCP']);
      set(key, undefined);
    }
    set(key, ['10.0.0.2:80/TCP']);
    foreign('refused');
    expect(new Map(entries(services)).get(key)?.backends).not.toEqual(['10.0.0.2:80/TCP']);
    set(key, ['10.0.0.2:80/TCP', '10.0.0.3:80/TCP']);
    expect(found().get(key)).toEqual(['10.0.0.2:80/TCP', '10.0.0.3:80/TCP']);
  });

  it('are read despite foreign sets and elements of ranges (regression: invalid prefix, then ENOENT)', () => {
    const key = '10.96.0.1:80/TCP';
    const item = { backends: ['10.0.0.1:80/TCP'], affinitySeconds: 0 };
    const sources = { policy: 'allow', ranges: ['10.0.0.0/8'] } as const;
    services.apply([{ key, item: { ...item, sources } }]);
    const type = 'type ipv4_addr . inet_proto . inet_service . ipv4_addr;';
    host.run(
      'nft',
      `add set ip ${TABLE} from-64 { ${type} elements = { 10.96.0.1 . tcp . 80 . 10.0.0.0 } }; add set ip ${TABLE} from-a { type ipv4_addr; }; add element ip ${TABLE} from-8 { 10.96.0.1 . tcp . 80 . 10.1.2.3 }`,
    );
    expect(entries(services).map(([name]) => name)).toEqual([key]);
    expect(services.apply([{ key, item: { ...item, sources } }])).toEqual([undefined]);
    expect(found()).toEqual(new Map([[key, item.backends]]));
    expect(host.run('nft', 'list', 'set', 'ip', TABLE, 'from-8')).not.toContain('10.1.2.3');
  });

  it('may have more backends than fit in a transaction', () => {
    const backends = Array.from({ length: 3_000 }, (_, at) => `10.1.${at >> 8}.${at & 255}:80/TCP`);
    set('10.96.0.9:80/TCP', backends);
    expect(found().get('10.96.0.9:80/TCP')).toEqual(backends.toSorted());
    set('10.96.0.9:80/TCP', backends.slice(1));
    expect(found().get('10.96.0.9:80/TCP')).toEqual(backends.slice(1).toSorted());
    set('10.96.0.9:80/TCP', undefined);
    expect(found()).toEqual(new Map());
  });

  it('keep a backend in each slot between the transactions of a change (regression: empty slots)', () => {
    const key = '10.96.0.9:80/TCP';
    const first = Array.from({ length: 2_000 }, (_, at) => `10.1.${at >> 8}.${at & 255}:80/TCP`);
    const second = first.map((backend) => backend.replace('10.1.', '10.2.'));
    let [transactions, checked] = [0, 0];
    class CheckedKernel extends Kernel {
      keys: readonly string[] = [];

      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        const sent = super.send(fd, message, to);
        const isTransaction = message[4] === NFNL_MSG_BATCH_BEGIN && message[5] === 0;
        if (!isTransaction) return sent;
        transactions++;
        if (this.keys.length === 0) return sent;
        checked++;
        using other = new NftServices(kernel, host.path);
        const written = new Map(entries(other));
        for (const one of this.keys) {
          expect(written.has(one), `transaction ${transactions} removed ${one}`).toBe(true);
          expect(written.get(one)?.backends, `transaction ${transactions} left an empty slot`).not.toContain(
            '',
          );
        }
        return sent;
      }
    }
    using watched = new CheckedKernel();
    using writer = new NftServices(watched, host.path);
    entries(writer);
    const write = (backends: readonly string[]): void =>
      expect(writer.apply([{ key, item: { backends, affinitySeconds: 0 } }])).toEqual([undefined]);
    write(first);
    watched.keys = [key];
    write(second);
    expect(checked).toBeGreaterThan(1);
    watched.keys = [];
    expect(writer.apply([{ key, item: undefined }])).toEqual([undefined]);
  });

  it('are read completely while the kernel resizes a set (regression: elements repeated instead of others)', () => {
    const key = '203.0.113.9:80/TCP';
    const ranges = Array.from({ length: 4_500 }, (_, at) => `10.1.${at >> 8}.${at & 255}/32`);
    const item: ServiceItem = { ...REFUSED, sources: { policy: 'allow', ranges } };
    expect(services.apply([{ key, item }])).toEqual([undefined]);
    let repeated = 0;
    let former: Uint8Array = new Uint8Array();
    // Returns a message of elements twice instead of the next one, as the kernel does after a resize between both.
    class ResizingKernel extends Kernel {
      override receive(fd: number): Uint8Array | undefined {
        const received = super.receive(fd);
        const isPart = received !== undefined && isElementMessage(received) && received.length > 10_000;
        if (isPart && repeated === 0 && former.length > 0) {
          repeated++;
          return former;
        }
        former = isPart ? received : new Uint8Array();
        return received;
      }
    }
    using resizing = new ResizingKernel();
    using reader = new NftServices(resizing, host.path);
    const read = new Map(entries(reader)).get(key);
    expect(repeated).toBe(1);
    expect(read?.sources?.ranges.toSorted()).toEqual(ranges.toSorted());
  });

  it('never admit a client that the former and the new ranges exclude, also between transactions', () => {
    const key = '203.0.113.9:80/TCP';
    const ranges = (part: number): readonly string[] =>
      Array.from({ length: 1_500 }, (_, at) => `10.${part}.${at >> 8}.${at & 255}/32`);
    const [none, both, before, after] = ['10.0.0.1/32', ...[1, 2, 3].map((part) => ranges(part)[700] ?? '')];
    const clients = [none, both, before, after] as readonly string[];
    type Sources = NonNullable<ServiceItem['sources']>;
    const admits = (item: ServiceItem | undefined, client: string): boolean =>
      item !== undefined &&
      (item.sources === undefined ||
        item.sources.ranges.includes(client) === (item.sources.policy === 'allow'));
    let [checked, onChange] = [0, (): void => {}];
    class CheckedKernel extends Kernel {
      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        const sent = super.send(fd, message, to);
        if (message[4] === NFNL_MSG_BATCH_BEGIN && message[5] === 0) onChange();
        return sent;
      }
    }
    using watched = new CheckedKernel();
    using writer = new NftServices(watched, host.path);
    entries(writer);
    const item = (sources: Sources | undefined): ServiceItem => ({ ...REFUSED, sources });
    const write = (sources: Sources | undefined): void =>
      expect(writer.apply([{ key, item: item(sources) }])).toEqual([undefined]);
    const first = [...ranges(1), ...ranges(2)];
    const second = [...ranges(1), ...ranges(3)];
    const states: readonly (Sources | undefined)[] = [
      undefined,
      ...(['allow', 'deny', 'allow'] as const).flatMap((policy) => [
        { policy, ranges: first },
        { policy, ranges: second },
      ]),
      undefined,
    ];
    write(states[0]);
    for (const [at, next] of states.slice(1).entries()) {
      const former = states[at];
      onChange = () => {
        checked++;
        using other = new NftServices(kernel, host.path);
        const seen = new Map(entries(other)).get(key);
        for (const client of clients) {
          const may = admits(item(former), client) || admits(item(next), client);
          const must = admits(item(former), client) && admits(item(next), client);
          if (!may) expect(admits(seen, client), `${client} is admitted`).toBe(false);
          if (must && former?.policy === next?.policy) expect(admits(seen, client), `${client}`).toBe(true);
        }
      };
      write(next);
      onChange = () => {};
    }
    expect(checked).toBeGreaterThan(2 * states.length);
    expect(writer.apply([{ key, item: undefined }])).toEqual([undefined]);
  });

  it('never admit clients of ranges that a killed process left without a frontend', () => {
    const key = '203.0.113.9:80/TCP';
    const left = Array.from({ length: 4_500 }, (_, at) => `10.1.${at >> 8}.${at & 255}/32`);
    const limited = (ranges: readonly string[]): ServiceItem => ({
      ...REFUSED,
      sources: { policy: 'allow', ranges },
    });
    let onChange = (_sent: number): void => {};
    let sent = 0;
    class KilledKernel extends Kernel {
      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        const result = super.send(fd, message, to);
        if (message[4] === NFNL_MSG_BATCH_BEGIN && message[5] === 0) onChange(++sent);
        return result;
      }
    }
    using killed = new KilledKernel();
    using writer = new NftServices(killed, host.path);
    entries(writer);
    onChange = (count) => {
      if (count === 3) throw new Error('killed');
    };
    expect(() => writer.apply([{ key, item: limited(left) }])).toThrow('killed');
    const rangesIn = (list: string): number => list.match(/10\.1\./g)?.length ?? 0;
    const set32 = (): string => host.run('nft', 'list', 'set', 'ip', TABLE, 'from-32');
    expect(rangesIn(set32())).toBeGreaterThan(0);
    using next = new NftServices(killed, host.path);
    entries(next);
    let checked = 0;
    onChange = () => {
      checked++;
      const isLimited = host.run('nft', 'list', 'map', 'ip', TABLE, 'limited').includes('203.0.113.9');
      if (isLimited) expect(rangesIn(set32())).toBe(0);
    };
    expect(next.apply([{ key, item: limited(['10.0.0.1/32', '10.3.0.0/16']) }])).toEqual([undefined]);
    expect(checked).toBeGreaterThan(1);
    onChange = () => {};
    expect(next.apply([{ key, item: undefined }])).toEqual([undefined]);
    // Nor if this process continues after a failed transaction, before it reads the table again.
    sent = 0;
    onChange = (count) => {
      if (count === 3) throw new SyscallError('sendto', constants.errno.ENOBUFS);
    };
    expect(next.apply([{ key, item: limited(left) }])[0]?.code).toBe('ENOBUFS');
    onChange = () => {};
    expect(next.apply([{ key, item: limited(['10.0.0.1/32', '10.3.0.0/16']) }])).toEqual([undefined]);
    expect(rangesIn(set32())).toBe(0);
    expect(next.apply([{ key, item: undefined }])).toEqual([undefined]);
  });

  it('are not open to all clients if their ranges cannot be written', () => {
    let full = 'from-32';
    class FullKernel extends Kernel {
      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        const isTransaction = message[4] === NFNL_MSG_BATCH_BEGIN;
        if (isTransaction && Buffer.from(message).includes(full))
          throw new SyscallError('sendto', constants.errno.ENOBUFS);
        return super.send(fd, message, to);
      }
    }
    using refusing = new FullKernel();
    using writer = new NftServices(refusing, host.path);
    entries(writer);
    const [open, added, other] = ['203.0.113.1:80/TCP', '203.0.113.2:80/TCP', '203.0.113.3:80/TCP'];
    const item = { backends: ['10.0.0.1:80/TCP'], affinitySeconds: 0 };
    const sources = { policy: 'allow', ranges: ['10.0.0.1/32'] } as const;
    expect(writer.apply([{ key: open, item }])).toEqual([undefined]);
    const outcomes = writer.apply([
      { key: open, item: { ...item, sources } },
      { key: added, item: { ...item, sources } },
      { key: other, item },
    ]);
    expect(outcomes.map((error) => error?.code)).toEqual(['ENOBUFS', 'ENOBUFS', undefined]);
    expect([...found().keys()]).toEqual([other]);
    // Nor if a table of the former layout cannot be extended (regression: open while the kernel had no memory).
    expect(writer.apply([{ key: open, item }])).toEqual([undefined]);
    host.run('nft', `delete chain ip ${TABLE} sources; delete map ip ${TABLE} limited`);
    full = 'limited';
    expect(entries(writer)).toHaveLength(3);
    const [error] = writer.apply([{ key: open, item: { ...item, sources } }]);
    expect([error?.code, found().has(open), found().has(other)]).toEqual(['ENOBUFS', false, true]);
  });

  it('fail one by one, without a read of the elements in the same turn (regression: of all, after each failed change)', () => {
    let reads = 0;
    class CountingKernel extends Kernel {
      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        if (message[4] === GET_SET_ELEMENT && message[5] === NFTABLES_SUBSYSTEM) reads++;
        return super.send(fd, message, to);
      }
    }
    using counting = new CountingKernel();
    using writer = new NftServices(counting, host.path);
    let requests = 0;
    writer.follow(() => requests++);
    const item = (...backends: readonly string[]) => ({ backends, affinitySeconds: 0 });
    expect(writer.apply([{ key: '10.96.0.1:80/TCP', item: item('10.0.0.1:80/TCP') }])).toEqual([undefined]);
    // Unknown to the writer, so that adding them fails.
    const unknown = ['10.96.0.2:80/TCP', '10.96.0.3:80/TCP'];
    expect(entries(services)).toHaveLength(1);
    services.apply(unknown.map((key) => ({ key, item: item('10.0.0.2:80/TCP') })));
    const changes = [...unknown, '10.96.0.4:80/TCP'].map((key) => ({
      key,
      item: item('10.0.0.3:80/TCP', '10.0.0.4:80/TCP'),
    }));
    const before = reads;
    expect(writer.apply(changes).map((error) => error?.code)).toEqual(['EEXIST', 'EEXIST', undefined]);
    expect([reads - before, requests]).toEqual([0, 2]);
    // A key that fails again requests no other read, which would find the same.
    const [failed] = changes;
    assert(failed !== undefined, 'there is a change');
    expect(writer.apply([{ ...failed, isRetry: true }])[0]?.code).toBe('EEXIST');
    expect([reads - before, requests]).toEqual([0, 2]);
    expect(entries(writer)).toHaveLength(4);
    expect(writer.apply(changes)).toEqual([undefined, undefined, undefined]);
    expect([...found().values()].map(({ length }) => length).sort()).toEqual([1, 2, 2, 2]);
    // A key that fails after a success requests a read again.
    expect(entries(services)).toHaveLength(4);
    const [first = ''] = unknown;
    const third = (ip: string) => [{ key: first, item: item('10.0.0.3:80/TCP', '10.0.0.4:80/TCP', ip) }];
    expect(services.apply(third('10.0.0.5:80/TCP'))).toEqual([undefined]);
    expect(writer.apply(third('10.0.0.6:80/TCP'))[0]?.code).toBe('EEXIST');
    expect(requests).toBe(3);
  });

  it('leave no table if the last one is deleted beside a failed change (regression: it stayed, empty)', () => {
    class FullKernel extends Kernel {
      override send(fd: number, message: Uint8Array, to: Uint8Array): number {
        if (message[4] === NFNL_MSG_BATCH_BEGIN && Buffer.from(message).includes('pick-2'))
          throw new SyscallError('sendto', constants.errno.ENOBUFS);
        return super.send(fd, message, to);
      }
    }
    using full = new FullKernel();
    using writer = new NftServices(full, host.path);
    entries(writer);
    const item = { backends: ['10.0.0.1:80/TCP'], affinitySeconds: 0 };
    const [last, added] = ['10.96.0.1:80/TCP', '10.96.0.2:80/TCP'];
    expect(writer.apply([{ key: last, item }])).toEqual([undefined]);
    const outcomes = writer.apply([
      { key: last, item: undefined },
      { key: added, item: { ...item, backends: ['10.0.0.1:80/TCP', '10.0.0.2:80/TCP'] } },
    ]);
    expect(outcomes.map((error) => error?.code)).toEqual([undefined, 'ENOBUFS']);
    expect(host.run('nft', 'list', 'tables')).not.toContain(`table ip ${TABLE}`);
  });

  it('are written again if another program deletes the table', () => {
    set('10.96.0.1:80/TCP', ['10.0.0.1:80/TCP']);
    host.run('nft', 'delete', 'table', 'ip', TABLE);
    expect(
      services.apply([{ key: '10.96.0.3:80/TCP', item: { backends: [], affinitySeconds: 0 } }])[0]?.code,
    ).toBe('ENOENT');
    set('10.96.0.3:80/TCP', []);
    expect(found()).toEqual(new Map([['10.96.0.3:80/TCP', []]]));
  });

  it('leave foreign rules unchanged, and nothing of their own after a removal', () => {
    set('10.96.0.1:80/TCP', ['10.0.0.1:80/TCP']);
    set('[fd00:96::1]:80/TCP', []);
    services.remove();
    expect(host.run('nft', 'list', 'tables')).toBe('table ip others\n');
    expect(host.run('nft', 'list', 'table', 'ip', 'others')).toContain('chain mine');
  });

  it('stay after a read that failed (regression: the next write deleted the table, because it knew no frontend)', () => {
    set('10.96.0.7:80/TCP', ['10.0.0.1:81/TCP']);
    const before = entries(services);
    {
      using _socket = vi.spyOn(kernel, 'socket').mockImplementationOnce(() => {
        throw new SyscallError('socket', constants.errno.EMFILE);
      });
      expect(() => entries(services)).toThrow('EMFILE');
    }
    set('10.96.0.8:80/TCP', undefined);
    expect(entries(services)).toEqual(before);
  });

  it('are read again after a large change that failed and a read that failed, too (regression: not before the next repair of all)', () => {
    const onChange = vi.fn();
    const backends = Array.from({ length: 3_000 }, (_, at) => `10.1.${at >> 8}.${at & 255}:80/TCP`);
    const change = { key: '10.96.0.9:80/TCP', item: { backends, affinitySeconds: 0 } };
    set('10.96.0.8:80/TCP', ['10.0.0.1:81/TCP']);
    using followed = new NftServices(kernel, host.path);
    expect(entries(followed).length).toBe(1);
    followed.follow(onChange);
    {
      using _transact = vi
        .spyOn(NetlinkSocket.prototype, 'transact')
        .mockImplementation(() => [new SyscallError('add elements', constants.errno.ENOBUFS)]);
      using _dump = vi.spyOn(NetlinkSocket.prototype, 'dump').mockImplementation(() => {
        throw new SyscallError('recvfrom', constants.errno.ENOMEM);
      });
      expect(() => followed.apply([change])).toThrow('ENOMEM');
    }
    expect(onChange).toHaveBeenCalledOnce();
  });
});
