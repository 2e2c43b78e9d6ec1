import { describe, expect, it } from 'vitest';
import {
  UnmanagedDnsCollector,
  unmanagedPods,
} from '../../../src/operator/collect/unmanaged-dns-collector.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening, round, TinyCluster } from '../support/tiny-cluster.ts';

const INTERVAL = 15_000;
const STARTED = 30_000;
const RESTARTED = 5 * 60_000;
const PODS = { group: '', version: 'v1', plural: 'pods' };
const KEY = 'kube-system/dns';

/** A DNS pod that is created and deleted, its agent, and an operator that may lag. */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly wrong: string[] = [];
  readonly fate: Fate;
  crashed = false;
  #requests = 0;
  /**
   * The request before which the endpoint was created. A change after the last request is invisible to
   * everyone.
   */
  #managedAt = 0;
  #restartedAt = Number.NEGATIVE_INFINITY;

  constructor(choose: Choose, most: number) {
    const { cluster } = this;
    const has = (plural: string): boolean => cluster.get1(plural, KEY) !== undefined;
    const happenings: readonly Happening[] = [
      { name: 'pod made', can: () => !has('pods'), happen: () => this.makePod() },
      { name: 'pod gone', can: () => has('pods'), happen: () => cluster.drop('pods', KEY) },
      {
        name: 'endpoint made',
        can: () => has('pods') && !has('ciliumendpoints'),
        happen: () => {
          this.#managedAt = this.#requests;
          cluster.put('ciliumendpoints', KEY);
        },
      },
      {
        name: 'endpoint gone',
        can: () => has('ciliumendpoints'),
        happen: () => cluster.drop('ciliumendpoints', KEY),
      },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
          this.#restartedAt = Number.NEGATIVE_INFINITY;
        },
      },
      { name: 'pods seen', can: () => true, happen: () => cluster.see('pods') },
      { name: 'endpoints seen', can: () => true, happen: () => cluster.see('ciliumendpoints') },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => {
      this.#requests++;
      this.fate.turn();
    };
    cluster.onDelete = ({ status }) => {
      const { startTime } = status as { startTime: string };
      const now = this.clock.wallTime();
      const at = this.fate.log.join(', ');
      if (has('ciliumendpoints') && this.#managedAt < this.#requests) this.wrong.push(`managed: ${at}`);
      if (now - Date.parse(startTime) <= STARTED) this.wrong.push(`young: ${at}`);
      if (now - this.#restartedAt < RESTARTED) this.wrong.push(`restarted: ${at}`);
      this.#restartedAt = now;
    };
  }

  /** Creates the pod like a Deployment. `ageMs`: it was started this long ago. */
  makePod(ageMs = 0): void {
    const startTime = new Date(this.clock.wallTime() - ageMs).toISOString();
    this.cluster.put('pods', KEY, { status: { phase: 'Running', startTime } });
  }
}

type Begin = (world: World) => (number: number) => Promise<void>;

const ours: Begin = ({ cluster, clock }) => {
  const [pods, endpoints] = [cluster.observed('pods'), cluster.observed('ciliumendpoints')];
  const collector = new UnmanagedDnsCollector({ pods, endpoints, reader: cluster, writer: cluster, clock });
  return (number) => round(collector, number);
};

/** Both versions: a seen object is deleted by its name. */
const upstream: Begin = ({ cluster, clock }) => {
  const [pods, endpoints] = [cluster.observed('pods'), cluster.observed('ciliumendpoints')];
  const restarted = new Map<string, number>();
  return async () => {
    const now = clock.now();
    const candidates = pods.objects.values();
    const [pod] = unmanagedPods(candidates, endpoints.objects, restarted, now, clock.wallTime());
    if (pod === undefined) return;
    const { namespace, name } = pod.metadata;
    await cluster.write({ verb: 'delete', place: { kind: PODS, namespace, name }, uid: '' });
    restarted.set(`${namespace}/${name}`, now);
  };
};

/** Runs every history with this number of events. Returns the first error. */
async function histories(begin: Begin, most: number): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most);
    const { cluster, clock } = world;
    let next = begin(world);
    world.makePod(STARTED);
    cluster.see('pods');
    for (let number = 1; number <= 3; number++) {
      clock.advance(INTERVAL);
      world.fate.turn();
      if (world.crashed) next = begin(world);
      world.crashed = false;
      await next(number);
    }
    cluster.before = () => {};
    clock.advance(RESTARTED);
    cluster.see('pods', 'ciliumendpoints');
    await next(4);
    first ??= world.wrong[0];
    const isManaged = cluster.get1('ciliumendpoints', KEY) !== undefined;
    if (cluster.get1('pods', KEY) !== undefined && !isManaged)
      first ??= `left over: ${world.fate.log.join(', ')}`;
  });
  return { ways, first };
}

describe('the collector of unmanaged DNS pods, in every small history', () => {
  it('restarts no pod that is managed, young, or was restarted recently, and misses no unmanaged one', async () => {
    const { ways, first } = await histories(ours, 3);
    expect(first).toBeUndefined();
    expect(ways).toBeGreaterThan(500);
  });

  it('would restart a young or managed pod by the rule of upstream, which deletes by the name that it has read', async () => {
    expect((await histories(upstream, 2)).first).toMatch(/^(young|managed): /);
  });
});
