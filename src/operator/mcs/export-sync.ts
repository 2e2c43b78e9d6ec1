import type { Rejection } from '../../base/rejection.ts';
import { forEachInSteps, runNowOrInBackground } from '../../base/turn-gate.ts';
import { equalBytes } from '../../kvstore/codec/bytes.ts';
import { encodeServiceExport } from '../../kvstore/codec/service-export.ts';
import { objectKey } from '../collect/observed-kind.ts';
import type { NamespacedValues } from '../publish/namespaced-values.ts';
import {
  exportedValues,
  type FollowedInputs,
  type InputContext,
  Producer,
  type ProducerOptions,
  type PublishedValue,
  publishTo,
  withNamespaces,
} from '../publish/producer.ts';
import { readLocalExport } from './local-export.ts';
import type { McsObjects } from './mcs-objects.ts';

/** Number of existing ServiceExports reviewed in one step; a step takes about 1 ms. */
const EXPORTS_PER_STEP = 128;

interface ServiceExportValue extends PublishedValue {
  readonly namespace: string;
}

type ServiceExportObjects = Pick<McsObjects, 'objects' | 'listen' | 'complete'>;

/** The keys of the ServiceExports with a Service of the same name. */
class ServiceExportKeys {
  readonly #context: InputContext;
  readonly #objects: ServiceExportObjects;
  readonly #values = new Map<string, ServiceExportValue>();
  readonly exported: NamespacedValues<ServiceExportValue>;

  constructor(context: InputContext, objects: ServiceExportObjects) {
    this.#context = context;
    this.#objects = objects;
    const namespaceOf = ({ namespace }: ServiceExportValue): string => namespace;
    this.exported = exportedValues({ namespaceOf, change: publishTo(context) }, context);
  }

  /** Puts or deletes a key, depending on its objects. `name` is `namespace/name`. */
  review(name: string): void {
    const previous = this.#values.get(name);
    const { current, rejections } = this.#read(name);
    if (current !== undefined && previous !== undefined && equalBytes(previous.value, current.value)) return;
    for (const rejection of rejections) this.#context.rejections.add(rejection);
    if (current === undefined) this.#values.delete(name);
    else this.#values.set(name, current);
    if (current !== undefined || previous !== undefined) this.exported.change(current, previous);
  }

  #read(name: string): {
    readonly current: ServiceExportValue | undefined;
    readonly rejections: readonly Rejection[];
  } {
    const { clusterName } = this.#context;
    const serviceExport = this.#objects.objects('serviceexports').get(name);
    if (serviceExport === undefined) return { current: undefined, rejections: [] };
    const service = this.#objects.objects('services').get(name);
    const read = readLocalExport(clusterName, serviceExport, service);
    if (!read.isValid)
      return { current: undefined, rejections: read.rejection === undefined ? [] : [read.rejection] };
    const { namespace } = read.service;
    return {
      current: { name, namespace, value: encodeServiceExport(read.service) },
      rejections: read.dropped,
    };
  }
}

function follow(context: InputContext, objects: ServiceExportObjects): FollowedInputs {
  const { gate, onChange } = context;
  const keys = new ServiceExportKeys(context, objects);
  const stopped = new AbortController();
  let areReviewed = false;
  function* reviewExisting(): Generator<undefined, void, void> {
    const existing = objects.objects('serviceexports').keys();
    yield* forEachInSteps(existing, EXPORTS_PER_STEP, (name) => keys.review(name));
    areReviewed = true; // not if a step has thrown, because the sweep would then delete keys of existing exports
  }
  runNowOrInBackground(gate, reviewExisting(), { signal: stopped.signal, onEnd: onChange });
  const leave = objects.listen((kind, events) => {
    if (kind === 'services' || kind === 'serviceexports')
      for (const { object } of events) keys.review(objectKey(object));
    if (events.length === 0) onChange(); // the objects may be complete now
  });
  const inputs: FollowedInputs = {
    get complete() {
      return areReviewed && objects.complete;
    },
    kinds: [],
    stop: () => {
      stopped.abort();
      leave();
      return Promise.resolve();
    },
  };
  return withNamespaces(inputs, keys.exported, context);
}

/**
 * Publishes `cilium/state/serviceexports/v1/<cluster>/<namespace>/<name>` (OPERATOR 66) for each ServiceExport in a
 * global namespace with a valid Service of the same name, except type ExternalName. Without the CRD only the
 * canary is written.
 */
export function exportSync(options: ProducerOptions, objects: ServiceExportObjects): Producer {
  const name = 'service export sync';
  return new Producer(
    { name, resource: 'serviceexports', follow: (context) => follow(context, objects) },
    options,
  );
}
