import type { Rejection } from '../../base/rejection.ts';
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

interface ExportValue extends PublishedValue {
  readonly namespace: string;
}

type ExportObjects = Pick<McsObjects, 'objects' | 'listen' | 'complete'>;

/** The keys of the ServiceExports that have a Service of the same name. */
class ExportKeys {
  readonly #context: InputContext;
  readonly #objects: ExportObjects;
  readonly #values = new Map<string, ExportValue>();
  readonly exported: NamespacedValues<ExportValue>;

  constructor(context: InputContext, objects: ExportObjects) {
    this.#context = context;
    this.#objects = objects;
    const namespaceOf = ({ namespace }: ExportValue): string => namespace;
    this.exported = exportedValues('others', { namespaceOf, change: publishTo(context) }, context);
  }

  /** Puts or deletes a key, depending on its objects. `name` is `namespace/name`. */
  review(name: string): void {
    const previous = this.#values.get(name);
    const { current, faults } = this.#read(name);
    if (current !== undefined && previous !== undefined && equalBytes(previous.value, current.value)) return;
    for (const fault of faults) this.#context.rejections.add(fault);
    if (current === undefined) this.#values.delete(name);
    else this.#values.set(name, current);
    if (current !== undefined || previous !== undefined) this.exported.change(current, previous);
  }

  #read(name: string): {
    readonly current: ExportValue | undefined;
    readonly faults: readonly Rejection[];
  } {
    const { clusterName } = this.#context;
    const serviceExport = this.#objects.objects('serviceexports').get(name);
    if (serviceExport === undefined) return { current: undefined, faults: [] };
    const service = this.#objects.objects('services').get(name);
    const read = readLocalExport(clusterName, serviceExport, service);
    if (!read.isValid)
      return { current: undefined, faults: read.rejection === undefined ? [] : [read.rejection] };
    const { namespace } = read.service;
    return { current: { name, namespace, value: encodeServiceExport(read.service) }, faults: read.dropped };
  }
}

function follow(context: InputContext, objects: ExportObjects): FollowedInputs {
  const { onChange } = context;
  const keys = new ExportKeys(context, objects);
  for (const name of objects.objects('serviceexports').keys()) keys.review(name);
  const leave = objects.listen((kind, events) => {
    if (kind === 'services' || kind === 'serviceexports')
      for (const { object } of events) keys.review(objectKey(object));
    if (events.length === 0) onChange();
  });
  const inputs: FollowedInputs = {
    get complete() {
      return objects.complete;
    },
    kinds: [],
    stop: () => {
      leave();
      return Promise.resolve();
    },
  };
  return withNamespaces(inputs, 'others', keys.exported, context);
}

/**
 * Publishes `cilium/state/serviceexports/v1/<cluster>/<namespace>/<name>` for each ServiceExport in a global namespace
 * with a valid Service of the same name that is not of type ExternalName. Without the CRD there are no keys, and the
 * canary is written.
 */
export function exportSync(options: ProducerOptions, objects: ExportObjects): Producer {
  const name = 'service export sync';
  return new Producer(
    { name, resource: 'serviceexports', follow: (context) => follow(context, objects) },
    options,
  );
}
