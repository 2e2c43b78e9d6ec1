import type { TraceEvent, TraceMetadata } from './ipcache-trace.ts';
import { fromMetadata, toMetadata } from './ipcache-view.ts';
import type { NodeStepTrace, TraceWrite } from './node-trace.ts';

/** The visible value of a prefix, as a listener knows it. */
export interface Value {
  readonly id: number;
  readonly hostIP: string | null;
  readonly key: number;
  readonly meta: TraceMetadata | null;
}

/** How the value of one prefix changed. */
export interface NetChange {
  readonly prefix: string;
  readonly old: Value | null;
  readonly new: Value | null;
}

/** Returns the net changes between two views, by prefix. */
export function netChanges(
  before: ReadonlyMap<string, Value>,
  after: ReadonlyMap<string, Value>,
): readonly NetChange[] {
  const changes: NetChange[] = [];
  for (const prefix of [...new Set([...before.keys(), ...after.keys()])].sort()) {
    const change = { prefix, old: before.get(prefix) ?? null, new: after.get(prefix) ?? null };
    if (JSON.stringify(change.old) !== JSON.stringify(change.new)) changes.push(change);
  }
  return changes;
}

/**
 * The ipcache of a recording in two forms: as its listener saw it, and as the recorded writes define it. If
 * they differ, the original contradicts itself, which scenarios of the node manager do not mark.
 */
export class RecordedIPCache {
  readonly #entries = new Map<string, Value & { readonly source: string }>();
  readonly #told = new Map<string, Value>();

  /** Follows one step. */
  follow(step: NodeStepTrace): void {
    const { op, ip, source } = step;
    if (op === 'ipcacheUpsert' && updated(step.returns)) this.#write(step as TraceWrite);
    if (op === 'ipcacheDelete' && ip !== undefined) this.#remove(ip, source);
    for (const event of step.events ?? []) {
      if (event.t === 'ipcache') this.#fold(event);
      else if (event.t === 'call' && event.call === 'delete') this.#remove(event.ip, event.source);
      else if (event.t === 'call' && event.call === 'upsert' && event.updated) this.#write(event);
    }
  }

  /** Returns the values by prefix: the endpoint's if there is one, else the CIDR's. */
  held(): ReadonlyMap<string, Value> {
    const view = new Map<string, Value>();
    for (const cidrs of [true, false]) {
      for (const [key, { id, hostIP, key: encryptKey, meta }] of this.#entries) {
        if (key.includes('/') === cidrs) view.set(prefixOf(key), { id, hostIP, key: encryptKey, meta });
      }
    }
    return view;
  }

  /** Returns the prefixes whose value differs between listener and content. */
  contradictions(): readonly string[] {
    return netChanges(this.held(), this.#told).map(({ prefix }) => prefix);
  }

  #write({ ip, id, hostIP, key, meta, source }: TraceWrite): void {
    this.#entries.set(ip, { id, hostIP, key, meta: fromMetadata(toMetadata(meta)), source });
  }

  #remove(ip: string, source: string | undefined): void {
    if (this.#entries.get(ip)?.source === source) this.#entries.delete(ip);
  }

  #fold({ mod, cidr, newID, newHostIP, key, meta }: TraceEvent): void {
    if (mod === 'Delete') this.#told.delete(cidr);
    else this.#told.set(cidr, { id: newID, hostIP: newHostIP, key, meta: fromMetadata(toMetadata(meta)) });
  }
}

function updated(returns: unknown): boolean {
  return (returns as { updated?: boolean } | undefined)?.updated === true; // the result of ipcacheUpsert in a trace
}

function prefixOf(key: string): string {
  if (key.includes('/')) return key;
  return `${key}/${key.includes(':') ? 128 : 32}`;
}
