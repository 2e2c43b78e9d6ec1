import { describe, expect, it } from 'vitest';
import { IDENTITY_HEARTBEAT } from '../../../src/k8s/parse-cilium-identity.ts';
import type { ObjectWrite, ObjectWriter, WriteOutcome } from '../../../src/k8s/rest/object-writer.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { identityKey, nodeKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { EndpointCollector } from '../../../src/operator/collect/endpoint-collector.ts';
import { EndpointRemoval } from '../../../src/operator/collect/endpoint-removal.ts';
import { IdentityCollector } from '../../../src/operator/collect/identity-collector.ts';
import { kvstoreIdentityCollector } from '../../../src/operator/collect/kvstore-collectors.ts';
import { NodeCollector } from '../../../src/operator/collect/node-collector.ts';
import { PolicyStatusCollector } from '../../../src/operator/collect/policy-status-collector.ts';
import type { Collector, RoundReport } from '../../../src/operator/collect/rounds.ts';
import { UnmanagedDnsCollector } from '../../../src/operator/collect/unmanaged-dns-collector.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { TinyCluster } from '../support/tiny-cluster.ts';

const MINUTE = 60_000;
const POLICIES = { group: 'cilium.io', version: 'v2', plural: 'ciliumnetworkpolicies' };

/** A cluster with two objects of each kind that its collectors delete. */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly backend = new MemoryBackend({ clock: this.clock });
  readonly writes: ObjectWrite[] = [];
  /** Called after each write, with its number. */
  afterWrite: (count: number) => void = () => {};
  outcome: WriteOutcome | undefined;

  /** The writer of the collectors. */
  readonly writer: ObjectWriter = {
    write: async (write) => {
      this.writes.push(write);
      const outcome = this.outcome ?? (await this.cluster.write(write));
      this.afterWrite(this.writes.length);
      return outcome;
    },
  };

  get parts() {
    return { reader: this.cluster, writer: this.writer, clock: this.clock };
  }
}

async function filled(): Promise<World> {
  const world = new World();
  world.clock.advance(60 * MINUTE);
  for (const name of ['a', 'b']) {
    world.cluster.put('ciliumendpoints', `shop/${name}`, { status: {} });
    world.cluster.put('ciliumnodes', `/${name}`);
    world.cluster.put('ciliumidentities', `/100${name === 'a' ? 1 : 2}`);
    const nodes = { gone: { lastUpdated: '1970-01-01T00:00:00Z' } };
    world.cluster.put('ciliumnetworkpolicies', `shop/${name}`, { status: { nodes } });
    const started = { phase: 'Running', startTime: '1970-01-01T00:00:00Z' };
    world.cluster.put('pods', `kube-system/${name}`, { spec: {}, status: started });
    await world.backend.update(identityKey(name === 'a' ? 300 : 301), bytesOfText(`k8s:${name}=1;`));
  }
  await world.backend.update(nodeKey({ cluster: 'atlantic', name: 'n1' }), bytesOfText('{}'));
  return world;
}

function identities(world: World): Collector {
  const seen = (plural: string) => world.cluster.observed(plural);
  return new IdentityCollector({
    ...world.parts,
    identities: seen('ciliumidentities'),
    endpoints: seen('none'),
    slices: seen('none'),
  });
}

const COLLECTORS: readonly (readonly [string, (world: World) => Collector])[] = [
  [
    'endpoints',
    (world) =>
      new EndpointCollector({
        ...world.parts,
        endpoints: world.cluster.observed('ciliumendpoints'),
        pods: world.cluster.observed('none'),
        nodes: world.cluster.observed('none'),
        intervalMs: 5 * MINUTE,
      }),
  ],
  [
    'nodes',
    (world) =>
      new NodeCollector({
        ...world.parts,
        ciliumNodes: world.cluster.observed('ciliumnodes'),
        nodes: world.cluster.observed('nodes'),
      }),
  ],
  ['identities to mark', identities],
  [
    'marked identities',
    (world) => {
      for (const name of ['/1001', '/1002'])
        world.cluster.put('ciliumidentities', name, {
          metadata: { annotations: { [IDENTITY_HEARTBEAT]: 'x' } },
        });
      return identities(world);
    },
  ],
  [
    'policies',
    (world) =>
      new PolicyStatusCollector({
        ...world.parts,
        backend: world.backend,
        cluster: 'atlantic',
        policies: POLICIES,
      }),
  ],
];

function report(log: unknown[]): RoundReport {
  return {
    round: 2,
    setMarked: (count) => log.push(`${count} marked`),
    countDelete: () => log.push('deleted'),
    countConflict: () => log.push('conflict'),
    addAction: ({ outcome }) => log.push(outcome),
    addError: (error) => log.push(error.message),
  };
}

/** Runs rounds until one of them writes; the signal is that of the writing round. */
async function untilWrites(world: World, collector: Collector, signal: AbortSignal): Promise<unknown[]> {
  for (let number = 1; number <= 3 && world.writes.length === 0; number++) {
    world.cluster.see('ciliumendpoints', 'ciliumnodes', 'ciliumidentities');
    const log: unknown[] = [];
    await collector.round(report(log), signal);
    world.clock.advance(30 * MINUTE);
    if (world.writes.length > 0) return log;
  }
  return [];
}

describe('a collector of', () => {
  it.each(COLLECTORS)('%s writes for each of its objects', async (_, make) => {
    const world = await filled();
    const log = await untilWrites(world, make(world), new AbortController().signal);
    expect(world.writes).toHaveLength(2);
    expect(log.filter((line) => line === 'done')).toHaveLength(2);
    await world.backend.close();
  });

  it.each(COLLECTORS)('%s stops after the write during which it was ended', async (_, make) => {
    const world = await filled();
    const ended = new AbortController();
    world.afterWrite = () => ended.abort();
    await untilWrites(world, make(world), ended.signal);
    expect(world.writes).toHaveLength(1);
    await world.backend.close();
  });

  it.each(COLLECTORS)('%s counts a conflict, and continues with the next object', async (_, make) => {
    const world = await filled();
    world.outcome = { outcome: 'conflict', message: 'another version' };
    const log = await untilWrites(world, make(world), new AbortController().signal);
    expect(world.writes).toHaveLength(2);
    expect(log.filter((line) => line === 'conflict')).toHaveLength(4); // outcome and count of each
    await world.backend.close();
  });

  it('unmanaged pods restarts the next pod if the first one has another version, and both are due again', async () => {
    const world = await filled();
    const collector = new UnmanagedDnsCollector({
      ...world.parts,
      pods: world.cluster.observed('pods'),
      endpoints: world.cluster.observed('none'),
    });
    world.cluster.see('pods');
    const round = (): Promise<void> => collector.round(report([]), new AbortController().signal);
    world.outcome = { outcome: 'conflict', message: 'another version' };
    await round();
    expect(world.writes).toHaveLength(2);
    world.outcome = { outcome: 'dry-run' };
    await round();
    await round();
    await round(); // both names were restarted a moment ago
    const names = world.writes.map((write) => ('place' in write ? write.place.name : ''));
    expect(names).toEqual(['a', 'b', 'a', 'b']);
    world.clock.advance(5 * MINUTE);
    await round();
    expect(world.writes).toHaveLength(5);
    await world.backend.close();
  });

  it('identities of the kvstore stops after the delete during which it was ended', async () => {
    const world = await filled();
    const ended = new AbortController();
    const collector = kvstoreIdentityCollector({ min: 256, max: 65_535 }, 15 * MINUTE, {
      backend: world.backend,
      clock: world.clock,
      election: { mayWrite: () => true },
    });
    await collector.round(report([]), ended.signal);
    const log: unknown[] = [];
    const tally = { ...report(log), addAction: () => ended.abort() };
    const round = collector.round(tally, ended.signal);
    await advance(world.clock, MINUTE);
    await round.catch(() => {});
    expect(log.filter((line) => line === 'deleted')).toEqual(['deleted']);
    await world.backend.close();
  });
});

describe('the removal of all endpoints', () => {
  it('stops after the delete during which it was ended', async () => {
    const world = await filled();
    const ended = new AbortController();
    world.afterWrite = () => ended.abort();
    const removal = new EndpointRemoval({ ...world.parts, random: () => 0 });
    await removal.run(ended.signal);
    expect(world.writes).toHaveLength(1);
    expect(removal.status()).toMatchObject({ state: 'ended', rounds: { rounds: 0, marked: 2 } });
    await world.backend.close();
  });

  it('lists again, without what an interrupted list had, if the list fails', async () => {
    const world = await filled();
    const ended = new AbortController();
    let lists = 0;
    const reader = {
      get: world.cluster.get.bind(world.cluster),
      async *list(...asked: Parameters<TinyCluster['list']>) {
        lists++;
        yield* world.cluster.list(...asked);
        if (lists > 1) return;
        world.cluster.drop('ciliumendpoints', 'shop/a');
        throw new Error('the connection broke');
      },
    };
    const removal = new EndpointRemoval({ ...world.parts, reader, random: () => 0 });
    const running = removal.run(ended.signal);
    await settle();
    expect(removal.status()).toMatchObject({ failures: 1, rounds: { rounds: 0, deleted: 0 } });
    await advance(world.clock, MINUTE);
    expect([lists, world.writes.length]).toEqual([2, 1]);
    expect(removal.status()).toMatchObject({ failures: 1, rounds: { rounds: 1, marked: 0, deleted: 1 } });
    ended.abort();
    await running;
    await world.backend.close();
  });
});
