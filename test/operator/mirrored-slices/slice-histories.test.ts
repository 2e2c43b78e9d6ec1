import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { ClusterEndpointSlice } from '../../../src/model/cluster-endpoint-slice.ts';
import { mirroredName } from '../../../src/operator/mirrored-slices/slice-content.ts';
import { addressesOf, mostPerSecond, remote, SELECTED, SliceWorld } from './support/slice-world.ts';

const CLUSTERS = ['baltic', 'celtic'] as const;
const NAMES = ['db', 'web'] as const;
const SLICES = ['1', '2', '3'] as const;
const MANAGED = 'endpointslice-mesh-controller.cilium.io';

type Step =
  | {
      readonly do: 'slice';
      readonly cluster: string;
      readonly service: string;
      readonly slice: string;
      readonly ip: number;
    }
  | { readonly do: 'no slice'; readonly cluster: string; readonly service: string; readonly slice: string }
  | { readonly do: 'service'; readonly service: string; readonly isSelected: boolean }
  | { readonly do: 'no service'; readonly service: string }
  | { readonly do: 'restart' }
  | { readonly do: 'synced'; readonly cluster: string }
  | { readonly do: 'leave'; readonly cluster: string }
  | { readonly do: 'tamper' | 'steal' | 'cut' | 'refuse' }
  | { readonly do: 'pass'; readonly ms: number };

const at = {
  cluster: fc.constantFrom(...CLUSTERS),
  service: fc.constantFrom(...NAMES),
  slice: fc.constantFrom(...SLICES),
};
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('slice' as const), ...at, ip: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('no slice' as const), ...at }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('service' as const),
      service: at.service,
      isSelected: fc.boolean(),
    }),
  },
  fc.record({ do: fc.constant('no service' as const), service: at.service }),
  { weight: 2, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('synced' as const), cluster: at.cluster }) },
  fc.record({ do: fc.constant('leave' as const), cluster: at.cluster }),
  fc.record({ do: fc.constantFrom('tamper' as const, 'steal' as const, 'cut' as const, 'refuse' as const) }),
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(10, 400, 3000) }),
  },
);

/** A naive model of the rule: every slice of every cluster in the mesh, for each selected service. */
class Model {
  readonly world = new SliceWorld();
  readonly remote = new Map<string, ClusterEndpointSlice>();
  readonly selected = new Set<string>();
  /** Clusters whose objects the operator has received completely. */
  readonly known = new Set<string>(CLUSTERS);
  readonly gone = new Set<string>();
  /** The time since which a slice is wanted. */
  readonly #since = new Map<string, number>();
  readonly lost: string[] = [];

  constructor() {
    this.world.onDelete = (name) => {
      // A delete may wait up to 50 ms for its turn.
      if (this.world.clock.now() - (this.#since.get(name) ?? Number.POSITIVE_INFINITY) > 100)
        this.lost.push(name);
    };
  }

  wanted(): ReadonlyMap<string, string> {
    const slices = [...this.remote.values()].filter(({ cluster, labels }) => {
      return this.selected.has(labels.get('kubernetes.io/service-name') ?? '') && !this.gone.has(cluster);
    });
    return new Map(
      slices.map(({ cluster, name, labels, endpoints }) => [
        mirroredName(labels.get('kubernetes.io/service-name') ?? '', cluster, name),
        addressesOf(endpoints),
      ]),
    );
  }

  /** Must be called after each change of the model. */
  changed(): void {
    const wanted = this.wanted();
    for (const name of this.#since.keys()) if (!wanted.has(name)) this.#since.delete(name);
    for (const name of wanted.keys())
      if (!this.#since.has(name)) this.#since.set(name, this.world.clock.now());
  }

  start(): void {
    const { clusters } = this.world;
    for (const cluster of CLUSTERS)
      clusters.states.set(cluster, this.gone.has(cluster) ? 'gone' : 'incomplete');
    this.known.clear();
    this.world.start();
  }

  /** The first list of a cluster arrives. */
  sync(cluster: string): void {
    if (this.gone.has(cluster) || this.known.has(cluster)) return;
    this.known.add(cluster);
    const { clusters } = this.world;
    for (const slice of this.remote.values())
      if (slice.cluster === cluster) clusters.sink?.mergeExternalSliceUpdate(slice);
    clusters.set(cluster, 'complete');
  }

  async step(step: Step): Promise<void> {
    const { world, remote: slices } = this;
    const { clusters } = world;
    switch (step.do) {
      case 'slice': {
        const { cluster, service, slice: n, ip } = step;
        if (this.gone.has(cluster)) return;
        const slice = remote(cluster, service, `${service}-${n}`, [`10.0.0.${ip}`]);
        slices.set(`${cluster}/${slice.name}`, slice);
        if (this.known.has(cluster)) clusters.sink?.mergeExternalSliceUpdate(slice);
        return;
      }
      case 'no slice': {
        const { cluster, service, slice: n } = step;
        const name = `${service}-${n}`;
        if (!slices.delete(`${cluster}/${name}`) || !this.known.has(cluster)) return;
        const id = { namespace: 'shop', name: service };
        clusters.sink?.mergeExternalSliceDelete({ cluster, id, name });
        return;
      }
      case 'service':
        await world.putService(step.service, step.isSelected ? SELECTED : {});
        if (step.isSelected) this.selected.add(step.service);
        else this.selected.delete(step.service);
        return;
      case 'no service':
        await world.services.ask({ method: 'DELETE', path: world.services.path(step.service) });
        this.selected.delete(step.service);
        return;
      case 'restart':
        await world.stop();
        this.start();
        return;
      case 'synced':
        this.sync(step.cluster);
        return;
      case 'leave':
        return this.#leave(step.cluster);
      case 'tamper':
      case 'steal':
        return await this.#tamper(step.do);
      case 'cut':
        world.api.cut();
        return;
      case 'refuse':
        world.api.faults.inject(
          { do: 'answer', status: 500, body: '{}' },
          { matches: ({ path }) => path.includes('fieldManager') },
        );
        return;
      case 'pass':
        await world.pass(step.ms);
    }
  }

  /** The configuration of a cluster is deleted: the mesh withdraws its slices. It returns with the next sync. */
  #leave(cluster: string): void {
    const { clusters } = this.world;
    for (const slice of [...this.remote.values()].filter((one) => one.cluster === cluster)) {
      this.remote.delete(`${cluster}/${slice.name}`);
      const id = { namespace: 'shop', name: slice.labels.get('kubernetes.io/service-name') ?? '' };
      if (this.known.has(cluster)) clusters.sink?.mergeExternalSliceDelete({ cluster, id, name: slice.name });
    }
    clusters.set(cluster, 'gone');
    this.gone.add(cluster);
  }

  /** Another client changes or deletes one of our slices. */
  async #tamper(how: 'tamper' | 'steal'): Promise<void> {
    const { slicesUser } = this.world;
    const own = (await this.world.slices()).find(({ metadata }) => metadata.name !== 'foreign');
    if (own === undefined) return;
    if (how === 'steal') await slicesUser.delete(own.metadata.name);
    else await slicesUser.patch(own.metadata.name, { endpoints: [{ addresses: ['192.0.2.1'] }] });
  }
}

it('the written slices are a function of the remote slices and the local services, at most 20 writes a second, each slice once', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: 'max' }), async (steps) => {
      const model = new Model();
      const { world } = model;
      const labels = { 'endpointslice.kubernetes.io/managed-by': MANAGED };
      await world.slicesUser.create('foreign', { addressType: 'IPv4', endpoints: [] }, { labels });
      model.start();
      for (const cluster of CLUSTERS) model.sync(cluster);
      for (const one of steps) {
        await model.step(one);
        model.changed();
      }
      for (const cluster of CLUSTERS) model.sync(cluster);
      world.api.faults.clear();
      await world.pass(300_000);
      const found = await world.addresses();
      expect(found).toEqual({ ...Object.fromEntries(model.wanted()), foreign: '' });
      expect(world.duty?.status().published).toMatchObject({ synced: true, pending: 0 });
      expect(model.lost).toEqual([]);
      expect(mostPerSecond(world.writes)).toBeLessThanOrEqual(20);
      const last = new Map<string, number>();
      for (const { slice, at: now, isDone, operator } of world.writes) {
        if (!isDone) continue;
        const key = `${operator} ${slice}`; // a new operator does not know the writes of the previous one
        expect(now - (last.get(key) ?? -1000)).toBeGreaterThanOrEqual(1000);
        last.set(key, now);
      }
      const before = world.writes.length;
      await world.pass(60_000);
      expect(world.writes.length).toBe(before);
      await world.stop();
    }),
    { numRuns: 25 },
  );
});
