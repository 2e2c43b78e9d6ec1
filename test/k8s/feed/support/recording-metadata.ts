import type { PrefixMetadata } from '../../../../src/k8s/feed/prefix-metadata.ts';
import { formatLabels, type Labels } from '../../../../src/model/labels.ts';

/** The prefix labels of each resource, as a map. */
export class RecordingMetadata implements PrefixMetadata {
  readonly #said = new Map<string, string>();
  /** Number of calls without effect: a repeated label, or the removal of an absent one. */
  idle = 0;

  upsertMetadata(prefix: string, source: string, resource: string, labels: Labels): void {
    const key = `${prefix} ${resource}`;
    const text = `${source} ${formatLabels(labels)}`;
    if (this.#said.get(key) === text) this.idle++;
    this.#said.set(key, text);
  }

  removeMetadata(prefix: string, resource: string): void {
    if (!this.#said.delete(`${prefix} ${resource}`)) this.idle++;
  }

  /** Labelled prefixes, each with its resources, sorted. */
  get said(): readonly string[] {
    return [...this.#said.keys()].sort();
  }

  /** Number of labelled prefixes. */
  get size(): number {
    return this.#said.size;
  }

  /** Returns `source labels` of a resource for a prefix. */
  labels(prefix: string, resource: string): string | undefined {
    return this.#said.get(`${prefix} ${resource}`);
  }
}
