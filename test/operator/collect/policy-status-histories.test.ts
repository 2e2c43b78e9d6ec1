import { describe, expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { nodeKey } from '../../../src/kvstore/codec/keys.ts';
import type { KvstoreBackend } from '../../../src/kvstore/session/backend.ts';
import { PolicyStatusCollector } from '../../../src/operator/collect/policy-status-collector.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening, round, TinyCluster } from '../support/tiny-cluster.ts';

const INTERVAL = 2 * 60_000;
const POLICIES = { group: 'cilium.io', version: 'v2', plural: 'ciliumnetworkpolicies' };
const KEY = 'shop/p';

type Entries = Readonly<Record<string, { readonly lastUpdated: string }>>;

function entriesOf(policy: KubernetesObject | undefined): Entries {
  return (policy?.['status'] as { nodes: Entries } | undefined)?.nodes ?? {};
}

/**
 * A policy, a node whose key is deleted and written while its agent lives, another node that always exists,
 * and an operator.
 */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly inUseRemoved: string[] = [];
  readonly fate: Fate;
  crashed = false;
  hasKey = true;
  /** Upstream's store of the kvstore, which is followed and may lag. */
  seesKey = true;
  #requests = 0;
  /**
   * The request before which the key was last put. A change after the last request is invisible to everyone.
   */
  #keyPutAt = 0;

  constructor(choose: Choose, most: number, { mayBeBehind }: Rule) {
    const { cluster } = this;
    const happenings: readonly Happening[] = [
      { name: 'cut off', can: () => this.hasKey, happen: () => this.#setKey(false) },
      { name: 'back', can: () => !this.hasKey, happen: () => this.#setKey(true) },
      { name: 'agent writes', can: () => this.hasKey, happen: () => this.write() },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
        },
      },
      { name: 'nodes seen', can: () => mayBeBehind, happen: () => this.see() },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => {
      this.#requests++;
      this.fate.turn();
    };
    cluster.onPatch = (before, after) => {
      const isRemoved = 'n1' in entriesOf(before) && !('n1' in entriesOf(after));
      if (isRemoved && this.hasKey && this.#keyPutAt < this.#requests)
        this.inUseRemoved.push(this.fate.log.join(', '));
    };
  }

  #setKey(isThere: boolean): void {
    this.hasKey = isThere;
    if (isThere) this.#keyPutAt = this.#requests;
  }

  see(): void {
    this.seesKey = this.hasKey;
  }

  write(): void {
    const lastUpdated = new Date(this.clock.wallTime()).toISOString();
    this.cluster.put(POLICIES.plural, KEY, { status: { nodes: { n1: { lastUpdated } } } });
  }

  backend(): Pick<KvstoreBackend, 'get' | 'listPrefix'> {
    const kv = (
      node: string,
    ): { key: string; value: Uint8Array; modRevision: number; createRevision: number } => ({
      key: nodeKey({ cluster: 'atlantic', name: node }),
      value: new Uint8Array(),
      modRevision: 1,
      createRevision: 1,
    });
    return {
      get: async (key) => {
        this.cluster.before();
        return this.hasKey && key === nodeKey({ cluster: 'atlantic', name: 'n1' }) ? kv('n1') : undefined;
      },
      listPrefix: async () => {
        this.cluster.before();
        return [...(this.hasKey ? [kv('n1')] : []), kv('n2')];
      },
    };
  }
}

interface Rule {
  /** True if it reads a store that follows the kvstore. */
  readonly mayBeBehind: boolean;
  begin(world: World): (number: number) => Promise<void>;
}

const ours: Rule = {
  mayBeBehind: false,
  begin: (world) => {
    const { cluster, clock } = world;
    const collector = new PolicyStatusCollector({
      policies: POLICIES,
      reader: cluster,
      writer: cluster,
      clock,
      backend: world.backend(),
      cluster: 'atlantic',
    });
    return (number) => round(collector, number);
  },
};

/** 1.8: one look at a store that may lag; entries written since the last run are kept. */
const upstream: Rule = {
  mayBeBehind: true,
  begin: (world) => async () => {
    const { cluster, clock } = world;
    const lastRun = clock.wallTime() - INTERVAL;
    const policies = [...cluster.objects.values()];
    cluster.before();
    for (const policy of policies)
      for (const [name, { lastUpdated }] of Object.entries(entriesOf(policy))) {
        if (world.seesKey || Date.parse(lastUpdated) >= lastRun) continue;
        const path = `/status/nodes/${name}`;
        const operations = [
          { op: 'test', path: `${path}/lastUpdated`, value: lastUpdated },
          { op: 'remove', path },
        ] as const;
        const place = { kind: POLICIES, namespace: 'shop', name: 'p' };
        await cluster.write({ verb: 'patch', place, subresource: 'status', operations });
      }
  },
};

/** Runs every history with this number of events. Returns the first error. */
async function histories(
  rule: Rule,
  hasKey: boolean,
  most: number,
): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most, rule);
    const { cluster, clock } = world;
    let next = rule.begin(world);
    world.write();
    world.hasKey = hasKey;
    for (let number = 1; number <= 2; number++) {
      clock.advance(INTERVAL);
      world.fate.turn();
      if (world.crashed) next = rule.begin(world);
      world.crashed = false;
      await next(number);
    }
    cluster.before = () => {};
    for (let number = 3; number <= 5; number++) {
      clock.advance(INTERVAL);
      world.see();
      await next(number);
    }
    first ??= world.inUseRemoved[0];
    if (!world.hasKey && 'n1' in entriesOf(cluster.get1(POLICIES.plural, KEY)))
      first ??= `left over: ${world.fate.log.join(', ')}`;
  });
  return { ways, first };
}

describe('the collector of policy status, in every small history', () => {
  it.each([true, false])(
    'removes no entry of a node that is there, and leaves none of one that is gone (there at first: %s)',
    async (hasKey) => {
      const { ways, first } = await histories(ours, hasKey, 3);
      expect(first).toBeUndefined();
      expect(ways).toBeGreaterThan(500);
    },
  );

  it('would delete the status of a live node by the rule of 1.8: in one read, from a store that may be behind', async () => {
    expect((await histories(upstream, true, 3)).first).toMatch(/cut off, .*nodes seen/);
  });
});
