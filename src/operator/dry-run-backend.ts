import { equalBytes, textOfBytes } from '../kvstore/codec/bytes.ts';
import type { KeyWrite, KvstoreBackend, KvstoreLock, WrittenAll } from '../kvstore/session/backend.ts';

type ReadMethods = Pick<
  KvstoreBackend,
  'get' | 'read' | 'listPrefix' | 'watch' | 'retryInTurn' | 'onLeaseLost' | 'endpoints' | 'status' | 'close'
>;

/** Returns a value as text, or its size if it is not text. */
function valueText(value: Uint8Array): string {
  return textOfBytes(value) ?? `${value.length} bytes`;
}

/**
 * Reads a kvstore, and only prints writes. Each put or delete that would change a key is printed with its reason, and
 * then counts as done, so that a repeated write is printed only once.
 */
export class DryRunBackend implements KvstoreBackend {
  readonly #backend: ReadMethods;
  readonly #print: (line: string) => void;
  readonly #reasonOf: (key: string, value: Uint8Array) => string | undefined;
  /** The value of each printed write, by key; `undefined` after a delete. */
  readonly #writes = new Map<string, Uint8Array | undefined>();

  /** @param reasonOf returns why a key with this value is deleted; default: `no object requires it` */
  constructor(
    backend: ReadMethods,
    print: (line: string) => void,
    reasonOf: (key: string, value: Uint8Array) => string | undefined = () => undefined,
  ) {
    this.#backend = backend;
    this.#print = print;
    this.#reasonOf = reasonOf;
  }

  get: KvstoreBackend['get'] = (key, options) => this.#backend.get(key, options);
  read: KvstoreBackend['read'] = (key, options) => this.#backend.read(key, options);
  listPrefix: KvstoreBackend['listPrefix'] = (prefix, options) => this.#backend.listPrefix(prefix, options);
  watch: KvstoreBackend['watch'] = (prefix, options) => this.#backend.watch(prefix, options);
  retryInTurn: KvstoreBackend['retryInTurn'] = (turns) => this.#backend.retryInTurn(turns);
  onLeaseLost: KvstoreBackend['onLeaseLost'] = (listener) => this.#backend.onLeaseLost(listener);
  endpoints: KvstoreBackend['endpoints'] = (options) => this.#backend.endpoints(options);
  close: KvstoreBackend['close'] = (options) => this.#backend.close(options);
  status: KvstoreBackend['status'] = () => this.#backend.status();

  async update(key: string, value: Uint8Array): Promise<number> {
    await this.updateIfDifferent(key, value);
    return 0;
  }

  async updateIfDifferent(key: string, value: Uint8Array): Promise<boolean> {
    const previous = await this.#currentValue(key);
    if (previous !== undefined && equalBytes(previous, value)) return false;
    const reason = previous === undefined ? 'the key does not exist' : `the value is ${valueText(previous)}`;
    this.#writes.set(key, value);
    this.#print(`put ${key} ${valueText(value)}: ${reason}`);
    return true;
  }

  async createOnly(key: string, value: Uint8Array): Promise<boolean> {
    return (await this.#currentValue(key)) === undefined && this.updateIfDifferent(key, value);
  }

  async delete(key: string): Promise<boolean> {
    const previous = await this.#currentValue(key);
    if (previous === undefined) return false;
    this.#writes.set(key, undefined);
    this.#print(`delete ${key}: ${this.#reasonOf(key, previous) ?? 'no object requires it'}`);
    return true;
  }

  async writeAll(writes: readonly KeyWrite[]): Promise<WrittenAll> {
    for (const { key, value } of writes)
      await (value === undefined ? this.delete(key) : this.updateIfDifferent(key, value));
    return { revision: 0, isComplete: true };
  }

  async deletePrefix(prefix: string): Promise<number> {
    const kvs = await this.#backend.listPrefix(prefix);
    for (const { key } of kvs) await this.delete(key);
    return kvs.length;
  }

  /** Returns a lock without acquiring it, because this would be a write. The caller continues as if it held it. */
  lock(path: string): Promise<KvstoreLock> {
    const lost = new AbortController().signal;
    return Promise.resolve({ key: path, revision: 0, lost, release: () => Promise.resolve() });
  }

  async #currentValue(key: string): Promise<Uint8Array | undefined> {
    if (this.#writes.has(key)) return this.#writes.get(key);
    return (await this.#backend.get(key))?.value;
  }
}
