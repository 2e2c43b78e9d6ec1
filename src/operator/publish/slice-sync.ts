import { runNowOrInBackground, runToEnd } from '../../base/turn-gate.ts';
import { type AnyFeed, type KindReader, ObjectFeed } from '../../k8s/feed/object-feed.ts';
import { readID } from '../../k8s/parse-object.ts';
import { readFlags } from '../../k8s/parse-service.ts';
import { readSharedSlice, SHARED_SLICE_FIELDS, type SharedSlice } from '../../k8s/parse-shared-slice.ts';
import { encodeClusterEndpointSlice } from '../../kvstore/codec/cluster-endpoint-slice.ts';
import { SERVICE_NAME_LABEL } from '../../model/cluster-endpoint-slice.ts';
import { formatServiceID } from '../../servicecache/service-id.ts';
import { SetMap } from '../set-map.ts';
import type { NamespacedValues } from './namespaced-values.ts';
import {
  exportedValues,
  type FollowedInputs,
  type InputContext,
  Producer,
  type ProducerOptions,
  withNamespaces,
} from './producer.ts';
import type { ServiceObjects } from './service-objects.ts';

/** Number of slices encoded in one step: 100 endpoints take about 0.2 ms. */
const SLICES_PER_STEP = 16;

/** The fields of a service that decide if its slices are published. */
interface SharedService {
  readonly name: string;
  readonly isShared: boolean;
}

/**
 * The slices of shared services. A service is shared if it is global and its annotation `shared` is missing or `true`
 * (1.20). A slice has a key if its service is shared; slice and service may arrive in any order. If the annotations of
 * a service change, its slices are put or deleted.
 */
class SliceKeys {
  readonly #context: InputContext;
  /** The shared services: `namespace/name`. */
  readonly #shared = new Set<string>();
  /** Slices by the `namespace/name` of their service. */
  readonly #slices = new SetMap<SharedSlice>();
  /** The slices that have a key if their namespace is global. */
  readonly #offered = new Set<SharedSlice>();
  readonly exported: NamespacedValues<SharedSlice>;
  /** Number of unfinished reviews, which run in steps. */
  #reviews = 0;

  constructor(context: InputContext) {
    this.#context = context;
    this.exported = exportedValues(
      {
        namespaceOf: ({ namespace }) => namespace,
        change: (current, previous) => this.#write(current, previous),
        valuesPerStep: SLICES_PER_STEP,
      },
      context,
    );
  }

  /** True if no service is being reviewed. */
  get isIdle(): boolean {
    return this.#reviews === 0;
  }

  services(): KindReader<SharedService> {
    return {
      kind: 'Service',
      fields: ['metadata.annotations'],
      read: (fields) => {
        const id = readID(fields);
        const { global, shared } = readFlags(fields.map('metadata').strings('annotations'));
        return id && { name: formatServiceID(id), isShared: global && shared };
      },
      same: (current, previous) => current.isShared === previous.isShared,
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        if (current?.isShared === true) this.#shared.add(name);
        else this.#shared.delete(name);
        this.#review(name);
      },
    };
  }

  slices(): KindReader<SharedSlice> {
    return {
      kind: 'EndpointSlice',
      fields: SHARED_SLICE_FIELDS,
      read: readSharedSlice,
      change: (current, previous) => {
        const wasOffered = previous !== undefined && this.#offered.delete(previous);
        if (previous !== undefined) this.#slices.delete(serviceOf(previous), previous);
        if (current !== undefined) this.#slices.add(serviceOf(current), current);
        const isOffered = current !== undefined && this.#shared.has(serviceOf(current));
        if (isOffered) this.#offered.add(current);
        if (wasOffered || isOffered)
          this.exported.change(isOffered ? current : undefined, wasOffered ? previous : undefined);
      },
    };
  }

  /** Offers or withdraws the slices of a service, in steps if there are many. */
  #review(service: string): void {
    const slices = this.#slices.get(service);
    const steps = this.#reviewSteps(service, slices);
    const { gate, onChange } = this.#context;
    if (slices.size <= SLICES_PER_STEP) {
      runToEnd(steps);
      return;
    }
    this.#reviews++;
    const onEnd = (): void => {
      this.#reviews--;
      onChange();
    };
    runNowOrInBackground(gate, steps, { onEnd });
  }

  *#reviewSteps(service: string, slices: ReadonlySet<SharedSlice>): Generator<undefined, void, void> {
    let changed = 0;
    for (const slice of slices) {
      const isShared = this.#shared.has(service);
      if (isShared === this.#offered.has(slice)) continue;
      if (isShared) this.#offered.add(slice);
      else this.#offered.delete(slice);
      this.exported.change(isShared ? slice : undefined, isShared ? undefined : slice);
      if (++changed % SLICES_PER_STEP === 0) yield;
    }
  }

  #write(current: SharedSlice | undefined, previous: SharedSlice | undefined): void {
    const { keys, clusterName: cluster, clusterID } = this.#context;
    const slice = current ?? previous;
    if (slice === undefined) return;
    const name = formatServiceID(slice);
    if (current === undefined) keys.delete(name);
    else keys.upsert(name, encodeClusterEndpointSlice({ cluster, clusterID, ...current }));
  }
}

function serviceOf({ namespace, labels }: SharedSlice): string {
  return formatServiceID({ namespace, name: labels.get(SERVICE_NAME_LABEL) ?? '' });
}

function follow(context: InputContext, objects: Pick<ServiceObjects, 'join'>): FollowedInputs {
  const { rejections, gate } = context;
  const keys = new SliceKeys(context);
  const moreFeeds = new Map<string, AnyFeed>([
    ['services', new ObjectFeed(keys.services(), { rejections, gate })],
    ['endpointslices', new ObjectFeed(keys.slices(), { rejections, gate })],
  ]);
  const joined = objects.join({ moreFeeds, onChange: context.onChange });
  const inputs: FollowedInputs = {
    get complete() {
      return keys.isIdle && joined.complete;
    },
    get kinds() {
      return joined.kinds;
    },
    stop: () => joined.stop(),
  };
  return withNamespaces(inputs, keys.exported, context);
}

/**
 * Publishes the EndpointSlices of shared services as `cilium/state/endpointslices/v1/<cluster>/<namespace>/<name>`
 * (1.20), with all endpoints, ready or not. If the API server does not serve EndpointSlices, nothing is published.
 */
export function sliceSync(options: ProducerOptions, objects: Pick<ServiceObjects, 'join'>): Producer {
  return new Producer(
    { name: 'slice sync', resource: 'endpointslices', follow: (context) => follow(context, objects) },
    options,
  );
}
