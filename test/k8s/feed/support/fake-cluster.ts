import { onAbort } from '../../../../src/base/follow-signal.ts';
import { isKubernetesObject } from '../../../../src/k8s/reflector/known-objects.ts';
import type {
  FollowedResource,
  FollowOptions,
  KubernetesObject,
  ResourceEvent,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceState,
} from '../../../../src/k8s/resource.ts';
import { askedFields } from '../../support/asked-fields.ts';

/** An object in a test, without the fields that the API server adds. */
export interface SaidObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

function keyOf({ metadata: { namespace = '', name } }: KubernetesObject): string {
  return `${namespace}/${name}`;
}

/** Returns the object that a follower keeps if it keeps only metadata. */
function wholeOf({ metadata: { name, namespace } }: KubernetesObject, kept: object): KubernetesObject {
  if (isKubernetesObject(kept)) return kept;
  const whole = { metadata: { name, ...(namespace === undefined ? {} : { namespace }), ...kept } };
  if (!isKubernetesObject(whole)) throw new Error('too little is kept of an object');
  return whole;
}

function selects({ fieldSelector }: ResourceKind, object: KubernetesObject): boolean {
  const [field, value] = fieldSelector?.split('=') ?? [];
  if (field === undefined) return true;
  if (field === 'metadata.name') return object.metadata.name === value;
  const { spec } = object;
  return typeof spec === 'object' && spec !== null && 'nodeName' in spec && spec.nodeName === value;
}

/** One reflector: remembers the delivered objects, and delivers differences. */
class FakeFollower implements FollowedResource {
  readonly kind: ResourceKind;
  readonly stopped: Promise<void> = Promise.resolve();
  readonly #sink: ResourceSink;
  readonly #options: FollowOptions;
  readonly #known = new Map<string, KubernetesObject>();
  #listed = false;
  #connected = false;
  #state: ResourceState = 'listing';

  constructor(kind: ResourceKind, sink: ResourceSink, options: FollowOptions) {
    this.kind = kind;
    this.#sink = sink;
    this.#options = options;
    const { signal, onState } = options;
    // A reflector reports its end a turn after its signal has fired.
    onAbort(signal, () => queueMicrotask(() => onState?.('stopped')));
  }

  get alive(): boolean {
    return this.#options.signal?.aborted !== true;
  }

  get listed(): boolean {
    return this.#listed;
  }

  say(state: ResourceState): void {
    this.#state = state;
    if (this.alive) this.#options.onState?.(state);
  }

  disconnect(): void {
    this.#connected = false;
  }

  /** Delivers the difference to all existing objects, like a list. */
  list(objects: Iterable<KubernetesObject>): void {
    if (!this.alive) return;
    const events: ResourceEvent[] = [];
    const selected = new Map(
      [...objects].filter((object) => selects(this.kind, object)).map((object) => [keyOf(object), object]),
    );
    for (const [key, object] of this.#known) if (!selected.has(key)) events.push({ type: 'delete', object });
    for (const [key, object] of selected) {
      const known = this.#known.get(key);
      if (known !== undefined && known.metadata.uid !== object.metadata.uid)
        events.push({ type: 'delete', object: known });
      if (known !== object) events.push({ type: 'put', object });
    }
    this.#connected = true;
    this.#hand(events);
    if (this.#listed || !this.alive) return;
    this.#listed = true;
    this.say('watching');
    if (this.alive) this.#sink.onListed();
  }

  watch(type: 'put' | 'delete', object: KubernetesObject): void {
    if (!this.alive || !this.#connected) return;
    const known = this.#known.get(keyOf(object));
    if (type === 'put' && selects(this.kind, object)) {
      if (known !== undefined && known.metadata.uid !== object.metadata.uid)
        this.#hand([
          { type: 'delete', object: known },
          { type, object },
        ]);
      else this.#hand([{ type, object }]);
    } else if (known !== undefined) this.#hand([{ type: 'delete', object: known }]);
  }

  #hand(events: readonly ResourceEvent[]): void {
    const { keep = (object) => object } = this.#options;
    for (const { type, object } of events) {
      if (type === 'put') this.#known.set(keyOf(object), wholeOf(object, keep(object)));
      else this.#known.delete(keyOf(object));
    }
    if (events.length > 0) this.#sink.apply(events.map((event) => this.#asked(event)));
  }

  /** Returns the event without the fields that its follower does not read. */
  #asked({ type, object }: ResourceEvent): ResourceEvent {
    const { fields } = this.#options;
    if (fields === undefined) return { type, object };
    const identifying = ['name', 'namespace', 'uid', 'resourceVersion'].map((name) => `metadata.${name}`);
    const asked = askedFields(object, [...identifying, ...fields]);
    return { type, object: isKubernetesObject(asked) ? asked : object };
  }

  status(): ReturnType<FollowedResource['status']> {
    return {
      resource: this.kind.plural,
      labelSelector: this.kind.labelSelector,
      fieldSelector: this.kind.fieldSelector,
      state: this.#state,
      listed: this.#listed,
      objects: this.#known.size,
      events: 0,
      lastEventAt: undefined,
      rejected: 0,
      bookmarks: 0,
      lists: 0,
      watches: 0,
      resourceVersion: undefined,
      lagMs: undefined,
      behindMs: undefined,
      retryInMs: undefined,
      failures: 0,
      lastFailure: undefined,
    };
  }

  waitForListed(): Promise<void> {
    return Promise.resolve();
  }
}

/** The objects of a cluster, and reflectors that deliver only when the test says so. */
export class FakeCluster implements ResourceSource {
  readonly #objects = new Map<string, Map<string, KubernetesObject>>();
  readonly followers: FakeFollower[] = [];
  /** Plurals, or `plural/version`, that are not served. */
  readonly missing: Set<string> = new Set<string>();
  /** If true, lists are delivered as soon as they are requested. */
  immediate: boolean = false;
  #version = 0;

  follow(kind: ResourceKind, sink: ResourceSink, options: FollowOptions = {}): FollowedResource {
    const follower = new FakeFollower(kind, sink, options);
    this.followers.push(follower);
    if (!this.#serves(kind)) follower.say('missing');
    else if (this.immediate) follower.list(this.objects(kind.plural));
    return follower;
  }

  firstServed(kinds: readonly ResourceKind[]): Promise<ResourceKind | undefined> {
    return Promise.resolve(kinds.find((kind) => this.#serves(kind)));
  }

  objects(plural: string): readonly KubernetesObject[] {
    return [...(this.#objects.get(plural)?.values() ?? [])];
  }

  /** The current followers, one line each: plural and selector. */
  get following(): readonly string[] {
    return this.#alive().map(({ kind }) => [kind.plural, kind.fieldSelector].filter(Boolean).join(' '));
  }

  put(plural: string, said: SaidObject): void {
    const objects = this.#objects.get(plural) ?? new Map<string, KubernetesObject>();
    this.#objects.set(plural, objects);
    const metadata = { uid: `uid-of-${said.metadata.name}`, ...said.metadata };
    const object = { ...said, metadata: { ...metadata, resourceVersion: String(++this.#version) } };
    objects.set(keyOf(object), object);
    for (const follower of this.#alive(plural)) follower.watch('put', object);
  }

  delete(plural: string, name: string, namespace = ''): void {
    const objects = this.#objects.get(plural);
    const object = objects?.get(`${namespace}/${name}`);
    if (object === undefined) return;
    objects?.delete(keyOf(object));
    for (const follower of this.#alive(plural)) follower.watch('delete', object);
  }

  /** Delivers lists: of one plural, or of all. */
  list(plural?: string): void {
    for (const follower of this.#alive(plural)) this.#list(follower);
  }

  #serves({ plural, version }: ResourceKind): boolean {
    return !this.missing.has(plural) && !this.missing.has(`${plural}/${version}`);
  }

  #list(follower: FakeFollower): void {
    if (!this.#serves(follower.kind)) follower.say('missing');
    else follower.list(this.objects(follower.kind.plural));
  }

  /** Until the next list its followers receive nothing. */
  disconnect(plural: string): void {
    for (const follower of this.#alive(plural)) follower.disconnect();
  }

  /** Lists until every follower has received a list, because lists start new followers. */
  settle(): void {
    this.list();
    for (let left = this.#unlisted(); left.length > 0; left = this.#unlisted())
      for (const one of left) this.#list(one);
  }

  #unlisted(): readonly FakeFollower[] {
    return this.#alive().filter(({ listed, kind }) => !listed && !this.missing.has(kind.plural));
  }

  #alive(plural?: string): readonly FakeFollower[] {
    return this.followers.filter(
      ({ alive, kind }) => alive && (plural === undefined || kind.plural === plural),
    );
  }
}
