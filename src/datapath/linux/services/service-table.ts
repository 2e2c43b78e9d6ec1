import { join } from 'node:path';
import type { Family } from '../../../net/address-words.ts';
import type { Bpf } from '../bpf/bpf.ts';
import { BpfMap, ForeignMapError, isPinnedMap } from '../bpf/bpf-map.ts';
import type { MapShape } from '../bpf/info.ts';
import { unpin } from '../bpf/pin.ts';
import type { KernelTable, MapUse, TableChange } from '../kernel-table.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import type { ServiceItem } from './desired-services.ts';
import { FamilyServices, type FrontendStep, type InstalledFrontend } from './family-services.ts';
import {
  MAX_BACKENDS_OF_FRONTEND,
  parseEndpoint,
  SERVICE_MAPS,
  type ServiceMapName,
  type ServiceRoom,
  serviceMapShapes,
  serviceRoom,
} from './service-layout.ts';
import { ServiceMaps } from './service-maps.ts';

const FAMILIES: readonly Family[] = [4, 6];
const E2BIG = 7;
/** Of what belongs to no frontend: `unused backend 10.0.0.1:8080/TCP`. */
const UNUSED = 'unused backend ';
/** Of a frontend that is not whole: no frontend that is to be is like it. */
const DAMAGED = '(damaged)';
const DELETED: ServiceItem = { backends: [DAMAGED], affinitySeconds: 0 };

/** How the maps of one family are opened. */
export type OpenServiceMaps = (family: Family) => ServiceMaps;

/**
 * Opens the maps of services below a folder of a bpffs, or makes them, which unless `isPinned` go with this process. One that
 * is there keeps its size, as programs read it. Throws `ForeignMapError`, `SyscallError`.
 */
export function openServiceMaps(
  bpf: Bpf,
  folder: string,
  room: ServiceRoom = serviceRoom(),
  isPinned = true,
): OpenServiceMaps {
  return (family) => {
    const shapes = serviceMapShapes(family, room);
    const open = (name: ServiceMapName): BpfMap => {
      const pinned = `${name}${family}`;
      return openOfAnySize(shapes[name], (shape) =>
        BpfMap.openOrCreate(bpf, shape, join(folder, pinned), pinned, isPinned),
      );
    };
    return new ServiceMaps(family, {
      services: open('services'),
      backends: open('backends'),
      members: open('members'),
      clients: open('clients'),
      peers: open('peers'),
    });
  };
}

function openOfAnySize(shape: MapShape, open: (shape: MapShape) => BpfMap): BpfMap {
  try {
    return open(shape);
  } catch (error) {
    if (!(error instanceof ForeignMapError && error.isResized)) throw error;
    return open({ ...shape, maxEntries: error.maxEntries });
  }
}

/** Takes the pins of these maps away, once no program reads them any more. Maps of others stay. */
export function unpinServiceMaps(bpf: Bpf, folder: string): void {
  for (const family of FAMILIES) {
    const shapes = serviceMapShapes(family, serviceRoom());
    for (const name of SERVICE_MAPS) {
      const path = join(folder, `${name}${family}`);
      if (isPinnedMap(bpf, path, shapes[name])) unpin(path);
    }
  }
}

/** The maps that socket programs read: a frontend is one item, whatever it takes of slots and backends. */
export class ServiceTable implements KernelTable<ServiceItem>, Disposable {
  readonly name: string = 'services';
  /** Of 10 backends each: about 1 ms. */
  readonly chunk: number = 32;
  /** What stands in the maps of each family. */
  readonly families: Readonly<Record<Family, FamilyServices>>;

  constructor(open: OpenServiceMaps) {
    this.families = { 4: new FamilyServices(open(4)), 6: new FamilyServices(open(6)) };
  }

  /** Descriptors of all maps, as the programs name them. */
  get descriptors(): ReadonlyMap<string, number> {
    return new Map(
      FAMILIES.flatMap((family) =>
        SERVICE_MAPS.flatMap((name) => {
          const map = this.families[family].maps.maps[name];
          return map instanceof BpfMap ? [[`${name}${family}`, map.fd] as const] : [];
        }),
      ),
    );
  }

  /** How full the maps are that an item takes entries of. Costs the number of frontends. */
  maps(): readonly MapUse[] {
    return FAMILIES.flatMap((family) => this.families[family].use());
  }

  /** Maps that were there and have room for another number, a sentence each. */
  sizesOtherThan(room: ServiceRoom): readonly string[] {
    return FAMILIES.flatMap((family) => {
      const shapes = serviceMapShapes(family, room);
      const { maps } = this.families[family].maps;
      return SERVICE_MAPS.flatMap((name) => {
        const { maxEntries } = maps[name].shape;
        if (maxEntries === shapes[name].maxEntries) return [];
        const words = `has room for ${maxEntries} entries, and not for ${shapes[name].maxEntries}`;
        return [
          `the map ${name}${family} that was found ${words}, until dpcache datapath clean takes it away`,
        ];
      });
    });
  }

  equal(a: ServiceItem, b: ServiceItem): boolean {
    return (
      a.affinitySeconds === b.affinitySeconds &&
      a.backends.length === b.backends.length &&
      a.backends.every((backend, at) => backend === b.backends[at])
    );
  }

  print({ backends, affinitySeconds }: ServiceItem): string {
    const affinity = affinitySeconds === 0 ? '' : ` affinity ${affinitySeconds}s`;
    return `→ ${backends.length === 0 ? 'refused' : backends.join(' ')}${affinity}`;
  }

  *dump(): Generator<readonly [string, ServiceItem] | undefined, void, void> {
    for (const family of FAMILIES) {
      const services = this.families[family];
      yield* services.read();
      for (const [frontend, installed] of services.frontends) yield [frontend, itemOf(installed)];
      for (const backend of services.unusedBackends())
        yield [UNUSED + backend, { backends: [backend], affinitySeconds: 0 }];
    }
  }

  apply(changes: readonly TableChange<ServiceItem>[]): readonly (SyscallError | undefined)[] {
    const steps = changes.map(({ key, item }) =>
      key.startsWith(UNUSED) ? undefined : this.#stepOf(key, item),
    );
    for (const family of FAMILIES) {
      const own = steps.filter(
        (step) => step !== undefined && step.error === undefined && isOf(step, family),
      );
      this.families[family].apply(own.filter((step) => step !== undefined));
    }
    return changes.map(({ key }, at) => {
      const step = steps[at];
      return step === undefined ? this.#release(key) : step.error;
    });
  }

  [Symbol.dispose](): void {
    for (const family of FAMILIES) this.families[family].maps[Symbol.dispose]();
  }

  #stepOf(frontend: string, wanted: ServiceItem | undefined): FrontendStep {
    const endpoint = parseEndpoint(frontend);
    const family = endpoint.ip.includes(':') ? 6 : 4;
    const installed = this.families[family].installed(frontend);
    const isTooMuch = (wanted?.backends.length ?? 0) > MAX_BACKENDS_OF_FRONTEND;
    const error = isTooMuch ? new SyscallError('a frontend takes 65,535 backends', E2BIG) : undefined;
    return { frontend, endpoint, installed, wanted, error };
  }

  #release(key: string): SyscallError | undefined {
    const backend = key.slice(UNUSED.length);
    return this.families[backend.startsWith('[') ? 6 : 4].release(backend);
  }
}

function isOf({ endpoint }: FrontendStep, family: Family): boolean {
  return endpoint.ip.includes(':') === (family === 6);
}

/** What clients meet; `damaged` where slots, members and frontend do not belong together. */
function itemOf({ slots, count, affinitySeconds, members }: InstalledFrontend): ServiceItem {
  if (count === undefined) return DELETED;
  const backends = slots.filter((text) => text !== undefined).sort();
  const isWhole = slots.length === count && backends.length === count;
  const hasMembers =
    affinitySeconds === 0
      ? members.size === 0
      : members.size === count && backends.every((text) => members.has(text));
  return { backends: isWhole && hasMembers ? backends : [...backends, DAMAGED], affinitySeconds };
}
