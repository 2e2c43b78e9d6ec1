import type { Clock, Timer } from '../../base/clock.ts';
import type { KubernetesObject } from '../resource.ts';
import { StatusError } from './api-status.ts';
import type { ByteStream } from './byte-stream.ts';
import { inNamespace, readVersion, type Selection } from './object-lists.ts';
import type { ObjectStore, StoredWrite } from './object-store.ts';
import { resourceKey } from './object-writes.ts';
import { typeMeta } from './resource-types.ts';
import type { WatchCache } from './watch-cache.ts';

/** The state of the server, from which it serves a watch. */
export interface WatchSource {
  readonly store: ObjectStore;
  readonly cache: WatchCache;
  readonly clock: Clock;
}

type EventType = 'ADDED' | 'MODIFIED' | 'DELETED';

const BOOKMARK_MS = 60_000;
/** Time between the last bookmark and the end of a watch. */
const LAST_BOOKMARK_MS = 2000;
const DEFAULT_SECONDS = 300;
/**
 * Maximum number of unread lines, checked when a change is sent. If a slow reader has more, the watch ends without an
 * error, and the reader resumes after its last line.
 */
const MAX_QUEUE_LENGTH = 1000;

/** One open watch. It writes lines into a stream. */
export class ObjectWatch {
  readonly #source: WatchSource;
  readonly #selection: Selection;
  readonly #stream: ByteStream;
  readonly #timers = new Set<Timer>();
  readonly #sendsBookmarks: boolean;
  /** True if the watch starts with all objects at any version and, if it sends bookmarks, a bookmark after them. */
  readonly #sendsInitial: boolean;
  #unwatch: () => void = () => {};
  /** Events up to and including this version are not sent. It may be a future version. */
  #from: number;
  /** True if a write of the kind was received, even if no selected object has changed. */
  #hasChanges = false;

  constructor(source: WatchSource, selection: Selection, query: URLSearchParams, stream: ByteStream) {
    this.#source = source;
    this.#selection = selection;
    this.#stream = stream;
    this.#from = readVersion(query.get('resourceVersion')) ?? 0;
    this.#sendsBookmarks = query.get('allowWatchBookmarks') === 'true';
    this.#sendsInitial = query.get('sendInitialEvents') === 'true';
    this.#begin(Number(query.get('timeoutSeconds') ?? DEFAULT_SECONDS) * 1000);
  }

  /** Releases timers and subscriptions. The stream is not closed. */
  close(): void {
    this.#unwatch();
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }

  #begin(durationMs: number): void {
    const { store, cache } = this.#source;
    const resource = resourceKey(this.#selection.type);
    const from = this.#from;
    if (!this.#sendsInitial && from > 0 && from < store.compacted) {
      this.#endExpired(from);
      return;
    }
    if (from === 0 || this.#sendsInitial) this.#listAll(resource);
    else for (const write of cache.since(resource, from)) this.#deliver(write);
    this.#unwatch = cache.watch((write) => {
      if (write.resource !== resource || write.version <= this.#from) return;
      this.#deliver(write);
      if (this.#stream.queued > MAX_QUEUE_LENGTH) this.#end();
    });
    this.#after(durationMs, () => this.#end());
    if (!this.#sendsBookmarks) return;
    this.#after(Math.max(0, durationMs - LAST_BOOKMARK_MS), () => this.#sendProgress());
    this.#after(BOOKMARK_MS, () => this.#sendProgressRepeatedly());
  }

  #listAll(resource: string): void {
    const { store, cache } = this.#source;
    this.#from = Math.max(cache.versionOf(resource), store.compacted);
    for (const [, object] of store.list(resource, this.#from))
      if (this.#matches(object)) this.#write('ADDED', object, object.metadata.resourceVersion);
    if (this.#sendsInitial && this.#sendsBookmarks)
      this.#writeBookmark(this.#from, { 'k8s.io/initial-events-end': 'true' });
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

  #endExpired(from: number): void {
    const { status } = new StatusError(
      'Expired',
      `too old resource version: ${from} (${this.#source.store.compacted})`,
    );
    this.#stream.write(`${JSON.stringify({ type: 'ERROR', object: status })}\n`);
    this.#stream.end();
  }

  #sendProgressRepeatedly(): void {
    this.#sendProgress();
    this.#after(BOOKMARK_MS, () => this.#sendProgressRepeatedly());
  }

  /** Writes a bookmark at the latest version of the kind, if the watch has progress to report. */
  #sendProgress(): void {
    const { cache } = this.#source;
    const { type } = this.#selection;
    const version = cache.versionOf(resourceKey(type));
    if (!(cache.idleProgress || this.#hasChanges) || version < this.#from) return;
    this.#writeBookmark(version);
  }

  #writeBookmark(version: number, annotations?: Readonly<Record<string, string>>): void {
    const metadata = { resourceVersion: String(version), creationTimestamp: null, annotations };
    const object = { ...typeMeta(this.#selection.type), metadata };
    this.#stream.write(`${JSON.stringify({ type: 'BOOKMARK', object })}\n`);
  }

  /** Sends the event of a write for the selected objects. */
  #deliver({ before, after, version }: StoredWrite): void {
    this.#hasChanges = true;
    const selectedBefore = before !== undefined && this.#matches(before) ? before : undefined;
    const selectedAfter = after !== undefined && this.#matches(after) ? after : undefined;
    if (selectedAfter !== undefined)
      this.#write(selectedBefore === undefined ? 'ADDED' : 'MODIFIED', selectedAfter, String(version));
    else if (selectedBefore !== undefined) this.#write('DELETED', selectedBefore, String(version));
  }

  #matches(object: KubernetesObject): boolean {
    return inNamespace(object, this.#selection.namespace) && this.#selection.selects(object);
  }

  #write(type: EventType, object: KubernetesObject, resourceVersion: string): void {
    const metadata = { ...object.metadata, resourceVersion };
    const sent = { ...object, ...typeMeta(this.#selection.type), metadata };
    this.#stream.write(`${JSON.stringify({ type, object: sent })}\n`);
  }
}
