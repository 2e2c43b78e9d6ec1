import type { Clock, Timer } from '../../base/clock.ts';
import type { KubernetesObject } from '../resource.ts';
import { StatusError } from './api-status.ts';
import type { ByteStream } from './byte-stream.ts';
import { inNamespace, readVersion, type Selection } from './object-lists.ts';
import type { ObjectStore, StoredWrite } from './object-store.ts';
import { storedAs } from './object-writes.ts';
import type { WatchCache } from './watch-cache.ts';

/** What a watch serves from. */
export interface WatchSource {
  readonly store: ObjectStore;
  readonly cache: WatchCache;
  readonly clock: Clock;
  /** Whether kinds that are not written get bookmarks, as from Kubernetes 1.34 on. */
  readonly idleProgress: boolean;
}

type EventType = 'ADDED' | 'MODIFIED' | 'DELETED';

const BOOKMARK_MS = 60_000;
/** The last bookmark comes so long before the end. */
const LAST_BOOKMARK_MS = 2000;
const DEFAULT_SECONDS = 300;
/** A watch whose reader is so far behind is ended, orderly: it goes on from what it has read. */
const LONGEST_QUEUE = 1000;

/** One watch that is served: writes its lines into a stream. */
export class ObjectWatch {
  readonly #source: WatchSource;
  readonly #selection: Selection;
  readonly #stream: ByteStream;
  readonly #timers = new Set<Timer>();
  readonly #bookmarks: boolean;
  /** All objects are wanted first, and a bookmark behind them. */
  readonly #sendsInitial: boolean;
  #unwatch: () => void = () => {};
  /** Nothing at or before it is said: even if it lies in the future. */
  #from: number;
  #hasEvents = false;

  constructor(source: WatchSource, selection: Selection, query: URLSearchParams, stream: ByteStream) {
    this.#source = source;
    this.#selection = selection;
    this.#stream = stream;
    this.#from = readVersion(query.get('resourceVersion')) ?? 0;
    this.#bookmarks = query.get('allowWatchBookmarks') === 'true';
    this.#sendsInitial = query.get('sendInitialEvents') === 'true';
    this.#begin(Number(query.get('timeoutSeconds') ?? DEFAULT_SECONDS) * 1000);
  }

  /** Ends what it holds; not the stream. */
  close(): void {
    this.#unwatch();
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }

  #begin(lastsMs: number): void {
    const { store, cache } = this.#source;
    const resource = storedAs(this.#selection.type);
    const from = this.#from;
    if (!this.#sendsInitial && from > 0 && from < store.compacted) {
      this.#tooOld(from);
      return;
    }
    if (from === 0 || this.#sendsInitial) this.#everything(resource);
    else for (const write of cache.since(resource, from)) this.#tell(write);
    this.#unwatch = cache.watch((write) => {
      if (write.resource === resource && write.version > this.#from) this.#tell(write);
    });
    this.#after(lastsMs, () => this.#end());
    if (!this.#bookmarks) return;
    this.#after(Math.max(0, lastsMs - LAST_BOOKMARK_MS), () => this.#bookmark());
    this.#after(BOOKMARK_MS, () => this.#everyMinute());
  }

  #everything(resource: string): void {
    const { store, cache } = this.#source;
    this.#from = Math.max(cache.versionOf(resource), store.compacted);
    for (const [, object] of store.list(resource, this.#from))
      if (this.#matches(object)) this.#write('ADDED', object, object.metadata.resourceVersion);
    if (this.#sendsInitial && this.#bookmarks)
      this.#mark(this.#from, { 'k8s.io/initial-events-end': 'true' });
  }

  #after(ms: number, callback: () => void): void {
    const timer = this.#source.clock.after(ms, () => {
      this.#timers.delete(timer);
      callback();
    });
    this.#timers.add(timer);
  }

  #end(): void {
    this.close();
    this.#stream.end();
  }

  #tooOld(from: number): void {
    const { status } = new StatusError(
      'Expired',
      `too old resource version: ${from} (${this.#source.store.compacted})`,
    );
    this.#stream.write(`${JSON.stringify({ type: 'ERROR', object: status })}\n`);
    this.#stream.end();
  }

  #everyMinute(): void {
    this.#bookmark();
    this.#after(BOOKMARK_MS, () => this.#everyMinute());
  }

  #bookmark(): void {
    const { cache, idleProgress } = this.#source;
    const { type } = this.#selection;
    const version = cache.versionOf(storedAs(type));
    if (!(idleProgress || this.#hasEvents) || version < this.#from) return;
    this.#mark(version);
  }

  #mark(version: number, annotations?: Readonly<Record<string, string>>): void {
    const metadata = { resourceVersion: String(version), creationTimestamp: null, annotations };
    this.#stream.write(
      `${JSON.stringify({ type: 'BOOKMARK', object: { ...this.#typeMeta(), metadata } })}\n`,
    );
  }

  /** What a write means for those who see only what is selected. */
  #tell({ before, after, version }: StoredWrite): void {
    this.#hasEvents = true;
    const was = before !== undefined && this.#matches(before) ? before : undefined;
    const is = after !== undefined && this.#matches(after) ? after : undefined;
    if (is !== undefined) this.#say(was === undefined ? 'ADDED' : 'MODIFIED', is, String(version));
    else if (was !== undefined) this.#say('DELETED', was, String(version));
  }

  #matches(object: KubernetesObject): boolean {
    return inNamespace(object, this.#selection.namespace) && this.#selection.selects(object);
  }

  #say(type: EventType, object: KubernetesObject, resourceVersion: string): void {
    this.#write(type, object, resourceVersion);
    if (this.#stream.queued > LONGEST_QUEUE) this.#end();
  }

  #write(type: EventType, object: KubernetesObject, resourceVersion: string): void {
    const metadata = { ...object.metadata, resourceVersion };
    this.#stream.write(`${JSON.stringify({ type, object: { ...object, ...this.#typeMeta(), metadata } })}\n`);
  }

  #typeMeta(): { readonly apiVersion: string; readonly kind: string } {
    return typeMeta(this.#selection.type);
  }
}

/** What an object says of its own kind. */
export function typeMeta({ group, version, kind }: Selection['type']): {
  readonly apiVersion: string;
  readonly kind: string;
} {
  return { apiVersion: group === '' ? version : `${group}/${version}`, kind };
}
