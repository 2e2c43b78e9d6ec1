import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Unsubscribe } from '../../src/base/subscription.ts';
import type { ClusterService } from '../../src/model/cluster-service.ts';
import type { EndpointSlice } from '../../src/servicecache/backend.ts';
import type { ServiceListener } from '../../src/servicecache/events.ts';
import type { Service } from '../../src/servicecache/service.ts';
import {
  type MergeOutcome,
  type RemoveOutcome,
  ServiceCache,
  type UpdateServiceOutcome,
} from '../../src/servicecache/service-cache.ts';
import { formatServiceID } from '../../src/servicecache/service-id.ts';
import { OWN_CLUSTER } from './support/operations.ts';
import {
  affinityPrefersOneSide,
  I1_foldEqualsDump,
  I2_orderDoesNotMatter,
  I3_noNoise,
  I4_oneWinner,
  I7_isolation,
  I8_batches,
  I10_noOrphans,
  I12_nothingSilent,
  type Law,
} from './support/properties.ts';

class Mutant extends ServiceCache {
  constructor(nodePorts: boolean) {
    super({ clusterName: OWN_CLUSTER, nodePort: { enabled: nodePorts } });
  }
}

/** Sends no event if the last backend is lost. */
class SilentOnLoss extends Mutant {
  override subscribe(listener: ServiceListener): Unsubscribe {
    return super.subscribe({
      onEvents: (events) => {
        const heard = events.filter(
          (event) =>
            event.action === 'delete' ||
            event.oldEndpoints === undefined ||
            event.endpoints.backends.size > 0,
        );
        if (heard.length > 0) listener.onEvents(heard);
      },
    });
  }
}

/** Ignores updates of annotations alone, like the original. */
class IgnoringAnnotations extends Mutant {
  override updateService(service: Service): UpdateServiceOutcome {
    const known = this.services().get(formatServiceID(service.id));
    return super.updateService(
      known?.labels.equals(service.labels) ? { ...service, global: known.global } : service,
    );
  }
}

/** Ignores endpoints that are added before their service. */
class Impatient extends Mutant {
  override updateEndpoints(slice: EndpointSlice): 'applied' | 'unchanged' {
    return this.services().has(formatServiceID(slice.service)) ? super.updateEndpoints(slice) : 'unchanged';
  }
}

/** Sends every event twice. */
class Noisy extends Mutant {
  override subscribe(listener: ServiceListener): Unsubscribe {
    return super.subscribe({
      onEvents: (events) => {
        listener.onEvents(events);
        listener.onEvents(events);
      },
    });
  }
}

/** The first cluster that claims an address keeps it. */
class FirstComeFirstServed extends Mutant {
  override mergeExternalServiceUpdate(offer: ClusterService): MergeOutcome {
    const claimed = super.explain(offer)?.backends ?? [];
    const taken = new Set(
      claimed.filter((each) => each.cluster !== offer.cluster).map((each) => each.address),
    );
    const backends = new Map([...offer.backends].filter(([address]) => !taken.has(address)));
    return super.mergeExternalServiceUpdate({ ...offer, backends });
  }
}

/** A failing listener keeps the events from the others. */
class Fragile extends Mutant {
  readonly #all: ServiceListener[] = [];
  override subscribe(listener: ServiceListener): Unsubscribe {
    this.#all.push(listener);
    if (this.#all.length > 1) return super.subscribe({ onEvents: () => {} });
    return super.subscribe({
      onEvents: (events) => {
        for (const each of this.#all) each.onEvents(events);
      },
    });
  }
}

/** Runs batches without atomicity. */
class Batchless extends Mutant {
  override batch<T>(write: () => T): T {
    return write();
  }
}

/** Keeps claims of the withdrawn cluster that another one overrules. */
class Orphaning extends Mutant {
  override withdrawCluster(cluster: string): RemoveOutcome {
    const losing = [...this.services().values()].some(({ id }) =>
      super.explain(id)?.backends.some((each) => each.cluster === cluster && each.verdict === 'overruled'),
    );
    return losing ? 'not-found' : super.withdrawCluster(cluster);
  }
}

/** Ignores the local cluster's offers without counting them. */
class Silent extends Mutant {
  override mergeExternalServiceUpdate(offer: ClusterService): MergeOutcome {
    return offer.cluster === OWN_CLUSTER ? 'invalid' : super.mergeExternalServiceUpdate(offer);
  }
}

/** Confuses `remote` and `local`. */
class WrongSide extends Mutant {
  override updateService(service: Service): UpdateServiceOutcome {
    return super.updateService(service.affinity === 'remote' ? { ...service, affinity: 'local' } : service);
  }
}

const MUTANTS: readonly { readonly name: string; readonly law: Law; readonly mutant: typeof Mutant }[] = [
  { name: 'I1: one that does not tell of lost backends', law: I1_foldEqualsDump, mutant: SilentOnLoss },
  { name: 'I1: one that ignores annotations', law: I1_foldEqualsDump, mutant: IgnoringAnnotations },
  { name: 'I2: one that forgets what comes too early', law: I2_orderDoesNotMatter, mutant: Impatient },
  { name: 'I3: one that tells everything twice', law: I3_noNoise, mutant: Noisy },
  { name: 'I4: one where the first claim wins', law: I4_oneWinner, mutant: FirstComeFirstServed },
  { name: 'I7: one whose listeners share their fate', law: I7_isolation, mutant: Fragile },
  { name: 'I8: one without batches', law: I8_batches, mutant: Batchless },
  { name: 'I10: one that leaves overruled claims behind', law: I10_noOrphans, mutant: Orphaning },
  { name: 'I12: one that refuses in silence', law: I12_nothingSilent, mutant: Silent },
  { name: 'affinity: one that prefers the wrong side', law: affinityPrefersOneSide, mutant: WrongSide },
];

describe('a broken engine is detected', () => {
  it.each(MUTANTS)('$name', async ({ law, mutant: Broken }) => {
    const run = await fc.check(
      law((nodePorts) => new Broken(nodePorts), true),
      { endOnFailure: true },
    );
    expect(run.failed).toBe(true);
  });
});
