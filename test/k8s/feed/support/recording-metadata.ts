import type { PrefixMetadata } from '../../../../src/k8s/feed/prefix-metadata.ts';
import { formatLabels, type Labels } from '../../../../src/model/labels.ts';

/** What resources say of prefixes, as a map. */
export class RecordingMetadata implements PrefixMetadata {
  readonly #said = new Map<string, string>();
  /** Calls that changed nothing: something was said twice, or taken back that was not said. */
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

  /** Prefixes that are labelled, each with who says so, sorted. */
  get said(): readonly string[] {
    return [...this.#said.keys()].sort();
  }

  /** How many there are. */
  get size(): number {
    return this.#said.size;
  }

  /** `source labels` of what a resource says of a prefix. */
  labels(prefix: string, resource: string): string | undefined {
    return this.#said.get(`${prefix} ${resource}`);
  }
}
