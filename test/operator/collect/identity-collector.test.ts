import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import {
  IdentityCollector,
  type IdentityRound,
  type IdentityUse,
  identityRound,
} from '../../../src/operator/collect/identity-collector.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening, round, TinyCluster } from '../support/tiny-cluster.ts';

const ROUND = 15 * 60_000;
const TIMEOUT = 2 * ROUND;
const IDENTITIES = { group: 'cilium.io', version: 'v2', plural: 'ciliumidentities' };
const MARK = 'io.cilium.heartbeat';
const KEY = '/1001';

function annotations(identity: KubernetesObject | undefined): Readonly<Record<string, string>> {
  return (identity?.metadata['annotations'] ?? {}) as Readonly<Record<string, string>>;
}

/**
 * An identity and its users. An agent sees it late, unmarks an identity that it uses, and writes its endpoint
 * later. A slice names it instead of the endpoint. The operator's view of endpoints may lag for ever.
 */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly inUseDeleted: string[] = [];
  readonly fate: Fate;
  crashed = false;
  /** The agent's view of the identity, from the last round or later. */
  agentSees: KubernetesObject | undefined;
  claimed = false;

  constructor(choose: Choose, most: number) {
    const { cluster } = this;
    const has = (plural: string, key: string): boolean => cluster.get1(plural, key) !== undefined;
    const happenings: readonly Happening[] = [
      {
        name: 'agent uses it',
        can: () => !this.claimed && this.agentSees !== undefined,
        happen: () => this.claim(),
      },
      { name: 'agent looks', can: () => true, happen: () => this.look() },
      { name: 'endpoint made', can: () => this.claimed, happen: () => this.name('ciliumendpoints') },
      { name: 'slice made', can: () => this.claimed, happen: () => this.name('ciliumendpointslices') },
      {
        name: 'endpoint gone',
        can: () => has('ciliumendpoints', 'shop/a'),
        happen: () => cluster.drop('ciliumendpoints', 'shop/a'),
      },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
        },
      },
      {
        name: 'endpoints seen',
        can: () => true,
        happen: () => cluster.see('ciliumendpoints', 'ciliumendpointslices'),
      },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => this.fate.turn();
    cluster.onDelete = () => {
      const isNamed = has('ciliumendpoints', 'shop/a') || has('ciliumendpointslices', '/ces-1');
      if (isNamed) this.inUseDeleted.push(this.fate.log.join(', '));
    };
  }

  look(): void {
    this.agentSees = this.cluster.get1('ciliumidentities', KEY);
  }

  /** Uses the identity that it sees. First removes a mark, at the version that it saw. */
  claim(): void {
    const seen = this.agentSees;
    const now = this.cluster.get1('ciliumidentities', KEY);
    if (annotations(seen)[MARK] !== undefined) {
      if (now === undefined || now.metadata.resourceVersion !== seen?.metadata.resourceVersion) return;
      this.cluster.put('ciliumidentities', KEY, { metadata: { annotations: {} } });
    }
    this.claimed = true;
  }

  /** Creates a deleted identity again, like agents. */
  name(plural: 'ciliumendpoints' | 'ciliumendpointslices'): void {
    this.claimed = false;
    if (this.cluster.get1('ciliumidentities', KEY) === undefined) this.cluster.put('ciliumidentities', KEY);
    if (plural === 'ciliumendpoints')
      this.cluster.put(plural, 'shop/a', { status: { identity: { id: 1001 } } });
    else this.cluster.put(plural, '/ces-1', { endpoints: [{ name: 'a', id: 1001 }] });
  }

  /** Completes everything that takes less than a round before the next one begins. */
  passRound(): void {
    this.clock.advance(ROUND);
    this.look();
    if (this.claimed) this.name('ciliumendpoints');
    this.cluster.see('ciliumidentities');
    this.fate.turn();
  }

  collector(): IdentityCollector {
    const { cluster, clock } = this;
    return new IdentityCollector({
      identities: cluster.observed('ciliumidentities'),
      endpoints: cluster.observed('ciliumendpoints'),
      slices: cluster.observed('ciliumendpointslices'),
      reader: cluster,
      writer: cluster,
      clock,
    });
  }
}

type Begin = (world: World) => (number: number) => Promise<void>;

const ours: Begin = (world) => {
  const collector = world.collector();
  return (number) => round(collector, number);
};

/** Computes all steps of a round. */
function wholeRound(...given: Parameters<typeof identityRound>): IdentityRound {
  const steps = identityRound(...given);
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}

/** Upstream's rule on the objects that it has seen, complete or not. */
function upstream(withMark: boolean): Begin {
  return ({ cluster, clock }) => {
    const identities = cluster.observed('ciliumidentities');
    const named = [cluster.observed('ciliumendpoints'), cluster.observed('ciliumendpointslices')];
    let uses: ReadonlyMap<string, IdentityUse> = new Map();
    return async () => {
      const names = new Set(named.flatMap(({ objects }) => (objects.size > 0 ? ['1001'] : [])));
      const result = wholeRound(uses, identities.objects.values(), names, clock.now(), TIMEOUT);
      ({ uses } = result);
      for (const name of withMark ? result.toDelete : [...result.toMark, ...result.toDelete]) {
        const { uid = '', version = '' } = uses.get(name) ?? {};
        const place = { kind: IDENTITIES, name };
        await cluster.write({ verb: 'delete', place, uid, resourceVersion: version });
      }
      for (const name of withMark ? result.toMark : []) {
        const { metadata } = identities.objects.get(`/${name}`) ?? cluster.put('none', '/none');
        cluster.put('ciliumidentities', `/${name}`, {
          metadata: { ...metadata, annotations: { [MARK]: 'now' } },
        });
      }
    };
  };
}

async function histories(begin: Begin, most: number): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most);
    const { cluster } = world;
    let next = begin(world);
    cluster.put('ciliumidentities', KEY);
    cluster.see('ciliumidentities', 'ciliumendpoints', 'ciliumendpointslices');
    world.look();
    // First seen in round 1, marked in 3, seen marked in 4, deleted in 6.
    for (let number = 1; number <= 6; number++) {
      world.passRound();
      if (world.crashed) next = begin(world);
      world.crashed = false;
      await next(number);
    }
    first ??= world.inUseDeleted[0];
    cluster.before = () => {};
    world.fate.log.push('at rest');
    for (let number = 7; number <= 13; number++) {
      world.clock.advance(ROUND);
      if (world.claimed) world.name('ciliumendpoints');
      cluster.see('ciliumidentities', 'ciliumendpoints', 'ciliumendpointslices');
      await next(number);
    }
    first ??= world.inUseDeleted[0];
    const isNamed = ['ciliumendpoints shop/a', 'ciliumendpointslices /ces-1'].some((key) =>
      cluster.objects.has(key),
    );
    const isThere = cluster.get1('ciliumidentities', KEY) !== undefined;
    if (isNamed && !isThere) first ??= `missing: ${world.fate.log.join(', ')}`;
    if (!isNamed && isThere) first ??= `left over: ${world.fate.log.join(', ')}`;
  });
  return { ways, first };
}

describe('the collector of CiliumIdentities', () => {
  it('deletes nothing in use, and leaves nothing unused, in every small history', async () => {
    const { ways, first } = await histories(ours, 3);
    expect(first).toBeUndefined();
    expect(ways).toBeGreaterThan(2000);
  });

  it('would delete an identity in use by the rule of 1.8: no mark, and a stale view (#19877)', async () => {
    expect((await histories(upstream(false), 3)).first).toBeDefined();
  });

  it('would delete an identity in use by the rule of 1.17, too, from a stale view', async () => {
    expect((await histories(upstream(true), 3)).first).toMatch(/endpoint made|slice made|uses/);
  });

  it('deletes nothing in its first half hour, and marks before it deletes', async () => {
    const world = new World(() => 0, 0);
    const { cluster } = world;
    const collector = world.collector();
    cluster.put('ciliumidentities', KEY, { 'security-labels': { 'k8s:app': 'web' } });
    const states: string[] = [];
    for (let number = 1; number <= 6; number++) {
      world.passRound();
      await round(collector, number);
      const identity = cluster.get1('ciliumidentities', KEY);
      states.push(identity === undefined ? 'gone' : (annotations(identity)[MARK] ?? 'there'));
    }
    expect(states).toEqual([
      'there',
      'there',
      '2026-11-20T12:45:00.000Z',
      ...new Array(2).fill(states[2]),
      'gone',
    ]);
  });

  it('ignores an identity that is being deleted (regression: each round deleted and counted it again)', () => {
    const metadata = { name: '1001', uid: 'u', resourceVersion: '7' };
    const uses = new Map([['1001', { uid: 'u', version: '7', lastUsedMs: 0 }]]);
    for (const annotations of [{}, { [MARK]: '1970-01-01T00:00:00.000Z' }]) {
      const of = (more: object): object => {
        const identity = { metadata: { ...metadata, annotations, ...more } };
        const { toMark, toDelete } = wholeRound(uses, [identity], new Set(), TIMEOUT, TIMEOUT);
        return [...toMark, ...toDelete];
      };
      expect([of({}), of({ deletionTimestamp: '2026-01-01T00:00:00Z' })]).toEqual([['1001'], []]);
    }
  });

  it.each([
    ['read', 1],
    ['written', 9],
  ])(
    'does not mark an identity that was written after it was read, and before it is %s',
    async (_, writes) => {
      const world = new World(() => 0, 0);
      const { cluster } = world;
      const collector = world.collector();
      cluster.put('ciliumidentities', KEY);
      let left = writes;
      const write = (): void => {
        if (left-- > 0) cluster.put('ciliumidentities', KEY);
      };
      for (let number = 1; number <= 3; number++) {
        world.passRound();
        if (number === 3) cluster.before = write;
        await round(collector, number);
      }
      expect(annotations(cluster.get1('ciliumidentities', KEY))).toEqual({});
    },
  );

  it('does not delete an identity that is written during the last lists, although its event arrives before the delete', async () => {
    const world = new World(() => 0, 0);
    const { cluster } = world;
    const collector = world.collector();
    cluster.put('ciliumidentities', KEY);
    for (let number = 1; number <= 6; number++) {
      world.passRound();
      if (number === 6)
        cluster.before = () => {
          cluster.before = () => {};
          cluster.put('ciliumidentities', KEY, { metadata: { annotations: {} } });
          cluster.see('ciliumidentities');
        };
      await round(collector, number);
    }
    expect(cluster.get1('ciliumidentities', KEY)).toBeDefined();
  });
});

it.each(['endpoints', 'identities'] as const)(
  'a round reads 10,000 %s in steps (regression: in one turn of the event loop)',
  async (kind) => {
    const clock = new ManualClock();
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 1 });
    let read = 0;
    const object = (name: string): KubernetesObject => ({
      get metadata() {
        if (kind === 'identities') read++;
        return { namespace: 'shop', name, uid: name, resourceVersion: '1' };
      },
      get status() {
        read++;
        return { identity: { id: 1001 } };
      },
    });
    const observed = { isMissing: false, notReadyReason: () => undefined, follow: () => {} };
    const objects = new Map(Array.from({ length: 10_000 }, (_, at) => [`shop/${at}`, object(`${at}`)]));
    const none = { ...observed, objects: new Map<string, KubernetesObject>() };
    const cluster = new TinyCluster();
    const collector = new IdentityCollector({
      ...{ identities: none, endpoints: none, slices: none, reader: cluster, writer: cluster, clock, gate },
      [kind]: { ...observed, objects },
    });
    const ended = round(collector);
    let most = read;
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      const before = read;
      turn();
      await settle();
      most = Math.max(most, read - before);
    }
    await ended;
    expect(read).toBeGreaterThanOrEqual(10_000);
    expect(most).toBeLessThan(read / 2);
  },
);
