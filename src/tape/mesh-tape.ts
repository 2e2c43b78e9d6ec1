import { forEachInSteps } from '../base/turn-gate.ts';
import type { MeshTap, StoreTap } from '../clustermesh/mesh-tap.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import { base64OfBytes, textOfBytes } from '../kvstore/codec/bytes.ts';
import { type ClusterConfig, encodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { encodeIPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import { type CopiedResource, clusterConfigKey, isServiceResource } from '../kvstore/codec/keys.ts';
import type { WatchEvent } from '../kvstore/session/backend.ts';
import { TableEvent } from '../kvstore/session/table-event.ts';
import { WireKeyValue } from '../kvstore/session/wire-key-value.ts';
import type { TapeEntry } from './tape-line.ts';
import type { Bytes, TapeLines } from './tape-lines.ts';

/** Number of keys of one step of a snapshot: about 1 ms. */
const KEYS_PER_STEP = 256;

/** Returns the JSON of an entry without the opening brace; see `TapeLines.add`. */
export function contentOf(entry: TapeEntry): string {
  return JSON.stringify(entry).slice(1);
}

/** Returns the JSON field of a value: `value` if the bytes are UTF-8, else `value64`. */
function valueField(value: Uint8Array): string {
  const text = textOfBytes(value);
  return text === undefined ? `"value64":"${base64OfBytes(value)}"` : `"value":${JSON.stringify(text)}`;
}

/** Returns the position of an event's value in the buffer of its message, which avoids a view. */
function valueIn(event: WatchEvent): Bytes {
  const kv = event instanceof TableEvent ? event.kv : event;
  if (kv instanceof WireKeyValue) return { buffer: kv.buffer, from: kv.valueAt, to: kv.valueEnd };
  const { value } = kv;
  return { buffer: value, from: 0, to: value.length };
}

/** Writes the events of one resource of a cluster to a tape. */
class StoreTape implements StoreTap {
  readonly #lines: TapeLines;
  /** The JSON fields `store` and `from`. */
  readonly #place: string;
  /** The last value of each key; undefined for a resource whose values a snapshot reads from the engine. */
  readonly #last: Map<string, { readonly revision: number; readonly value: Uint8Array }> | undefined;
  #prefix = '';
  /** The JSON of a put before its name. */
  #putPlace: Uint8Array = new Uint8Array();
  /** The current `follow` line; undefined while the resource is not followed. */
  followLine: string | undefined;
  isListed = false;
  /** The name in the last event of the batch; empty at its start. */
  #name = '';
  /** The last event, if it is a put. */
  #put: WatchEvent | undefined;
  /** The revision of the last event, if it is a delete without a line so far. */
  #deleteRevision: number | undefined;

  constructor(lines: TapeLines, cluster: string, resource: CopiedResource) {
    this.#lines = lines;
    this.#place = `"store":${JSON.stringify(cluster)},"from":"${resource}"`;
    this.#last = resource === 'ip' ? undefined : new Map();
  }

  set prefix(prefix: string) {
    this.#prefix = prefix;
    this.#putPlace = Buffer.from(`${this.#place},"key":${JSON.stringify(prefix).slice(0, -1)}`);
  }

  onEvent(name: string, event: WatchEvent): void {
    this.#ignoreDelete();
    this.#name = name;
    const isDelete = event.type === 'delete';
    const { modRevision } = event;
    this.#put = isDelete ? undefined : event;
    if (isDelete) this.#deleteRevision = modRevision;
    else
      this.#lines.putToBatch(this.#putPlace, name, modRevision, valueIn(event), () =>
        this.put(name, event.value, modRevision),
      );
  }

  onUpdate(name: string): void {
    const put = this.#put;
    // A copy, because a view would keep the whole message in memory.
    if (put !== undefined)
      this.#last?.set(name, { revision: put.modRevision, value: Buffer.from(put.value) });
  }

  onDelete(name: string): void {
    this.#last?.delete(name);
    const isEvent = name === this.#name;
    if (isEvent && this.#put !== undefined) return; // the value was rejected
    const revision = isEvent ? this.#deleteRevision : undefined;
    if (revision === undefined) this.#ignoreDelete();
    this.#addDelete(revision === undefined ? 'sweep' : 'delete', name, revision ?? 0);
    this.#deleteRevision = undefined;
  }

  onApplied(): void {
    this.#ignoreDelete();
    this.#lines.endBatch();
    this.#name = '';
    this.#put = undefined;
  }

  /** Returns the content of a put, without the closing brace; see {@link contentOf}. */
  put(name: string, value: Uint8Array, revision: number): string {
    return `${this.#place},"key":${JSON.stringify(this.#prefix + name)},"rev":${revision},${valueField(value)}`;
  }

  /** Adds a line for the last delete if it had no effect. */
  #ignoreDelete(): void {
    const revision = this.#deleteRevision;
    if (revision === undefined) return;
    this.#deleteRevision = undefined;
    this.#addDelete('ignored', this.#name, revision);
  }

  #addDelete(ev: 'delete' | 'sweep' | 'ignored', name: string, revision: number): void {
    const key = JSON.stringify(this.#prefix + name);
    this.#lines.addToBatch(`"ev":"${ev}",${this.#place},"key":${key},"rev":${revision}`);
  }

  /** Adds lines with the last value of each key, in steps. */
  *snapshot(): Generator<void, void, void> {
    if (this.followLine !== undefined) this.#lines.add(this.followLine);
    yield* forEachInSteps(this.#last ?? [], KEYS_PER_STEP, ([name, { revision, value }]) =>
      this.#lines.add(`${this.put(name, value, revision)},"snap":1}`),
    );
  }
}

/** Writes the input of a mesh to a tape. */
export class MeshTape implements MeshTap {
  readonly #lines: TapeLines;
  readonly #ipcache: IPCache;
  readonly #localCluster: string;
  /** Stores by cluster and resource. */
  readonly #stores = new Map<string, Map<CopiedResource, StoreTape>>();
  /** The last `config` line of each cluster. */
  readonly #configs = new Map<string, string>();

  /** @param localCluster name of the local cluster, whose claims have no owner */
  constructor(lines: TapeLines, ipcache: IPCache, localCluster: string) {
    this.#lines = lines;
    this.#ipcache = ipcache;
    this.#localCluster = localCluster;
  }

  storeTap(cluster: string, resource: CopiedResource): StoreTap {
    const store = new StoreTape(this.#lines, cluster, resource);
    const stores = this.#stores.get(cluster) ?? new Map<CopiedResource, StoreTape>();
    this.#stores.set(cluster, stores.set(resource, store));
    return store;
  }

  onConfigured(store: string, config: ClusterConfig | undefined): void {
    const key = clusterConfigKey(store);
    const line = contentOf({ ev: 'config', store, key }).slice(0, -1);
    const content = config === undefined ? `${line}}` : `${line},${valueField(encodeClusterConfig(config))}}`;
    this.#configs.set(store, content);
    this.#lines.add(content);
  }

  onFollow(store: string, from: CopiedResource, prefix: string, keeps: boolean): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape === undefined) return;
    tape.prefix = prefix;
    tape.followLine = contentOf({ ev: 'follow', store, from, prefix, keeps });
    this.#lines.add(tape.followLine);
  }

  onReaderState(store: string, from: string, state: string): void {
    this.#lines.add(contentOf({ ev: 'state', store, from, state }));
  }

  onListed(store: string, from: CopiedResource): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape !== undefined) tape.isListed = true;
    this.#lines.add(contentOf({ ev: 'listed', store, from }));
  }

  onFollowEnd(store: string, from: CopiedResource): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape !== undefined) tape.followLine = undefined;
    this.#lines.add(contentOf({ ev: 'end', store, from }));
  }

  onWithdrawn(store: string, scope: 'services' | 'everything'): void {
    if (scope === 'everything') this.#configs.delete(store);
    for (const [from, tape] of this.#stores.get(store) ?? [])
      if (scope === 'everything' || isServiceResource(from)) tape.isListed = false;
    this.#lines.add(contentOf({ ev: 'withdrawn', store, scope }));
  }

  /**
   * Adds the state of all stores in steps. Lines of changes may be interleaved; a later line of a key replaces an
   * earlier one.
   */
  *snapshot(): Generator<void, void, void> {
    for (const content of this.#configs.values()) this.#lines.add(content);
    for (const stores of this.#stores.values()) for (const store of stores.values()) yield* store.snapshot();
    yield* this.#ipSnapshot();
    for (const [store, stores] of this.#stores)
      for (const [from, { isListed }] of stores)
        if (isListed) this.#lines.add(contentOf({ ev: 'listed', store, from }));
  }

  /** Adds a line for each IP from a kvstore. The value is encoded from the claim in the IPCache. */
  *#ipSnapshot(): Generator<void, void, void> {
    const tapeOf = ({ source, owner }: ClaimWriter): StoreTape | undefined => {
      if (source !== 'kvstore' && source !== 'clustermesh') return undefined;
      return this.#stores.get(source === 'kvstore' && owner === '' ? this.#localCluster : owner)?.get('ip');
    };
    for (const keys of this.#ipcache.keysOfWriters((writer) => tapeOf(writer) !== undefined)) {
      for (const key of keys)
        for (const claim of this.#ipcache.claimsOf(key)) {
          const tape = tapeOf(claim);
          if (tape !== undefined)
            this.#lines.add(`${tape.put(key, encodeIPIdentityPair({ key, ...claim }), 0)},"snap":1}`);
        }
      yield;
    }
  }
}
