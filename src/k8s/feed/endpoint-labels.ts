import { backoffDelay } from '../../base/backoff.ts';
import type { Clock, Random, Timer } from '../../base/clock.ts';
import type { CallbackGuard } from '../../base/guard.ts';
import type { LabelFilter } from '../../identity/label-filter.ts';
import { formatLabels, type Label, type Labels, sortLabels } from '../../identity/labels.ts';
import { type ObjectFields, readClusterScopedName, readTexts } from '../parse-object.ts';
import type { PodSays } from '../parse-pod.ts';
import type { ObjectReader } from './object-feed.ts';

/** What is left to say of a pod of which the filter keeps no label: `reserved:init` (5; K 25). */
const INIT: Labels = [{ source: 'reserved', key: 'init', value: '' }];

const NAMESPACE_LABEL = 'io.kubernetes.pod.namespace';
const NAMESPACE_LABELS = 'io.cilium.k8s.namespace.labels.';
const SERVICE_ACCOUNT = 'io.cilium.k8s.policy.serviceaccount';
const CLUSTER = 'io.cilium.k8s.policy.cluster';
/** What begins so is Cilium's to say: a pod could name the labels of another namespace (K 26). */
const RESERVED = 'io.cilium.k8s';

const BACKOFF = { baseMs: 1_000, capMs: 30_000 };

/** A pod of this node, by the life that it is in. */
export interface LabelledPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** How {@link EndpointLabels} works. */
export interface EndpointLabelsOptions {
  readonly clusterName: string;
  readonly filter: LabelFilter;
  readonly clock: Clock;
  readonly random: Random;
  readonly guard: CallbackGuard;
  /**
   * The labels of a pod of this node, when they or its uid are others than were applied last (K 27); `undefined`: it is
   * gone. Where it throws they are not applied, and are said again after a while.
   */
  readonly onLabels: (pod: LabelledPod, labels: Labels | undefined) => void;
}

interface LocalPod {
  pod: PodSays;
  /** Labels and uid that were applied last, as one text. */
  applied: string | undefined;
}

/**
 * The identity labels of the pods of this node (K 25 to 27): those of the pod and of its namespace, through the filter.
 * A namespace that is not known is waited for, and never read as one without labels; one that goes takes nothing away.
 */
export class EndpointLabels {
  readonly #options: EndpointLabelsOptions;
  readonly #pods = new Map<string, LocalPod>();
  readonly #namespaces = new Map<string, ReadonlyMap<string, string>>();
  /** What could not be applied, by key: the labels of a pod, or, where there is none, that it is gone. */
  readonly #failed = new Map<string, LabelledPod>();
  /** Pods, by key, of which labels were applied, be it in another life, and not that they are gone. */
  readonly #labelled = new Set<string>();
  #failures = 0;
  #retry: Timer | undefined;

  constructor(options: EndpointLabelsOptions) {
    this.#options = options;
  }

  /** Ends attempts to apply what has failed. */
  stop(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
  }

  /** A pod of this node; `undefined`: it is gone, or has ended. */
  podChanged(now: PodSays | undefined, before: PodSays | undefined): void {
    const pod = now ?? before;
    if (pod === undefined) return;
    const key = `${pod.namespace}/${pod.name}`;
    const known = this.#pods.get(key);
    if (now === undefined) {
      this.#pods.delete(key);
      if (this.#labelled.has(key)) this.#gone(key, pod);
      else this.#failed.delete(key);
      return;
    }
    this.#pods.set(key, { pod: now, applied: known?.applied });
    this.#review(key);
  }

  /** Namespaces and their labels, for `ObjectFeed`. */
  namespaceReader(): ObjectReader<NamespaceSays> {
    return {
      kind: 'Namespace',
      fields: ['metadata.labels'],
      read: readNamespace,
      change: (now, before) => {
        const name = (now ?? before)?.name ?? '';
        if (now === undefined) this.#namespaces.delete(name);
        else this.#namespaces.set(name, now.labels);
        if (now === undefined) return; // its delete does nothing (K 27)
        for (const [key, { pod }] of this.#pods) if (pod.namespace === name) this.#review(key);
      },
    };
  }

  #labelsOf(pod: PodSays, namespace: ReadonlyMap<string, string>): Labels {
    const said: Label[] = [];
    const add = (key: string, value: string): void => {
      const label = { source: 'k8s', key, value };
      if (this.#options.filter.keeps(label)) said.push(label);
    };
    for (const [key, value] of pod.labels)
      if (!key.startsWith(RESERVED) && key !== NAMESPACE_LABEL) add(key, value);
    for (const [key, value] of namespace) add(`${NAMESPACE_LABELS}${key}`, value);
    add(NAMESPACE_LABEL, pod.namespace);
    if (pod.serviceAccount !== '') add(SERVICE_ACCOUNT, pod.serviceAccount);
    add(CLUSTER, this.#options.clusterName);
    return said.length === 0 ? INIT : sortLabels(said);
  }

  #review(key: string): void {
    const local = this.#pods.get(key);
    const namespace = local && this.#namespaces.get(local.pod.namespace);
    if (local === undefined || namespace === undefined) return;
    const labels = this.#labelsOf(local.pod, namespace);
    const text = `${local.pod.uid} ${formatLabels(labels)}`;
    if (text === local.applied) {
      this.#failed.delete(key);
      return;
    }
    if (this.#say(key, local.pod, labels)) local.applied = text;
  }

  #gone(key: string, pod: LabelledPod): void {
    this.#say(key, pod, undefined);
  }

  #say(key: string, { namespace, name, uid }: LabelledPod, labels: Labels | undefined): boolean {
    const pod = { namespace, name, uid };
    const isApplied = this.#options.guard.call(this.#options.onLabels, pod, labels);
    if (isApplied) {
      this.#failed.delete(key);
      if (labels === undefined) this.#labelled.delete(key);
      else this.#labelled.add(key);
    } else {
      this.#failed.set(key, pod);
      this.#repeatLater();
    }
    return isApplied;
  }

  #repeatLater(): void {
    if (this.#retry !== undefined) return;
    const delay = backoffDelay(++this.#failures, BACKOFF, this.#options.random);
    this.#retry = this.#options.clock.after(delay, () => {
      this.#retry = undefined;
      for (const [key, pod] of [...this.#failed]) {
        if (this.#pods.has(key)) this.#review(key);
        else this.#gone(key, pod);
      }
      if (this.#failed.size === 0) this.#failures = 0;
    });
  }
}

/** A namespace and its labels. */
export interface NamespaceSays {
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
}

function readNamespace(fields: ObjectFields): NamespaceSays | undefined {
  const name = readClusterScopedName(fields);
  return name === undefined ? undefined : { name, labels: readTexts(fields.map('metadata'), 'labels') };
}
