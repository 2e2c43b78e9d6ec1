import type {
  FollowedResource,
  FollowOptions,
  KubernetesObject,
  ResourceKind,
  ResourceSink,
  ResourceSource,
  ResourceState,
} from '../k8s/resource.ts';
import { matchesLabels, parseLabelSelector } from '../model/label-selector.ts';
import { isObject } from '../net/fields.ts';

/** Number of objects delivered in one call. */
const BATCH = 256;

interface Follower {
  readonly kind: ResourceKind;
  readonly sink: ResourceSink;
  readonly options: FollowOptions;
  readonly matches: (labels: ReadonlyMap<string, string>) => boolean;
  pending: KubernetesObject[];
  objects: number;
  state: ResourceState;
}

/** Delivers the objects of an archive as the first list of each kind. There are no changes afterwards. */
export class ObjectSource implements ResourceSource {
  readonly #followers = new Set<Follower>();
  readonly #delivered = new Set<string>();
  readonly #serviceEndpoints: string;

  /** `serviceEndpoints`: the plural of the kind that has the endpoints of services. */
  constructor(serviceEndpoints: 'endpointslices' | 'endpoints') {
    this.#serviceEndpoints = serviceEndpoints;
  }

  follow(kind: ResourceKind, sink: ResourceSink, options: FollowOptions = {}): FollowedResource {
    const selector = parseLabelSelector(kind.labelSelector ?? '');
    const matches = (labels: ReadonlyMap<string, string>): boolean => matchesLabels(selector, labels);
    const follower: Follower = { kind, sink, options, matches, pending: [], objects: 0, state: 'listing' };
    this.#followers.add(follower);
    options.signal?.addEventListener('abort', () => this.#followers.delete(follower));
    return {
      status: () => ({
        resource: `${kind.plural}.${kind.group}/${kind.version}`,
        labelSelector: kind.labelSelector,
        fieldSelector: kind.fieldSelector,
        state: follower.state,
        listed: follower.state === 'watching',
        objects: follower.objects,
        events: follower.objects,
        lastEventAt: undefined,
        rejected: 0,
        bookmarks: 0,
        lists: 1,
        watches: 0,
        resourceVersion: undefined,
        lagMs: undefined,
        behindMs: undefined,
        retryInMs: undefined,
        failures: 0,
        lastFailure: undefined,
      }),
      waitForListed: async () => {},
      stopped: Promise.resolve(),
    };
  }

  async firstServed(kinds: readonly ResourceKind[]): Promise<ResourceKind | undefined> {
    return kinds.find(({ plural }) => plural === this.#serviceEndpoints);
  }

  /**
   * Delivers an object. `plural` is the plural of its kind. A missing uid or resource version is added, because a
   * printed list may lack them.
   */
  put(plural: string, object: Readonly<Record<string, unknown>>): void {
    const metadata = isObject(object['metadata']) ? object['metadata'] : {};
    const labels = new Map(
      Object.entries(isObject(metadata['labels']) ? metadata['labels'] : {}).flatMap(([key, value]) =>
        typeof value === 'string' ? [[key, value] as const] : [],
      ),
    );
    this.#delivered.add(plural);
    for (const follower of this.#followers) {
      if (follower.kind.plural !== plural || !follower.matches(labels)) continue;
      const { name, uid = name, resourceVersion = '0' } = metadata;
      if (typeof name !== 'string' || typeof uid !== 'string' || typeof resourceVersion !== 'string')
        continue;
      follower.pending.push({ ...object, metadata: { ...metadata, name, uid, resourceVersion } });
      follower.objects++;
      if (follower.pending.length >= BATCH) deliver(follower);
    }
  }

  /** Ends the list of each kind. Kinds without any object count as missing. */
  end(): void {
    for (const follower of this.#followers) {
      deliver(follower);
      const isListed = this.#delivered.has(follower.kind.plural);
      if (isListed) follower.sink.onListed();
      follower.state = isListed ? 'watching' : 'missing';
      follower.options.onState?.(follower.state);
    }
  }
}

function deliver(follower: Follower): void {
  const events = follower.pending.map((object) => ({ type: 'put' as const, object }));
  follower.pending = [];
  if (events.length > 0) follower.sink.apply(events);
}
