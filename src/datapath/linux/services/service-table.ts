import { constants } from 'node:os';
import type { Family } from '../../../net/address-words.ts';
import type { ApplyOutcome, KernelTable, MapUse, TableChange } from '../kernel-table.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import type { ServiceItem } from './desired-services.ts';
import {
  FamilyServices,
  type FrontendStep,
  type InstalledFrontend,
  type ServiceLimits,
} from './family-services.ts';
import { FAMILIES, MAX_BACKENDS_OF_FRONTEND, parseEndpoint } from './service-layout.ts';
import type { ServiceMapSet } from './service-maps.ts';

/**
 * Writing 8192 entries takes about 10 ms. Lists of at least 1024 backends are stored without a copy, because
 * `DesiredServices` keeps them, too.
 */
const LIMITS: ServiceLimits = { entriesPerCall: 8192, storedList: 1024 };
/** Number of slots after which `dump` pauses. Sorting 8192 backends takes up to 3 ms. */
const SLOTS_PER_TURN = 8192;
/** Prefix of the keys of backends that no frontend in the kernel uses: `unused backend 10.0.0.1:8080/TCP`. */
const UNUSED = 'unused backend ';
/** Added to the backends of a damaged frontend, so that it equals no desired one and is rewritten. */
const DAMAGED = '(damaged)';
/** The item of a frontend with slots in the kernel but no entry of its own. */
const SLOTS_ONLY: ServiceItem = { backends: [DAMAGED], affinitySeconds: 0 };

/** The service maps of the kernel as one table. Each frontend is one item with all its backends. */
export class ServiceMapTable implements KernelTable<ServiceItem> {
  readonly name: string = 'services';
  /** Items per write. 32 frontends with 10 backends each take about 1 ms. */
  readonly chunk: number = 32;
  /** The content of the maps of IPv4 and of IPv6. */
  readonly families: Readonly<Record<Family, FamilyServices>>;

  /** The caller remains the owner of the maps and closes them. */
  constructor(maps: ServiceMapSet, limits: ServiceLimits = LIMITS) {
    this.families = { 4: new FamilyServices(maps[4], limits), 6: new FamilyServices(maps[6], limits) };
  }

  /** Replaces the maps by others with the same entries. Must be called before the first `dump`. */
  replaceMaps(maps: ServiceMapSet): void {
    for (const family of FAMILIES) this.families[family].serviceMaps = maps[family];
  }

  /** Returns the usage of the maps of both families. Cost: linear in the number of frontends. */
  maps(): readonly MapUse[] {
    return FAMILIES.flatMap((family) => this.families[family].mapUse());
  }

  /** A frontend counts as one item for each ten backends. */
  weight(_frontend: string, item: ServiceItem | undefined): number {
    return Math.max(1, (item?.backends.length ?? 0) / 10);
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
      let slots = 0;
      for (const [frontend, installed] of services.frontends) {
        yield [frontend, itemOf(installed)];
        slots += installed.slots.length;
        if (slots < SLOTS_PER_TURN) continue;
        slots = 0;
        yield;
      }
      for (const backend of services.unusedBackends())
        yield [UNUSED + backend, { backends: [backend], affinitySeconds: 0 }];
    }
  }

  apply(changes: readonly TableChange<ServiceItem>[]): readonly ApplyOutcome[] {
    const steps = changes.map(({ key, item }) =>
      key.startsWith(UNUSED) ? undefined : this.#stepOf(key, item),
    );
    // Applying a step sets its `error` and `isUnfinished`.
    const valid = steps.filter((step) => step !== undefined).filter(({ error }) => error === undefined);
    for (const family of FAMILIES)
      this.families[family].apply(valid.filter(({ endpoint }) => familyOf(endpoint.ip) === family));
    return changes.map(({ key }, at) => {
      const step = steps[at];
      if (step === undefined) return this.#release(key);
      return step.error ?? (step.isUnfinished ? 'unfinished' : undefined);
    });
  }

  #stepOf(frontend: string, desired: ServiceItem | undefined): FrontendStep {
    const endpoint = parseEndpoint(frontend);
    const installed = this.families[familyOf(endpoint.ip)].installed(frontend);
    const exceedsLimit = (desired?.backends.length ?? 0) > MAX_BACKENDS_OF_FRONTEND;
    const error = exceedsLimit
      ? new SyscallError('a frontend has at most 65,535 backends', constants.errno.E2BIG)
      : undefined;
    return { frontend, endpoint, installed, desired, error, isUnfinished: false };
  }

  #release(key: string): ApplyOutcome {
    const backend = key.slice(UNUSED.length);
    return this.families[backend.startsWith('[') ? 6 : 4].release(backend);
  }
}

/**
 * Returns an installed frontend as an item. The item contains {@link DAMAGED} if the slots, or the backends for clients
 * with affinity (`members`), do not match the count.
 */
function itemOf({ slots, count, affinitySeconds, members }: InstalledFrontend): ServiceItem {
  if (count === undefined) return SLOTS_ONLY;
  const backends = slots.filter((text) => text !== undefined).sort();
  const isWhole = slots.length === count && backends.length === count;
  const hasMembers =
    affinitySeconds === 0
      ? members.size === 0
      : members.size === count && backends.every((text) => members.has(text));
  return { backends: isWhole && hasMembers ? backends : [...backends, DAMAGED], affinitySeconds };
}
