import { forEachInSteps } from '../base/turn-gate.ts';
import type { FeedTap } from '../k8s/feed/object-feed.ts';
import type { ObjectName } from '../k8s/object-table.ts';
import type { KubernetesObject, ResourceEvent } from '../k8s/resource.ts';
import { isObject } from '../net/fields.ts';
import { contentOf } from './mesh-tape.ts';
import type { ListStep } from './tape-line.ts';
import type { TapeLines } from './tape-lines.ts';

/** Number of objects of one step of a snapshot: about 1 ms. */
const OBJECTS_PER_STEP = 256;

function nameOf({ namespace, name }: ObjectName): string {
  return `${namespace ?? ''}/${name}`;
}

/** Names of the annotations that the agent reads. */
const READ_ANNOTATION = /(^|\.)cilium\.io\/|^io\.cilium\b|^service\.kubernetes\.io\//;

/**
 * Returns an object without the annotations that the agent does not read. They can contain secrets, for example
 * `kubectl.kubernetes.io/last-applied-configuration`. CiliumNodes keep all, because they are fields of the node.
 */
function withReadAnnotations(object: KubernetesObject, kind: string): KubernetesObject {
  const { metadata } = object;
  const { annotations } = metadata;
  if (!isObject(annotations) || kind === 'ciliumnodes') return object;
  const read = Object.entries(annotations).filter(([name]) => READ_ANNOTATION.test(name));
  return { ...object, metadata: { ...metadata, annotations: Object.fromEntries(read) } };
}

/** Writes the objects of one kind to a tape. */
class KindTape implements FeedTap {
  readonly #lines: TapeLines;
  readonly #kind: string;
  /** The content of the last line of each object, without the closing brace. */
  readonly #last = new Map<string, string>();
  /** The steps of the current list so far, or all steps of the last one. */
  #steps: readonly ListStep[] = [];

  constructor(lines: TapeLines, kind: string) {
    this.#lines = lines;
    this.#kind = kind;
  }

  onStart(): void {
    this.#steps = [];
    this.#addStep('start');
  }

  onEvent({ type, object }: ResourceEvent): void {
    if (type === 'delete') {
      this.#addGone(object);
      return;
    }
    const content = this.#contentOf('object', object);
    this.#last.set(nameOf(object.metadata), content);
    this.#lines.addToBatch(content);
  }

  onRemove({ namespace, name }: ObjectName): void {
    this.#addGone({ metadata: { name, ...(namespace && { namespace }), uid: '', resourceVersion: '' } });
  }

  onApplied(): void {
    this.#lines.endBatch();
  }

  onReceived(): void {
    this.#addStep('received');
  }

  onListed(): void {
    this.#addStep('listed');
  }

  #addStep(step: ListStep): void {
    this.#steps = [...this.#steps, step];
    this.#lines.add(contentOf({ ev: 'kind', kind: this.#kind, do: step }));
  }

  #addGone(object: KubernetesObject): void {
    this.#last.delete(nameOf(object.metadata));
    this.#lines.addToBatch(this.#contentOf('gone', object));
  }

  #contentOf(ev: 'object' | 'gone', object: KubernetesObject): string {
    const kind = this.#kind;
    return contentOf({ ev, kind, object: withReadAnnotations(object, kind) }).slice(0, -1);
  }

  /** Adds lines with the last version of each object, in steps. */
  *snapshot(): Generator<void, void, void> {
    const line = (step: ListStep): string => contentOf({ ev: 'kind', kind: this.#kind, do: step, snap: 1 });
    if (this.#steps.length > 0) this.#lines.add(line('start'));
    yield* forEachInSteps(this.#last.values(), OBJECTS_PER_STEP, (content) =>
      this.#lines.add(`${content},"snap":1}`),
    );
    for (const step of this.#steps) if (step !== 'start') this.#lines.add(line(step));
  }
}

/** Writes the objects of Kubernetes to a tape. */
export class KubernetesTape {
  readonly #lines: TapeLines;
  readonly #kinds: KindTape[] = [];
  #clusterID: number | undefined;

  constructor(lines: TapeLines) {
    this.#lines = lines;
  }

  /** Records that Kubernetes is followed, and the id of the local cluster. */
  begin(clusterID: number): void {
    this.#clusterID = clusterID;
    this.#lines.add(contentOf({ ev: 'kubernetes', clusterID }));
  }

  /** Returns the tap of a kind. `kind` is its plural resource name. */
  readonly tap = (kind: string): FeedTap => {
    const tape = new KindTape(this.#lines, kind);
    this.#kinds.push(tape);
    return tape;
  };

  /** Adds the objects of all kinds in steps; see `MeshTape.snapshot`. */
  *snapshot(): Generator<void, void, void> {
    const clusterID = this.#clusterID;
    if (clusterID !== undefined) this.#lines.add(contentOf({ ev: 'kubernetes', clusterID, snap: 1 }));
    for (const kind of this.#kinds) yield* kind.snapshot();
  }
}
