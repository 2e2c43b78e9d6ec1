import { describe, expect, it } from 'vitest';
import { NodeCollector, staleNodes } from '../../../src/operator/collect/node-collector.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening, round, TinyCluster } from '../support/tiny-cluster.ts';

const CILIUM_NODES = { group: 'cilium.io', version: 'v2', plural: 'ciliumnodes' };
const KEY = '/n1';
const FOR = 'writtenFor';

/** A node that is created and deleted, its agent, and an operator. */
class World {
  readonly cluster = new TinyCluster();
  readonly inUseDeleted: string[] = [];
  readonly fate: Fate;
  crashed = false;

  constructor(choose: Choose, most: number) {
    const { cluster } = this;
    const node = (): boolean => cluster.get1('nodes', KEY) !== undefined;
    const happenings: readonly Happening[] = [
      { name: 'node made', can: () => !node(), happen: () => void cluster.put('nodes', KEY) },
      { name: 'node gone', can: node, happen: () => cluster.drop('nodes', KEY) },
      { name: 'agent writes', can: node, happen: () => this.write() },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
        },
      },
      { name: 'nodes seen', can: () => true, happen: () => cluster.see('nodes') },
      { name: 'cilium nodes seen', can: () => true, happen: () => cluster.see('ciliumnodes') },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => this.fate.turn();
    cluster.onDelete = (object) => {
      const living = cluster.get1('nodes', KEY);
      if (living !== undefined && living.metadata.uid === object[FOR])
        this.inUseDeleted.push(this.fate.log.join(', '));
    };
  }

  write(): void {
    this.cluster.put('ciliumnodes', KEY, { [FOR]: this.cluster.get1('nodes', KEY)?.metadata.uid });
  }
}

type Begin = (world: World) => (number: number) => Promise<void>;

const ours: Begin = ({ cluster }) => {
  const [ciliumNodes, nodes] = [cluster.observed('ciliumnodes'), cluster.observed('nodes')];
  const collector = new NodeCollector({ ciliumNodes, nodes, reader: cluster, writer: cluster });
  return (number) => round(collector, number);
};

/** 1.17: a mark remains if the Node returns; a node that was marked in any earlier round is deleted. */
const upstream: Begin = ({ cluster }) => {
  const [ciliumNodes, nodes] = [cluster.observed('ciliumnodes'), cluster.observed('nodes')];
  const marked = new Set<string>();
  return async () => {
    for (const [key, { metadata }] of [...ciliumNodes.objects]) {
      if (nodes.objects.has(key)) continue;
      const place = { kind: CILIUM_NODES, name: metadata.name };
      if (marked.has(key)) await cluster.write({ verb: 'delete', place, uid: metadata.uid });
      else marked.add(key);
    }
  };
};

async function histories(begin: Begin, most: number): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most);
    let next = begin(world);
    world.cluster.put('nodes', KEY);
    world.write();
    world.cluster.drop('nodes', KEY);
    world.cluster.see('nodes', 'ciliumnodes');
    for (let number = 1; number <= 3; number++) {
      world.fate.turn();
      if (world.crashed) next = begin(world);
      world.crashed = false;
      await next(number);
    }
    world.cluster.before = () => {};
    for (let number = 4; number <= 5; number++) {
      world.cluster.see('nodes', 'ciliumnodes');
      await next(number);
    }
    first ??= world.inUseDeleted[0];
    const isLeft = world.cluster.get1('ciliumnodes', KEY) !== undefined;
    if (isLeft && world.cluster.get1('nodes', KEY) === undefined)
      first ??= `left over: ${world.fate.log.join(', ')}`;
  });
  return { ways, first };
}

describe('the collector of CiliumNodes', () => {
  it('deletes nothing in use, and leaves nothing unused, in every small history', async () => {
    const { ways, first } = await histories(ours, 4);
    expect(first).toBeUndefined();
    expect(ways).toBeGreaterThan(1000);
  });

  it('would delete a node in use by the rule of 1.17, which forgets no mark', async () => {
    expect((await histories(upstream, 4)).first).toBeDefined();
  });

  it('removes the mark if a Node returns: a delete requires two consecutive rounds', async () => {
    const deleted: Record<string, number> = {};
    for (const [name, begin] of Object.entries({ ours, upstream })) {
      const world = new World(() => 0, 0);
      const { cluster } = world;
      const next = begin(world);
      cluster.put('ciliumnodes', KEY);
      for (const [number, isThere] of [false, true, false].entries()) {
        if (isThere) cluster.put('nodes', KEY);
        else cluster.drop('nodes', KEY);
        cluster.see('nodes', 'ciliumnodes');
        await next(number + 1);
        if (cluster.get1('ciliumnodes', KEY) === undefined) deleted[name] ??= number + 1;
      }
    }
    expect(deleted).toEqual({ upstream: 3 });
  });

  it('keeps CiliumNodes with an owner', () => {
    const cluster = new TinyCluster();
    const owned = cluster.put('ciliumnodes', KEY, { metadata: { ownerReferences: [{ kind: 'Node' }] } });
    const free = cluster.put('ciliumnodes', '/n2');
    const all = new Map([
      [KEY, owned],
      ['/n2', free],
    ]);
    expect([...staleNodes(all, new Map())]).toEqual([['/n2', free.metadata.uid]]);
    expect([...staleNodes(all, new Map([['/n2', free]]))]).toEqual([]);
  });

  it('keeps those that are being deleted (regression: each round deleted and counted them again)', () => {
    const cluster = new TinyCluster();
    const going = cluster.put('ciliumnodes', KEY, {
      metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' },
    });
    expect([...staleNodes(new Map([[KEY, going]]), new Map())]).toEqual([]);
  });
});
