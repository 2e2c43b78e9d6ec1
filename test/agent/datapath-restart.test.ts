import fc from 'fast-check';
import { expect, it, vi } from 'vitest';
import { DatapathKeeper } from '../../src/agent/datapath-keeper.ts';
import { DeleteHold } from '../../src/datapath/linux/delete-hold.ts';
import * as hostDatapath from '../../src/datapath/linux/host-datapath.ts';
import {
  DesiredIPCache,
  IPCacheTable,
  ipcacheShape,
  markPrefixes,
  rerankPrefixes,
} from '../../src/datapath/linux/ipcache-map.ts';
import { type KeptItems, keptItems } from '../../src/datapath/linux/kept-items.ts';
import { KeptTable } from '../../src/datapath/linux/kept-table.ts';
import type { KernelTable } from '../../src/datapath/linux/kernel-table.ts';
import { KnownEntries, type KnownInputs } from '../../src/datapath/linux/known-inputs.ts';
import { LinuxDatapath, type LinuxPart } from '../../src/datapath/linux/linux-datapath.ts';
import { NodePaths } from '../../src/datapath/linux/paths/node-paths.ts';
import { equalItems, type PathItem, pathOrder, printItem } from '../../src/datapath/linux/paths/path-item.ts';
import type { PathTable } from '../../src/datapath/linux/paths/path-table.ts';
import type { ProbeAnswer } from '../../src/datapath/linux/probe.ts';
import { DesiredServices, type ServiceItem } from '../../src/datapath/linux/services/desired-services.ts';
import { ServiceMapTable } from '../../src/datapath/linux/services/service-table.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Source } from '../../src/model/source.ts';
import type { Node } from '../../src/nodemanager/node.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createLog } from '../../src/process/log.ts';
import { createBackend, createEndpointSlice } from '../../src/servicecache/backend.ts';
import { createService, type ServiceFields } from '../../src/servicecache/service.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { FakeMap, fakeServiceMaps } from '../datapath/linux/support/fake-map.ts';
import { ManualTurns } from '../datapath/linux/support/fake-table.ts';

/** The engines of one agent, and its clock. */
class Engines {
  readonly turns = new ManualTurns();
  readonly ipcache = new IPCache();
  readonly services = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  readonly nodes = new NodeManager({
    ipcache: this.ipcache,
    clock: this.turns.clock,
    random: () => 0.5,
    clusterName: 'own',
    nodeName: 'here',
    localNodeIsHost: true,
  });
}

/** A change of the engines which an input delivers. */
type Delivery = (engines: Engines) => unknown;

const PORTS = new Map([['web', { port: 80, protocol: 6, nodePort: 0 }]]);

function prefix(ip: string, identity: number, source: Source = 'kvstore', hostIP?: string): Delivery {
  const owner = source === 'clustermesh' || source === 'restored' ? 'far' : '';
  return ({ ipcache }) => ipcache.upsert(ip, { identity, source, owner, hostIP });
}

function node(name: string, source: Source, ip: string, ipv4AllocCIDR: string, encryptionKey = 3): Delivery {
  const [cluster = '', short = ''] = name.split('/');
  const addresses = [{ type: 'InternalIP', ip }] as const;
  return ({ nodes }) =>
    nodes.nodeUpdated({
      ...{ cluster, name: short, source, addresses, ipv4AllocCIDR, encryptionKey },
      labels: { zone: 'a' },
    });
}

function service(name: string, last: number, fields: Partial<ServiceFields> = {}): Delivery {
  const id = { namespace: 'shop', name };
  const clusterIPs = [`172.16.0.${last}`];
  return ({ services }) => services.updateService(createService({ id, clusterIPs, ports: PORTS, ...fields }));
}

function slice(of: string, name: string, ...addresses: readonly string[]): Delivery {
  const backends = addresses.map((address) => createBackend({ address, ports: PORTS }));
  return ({ services }) =>
    services.updateEndpoints(
      createEndpointSlice({ service: { namespace: 'shop', name: of }, name, backends }),
    );
}

function offer(name: string, ...addresses: readonly string[]): Delivery {
  const [backends, none] = [new Map(addresses.map((address) => [address, PORTS])), new Map()];
  return ({ services }) =>
    services.mergeExternalServiceUpdate({
      ...{ cluster: 'far', clusterID: 2, namespace: 'shop', name, backends },
      ...{ frontends: none, labels: none, selector: none, includeExternal: true, shared: true },
    });
}

/** The inputs after the restart. Weaker claims of one input name the same keys as stronger ones of another. */
const INPUTS = {
  kvstore: [
    node('own/here', 'kvstore', '192.168.0.1', '10.9.0.0/24'),
    node('own/near', 'kvstore', '192.168.0.2', '10.2.0.0/24'),
    node('own/router', 'kvstore', '198.51.100.3', '10.3.0.0/24'),
    prefix('10.2.0.7', 100, 'kvstore', '192.168.0.2'),
    prefix('10.3.0.8', 201, 'kvstore', '198.51.100.3'),
  ],
  objects: [
    node('own/near', 'custom-resource', '192.168.0.2', '10.2.0.0/24', 0),
    node('own/second', 'custom-resource', '192.168.0.5', '10.2.0.0/24', 0),
    node('own/router', 'custom-resource', '198.51.100.3', '10.3.0.0/24', 0),
    prefix('198.51.100.3', 7, 'kube-apiserver', '198.51.100.3'),
    prefix('10.2.0.7', 16_777_218, 'generated'),
    prefix('203.0.113.0/24', 16_777_217, 'generated'),
  ],
  services: [
    service('local', 1),
    slice('local', 'a', '10.2.0.7'),
    slice('local', 'b', '10.3.0.8'),
    service('global', 2, { global: true }),
    slice('global', 'a', '10.2.0.7'),
    service('port', 3, { ports: new Map([['web', { port: 80, protocol: 6, nodePort: 30_080 }]]) }),
    slice('port', 'a', '10.3.0.8'),
    service('zoned', 4, { nodeLabel: 'zone=a' }),
    slice('zoned', 'a', '10.2.0.7'),
  ],
  remote: [
    node('far/one', 'clustermesh', '198.51.100.9', '10.50.0.0/24'),
    node('far/thief', 'clustermesh', '192.168.0.66', '10.2.0.0/24'),
    prefix('10.50.0.7', 131_500, 'clustermesh', '198.51.100.9'),
    prefix('10.2.0.7', 131_501, 'clustermesh', '198.51.100.9'),
    offer('global', '10.50.0.7'),
  ],
} as const satisfies Record<string, readonly Delivery[]>;

type Input = keyof typeof INPUTS;
const NAMES = Object.keys(INPUTS) as readonly Input[];
const ALL = NAMES.flatMap((input) => INPUTS[input].map((deliver: Delivery) => ({ input, deliver })));

/** The inputs before the restart have an item of each kind that is gone, and a prefix with another identity. */
const BEFORE: readonly Delivery[] = [
  ...ALL.map(({ deliver }) => deliver),
  node('own/gone', 'kvstore', '198.51.100.77', '10.77.0.0/24'),
  prefix('10.2.0.99', 99),
  prefix('10.3.0.8', 200, 'kvstore', '198.51.100.3'),
  service('gone', 9),
  slice('gone', 'a', '10.2.0.99'),
];

/** The changes of the kernel after the restart: no others are necessary. */
const CHANGES = [
  'ipcache + 10.3.0.8/32 identity 201 via 198.51.100.3',
  'ipcache - 10.2.0.99/32',
  'ipcache - 198.51.100.77/32',
  'paths - route 10.77.0.0/24',
  'services - 172.16.0.9:0/ANY',
  'services - 172.16.0.9:80/TCP',
];

/** A checkpoint that is older than the kernel. */
const CHECKPOINT: readonly Delivery[] = [
  node('own/near', 'restored', '192.168.0.2', '10.2.0.0/24'),
  node('own/router', 'restored', '198.51.100.3', '10.3.0.0/24'),
  node('own/gone', 'restored', '198.51.100.77', '10.77.0.0/24'),
  prefix('10.2.0.7', 98, 'restored'),
  prefix('10.3.0.8', 98, 'restored'),
  prefix('10.2.0.99', 99, 'restored'),
];

function release({ ipcache, nodes }: Engines): void {
  nodes.withdraw({ source: 'restored' });
  for (const ip of ['10.2.0.7', '10.3.0.8', '10.2.0.99'])
    ipcache.delete(ip, { source: 'restored', owner: 'far' });
}

/** The kernel, which survives the agents. */
class FakeKernel {
  readonly prefixes = new FakeMap(ipcacheShape('1.17', 1_000));
  readonly maps = fakeServiceMaps({ slots: 4_096, backends: 1_024, clients: 64 });
  readonly paths = new Map<string, PathItem>();
  readonly rules = new Map<string, ServiceItem>();
  /** The changes since the last agent began, such as `ipcache - 10.2.0.99/32`. */
  readonly changes: string[] = [];

  /** Opens the datapath of an agent. */
  open({ turns, ipcache }: Engines): LinuxDatapath {
    this.changes.length = 0;
    const { clock } = turns;
    const users: KeptItems[] = [];
    const addUser = (items: KeptItems): KeptItems => {
      users.push(items);
      return items;
    };
    const part = (name: 'nodes' | 'ipcache' | 'services', open: () => LinuxPart) =>
      ({ name, needs: [], open }) as const;
    return new LinuxDatapath(ABLE, [
      part('nodes', () => {
        const table = this.#recorded(this.#pathTable());
        const hold = new DeleteHold(clock, users);
        const known = new KnownEntries();
        const paths = new NodePaths(
          table,
          { mode: 'auto', localNode: 'own/here' },
          {
            ...{ clock, random: turns.random, nextTurn: turns.nextTurn },
            whenDeletesAllowed: () => hold.deletesAllowed(),
            isComplete: known.mayBeWritten,
          },
        );
        return {
          tables: [{ ...keptItems(table, paths.kept), adopt: () => paths.start() }],
          datapath: { nodes: paths },
          setInputs: known.set,
          [Symbol.dispose]: () => paths[Symbol.dispose](),
        };
      }),
      part('ipcache', () => {
        const table = this.#recorded(new IPCacheTable(this.prefixes));
        const known = new KnownEntries();
        const desired = new DesiredIPCache(ipcache, '1.17', () => false, 'own');
        const kept = new KeptTable(table, desired, { ...turns, clock, isComplete: known.mayBeWritten });
        ipcache.subscribe(
          markPrefixes((key) => kept.mark(key)),
          { replay: false },
        );
        ipcache.subscribeOwners(rerankPrefixes(kept, 'own'));
        return {
          tables: [addUser(keptItems(table, kept))],
          datapath: {},
          setInputs: known.set,
          [Symbol.dispose]: () => {},
        };
      }),
      part('services', () => {
        const maps = this.#recorded(new ServiceMapTable({ 4: this.maps(4), 6: this.maps(6) }));
        const opened = [
          this.#services(maps, turns, { clients: 'inside' }),
          this.#services(this.#recorded(ruleTable(this.rules)), turns, {
            clients: 'outside',
            frontends: 'external',
          }),
        ];
        const setLabels = (one: Node): void => {
          if (one.name === 'here') for (const { setNodeLabels } of opened) setNodeLabels(one.labels);
        };
        return {
          tables: opened.map(({ items }) => addUser(items)),
          datapath: {
            services: {
              onEvents: (events) => {
                for (const { listener } of opened) listener.onEvents(events);
              },
            },
            nodes: {
              name: 'labels',
              nodeAdd: setLabels,
              nodeUpdate: (_, one) => setLabels(one),
              nodeDelete: () => {},
            },
          },
          setInputs: (inputs) => {
            for (const { desired } of opened) desired.setInputs(inputs);
          },
          [Symbol.dispose]: () => {},
        };
      }),
    ]);
  }

  #services(
    table: KernelTable<ServiceItem>,
    turns: ManualTurns,
    options: { readonly clients: 'inside' | 'outside'; readonly frontends?: 'external' },
  ) {
    const nodePort = { enabled: true, ipv4: ['192.168.0.1'] };
    const desired = new DesiredServices({ nodePort, nodeName: 'here', ...options });
    const { clock, random, nextTurn } = turns;
    const isComplete = (key: string): boolean => desired.isComplete(key);
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, isComplete });
    return {
      desired,
      items: keptItems(table, kept),
      listener: desired.listener((key) => kept.mark(key)),
      setNodeLabels: (labels: Node['labels']): void => {
        for (const key of desired.setNodeLabels(labels)) kept.mark(key);
      },
    };
  }

  /** Records each change that a table applies. */
  #recorded<Item, Table extends KernelTable<Item>>(table: Table & KernelTable<Item>): Table {
    const apply = table.apply.bind(table);
    table.apply = (changes) => {
      for (const { key, item } of changes)
        this.changes.push(
          `${table.name} ${item === undefined ? `- ${key}` : `+ ${key} ${table.print(item)}`}`,
        );
      return apply(changes);
    };
    return table;
  }

  /** A table of paths like that of the kernel. Addresses of 192.168.0.0/24 are on a link. */
  #pathTable(): PathTable {
    const { paths } = this;
    const nothing = (): void => {};
    const table: Partial<Record<keyof PathTable, unknown>> = {
      ...mapTable('paths', paths, equalItems, (item) => printItem(item)),
      order: pathOrder,
      open: () => ({
        receive: nothing,
        onEvents: () => ({ [Symbol.dispose]: nothing }),
        [Symbol.dispose]: nothing,
      }),
      addresses: () => [{ interface: 2, address: '192.168.0.1', length: 24 }],
      has: (key: string, item: PathItem | undefined) => {
        const found = paths.get(key);
        return found === undefined || item === undefined ? found === item : equalItems(found, item);
      },
      reach: (address: string) =>
        address.startsWith('192.168.0.')
          ? { kind: 'link', interface: 2 }
          : { kind: 'unreachable', reason: 'it is behind a router' },
      mtuAt: (address: string) => (address === '192.168.0.1' ? 1_500 : undefined),
    };
    return table as PathTable;
  }
}

const ABLE: ProbeAnswer = { kernel: '6.18', pinFolder: '/pins', cgroup: '/cgroup', pieces: [] };

function mapTable<Item>(
  name: string,
  content: Map<string, Item>,
  equal: (a: Item, b: Item) => boolean,
  print: (item: Item) => string,
): KernelTable<Item> {
  return {
    name,
    dump: () => [...content],
    equal,
    print,
    apply: (changes) =>
      changes.map(({ key, item }) => {
        if (item === undefined) content.delete(key);
        else content.set(key, item);
        return undefined;
      }),
  };
}

function ruleTable(content: Map<string, ServiceItem>): KernelTable<ServiceItem> {
  const print = ({ backends, masquerade }: ServiceItem): string => `${backends} ${masquerade}`;
  return mapTable('nftables', content, (a, b) => print(a) === print(b), print);
}

/** An agent whose datapath is that of a kernel. */
class AgentOfKernel {
  readonly engines = new Engines();
  readonly keeper: DatapathKeeper;
  readonly #missing = new Map<Input, number>(NAMES.map((input) => [input, INPUTS[input].length]));
  readonly #kernel: FakeKernel;
  #isSynced = false;

  constructor(kernel: FakeKernel) {
    this.#kernel = kernel;
    const { turns, ...engines } = this.engines;
    this.keeper = new DatapathKeeper({
      engines,
      clock: turns.clock,
      random: turns.random,
      nodeName: 'here',
      clusterName: 'own',
      options: { pinFolder: '/pins', routing: 'auto', services: 'socket', layout: '1.17', dryRun: false },
      log: createLog('error', 'text', { write: () => {} }),
      incompleteInputs: () => NAMES.filter((input) => !this.#isComplete(input)),
      knownInputs: (): KnownInputs => ({
        areLocalEntriesKnown: this.#isComplete('kvstore') && this.#isComplete('objects'),
        isLocalComplete: this.#isComplete('services'),
        areClustersKnown: this.#isComplete('remote'),
        isSynced: this.#isSynced,
      }),
    });
  }

  #isComplete(input: Input): boolean {
    return this.#missing.get(input) === 0;
  }

  async start(): Promise<void> {
    const { engines } = this;
    const opened = { probe: ABLE, datapath: this.#kernel.open(engines) };
    vi.spyOn(hostDatapath, 'openHostDatapath').mockReturnValue(opened);
    const context = { signal: new AbortController().signal, progress: () => {} };
    await engines.turns.until(Promise.resolve(this.keeper.step().start(context)));
  }

  deliver(input: Input, delivery: Delivery): void {
    delivery(this.engines);
    this.#missing.set(input, (this.#missing.get(input) ?? 0) - 1);
  }

  /** Ends the initial sync when the local inputs are complete; the remote one may be missing. */
  endSync(): void {
    if (
      this.#isSynced ||
      !(['kvstore', 'objects', 'services'] as const).every((one) => this.#isComplete(one))
    )
      return;
    this.#isSynced = true;
    this.engines.services.markSynced();
    this.keeper.initialSyncDone();
  }

  async advance(ms: number): Promise<void> {
    const { clock } = this.engines.turns;
    const end = clock.now() + ms;
    for (let now = clock.now(); now < end; now = Math.min(clock.nextAt ?? end, end)) {
      clock.advance(now - clock.now());
      await this.#settle();
    }
    clock.advance(end - clock.now());
    await this.#settle();
  }

  /** Runs turns until nothing waits for one. A promise of the last turn may request another one. */
  async #settle(): Promise<void> {
    await this.engines.turns.settle();
    while ((await this.engines.turns.settle()) > 0);
  }

  stop(): void {
    this.keeper.step().stop?.();
    this.engines.nodes.close();
  }
}

const [LOCAL_NODE] = ALL;
/** Longer than the pause between two repairs. */
const LATE_MS = 11_000;
const order = fc.shuffledSubarray(ALL, { minLength: ALL.length });
const pauses = fc.array(fc.oneof(fc.constant(0), fc.nat(400), fc.nat(3_000)), {
  minLength: ALL.length,
  maxLength: ALL.length,
});

it('a restart changes only what differs in the kernel, whatever the order and the delay of the inputs', async () => {
  const schedule = fc.record({
    order,
    pauses,
    late: fc.option(fc.constantFrom(...NAMES), { nil: undefined }),
    isLocalNodeLast: fc.boolean(),
    hasCheckpoint: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(schedule, async ({ order, pauses, late, isLocalNodeLast, hasCheckpoint }) => {
      const kernel = new FakeKernel();
      const first = new AgentOfKernel(kernel);
      for (const deliver of BEFORE) deliver(first.engines);
      first.engines.services.markSynced();
      await first.start();
      await first.advance(3_000);
      first.stop();
      expect(kernel.changes.length).toBeGreaterThan(20);

      const agent = new AgentOfKernel(kernel);
      if (hasCheckpoint) for (const deliver of CHECKPOINT) deliver(agent.engines);
      await agent.start();
      const isLast = (one: (typeof ALL)[number]): boolean =>
        one.input === late || (isLocalNodeLast && one === LOCAL_NODE);
      const inTime = order.filter((one) => !isLast(one));
      for (const [at, { input, deliver }] of [...inTime, ...order.filter(isLast)].entries()) {
        if (at === inTime.length && late !== undefined) await agent.advance(LATE_MS);
        agent.deliver(input, deliver);
        agent.endSync();
        await agent.advance(pauses[at] ?? 0);
      }
      if (hasCheckpoint) release(agent.engines);
      await agent.advance(LATE_MS);
      expect([...kernel.changes].sort()).toEqual(CHANGES);
      expect(await agent.engines.turns.until(agent.keeper.diff())).toEqual([]);
      agent.stop();
    }),
    { numRuns: 25 },
  );
});
