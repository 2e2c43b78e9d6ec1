import { jsonPatch } from '../../../src/k8s/memory/json-patch.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import type { ObjectReader } from '../../../src/k8s/rest/object-reader.ts';
import type {
  ObjectPlace,
  ObjectWrite,
  ObjectWriter,
  WriteOutcome,
} from '../../../src/k8s/rest/object-writer.ts';
import type { ObservedObjects } from '../../../src/operator/collect/observed-kind.ts';
import type { Collector, RoundReport } from '../../../src/operator/collect/rounds.ts';
import type { Choose } from './explore.ts';

/** A possible event, which is offered while it can happen. */
export interface Happening {
  readonly name: string;
  can(): boolean;
  happen(): void;
}

const CONFLICT: WriteOutcome = { outcome: 'conflict', message: 'another version or life' };
const GONE: WriteOutcome = { outcome: 'not-found', message: 'there is none' };

/**
 * Objects of a few kinds, by `plural namespace/name`, with versions and lives. A collector may see old
 * states.
 */
export class TinyCluster implements ObjectReader, ObjectWriter {
  readonly objects: Map<string, KubernetesObject> = new Map();
  readonly #seen = new Map<string, Map<string, KubernetesObject>>();
  #clock = 0;
  /** Called before each request of the collector is executed. */
  before: () => void = () => {};
  /** Called with each object that a collector deletes, directly before the delete. */
  onDelete: (object: KubernetesObject, key: string) => void = () => {};
  /** Called with each object that a collector patches, directly before the change. */
  onPatch: (object: KubernetesObject, patched: KubernetesObject) => void = () => {};

  put(
    plural: string,
    key: string,
    content: Readonly<Record<string, unknown>> & { readonly metadata?: object } = {},
  ): KubernetesObject {
    const [namespace = '', name = ''] = key.split('/');
    const known = this.objects.get(`${plural} ${key}`);
    const version = String(++this.#clock);
    const object: KubernetesObject = {
      ...known,
      ...content,
      metadata: {
        ...known?.metadata,
        ...content.metadata,
        name,
        uid: known?.metadata.uid ?? `life-${version}`,
        resourceVersion: version,
        ...(namespace === '' ? {} : { namespace }),
      },
    };
    this.objects.set(`${plural} ${key}`, object);
    return object;
  }

  get1(plural: string, key: string): KubernetesObject | undefined {
    return this.objects.get(`${plural} ${key}`);
  }

  /** Returns all objects of a kind, by `namespace/name`. */
  ofKind(plural: string): ReadonlyMap<string, KubernetesObject> {
    const all = [...this.objects].filter(([key]) => key.startsWith(`${plural} `));
    return new Map(all.map(([key, object]) => [key.slice(plural.length + 1), object]));
  }

  drop(plural: string, key: string): void {
    this.objects.delete(`${plural} ${key}`);
  }

  /** Returns a collector's view of a kind: its state at the last call of {@link see}. */
  observed(plural: string): ObservedObjects {
    const objects = this.#seen.get(plural) ?? new Map<string, KubernetesObject>();
    this.#seen.set(plural, objects);
    return { objects, isMissing: false, notReadyReason: () => undefined, follow: () => {} };
  }

  see(...plurals: readonly string[]): void {
    for (const plural of plurals) {
      const seen = this.#seen.get(plural);
      seen?.clear();
      for (const [key, object] of this.ofKind(plural)) seen?.set(key, object);
    }
  }

  async get({ kind, namespace = '', name }: ObjectPlace): Promise<KubernetesObject | undefined> {
    this.before();
    return this.get1(kind.plural, `${namespace}/${name}`);
  }

  async *list(kind: { readonly plural: string }): AsyncGenerator<readonly KubernetesObject[], void, void> {
    this.before();
    yield [...this.ofKind(kind.plural).values()];
  }

  async write(write: ObjectWrite): Promise<WriteOutcome> {
    this.before();
    if (write.verb === 'create') {
      const { name } = write.object['metadata'] as { readonly name: string };
      const at = `${write.namespace ?? ''}/${name}`;
      if (this.get1(write.kind.plural, at) !== undefined) return CONFLICT;
      return { outcome: 'done', object: this.put(write.kind.plural, at, write.object) };
    }
    const { kind, namespace = '', name } = write.place;
    const key = `${namespace}/${name}`;
    const known = this.get1(kind.plural, key);
    if (known === undefined) return GONE;
    const { uid, resourceVersion } = known.metadata;
    if (write.verb === 'update') {
      const given = write.object.metadata;
      if (given.uid !== uid || given.resourceVersion !== resourceVersion) return CONFLICT;
      return { outcome: 'done', object: this.put(kind.plural, key, write.object) };
    }
    if (write.verb === 'patch') return this.#patch(known, `${kind.plural} ${key}`, write.operations);
    if ((write.uid || uid) !== uid || (write.resourceVersion ?? resourceVersion) !== resourceVersion)
      return CONFLICT;
    this.onDelete(known, key);
    this.drop(kind.plural, key);
    return { outcome: 'done', object: undefined };
  }

  /** Applies all operations or none. The result must be an object. */
  #patch(known: KubernetesObject, at: string, operations: unknown): WriteOutcome {
    let patched: KubernetesObject;
    try {
      patched = jsonPatch(known, operations) as KubernetesObject;
    } catch {
      return CONFLICT;
    }
    this.onPatch(known, patched);
    const metadata = { ...known.metadata, resourceVersion: String(++this.#clock) };
    const object = { ...patched, metadata };
    this.objects.set(at, object);
    return { outcome: 'done', object };
  }
}

/** Makes a few of the possible events happen, one after the other, as `choose` says. */
export class Fate {
  readonly #choose: Choose;
  readonly #happenings: readonly Happening[];
  #left: number;
  readonly log: string[] = [];

  constructor(choose: Choose, happenings: readonly Happening[], most: number) {
    this.#choose = choose;
    this.#happenings = happenings;
    this.#left = most;
  }

  turn(): void {
    while (this.#left > 0) {
      const possible = this.#happenings.filter((one) => one.can());
      const chosen = possible[this.#choose(possible.length + 1) - 1];
      if (chosen === undefined) return;
      this.#left--;
      this.log.push(chosen.name);
      chosen.happen();
    }
  }
}

const { signal: never } = new AbortController();

/** Runs one round of a collector. */
export async function round(
  collector: Pick<Collector, 'round'>,
  number = 1,
  more: Partial<RoundReport> = {},
): Promise<void> {
  const report: RoundReport = {
    round: number,
    setMarked: () => {},
    countDelete: () => {},
    countConflict: () => {},
    addAction: () => {},
    addError: (error) => {
      throw error;
    },
    ...more,
  };
  await collector.round(report, never);
}
