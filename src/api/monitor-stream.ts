import type { ApiContext } from './api-context.ts';
import type { ChangeFeed, ChangeType, FeedChange } from './change-feed.ts';
import {
  type EntryDocument,
  entryDocument,
  type NodeDocument,
  nodeDocument,
  type ServiceDocument,
  serviceDocument,
} from './documents.ts';
import type { ReadModel } from './read-model.ts';

/** What has changed, and what it is now. */
export interface ChangeDocument {
  readonly revision: number;
  /** When, ISO 8601. */
  readonly at: string;
  readonly type: ChangeType;
  readonly kind: 'upsert' | 'delete';
  /** A CIDR, `namespace/name`, or `cluster/name`. */
  readonly key: string;
  /** Left out when it is gone. */
  readonly value?: EntryDocument | ServiceDocument | NodeDocument | undefined;
}

/** What a monitor asks for. */
export interface MonitorRequest {
  readonly types: ReadonlySet<ChangeType>;
  /** The revision after which to begin; `undefined`: with what comes from now on. Of another run: a resync. */
  readonly from: number | undefined;
}

/** After so long without an event it is said that there is none, so that both sides notice a connection that is gone. */
const HEARTBEAT_MS = 15_000;

/** Most changes of a part, and what it may be long before the last of them: 64 kB. */
const CHANGES_AT_A_TIME = 256;
const PART_LENGTH = 65_536;

/** What is held for monitors that come to the same place later, in bytes. */
const HELD_BYTES: number = 2 << 20;

/** What follows a revision. */
interface Part {
  /** Events, as they are sent. */
  readonly bytes: Uint8Array;
  /** Where to go on. */
  readonly revision: number;
  readonly missed: boolean;
}

const ENCODER = new TextEncoder();

/**
 * The changes as events, written once for all monitors that are at the same place: those that keep up are woken
 * together, so fifty of them cost hardly more than one. What was written last is held, 2 MB of it.
 */
export class MonitorParts {
  readonly #model: ReadModel;
  readonly #feed: ChangeFeed;
  readonly #instance: string;
  /** By revision and types, oldest first. */
  readonly #held = new Map<string, Part>();
  #bytes = 0;

  constructor({ model, feed, instance }: ApiContext) {
    this.#model = model;
    this.#feed = feed;
    this.#instance = instance;
  }

  /** The changes of these types after a revision, as many as make a part. */
  after(revision: number, types: ReadonlySet<ChangeType>): Part {
    const name = `${revision} ${[...types]}`;
    const held = this.#held.get(name);
    if (held !== undefined) return held;
    const part = this.#write(revision, types);
    if (part.bytes.length > 0) this.#hold(name, part);
    return part;
  }

  #write(from: number, types: ReadonlySet<ChangeType>): Part {
    const { changes, revision, missed } = this.#feed.read(from, CHANGES_AT_A_TIME, types);
    let text = '';
    for (const change of changes) {
      text += eventText('change', this.idOf(change.revision), changeDocument(this.#model, change));
      if (text.length >= PART_LENGTH)
        return { bytes: ENCODER.encode(text), revision: change.revision, missed };
    }
    return { bytes: ENCODER.encode(text), revision, missed };
  }

  #hold(name: string, part: Part): void {
    this.#held.set(name, part);
    this.#bytes += part.bytes.length;
    for (const [oldest, { bytes }] of this.#held) {
      if (this.#bytes <= HELD_BYTES) return;
      this.#held.delete(oldest);
      this.#bytes -= bytes.length;
    }
  }

  /** The id of the event after which a revision is known. */
  idOf(revision: number): string {
    return `${this.#instance}.${revision}`;
  }
}

/**
 * The changes as server-sent events: `change` with a {@link ChangeDocument}; `resync` when changes were missed, after which
 * the lists are to be read anew; `synced` first, with the revision from which it goes on. The id of an event is what
 * `Last-Event-ID` goes on from; it moves on with changes of other types, too. A part is made when the client has taken the one
 * before: nothing waits for a client that does not read.
 */
export async function* monitorEvents(
  { feed, clock }: Pick<ApiContext, 'feed' | 'clock'>,
  parts: MonitorParts,
  { types, from }: MonitorRequest,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  let revision = from ?? feed.revision;
  let said = Number.NEGATIVE_INFINITY;
  while (!signal.aborted && !feed.ended) {
    const opening = said < 0;
    const part = parts.after(revision, types);
    if (part.missed || opening) {
      const [event, after] = part.missed ? ['resync', part.revision] : ['synced', revision];
      yield ENCODER.encode(eventText(event, parts.idOf(after), { revision: after }));
      said = clock.now();
    }
    revision = part.revision;
    if (part.bytes.length > 0) {
      yield part.bytes;
      said = clock.now();
    }
    if (revision !== feed.revision) continue;
    await feed.changed(revision, signal, said + HEARTBEAT_MS - clock.now());
    if (clock.now() - said < HEARTBEAT_MS) continue;
    yield ENCODER.encode(`: still here\nid: ${parts.idOf(revision)}\n\n`);
    said = clock.now();
  }
}

function eventText(event: string, id: string, data: unknown): string {
  return `event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** What has changed, as it is now. */
function changeDocument(model: ReadModel, { revision, type, key, at }: FeedChange): ChangeDocument {
  const value = currentValue(model, type, key);
  const kind = value === undefined ? 'delete' : 'upsert';
  return { revision, at: new Date(at).toISOString(), type, kind, key, ...(value && { value }) };
}

function currentValue(model: ReadModel, type: ChangeType, key: string): ChangeDocument['value'] {
  switch (type) {
    case 'ip': {
      const entry = model.ipcache.lookupByPrefix(key);
      return entry && entryDocument(entry, model);
    }
    case 'node': {
      const node = model.nodes.get(key);
      return node && nodeDocument(node, model);
    }
    case 'service': {
      const slash = key.indexOf('/');
      const announced = model.services.get({ namespace: key.slice(0, slash), name: key.slice(slash + 1) });
      return announced && serviceDocument(announced, model);
    }
  }
}
