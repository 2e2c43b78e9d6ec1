import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import type { CallbackGuard } from '../../base/guard.ts';
import { CLUSTER_LABEL } from '../../model/cluster-label.ts';
import type { LabelFilter } from '../../model/label-filter.ts';
import { formatLabels, type Label, type Labels, sortLabels } from '../../model/labels.ts';
import { NAMESPACE_LABEL } from '../../model/namespace-label.ts';
import { type ObjectFields, readClusterScopedName, readStringMap } from '../parse-object.ts';
import type { ParsedPod } from '../parse-pod.ts';
import type { KindReader } from './object-feed.ts';

/** The labels of a pod if the filter removes all labels: `reserved:init` (5; KUBERNETES 25). */
const INIT: Labels = [{ source: 'reserved', key: 'init', value: '' }];

const NAMESPACE_LABELS = 'io.cilium.k8s.namespace.labels.';
const SERVICE_ACCOUNT = 'io.cilium.k8s.policy.serviceaccount';
/**
 * Prefix of labels that only Cilium sets. Ignored on pods, because a pod could otherwise forge the labels of its
 * namespace (KUBERNETES 26).
 */
const RESERVED_PREFIX = 'io.cilium.k8s';

const BACKOFF = { baseMs: 1_000, capMs: 30_000 };

/** A pod of this node. A pod that was deleted and created again has another uid. */
export interface LabelledPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** Options of {@link EndpointLabels}. */
export interface EndpointLabelsOptions {
  readonly clusterName: string;
  readonly filter: LabelFilter;
  readonly clock: Clock;
  readonly random: Random;
  readonly guard: CallbackGuard;
  /**
   * Called with the labels of a pod of this node if its labels or its uid differ from those of the last successful call
   * (KUBERNETES 27), or with undefined if the pod was deleted. If the callback throws, the call is retried after a
   * delay.
   */
  readonly onLabels: (pod: LabelledPod, labels: Labels | undefined) => void;
}

interface LocalPod {
  pod: ParsedPod;
  /** Uid and labels of the last successful call, as one text. */
  applied: string | undefined;
}

/**
 * The identity labels of the pods of this node (KUBERNETES 25 to 27): the labels of the pod and of its namespace, if
 * the filter keeps them. A pod waits until its namespace is known; an unknown namespace never counts as a namespace
 * without labels. If a namespace is deleted, its pods keep their labels.
 */
export class EndpointLabels {
  readonly #options: EndpointLabelsOptions;
  readonly #pods = new Map<string, LocalPod>();
  readonly #namespaces = new Map<string, ReadonlyMap<string, string>>();
  /**
   * Pods whose last call failed, by key. The call is retried: with undefined if the pod was deleted, otherwise with its
   * labels.
   */
  readonly #failed = new Map<string, LabelledPod>();
  /** Keys of pods whose labels were applied, possibly for an earlier uid, and whose removal was not applied yet. */
  readonly #labelled = new Set<string>();
  #failures = 0;
  #retry: Timer | undefined;

  constructor(options: EndpointLabelsOptions) {
    this.#options = options;
  }

  /** Cancels retries. */
  stop(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
  }

  /** Receives a change of a pod of this node. `current` is undefined if the pod was deleted or has ended. */
  podChanged(current: ParsedPod | undefined, previous: ParsedPod | undefined): void {
    const pod = current ?? previous;
    if (pod === undefined) return;
    const key = `${pod.namespace}/${pod.name}`;
    const known = this.#pods.get(key);
    if (current === undefined) {
      this.#pods.delete(key);
      if (this.#labelled.has(key)) this.#applyLabels(key, pod, undefined);
      else this.#failed.delete(key);
      return;
    }
    this.#pods.set(key, { pod: current, applied: known?.applied });
    this.#updateLabels(key);
  }

  namespaceReader(): KindReader<ParsedNamespace> {
    return {
      kind: 'Namespace',
      fields: ['metadata.labels'],
      read: readNamespace,
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        if (current === undefined) this.#namespaces.delete(name);
        else this.#namespaces.set(name, current.labels);
        if (current === undefined) return; // a deleted namespace changes no labels (KUBERNETES 27)
        for (const [key, { pod }] of this.#pods) if (pod.namespace === name) this.#updateLabels(key);
      },
    };
  }

  #labelsOf(pod: ParsedPod, namespace: ReadonlyMap<string, string>): Labels {
    const filtered: Label[] = [];
    const add = (key: string, value: string): void => {
      const label = { source: 'k8s', key, value };
      if (this.#options.filter.keeps(label)) filtered.push(label);
    };
    for (const [key, value] of pod.labels)
      if (!key.startsWith(RESERVED_PREFIX) && key !== NAMESPACE_LABEL) add(key, value);
    for (const [key, value] of namespace) add(`${NAMESPACE_LABELS}${key}`, value);
    add(NAMESPACE_LABEL, pod.namespace);
    if (pod.serviceAccount !== '') add(SERVICE_ACCOUNT, pod.serviceAccount);
    add(CLUSTER_LABEL, this.#options.clusterName);
    return filtered.length === 0 ? INIT : sortLabels(filtered);
  }

  /** Applies the labels of a pod, if they are known and differ from those of the last successful call. */
  #updateLabels(key: string): void {
    const local = this.#pods.get(key);
    const namespace = local && this.#namespaces.get(local.pod.namespace);
    if (local === undefined || namespace === undefined) return;
    const labels = this.#labelsOf(local.pod, namespace);
    const text = `${local.pod.uid} ${formatLabels(labels)}`;
    if (text === local.applied) {
      this.#failed.delete(key);
      return;
    }
    if (this.#applyLabels(key, local.pod, labels)) local.applied = text;
  }

  #applyLabels(key: string, { namespace, name, uid }: LabelledPod, labels: Labels | undefined): boolean {
    const pod = { namespace, name, uid };
    const isApplied = this.#options.guard.call(this.#options.onLabels, pod, labels);
    if (isApplied) {
      this.#failed.delete(key);
      if (labels === undefined) this.#labelled.delete(key);
      else this.#labelled.add(key);
    } else {
      this.#failed.set(key, pod);
      this.#retryLater();
    }
    return isApplied;
  }

  #retryLater(): void {
    if (this.#retry !== undefined) return;
    const delay = backoffDelay(++this.#failures, BACKOFF, this.#options.random);
    this.#retry = this.#options.clock.after(delay, () => {
      this.#retry = undefined;
      for (const [key, pod] of [...this.#failed]) {
        if (this.#pods.has(key)) this.#updateLabels(key);
        else this.#applyLabels(key, pod, undefined);
      }
      if (this.#failed.size === 0) this.#failures = 0;
    });
  }
}

export interface ParsedNamespace {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
}

function readNamespace(fields: ObjectFields): ParsedNamespace | undefined {
  const name = readClusterScopedName(fields);
  return name === undefined ? undefined : { name, labels: readStringMap(fields.map('metadata'), 'labels') };
}
