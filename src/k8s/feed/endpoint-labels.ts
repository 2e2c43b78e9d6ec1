import { backoffDelay } from '../../base/backoff.ts';
import type { Timer } from '../../base/clock.ts';
import type { CallbackGuard } from '../../base/guard.ts';
import type { Runtime } from '../../base/system-clock.ts';
import { CLUSTER_LABEL } from '../../model/cluster-label.ts';
import type { LabelFilter } from '../../model/label-filter.ts';
import { formatLabels, type Label, type Labels, sortLabels } from '../../model/labels.ts';
import { NAMESPACE_LABEL } from '../../model/namespace-label.ts';
import { type ObjectFields, readClusterScopedName, readStringMap } from '../parse-object.ts';
import type { ParsedPod } from '../parse-pod.ts';
import type { KindReader } from './object-feed.ts';

/** The labels of a pod if the filter removes all labels (KUBERNETES 25). */
const INIT_LABELS: Labels = [{ source: 'reserved', key: 'init', value: '' }];

const NAMESPACE_LABEL_PREFIX = 'io.cilium.k8s.namespace.labels.';
const SERVICE_ACCOUNT = 'io.cilium.k8s.policy.serviceaccount';
/**
 * Prefix of labels that only Cilium sets. Ignored on pods, because a pod could otherwise forge the labels of its
 * namespace (KUBERNETES 26).
 */
const RESERVED_PREFIX = 'io.cilium.k8s';

const BACKOFF = { baseMs: 1_000, capMs: 30_000 };

/** A pod of this node. If it is deleted and created again, it has another uid. */
export interface LabelledPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export interface EndpointLabelsOptions extends Runtime {
  readonly clusterName: string;
  readonly filter: LabelFilter;
  readonly guard: CallbackGuard;
  /**
   * Called with the labels of a pod of this node if its labels or its uid differ from those of the last successful call
   * (KUBERNETES 27), or with undefined if the pod was deleted. If the callback throws, the call is retried after a
   * delay.
   */
  readonly onLabels: (pod: LabelledPod, labels: Labels | undefined) => void;
}

/** A pod of this node, or a deleted one whose labels are not removed yet. */
interface LocalPod {
  /** The last known state of the pod. */
  readonly pod: ParsedPod;
  readonly isDeleted: boolean;
  /**
   * Uid and labels of the last successful call, as one text; undefined before it. Empty after a failed removal: the
   * labels may be removed in part, so they are passed again if the pod returns.
   */
  applied: string | undefined;
  /** True if the last call has failed, so that it is retried. */
  hasFailed: boolean;
}

/**
 * The identity labels of the pods of this node (KUBERNETES 25 to 27): the labels of the pod and of its namespace, if
 * the filter keeps them. A pod waits until its namespace is known; an unknown namespace never counts as a namespace
 * without labels. If a namespace is deleted, its pods keep their labels.
 */
export class EndpointLabels {
  readonly #options: EndpointLabelsOptions;
  readonly #pods = new Map<string, LocalPod>();
  /** The labels of each namespace. */
  readonly #namespaces = new Map<string, ReadonlyMap<string, string>>();
  /** Number of retries since all calls succeeded. */
  #retries = 0;
  #retryTimer: Timer | undefined;

  constructor(options: EndpointLabelsOptions) {
    this.#options = options;
  }

  /** Cancels retries. */
  stop(): void {
    this.#retryTimer?.cancel();
    this.#retryTimer = undefined;
  }

  /** Receives a change of a pod of this node. `current` is undefined if the pod was deleted or has ended. */
  podChanged(current: ParsedPod | undefined, previous: ParsedPod | undefined): void {
    const pod = current ?? previous;
    if (pod === undefined) return;
    const key = `${pod.namespace}/${pod.name}`;
    const { applied, hasFailed = false } = this.#pods.get(key) ?? {};
    const local = { pod, isDeleted: current === undefined, applied, hasFailed };
    this.#pods.set(key, local);
    this.#updateLabels(key, local);
  }

  namespaceReader(): KindReader<ParsedNamespace> {
    return {
      kind: 'Namespace',
      fields: ['metadata.labels'],
      read: readNamespace,
      change: (current, previous) => {
        const name = (current ?? previous)?.name ?? '';
        if (current === undefined) {
          this.#namespaces.delete(name); // changes no labels of pods (KUBERNETES 27)
          return;
        }
        this.#namespaces.set(name, current.labels);
        for (const [key, local] of this.#pods)
          if (local.pod.namespace === name) this.#updateLabels(key, local);
      },
    };
  }

  #labelsOf(pod: ParsedPod, namespaceLabels: ReadonlyMap<string, string>): Labels {
    const filtered: Label[] = [];
    const add = (key: string, value: string): void => {
      const label = { source: 'k8s', key, value };
      if (this.#options.filter.keeps(label)) filtered.push(label);
    };
    for (const [key, value] of pod.labels)
      if (!key.startsWith(RESERVED_PREFIX) && key !== NAMESPACE_LABEL) add(key, value);
    for (const [key, value] of namespaceLabels) add(`${NAMESPACE_LABEL_PREFIX}${key}`, value);
    add(NAMESPACE_LABEL, pod.namespace);
    if (pod.serviceAccount !== '') add(SERVICE_ACCOUNT, pod.serviceAccount);
    add(CLUSTER_LABEL, this.#options.clusterName);
    return filtered.length === 0 ? INIT_LABELS : sortLabels(filtered);
  }

  /** Calls `onLabels` if the labels of the pod are known and differ from those of the last successful call. */
  #updateLabels(key: string, local: LocalPod): void {
    const { pod, isDeleted, applied } = local;
    const namespaceLabels = this.#namespaces.get(pod.namespace);
    if (!isDeleted && namespaceLabels === undefined) return;
    const labels =
      isDeleted || namespaceLabels === undefined ? undefined : this.#labelsOf(pod, namespaceLabels);
    const text = labels && `${pod.uid} ${formatLabels(labels)}`;
    local.hasFailed = text !== applied && !this.#call(pod, labels);
    if (local.hasFailed) {
      if (isDeleted) local.applied = '';
      this.#retryLater();
    } else if (isDeleted) this.#pods.delete(key);
    else local.applied = text;
  }

  /** Returns false if the callback throws. */
  #call({ namespace, name, uid }: LabelledPod, labels: Labels | undefined): boolean {
    return this.#options.guard.call(this.#options.onLabels, { namespace, name, uid }, labels);
  }

  #retryLater(): void {
    if (this.#retryTimer !== undefined) return;
    this.#retries++;
    const delay = backoffDelay(this.#retries, BACKOFF, this.#options.random);
    this.#retryTimer = this.#options.clock.after(delay, () => {
      this.#retryTimer = undefined;
      for (const [key, local] of this.#pods) if (local.hasFailed) this.#updateLabels(key, local);
      if (![...this.#pods.values()].some(({ hasFailed }) => hasFailed)) this.#retries = 0;
    });
  }
}

/** The content of a Namespace. */
export interface ParsedNamespace {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
}

function readNamespace(fields: ObjectFields): ParsedNamespace | undefined {
  const name = readClusterScopedName(fields);
  return name === undefined ? undefined : { name, labels: readStringMap(fields.map('metadata'), 'labels') };
}
