import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import type { Watch, WatchEvent } from '../../../src/kvstore/session/backend.ts';

/** Reads a watch, folds its events, and records every violation of the watch's contract on their sequence. */
export class WatchRecorder {
  readonly events: WatchEvent[] = [];
  readonly batches: (readonly WatchEvent[])[] = [];
  /** The folded events. */
  readonly content: Map<string, string> = new Map();
  readonly breaches: string[] = [];
  readonly done: Promise<void>;
  readonly #watch: Watch;
  readonly #revisions = new Map<string, number>();
  readonly #mayGoBack: boolean;
  #gate: Promise<void> | undefined;
  #listDone = 0;
  #ended = false;

  /** @param options.mayGoBack revisions may go back, because the store will be restored from a backup */
  constructor(watch: Watch, options: { mayGoBack?: boolean } = {}) {
    this.#watch = watch;
    this.#mayGoBack = options.mayGoBack ?? false;
    this.done = this.#read();
  }

  get listed(): boolean {
    return this.#listDone > 0;
  }

  get ended(): boolean {
    return this.#ended;
  }

  status(): ReturnType<Watch['status']> {
    return this.#watch.status();
  }

  /** Types and keys in order, in short form: `create a/1`. */
  get story(): string[] {
    return this.events.map(({ type, key }) => (key === '' ? type : `${type} ${key}`));
  }

  /** Stops reading until the returned function is called. */
  hold(): () => void {
    let release: () => void = () => {};
    this.#gate = new Promise((resolve) => {
      release = resolve;
    });
    return release;
  }

  async #read(): Promise<void> {
    for await (const batch of this.#watch) {
      if (batch.length === 0) this.#breach('an empty batch');
      this.batches.push(batch);
      for (const event of batch) this.#take(event);
      await this.#gate;
    }
    this.#ended = true;
  }

  #take(event: WatchEvent): void {
    this.events.push(event);
    const { type, key, value, modRevision } = event;
    if (type === 'list-done') {
      if (++this.#listDone > 1) this.#breach('list-done twice');
      return;
    }
    const known = this.content.has(key);
    if (type === 'create' && known) this.#breach(`create of ${key}, which exists`);
    if (type !== 'create' && !known) this.#breach(`${type} of ${key}, which does not exist`);
    const last = this.#revisions.get(key) ?? 0;
    if (modRevision < last && !this.#mayGoBack) this.#breach(`${key} went from ${last} to ${modRevision}`);
    this.#revisions.set(key, modRevision);
    if (type === 'delete') this.content.delete(key);
    else this.content.set(key, textOfBytes(value) ?? Buffer.from(value).toString('hex'));
  }

  #breach(what: string): void {
    this.breaches.push(what);
  }
}
