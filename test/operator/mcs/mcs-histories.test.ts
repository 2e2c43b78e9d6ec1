import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { derivedName } from '../../../src/operator/mcs/names.ts';
import { IMPORTS, type McsCluster, McsMesh, SERVICES, SLICES } from './support/mcs-world.ts';

const NAMES = ['x', 'y'] as const;

type Happening =
  | { readonly do: 'turn'; readonly cluster: number; readonly name: string; readonly isHeadless: boolean }
  | { readonly do: 'restart' | 'cut' | 'join'; readonly cluster: number }
  | { readonly do: 'spoil' | 'remove'; readonly cluster: number; readonly name: string }
  | { readonly do: 'wait'; readonly ms: number };

const cluster = fc.nat(2);
const name = fc.constantFrom(...NAMES);
const happening: fc.Arbitrary<Happening> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('turn' as const), cluster, name, isHeadless: fc.boolean() }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('restart' as const, 'cut' as const, 'join' as const),
      cluster,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom('spoil' as const, 'remove' as const), cluster, name }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(20_000) }) },
);

/** Three clusters, and the exporters of each service, oldest first. */
class World {
  readonly mesh: McsMesh = new McsMesh(3);
  readonly exporters: Map<string, { readonly by: string; readonly isHeadless: boolean }[]> = new Map();

  async happen(what: Happening): Promise<void> {
    if (what.do === 'wait') return this.mesh.pass(what.ms);
    const one = this.mesh.clusters[what.cluster];
    if (one === undefined) return;
    switch (what.do) {
      case 'turn':
        await this.#turn(one.name, what.name, what.isHeadless);
        return;
      case 'restart':
        await one.stop();
        return one.start();
      case 'cut':
        for (const { name: other } of this.mesh.clusters) if (other !== one.name) this.mesh.cut(one, other);
        return;
      case 'join':
        return this.join(one.name);
      case 'spoil':
        if ((await one.find(IMPORTS, what.name)) !== undefined)
          await one
            .userOf(IMPORTS)
            .patch(what.name, { spec: { ports: [] }, metadata: { labels: { x: '1' } } });
        return;
      case 'remove':
        if ((await one.derived(what.name)) !== undefined)
          await one.userOf(SERVICES).delete(derivedName('shop', what.name));
    }
  }

  join(of: string): void {
    const one = this.mesh.cluster(of);
    for (const other of this.mesh.clusters) if (other !== one) this.mesh.connect(one, other);
  }

  async #turn(by: string, service: string, isHeadless: boolean): Promise<void> {
    const known = this.exporters.get(service) ?? [];
    const rest = known.filter((one) => one.by !== by);
    const one = this.mesh.cluster(by);
    if (rest.length < known.length) {
      await one.unexport(service);
      await one.userOf(SERVICES).delete(service);
      await one.userOf(SLICES).delete(`${service}-1`);
      this.exporters.set(service, rest);
      return;
    }
    await one.export(service, isHeadless ? { clusterIP: 'None' } : {});
    await one.putSlice(`${service}-1`, service, [`10.0.0.${by.charCodeAt(0)}`]);
    this.exporters.set(service, [...known, { by, isHeadless }]);
    await this.mesh.pass(1000); // ages are whole seconds
  }

  /** Returns the imports and derived Services that each cluster has, and should have. */
  async differences(): Promise<{ readonly found: unknown; readonly wanted: unknown }> {
    const found: Record<string, unknown> = {};
    const wanted: Record<string, unknown> = {};
    for (const one of this.mesh.clusters) {
      const copies = await copiedAddresses(one);
      for (const service of NAMES) {
        const at = `${one.name} ${service}`;
        const object = await one.find(IMPORTS, service);
        const derived = await one.derived(service);
        const status = object?.['status'] as
          | { readonly clusters?: readonly { readonly cluster: string }[] }
          | undefined;
        const spec = object?.['spec'] as
          | { readonly type?: string; readonly ports?: readonly unknown[] }
          | undefined;
        found[at] = object && {
          clusters: status?.clusters?.map(({ cluster: by }) => by),
          type: spec?.type,
          ports: spec?.ports?.length,
          isHeadless:
            (derived?.['spec'] as { readonly clusterIP?: string } | undefined)?.clusterIP === 'None',
          isOwned: JSON.stringify(derived?.metadata['ownerReferences'] ?? '').includes(object.metadata.uid),
          conditions: await one.conditions(IMPORTS, service),
          backends: copies.get(derivedName('shop', service)) ?? [],
        };
        if (object === undefined && derived !== undefined) found[at] = 'a derived Service without an import';
        const known = this.exporters.get(service) ?? [];
        const [oldest] = known;
        wanted[at] = oldest && {
          clusters: known.map(({ by }) => by),
          type: oldest.isHeadless ? 'Headless' : 'ClusterSetIP',
          ports: 1,
          isHeadless: oldest.isHeadless,
          isOwned: true,
          conditions: ['Ready=True Ready'],
          backends: known.flatMap(({ by }) => (by === one.name ? [`10.0.0.${by.charCodeAt(0)}`] : [])),
        };
      }
    }
    return { found, wanted };
  }
}

/** Returns the addresses in the slices of derived Services, by Service. */
async function copiedAddresses(cluster: McsCluster): Promise<ReadonlyMap<string, readonly string[]>> {
  return new Map(
    (await cluster.slices()).flatMap(({ metadata: { labels }, endpoints }): [string, string[]][] =>
      'service.cilium.io/local-endpointslice' in labels
        ? [[labels['kubernetes.io/service-name'] ?? '', endpoints.flatMap(({ addresses }) => addresses)]]
        : [],
    ),
  );
}

describe('the imports of three clusters', () => {
  it('are those of a fold over the exports, whatever was restarted, disconnected or changed by others before', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(happening, { maxLength: 20, size: 'max' }), async (happenings) => {
        const world = new World();
        await world.mesh.start();
        for (const what of happenings) await world.happen(what);
        for (const { name: of } of world.mesh.clusters) world.join(of);
        await world.mesh.pass(200_000);
        const { found, wanted } = await world.differences();
        expect(found).toEqual(wanted);
        const writes = world.mesh.clusters.map((one) => one.writes.length);
        await world.mesh.pass(60_000);
        expect(world.mesh.clusters.map((one) => one.writes.length)).toEqual(writes);
        await world.mesh.stop();
      }),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 4) },
    );
  });
});
