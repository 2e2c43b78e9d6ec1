import { assert } from '../../base/assert.ts';
import { isoTime } from '../../base/system-clock.ts';
import { resultOfSteps, type TurnGate } from '../../base/turn-gate.ts';
import { parseServiceKey } from '../../servicecache/service-id.ts';
import type { RouteContext } from '../api-context.ts';
import type { ChangeFeed, FeedChange } from '../change-feed.ts';
import type { ChangeType } from '../change-types.ts';
import {
  type EntryDocument,
  entryDocument,
  type NodeDocument,
  nodeDocument,
  type ServiceDocument,
} from '../documents.ts';
import type { ReadModel } from '../read-model.ts';
import { serviceJSON } from './service-json.ts';

/** A changed key and its current value. */
export interface ChangeDocument {
  readonly revision: number;
  /** Time of the change, ISO 8601. */
  readonly at: string;
  readonly type: ChangeType;
  readonly kind: 'upsert' | 'delete';
  /** A CIDR, `namespace/name`, or `cluster/name`. */
  readonly key: string;
  /** Absent if the key was deleted. */
  readonly value?: EntryDocument | ServiceDocument | NodeDocument | undefined;
}

export interface MonitorRequest {
  readonly types: ReadonlySet<ChangeType>;
  /** Last revision before the start; `undefined` starts with the next change. An unknown revision causes a resync. */
  readonly from: number | undefined;
}

/** A heartbeat is sent after this time without an event, so that both sides notice a broken connection. */
const HEARTBEAT_MS = 5_000;

export interface HeartbeatDocument {
  readonly revision: number;
  /** Time of the heartbeat, ISO 8601. */
  readonly at: string;
  /** Maximum time until the next event. If a client receives nothing for longer, its state may be stale. */
  readonly intervalMs: number;
}

/** Maximum number of changes in a part. A part ends earlier when its text has {@link MAX_PART_LENGTH} characters. */
const MAX_PART_CHANGES = 256;
const MAX_PART_LENGTH = 65_536;

/** Maximum size of the parts kept for monitors that reach the same revision later. */
const MAX_KEPT_BYTES: number = 2 << 20;

/** A group of encoded changes. */
interface EncodedPart {
  /** Encoded events. */
  readonly bytes: Uint8Array;
  /** The next part begins after this revision. */
  readonly revision: number;
  /** True if the feed has dropped changes that the client has not read. */
  readonly hasMissed: boolean;
}

const ENCODER = new TextEncoder();

/**
 * Encodes changes as events, once for all monitors at the same revision. Monitors that keep up are woken together, so
 * fifty cost hardly more than one. Keeps the last 2 MB of parts.
 */
export class MonitorParts {
  readonly #model: ReadModel;
  readonly #feed: ChangeFeed;
  readonly #instance: string;
  readonly #gate: TurnGate;
  /** Parts by revision and types, oldest first. */
  readonly #parts = new Map<string, EncodedPart>();
  #bytes = 0;
  /** The parts that are being encoded. */
  readonly #encoding = new Map<string, Promise<EncodedPart>>();

  constructor({ model, feed, instance, gate }: Pick<RouteContext, 'model' | 'feed' | 'instance' | 'gate'>) {
    this.#model = model;
    this.#feed = feed;
    this.#instance = instance;
    this.#gate = gate;
  }

  /**
   * Returns the part with the changes of these types after a revision. The gate limits the parts encoded in one turn of
   * the event loop, because monitors at different revisions do not share them.
   */
  after(revision: number, types: ReadonlySet<ChangeType>): EncodedPart | Promise<EncodedPart> {
    const name = `${revision} ${[...types]}`;
    const known = this.#parts.get(name) ?? this.#encoding.get(name);
    if (known !== undefined) return known;
    const encoding = this.#encode(name, revision, types).finally(() => this.#encoding.delete(name));
    this.#encoding.set(name, encoding);
    return encoding;
  }

  async #encode(name: string, revision: number, types: ReadonlySet<ChangeType>): Promise<EncodedPart> {
    const part = await resultOfSteps(this.#gate, this.#steps(revision, types));
    assert(part !== undefined, 'all steps ran');
    if (part.bytes.length > 0) this.#store(name, part);
    return part;
  }

  *#steps(from: number, types: ReadonlySet<ChangeType>): Generator<undefined, EncodedPart, void> {
    const { changes, revision, hasMissed } = this.#feed.read(from, MAX_PART_CHANGES, types);
    let text = '';
    for (const change of changes) {
      text += `event: change\nid: ${this.idOf(change.revision)}\ndata: `;
      for (const piece of changeJSON(this.#model, change)) {
        text += piece ?? '';
        // Only one service with many backends is longer than a part.
        if (piece === undefined || text.length >= MAX_PART_LENGTH) yield;
      }
      text += '\n\n';
      if (text.length >= MAX_PART_LENGTH)
        return { bytes: ENCODER.encode(text), revision: change.revision, hasMissed };
    }
    return { bytes: ENCODER.encode(text), revision, hasMissed };
  }

  #store(name: string, part: EncodedPart): void {
    this.#parts.set(name, part);
    this.#bytes += part.bytes.length;
    for (const [oldest, { bytes }] of this.#parts) {
      if (this.#bytes <= MAX_KEPT_BYTES) return;
      this.#parts.delete(oldest);
      this.#bytes -= bytes.length;
    }
  }

  /** Returns the id of an event: the run of the agent and the revision. */
  idOf(revision: number): string {
    return `${this.#instance}.${revision}`;
  }
}

/**
 * Yields changes as server-sent events:
 *
 * - `synced`: the first event, with the start revision. If changes were already missed, `resync` is sent instead.
 * - `change`: a {@link ChangeDocument}
 * - `resync`: changes were missed, so the client must read the lists again
 * - `heartbeat`: a {@link HeartbeatDocument}, if nothing else was sent for 5 s
 *
 * A client resumes with the id of its last event as `Last-Event-ID`. Ids advance with changes of other types, too. A
 * part is encoded when the client has read the previous one, so nothing is queued for slow clients.
 */
export async function* monitorEvents(
  { feed, clock }: Pick<RouteContext, 'feed' | 'clock'>,
  parts: MonitorParts,
  { types, from }: MonitorRequest,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  let revision = from ?? feed.revision;
  let isFirst = true;
  let lastEventAt = clock.now();
  while (!signal.aborted && !feed.ended) {
    const part = await parts.after(revision, types);
    if (signal.aborted) return;
    if (part.hasMissed || isFirst) {
      const event = part.hasMissed ? 'resync' : 'synced';
      const start = part.hasMissed ? part.revision : revision;
      yield ENCODER.encode(eventText(event, parts.idOf(start), { revision: start }));
      isFirst = false;
      lastEventAt = clock.now();
    }
    revision = part.revision;
    if (part.bytes.length > 0) {
      yield part.bytes;
      lastEventAt = clock.now();
    }
    if (revision !== feed.revision) continue;
    await feed.waitForChange(revision, signal, lastEventAt + HEARTBEAT_MS - clock.now());
    if (clock.now() - lastEventAt < HEARTBEAT_MS) continue;
    const at = isoTime(clock.wallTime());
    const heartbeat: HeartbeatDocument = { revision, at, intervalMs: HEARTBEAT_MS };
    yield ENCODER.encode(eventText('heartbeat', parts.idOf(revision), heartbeat));
    lastEventAt = clock.now();
  }
}

function eventText(event: string, id: string, data: unknown): string {
  return `event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Yields the JSON text of a `ChangeDocument` in pieces, and `undefined` for steps without one. */
function* changeJSON(
  model: ReadModel,
  { revision, type, key, at }: FeedChange,
): Generator<string | undefined, void, void> {
  const value = currentValueJSON(model, type, key);
  const kind = value === undefined ? 'delete' : 'upsert';
  const fields: ChangeDocument = { revision, at: isoTime(at), type, kind, key };
  if (value === undefined) {
    yield JSON.stringify(fields);
    return;
  }
  yield `${JSON.stringify(fields).slice(0, -1)},"value":`;
  yield* value;
  yield '}';
}

function currentValueJSON(
  model: ReadModel,
  type: ChangeType,
  key: string,
): Iterable<string | undefined> | undefined {
  switch (type) {
    case 'ip': {
      const entry = model.ipcache.lookupByPrefix(key);
      return entry && [JSON.stringify(entryDocument(entry, model))];
    }
    case 'node': {
      const node = model.nodes.get(key);
      return node && [JSON.stringify(nodeDocument(node, model))];
    }
    case 'service': {
      const announced = model.services.get(parseServiceKey(key));
      return announced && serviceJSON(announced, model);
    }
  }
}
