import { CLUSTER_TYPES, typeMeta } from '../k8s/memory/resource-types.ts';
import type { KubernetesObject } from '../k8s/resource.ts';
import { type CopiedResource, SERVICE_RESOURCES } from '../kvstore/codec/keys.ts';
import type { Manifest } from '../recording/manifests.ts';
import type { RecordedKey } from '../recording/recorded-keys.ts';
import { TapedResources } from '../recording/taped-resources.ts';
import { bytesIn, type TapeLine, type TapeValue } from './tape-line.ts';

const EMPTY: TapeValue = { value: '' };

interface StoreState {
  config: readonly [key: string, value: TapeValue] | undefined;
  readonly keys: Map<CopiedResource, Map<string, TapeValue>>;
  readonly resources: TapedResources;
}

/**
 * The keys of each kvstore, and the objects of Kubernetes, after the applied lines. An agent can be started with them.
 */
export class TapeState {
  readonly #stores = new Map<string, StoreState>();
  /** By `kind/namespace/name`. */
  readonly #objects = new Map<string, KubernetesObject>();

  apply(line: TapeLine): void {
    if (line.ev === 'object' || line.ev === 'gone') {
      const { namespace = '', name } = line.object.metadata;
      const key = `${line.kind}/${namespace}/${name}`;
      if (line.ev === 'object') this.#objects.set(key, line.object);
      else this.#objects.delete(key);
    }
    if (!('store' in line)) return;
    const store = this.#storeOf(line.store);
    switch (line.ev) {
      case 'put':
        keysOf(store, line.from).set(line.key, line);
        return;
      case 'delete':
      case 'sweep':
        keysOf(store, line.from).delete(line.key);
        return;
      case 'config':
        store.config = bytesIn(line) === undefined ? undefined : [line.key, line];
        return;
      case 'follow':
        store.resources.follow(line.from, line.store, line.prefix);
        return;
      case 'listed':
        store.resources.complete(line.from);
        return;
      case 'withdrawn':
        if (line.scope === 'everything') this.#stores.delete(line.store);
        else
          for (const resource of SERVICE_RESOURCES) {
            store.keys.delete(resource);
            store.resources.withdraw(resource);
          }
        return;
      default:
        return;
    }
  }

  /** Yields the keys of all kvstores, and the canaries ({@link TapedResources.canaries}). */
  async *keys(): AsyncGenerator<RecordedKey, void, void> {
    for (const [store, { config, keys, resources }] of this.#stores) {
      const recorded = (key: string, value: TapeValue): RecordedKey => ({
        store,
        key,
        at: `tape ${store}`,
        value: bytesIn(value) ?? new Uint8Array(),
      });
      if (config !== undefined) yield recorded(...config);
      for (const values of keys.values()) for (const [key, value] of values) yield recorded(key, value);
      for (const canary of resources.canaries(store)) yield recorded(canary, EMPTY);
    }
  }

  /** Yields the objects of Kubernetes, with the fields read by an agent. */
  async *objects(): AsyncGenerator<Manifest, void, void> {
    for (const [key, object] of this.#objects) {
      const plural = key.slice(0, key.indexOf('/'));
      const type = CLUSTER_TYPES.find((one) => one.plural === plural);
      if (type === undefined) continue;
      // The API server in memory sets both fields.
      const { uid: _, resourceVersion: __, ...metadata } = object.metadata;
      yield { object: { ...typeMeta(type), ...object, metadata }, at: `tape ${key}` };
    }
  }

  #storeOf(name: string): StoreState {
    const store: StoreState = this.#stores.get(name) ?? {
      config: undefined,
      keys: new Map(),
      resources: new TapedResources(),
    };
    this.#stores.set(name, store);
    return store;
  }
}

function keysOf({ keys }: StoreState, resource: CopiedResource): Map<string, TapeValue> {
  const values = keys.get(resource) ?? new Map<string, TapeValue>();
  keys.set(resource, values);
  return values;
}
