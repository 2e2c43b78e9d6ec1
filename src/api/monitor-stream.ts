import type { ApiContext } from './api-context.ts';
import type { ChangeType, FeedChange } from './change-feed.ts';
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

/** A comment goes out after so long without a change, so that both sides notice a connection that is gone. */
const HEARTBEAT_MS = 15_000;

/** Changes that are written at a time, at most. */
const CHANGES_AT_A_TIME = 128;

/**
 * The changes as server-sent events: `change` with a {@link ChangeDocument}; `resync` when changes were missed, after which
 * the lists are to be read anew; `synced` first, with the revision from which it goes on. The id of an event is what
 * `Last-Event-ID` goes on from. A part is made when the client has taken the one before: nothing waits for a client
 * that does not read.
 */
export async function* monitorEvents(
  { model, feed, clock, instance }: ApiContext,
  { types, from }: MonitorRequest,
  signal: AbortSignal,
): AsyncGenerator<string, void, void> {
  let revision = from ?? feed.revision;
  let opening = true;
  while (!signal.aborted && !feed.ended) {
    const read = feed.read(revision, CHANGES_AT_A_TIME);
    revision = read.revision;
    const id = `${instance}.${revision}`;
    const parts: string[] = [];
    if (read.missed) parts.push(eventText('resync', id, { revision }));
    else if (opening)
      parts.push(eventText('synced', `${instance}.${from ?? revision}`, { revision: from ?? revision }));
    opening = false;
    for (const change of read.changes) {
      if (types.has(change.type))
        parts.push(eventText('change', `${instance}.${change.revision}`, changeDocument(model, change)));
    }
    if (parts.length > 0) yield parts.join('');
    if (revision !== feed.revision) continue;
    if (!(await changedWithin(feed, revision, signal))) yield ': still here\n\n';
  }

  /** False when nothing has changed for the time of a heartbeat. */
  async function changedWithin(
    { changed }: Pick<typeof feed, 'changed'>,
    after: number,
    until: AbortSignal,
  ): Promise<boolean> {
    const beat = new AbortController();
    const timer = clock.after(HEARTBEAT_MS, () => beat.abort());
    await changed.call(feed, after, AbortSignal.any([until, beat.signal]));
    timer.cancel();
    return !beat.signal.aborted;
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
      return node && nodeDocument(node);
    }
    case 'service': {
      const slash = key.indexOf('/');
      const announced = model.services.get({ namespace: key.slice(0, slash), name: key.slice(slash + 1) });
      return announced && serviceDocument(announced);
    }
  }
}
