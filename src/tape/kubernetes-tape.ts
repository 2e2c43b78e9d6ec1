import type { FeedTap } from '../k8s/feed/object-feed.ts';
import type { ObjectName } from '../k8s/object-table.ts';
import type { KubernetesObject, ResourceEvent } from '../k8s/resource.ts';
import { type AddLine, contentOf } from './mesh-tape.ts';

/** Objects of one step of a snapshot: about 1 ms. */
const OBJECTS_PER_STEP = 256;

function nameOf({ namespace, name }: ObjectName): string {
  return `${namespace ?? ''}/${name}`;
}

/** One kind of objects on the tape. The lines of a batch are written together after the batch was applied. */
class KindTape implements FeedTap {
  readonly #add: AddLine;
  readonly #kind: string;
  /** The last content of each object. */
  readonly #last = new Map<string, string>();
  #batch: string[] = [];
  #isStarted = false;
  #isListed = false;

  constructor(add: AddLine, kind: string) {
    this.#add = add;
    this.#kind = kind;
  }

  onStart(): void {
    this.#isStarted = true;
    this.#isListed = false;
    this.#add(contentOf({ ev: 'kind', kind: this.#kind, do: 'start' }));
  }

  onEvent({ type, object }: ResourceEvent): void {
    if (type === 'delete') {
      this.#gone(object);
      return;
    }
    const content = contentOf({ ev: 'object', kind: this.#kind, object }).slice(0, -1);
    this.#last.set(nameOf(object.metadata), content);
    this.#batch.push(content);
  }

  onRemove({ namespace, name }: ObjectName): void {
    this.#gone({ metadata: { name, ...(namespace && { namespace }), uid: '', resourceVersion: '' } });
  }

  onApplied(): void {
    const { length } = this.#batch;
    for (let i = 0; i < length; i++) this.#add(`${this.#batch[i]}${i + 1 < length ? ',"more":1}' : '}'}`);
    if (length > 0) this.#batch = [];
  }

  onListed(): void {
    this.#isListed = true;
    this.#add(contentOf({ ev: 'kind', kind: this.#kind, do: 'listed' }));
  }

  #gone(object: KubernetesObject): void {
    this.#last.delete(nameOf(object.metadata));
    this.#batch.push(contentOf({ ev: 'gone', kind: this.#kind, object }).slice(0, -1));
  }

  /** Adds lines with the last version of each object, in steps. */
  *snapshot(): Generator<void, void, void> {
    if (this.#isStarted) this.#add(contentOf({ ev: 'kind', kind: this.#kind, do: 'start', snap: 1 }));
    let added = 0;
    for (const content of this.#last.values()) {
      this.#add(`${content},"snap":1}`);
      if (++added % OBJECTS_PER_STEP === 0) yield;
    }
    if (this.#isListed) this.#add(contentOf({ ev: 'kind', kind: this.#kind, do: 'listed', snap: 1 }));
  }
}

/** Writes the objects of Kubernetes to a tape. */
export class KubernetesTape {
  readonly #add: AddLine;
  readonly #kinds: KindTape[] = [];
  #clusterID: number | undefined;

  constructor(add: AddLine) {
    this.#add = add;
  }

  /** Records that Kubernetes is followed, and the id of the local cluster. */
  begin(clusterID: number): void {
    this.#clusterID = clusterID;
    this.#add(contentOf({ ev: 'kubernetes', clusterID }));
  }

  /** Returns the tap of a kind, given its plural resource name. */
  readonly tap = (kind: string): FeedTap => {
    const tape = new KindTape(this.#add, kind);
    this.#kinds.push(tape);
    return tape;
  };

  /** Adds the objects of all kinds in steps; see `MeshTape.snapshot`. */
  *snapshot(): Generator<void, void, void> {
    const clusterID = this.#clusterID;
    if (clusterID !== undefined) this.#add(contentOf({ ev: 'kubernetes', clusterID, snap: 1 }));
    for (const kind of this.#kinds) yield* kind.snapshot();
  }
}
