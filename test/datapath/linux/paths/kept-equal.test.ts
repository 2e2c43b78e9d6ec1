import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { NLM_F } from '../../../../src/datapath/linux/netlink/message-writer.ts';
import type { NetlinkSocket } from '../../../../src/datapath/linux/netlink/netlink-socket.ts';
import {
  type Route,
  RTM_ROUTE,
  readRoute,
  routeDump,
  writeRoute,
} from '../../../../src/datapath/linux/netlink/route.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import type { Node } from '../../../../src/nodemanager/node.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';
import { expectedRoutes, type ModelNode } from './support/naive-paths.ts';
import { cable, DEVICE, internal, node, PathsUnderTest } from './support/path-network.ts';

const STEPS = 50;
const CIDRS = [1, 2, 3, 4, 5, 6].flatMap((at) => [`10.${at}.0.0/24`, `fd00:${at}::/64`]);

type Step =
  | { readonly kind: 'set'; readonly node: ModelNode }
  | { readonly kind: 'delete'; readonly name: string }
  | { readonly kind: 'hand-delete' | 'hand-change' | 'hand-encap'; readonly at: number }
  | { readonly kind: 'hand-stray'; readonly octet: number }
  | { readonly kind: 'hand-device'; readonly how: string }
  | { readonly kind: 'foreign-add' | 'foreign-delete'; readonly cidr: string }
  | { readonly kind: 'validate' };

const name = fc.constantFrom('a', 'b', 'c', 'd', 'e');
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('set' as const),
      node: fc.record({
        name,
        octet: fc.integer({ min: 2, max: 9 }),
        isNear: fc.boolean(),
        cidrs: fc.uniqueArray(fc.constantFrom(...CIDRS), { maxLength: 5 }),
      }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('delete' as const), name }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('hand-delete' as const, 'hand-change' as const, 'hand-encap' as const),
      at: fc.nat(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('hand-stray' as const), octet: fc.integer({ min: 1, max: 9 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('hand-device' as const),
      how: fc.constantFrom(
        `delete ${DEVICE}`,
        `set ${DEVICE} arp on`,
        `set ${DEVICE} down`,
        `set ${DEVICE} name strange`,
      ),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('foreign-add' as const, 'foreign-delete' as const),
      cidr: fc.constantFrom(...CIDRS),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('validate' as const) }) },
);

describeOnLinux('paths', ['routes', 'tunnel', 'nftables', 'nft', 'namespaces', 'ip'], () => {
  let scratch: Scratch;
  let kernel: Kernel;
  let host: Namespace;
  let under: PathsUnderTest;
  let hand: NetlinkSocket;
  const nodes = new Map<string, { readonly model: ModelNode; readonly node: Node }>();
  const foreign = new Set<string>();

  beforeAll(async () => {
    scratch = new Scratch();
    kernel = new Kernel();
    host = scratch.namespace('node');
    const router = scratch.namespace('router');
    cable(
      [host, 'eth0', ['192.168.0.1/24', 'fd00::1/64']],
      [router, 'eth0', ['192.168.0.254/24', 'fd00::fe/64']],
    );
    host.run('ip', 'route', 'add', 'default', 'via', '192.168.0.254');
    under = new PathsUnderTest(kernel, host);
    hand = under.table.open();
    await under.start();
    under.paths.nodeAdd(node('own', { source: 'local', addresses: internal('192.168.0.1', 'fd00::1') }));
  });

  afterAll(() => {
    hand[Symbol.dispose]();
    under[Symbol.dispose]();
    kernel[Symbol.dispose]();
    scratch[Symbol.dispose]();
  });

  /** Returns our routes as `ip` lists them. */
  function witnessed(): readonly string[] {
    return ['-4', '-6']
      .flatMap((family) => host.run('ip', family, 'route', 'show', 'proto', '201').split('\n'))
      .flatMap((line) => /^.* dev \S+/.exec(line.replaceAll('  ', ' '))?.[0] ?? [])
      .sort();
  }

  function ours(): Route[] {
    return ([4, 6] as const)
      .flatMap((family) => hand.dump(routeDump(family, 254), readRoute))
      .filter(({ protocol }) => protocol === 201);
  }

  /** Makes a change like an administrator with `ip route`. Failures are ignored. */
  function byHand(
    type: number,
    flags: number,
    route: Partial<Route> & { readonly destination: string },
  ): boolean {
    const whole: Route = {
      table: 254,
      protocol: 201,
      gateway: undefined,
      interface: 0,
      onlink: false,
      metric: 0,
      isUnicast: true,
      ...route,
    };
    const [error] = hand.transact([
      { operation: 'by hand', type, flags, write: (writer) => writeRoute(writer, whole) },
    ]);
    return error === undefined;
  }

  function foreignRoute(destination: string): Parameters<typeof byHand>[2] {
    return {
      destination,
      protocol: 4,
      metric: 77,
      gateway: destination.includes(':') ? 'fd00::fe' : '192.168.0.254',
    };
  }

  function set(model: ModelNode): void {
    const v4 = model.cidrs.filter((cidr) => !cidr.includes(':'));
    const v6 = model.cidrs.filter((cidr) => cidr.includes(':'));
    const { octet } = model;
    const addresses = model.isNear
      ? internal(`192.168.0.${octet}`, `fd00::${octet.toString(16)}`)
      : internal(`198.51.100.${octet}`, `2001:db8::${octet}`);
    const made = node(model.name, {
      addresses,
      ipv4AllocCIDR: v4[0],
      ipv6AllocCIDR: v6[0],
      ipv4SecondaryAllocCIDRs: v4.slice(1),
      ipv6SecondaryAllocCIDRs: v6.slice(1),
    });
    const before = nodes.get(model.name);
    if (before === undefined) under.paths.nodeAdd(made);
    else under.paths.nodeUpdate(before.node, made);
    nodes.set(model.name, { model, node: made });
  }

  function remove(which: string): void {
    const before = nodes.get(which);
    if (before !== undefined) under.paths.nodeDelete(before.node);
    nodes.delete(which);
  }

  async function take(one: Step): Promise<void> {
    switch (one.kind) {
      case 'set':
        return set(one.node);
      case 'delete':
        return remove(one.name);
      case 'hand-delete':
      case 'hand-encap':
      case 'hand-change': {
        const all = ours();
        const route = all[one.at % Math.max(1, all.length)];
        if (route === undefined) return;
        if (one.kind === 'hand-encap') {
          const encap = route.encap && { ...route.encap, destination: '198.51.100.77' };
          byHand(RTM_ROUTE.add, NLM_F.create | NLM_F.replace, { ...route, encap });
          return;
        }
        byHand(RTM_ROUTE.delete, 0, route);
        const gateway = route.destination.includes(':') ? 'fd00::fe' : '192.168.0.254';
        if (one.kind === 'hand-change')
          byHand(RTM_ROUTE.add, NLM_F.create, { destination: route.destination, gateway });
        return;
      }
      case 'hand-stray':
        byHand(RTM_ROUTE.add, NLM_F.create, {
          destination: `10.200.${one.octet}.0/24`,
          gateway: '192.168.0.254',
        });
        return;
      case 'hand-device':
        if (host.run('ip', '-br', 'link').includes(DEVICE)) host.run('ip', 'link', ...one.how.split(' '));
        return;
      case 'foreign-add':
        if (byHand(RTM_ROUTE.add, NLM_F.create, foreignRoute(one.cidr))) foreign.add(one.cidr);
        return;
      case 'foreign-delete':
        if (byHand(RTM_ROUTE.delete, 0, foreignRoute(one.cidr))) foreign.delete(one.cidr);
        return;
      case 'validate':
        under.turns.clock.advance(60_000);
        for (const { node } of nodes.values())
          void under.paths.nodeValidateImplementation(node).catch(() => {});
        return;
    }
  }

  it('equal those of a naive model, for any sequence of nodes and manual deletes', async () => {
    const runs = Math.ceil(Math.max(fc.readConfigureGlobal().numRuns ?? 0, 1_000) / STEPS);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(step, fc.boolean()), { minLength: STEPS, maxLength: STEPS, size: 'max' }),
        async (steps) => {
          for (const [one, isLast] of steps) {
            await take(one);
            // Some steps begin before earlier ones have been written.
            if (isLast) await under.settle();
          }
          await under.settle();
          const models = [...nodes.values()].map(({ model }) => model);
          const isTunnelled = models.some(({ isNear, cidrs }) => !isNear && cidrs.length > 0);
          expect(witnessed()).toEqual(expectedRoutes(models));
          expect(host.run('ip', '-br', 'link').includes(DEVICE)).toBe(isTunnelled);
          expect(host.run('nft', 'list', 'ruleset').includes('pkttype set host')).toBe(isTunnelled);
          for (const cidr of foreign) byHand(RTM_ROUTE.delete, 0, foreignRoute(cidr));
          foreign.clear();
          for (const which of [...nodes.keys()]) remove(which);
          await under.settle();
          expect(witnessed()).toEqual([]);
          expect(host.run('nft', 'list', 'ruleset')).toBe('');
        },
      ),
      { numRuns: runs, endOnFailure: true },
    );
  });
});
