import type { MeshTap, StoreTap } from '../clustermesh/mesh-tap.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ClaimWriter } from '../ipcache/types.ts';
import { asBuffer, textOfBytes } from '../kvstore/codec/bytes.ts';
import { type ClusterConfig, encodeClusterConfig } from '../kvstore/codec/cluster-config.ts';
import { encodeIPIdentityPair } from '../kvstore/codec/ip-identity-pair.ts';
import { type CopiedResource, clusterConfigKey } from '../kvstore/codec/keys.ts';
import type { WatchEvent } from '../kvstore/session/backend.ts';
import type { TapeEntry } from './tape-line.ts';

/** Adds a line with this content: JSON without the opening brace. */
export type AddLine = (content: string) => void;

/** Keys of one step of a snapshot: about 1 ms. */
const KEYS_PER_STEP = 256;

/** Returns the content of a line. */
export function contentOf(entry: TapeEntry): string {
  return JSON.stringify(entry).slice(1);
}

/** Returns the field with a value, as text if it is UTF-8. */
function valueField(value: Uint8Array): string {
  const text = textOfBytes(value);
  return text === undefined
    ? `"value64":"${asBuffer(value).toString('base64')}"`
    : `"value":${JSON.stringify(text)}`;
}

/** One store on the tape. The lines of a batch are written together when it was applied. */
class StoreTape implements StoreTap {
  readonly #add: AddLine;
  readonly #place: string;
  /** The last content of each key; undefined for a resource whose keys the engine has. */
  readonly #last: Map<string, string> | undefined;
  prefix = '';
  /** The last line that describes the run, if the store is followed. */
  run: string | undefined;
  isListed = false;
  /** Contents without `more` and the closing brace. */
  #batch: string[] = [];
  /** The name of the last event, and true if it is a delete that was not applied yet. */
  #name = '';
  #isDelete = false;

  constructor(add: AddLine, cluster: string, resource: CopiedResource) {
    this.#add = add;
    this.#place = `"store":${JSON.stringify(cluster)},"from":"${resource}"`;
    this.#last = resource === 'ip' ? undefined : new Map();
  }

  onEvent(name: string, event: WatchEvent): void {
    this.#name = name;
    this.#isDelete = event.type === 'delete';
    if (this.#isDelete) this.#batch.push(this.#gone('ignored', name, event.modRevision));
    else this.#batch.push(this.put(name, event.value, event.modRevision));
  }

  onUpdate(name: string): void {
    this.#last?.set(name, this.#batch.at(-1) ?? '');
  }

  onDelete(name: string): void {
    this.#last?.delete(name);
    const isEvent = name === this.#name;
    if (isEvent && !this.#isDelete) return; // the value was rejected
    if (!isEvent) this.#batch.push(this.#gone('sweep', name, 0));
    else this.#batch.push((this.#batch.pop() ?? '').replace('"ev":"ignored"', '"ev":"delete"'));
    this.#isDelete = false;
  }

  onApplied(): void {
    const { length } = this.#batch;
    for (let i = 0; i < length; i++) this.#add(`${this.#batch[i]}${i + 1 < length ? ',"more":1}' : '}'}`);
    if (length > 0) this.#batch = [];
    this.#name = '';
  }

  put(name: string, value: Uint8Array, revision: number): string {
    return `${this.#place},"rev":${revision},"key":${JSON.stringify(this.prefix + name)},${valueField(value)}`;
  }

  #gone(ev: string, name: string, revision: number): string {
    return `"ev":"${ev}",${this.#place},"rev":${revision},"key":${JSON.stringify(this.prefix + name)}`;
  }

  /** Adds lines with the last content of each key, in steps. */
  *snapshot(): Generator<void, void, void> {
    if (this.run !== undefined) this.#add(this.run);
    let added = 0;
    for (const content of this.#last?.values() ?? []) {
      this.#add(`${content},"snap":1}`);
      if (++added % KEYS_PER_STEP === 0) yield;
    }
  }
}

/** Writes the input of a mesh to a tape. */
export class MeshTape implements MeshTap {
  readonly #add: AddLine;
  readonly #ipcache: IPCache;
  readonly #own: string;
  /** Stores by cluster and resource. */
  readonly #stores = new Map<string, Map<CopiedResource, StoreTape>>();
  readonly #configs = new Map<string, string>();

  /** @param own name of the local cluster, whose claims have no owner */
  constructor(add: AddLine, ipcache: IPCache, own: string) {
    this.#add = add;
    this.#ipcache = ipcache;
    this.#own = own;
  }

  store(cluster: string, resource: CopiedResource): StoreTap {
    const store = new StoreTape(this.#add, cluster, resource);
    const stores = this.#stores.get(cluster) ?? new Map<CopiedResource, StoreTape>();
    this.#stores.set(cluster, stores.set(resource, store));
    return store;
  }

  configured(store: string, config: ClusterConfig | undefined): void {
    const key = clusterConfigKey(store);
    const line = contentOf({ ev: 'config', store, key }).slice(0, -1);
    const content = config === undefined ? `${line}}` : `${line},${valueField(encodeClusterConfig(config))}}`;
    this.#configs.set(store, content);
    this.#add(content);
  }

  followed(store: string, from: CopiedResource, prefix: string, keeps: boolean): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape === undefined) return;
    tape.prefix = prefix;
    tape.run = contentOf({ ev: 'follow', store, from, prefix, keeps });
    this.#add(tape.run);
  }

  reading(store: string, from: string, state: string): void {
    this.#add(contentOf({ ev: 'state', store, from, state }));
  }

  listed(store: string, from: CopiedResource): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape !== undefined) tape.isListed = true;
    this.#add(contentOf({ ev: 'listed', store, from }));
  }

  ended(store: string, from: CopiedResource): void {
    const tape = this.#stores.get(store)?.get(from);
    if (tape !== undefined) tape.run = undefined;
    this.#add(contentOf({ ev: 'end', store, from }));
  }

  withdrawn(store: string, scope: 'services' | 'everything'): void {
    if (scope === 'everything') this.#configs.delete(store);
    this.#add(contentOf({ ev: 'withdrawn', store, scope }));
  }

  /** Adds the state of all stores in steps. Lines of changes may be between; later lines of a key replace earlier ones. */
  *snapshot(): Generator<void, void, void> {
    for (const content of this.#configs.values()) this.#add(content);
    for (const stores of this.#stores.values()) for (const store of stores.values()) yield* store.snapshot();
    yield* this.#addresses();
    for (const [store, stores] of this.#stores)
      for (const [from, { isListed }] of stores)
        if (isListed) this.#add(contentOf({ ev: 'listed', store, from }));
  }

  /** Adds a line for each IP of a kvstore, with the value that the claim has in the engine. */
  *#addresses(): Generator<void, void, void> {
    const tapeOf = ({ source, owner }: ClaimWriter): StoreTape | undefined => {
      if (source !== 'kvstore' && source !== 'clustermesh') return undefined;
      return this.#stores.get(source === 'kvstore' && owner === '' ? this.#own : owner)?.get('ip');
    };
    for (const keys of this.#ipcache.keysOfWriters((writer) => tapeOf(writer) !== undefined)) {
      for (const key of keys)
        for (const claim of this.#ipcache.claimsOf(key)) {
          const tape = tapeOf(claim);
          if (tape !== undefined)
            this.#add(`${tape.put(key, encodeIPIdentityPair({ ...claim, key }), 0)},"snap":1}`);
        }
      yield;
    }
  }
}
