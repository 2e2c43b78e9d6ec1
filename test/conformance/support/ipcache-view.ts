import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import { metadataOrNone } from '../../../src/ipcache/k8s-metadata.ts';
import type { IPCacheChange, IPCacheEntry, K8sMetadata } from '../../../src/ipcache/types.ts';
import type { IPCacheFinal, TraceEvent, TraceMetadata } from './ipcache-trace.ts';

/** Returns trace metadata in the engine's form. */
export function toMetadata(meta: TraceMetadata | null | undefined): K8sMetadata | undefined {
  if (meta === null || meta === undefined) return undefined;
  const ports = Object.entries(meta.namedPorts ?? {});
  return {
    namespace: meta.namespace,
    podName: meta.podName,
    namedPorts: new Map(ports.map(([name, { port, proto }]) => [name, { port, protocol: proto }])),
  };
}

/** Returns engine metadata in the form of traces; an empty object counts as none. */
export function fromMetadata(k8s: K8sMetadata | undefined): TraceMetadata | null {
  const some = metadataOrNone(k8s);
  if (some === undefined) return null;
  const ports = [...(some.namedPorts ?? [])].map(([name, { port, protocol }]) => [
    name,
    { port, proto: protocol },
  ]);
  return { namespace: some.namespace, podName: some.podName, namedPorts: Object.fromEntries(ports) };
}

/** Returns a change in the form of the recording, where a delete has the removed entry as "new". */
export function toTraceEvent(change: IPCacheChange): TraceEvent {
  const said = change.new ?? change.old;
  return {
    mod: change.kind === 'upsert' ? 'Upsert' : 'Delete',
    cidr: change.prefix,
    oldHostIP: change.old?.hostIP ?? null,
    newHostIP: change.new?.hostIP ?? null,
    oldID: change.kind === 'upsert' ? (change.old?.identity ?? null) : null,
    newID: said?.identity ?? 0,
    key: said?.encryptKey ?? 0,
    meta: fromMetadata(said?.k8s),
  };
}

/** Returns the replay of a new listener, sorted like the recording. */
export function dump(cache: IPCache): readonly TraceEvent[] {
  const events: TraceEvent[] = [];
  cache.subscribe({ onChanges: (changes) => events.push(...changes.map(toTraceEvent)) })();
  return sortEvents(events);
}

export function sortEvents(events: readonly TraceEvent[]): readonly TraceEvent[] {
  const rank = (event: TraceEvent): string => `${event.cidr}\n${JSON.stringify(event)}`;
  return [...events].sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
}

function entryView(
  entry: IPCacheEntry & { source: string; shadowed: boolean },
): IPCacheFinal['entries'][string] {
  return {
    id: entry.identity,
    source: entry.source,
    shadowed: entry.shadowed,
    hostIP: entry.hostIP ?? null,
    key: entry.encryptKey,
    k8sMeta: fromMetadata(entry.k8s),
  };
}

/** Returns the whole state in the form of a recording's `final`. */
export function finalView(cache: IPCache): IPCacheFinal {
  const entries = [...cache.entries({ includeShadowed: true })];
  const identities = new Set(entries.map((entry) => entry.identity));
  return {
    entries: Object.fromEntries(entries.map((entry) => [entry.key, entryView(entry)])),
    identities: Object.fromEntries([...identities].map((id) => [id, [...cache.lookupByIdentity(id)].sort()])),
    dump: dump(cache),
  };
}
