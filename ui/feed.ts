import type { ChangeDocument } from '../src/api/routes/monitor-stream.ts';
import { fetchAgent, isTokenNeeded } from './token.tsx';

/** Number of changes kept for the live view. */
const KEPT = 500;

/** Number of seconds for which changes are counted. */
export const SECONDS = 60;

/** Delay before the next attempt to connect. */
const RETRY_MS = 3_000;

/** An event of a stream, with the fields that the agent sends. */
type StreamEvent = { readonly [field in 'event' | 'id' | 'data']?: string };

/** Yields the events of a stream. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    const events = (rest + decoder.decode(value, { stream: true })).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) yield Object.fromEntries(event.split('\n').map(fieldOf));
  }
}

function fieldOf(line: string): readonly [name: string, value: string] {
  const colon = line.indexOf(': ');
  return [line.slice(0, colon), line.slice(colon + 2)];
}

/** State of the connection to the agent. */
export type Connection = 'connecting' | 'live' | 'lost';

/**
 * Receives the changes of the agent while the page is open. Keeps the last 500, the number per second, and version numbers that
 * trigger a reload of views. Reconnects and resumes after the last change.
 */
export class Feed {
  connection: Connection = 'connecting';
  /** Newest first. */
  changes: readonly ChangeDocument[] = [];
  /** For each type, the number of changes in each of the last seconds, the current second last. */
  readonly rates: Readonly<Record<ChangeDocument['type'], number[]>> = {
    ip: new Array<number>(SECONDS).fill(0),
    service: new Array<number>(SECONDS).fill(0),
    node: new Array<number>(SECONDS).fill(0),
  };
  /** For each type, a number that increases with each change. */
  readonly versions: Record<ChangeDocument['type'], number> = { ip: 0, service: 0, node: 0 };
  /** Increases when all views must reload: after a reconnect or lost changes. */
  epoch = 0;
  /** Time of the last lost changes. */
  missedAt: Date | undefined;
  #last = '';
  readonly #listeners = new Set<() => void>();
  #waiting: ChangeDocument[] = [];

  constructor() {
    void this.#open();
    setInterval(() => this.#tick(), 1_000);
    setInterval(() => this.#flush(), 250);
  }

  /** Does not use an EventSource, because it cannot send a token. */
  async #open(): Promise<void> {
    try {
      const answer = await fetchAgent(this.#last === '' ? '/v1/monitor' : `/v1/monitor?from=${this.#last}`);
      if (answer.ok && answer.body !== null)
        for await (const event of eventsOf(answer.body)) this.#receive(event);
    } catch {
      // all errors mean a lost connection
    }
    this.#connected('lost');
    if (!isTokenNeeded()) setTimeout(() => this.#open(), RETRY_MS);
  }

  #receive({ event, id, data }: StreamEvent): void {
    if (id !== undefined) this.#last = id;
    if (event === 'synced') {
      if (this.connection === 'lost') this.epoch++;
      this.#connected('live');
    } else if (event === 'resync') {
      this.epoch++;
      this.missedAt = new Date();
      this.#connected('live');
    } else if (event === 'change' && data !== undefined) {
      const change: ChangeDocument = JSON.parse(data);
      this.#waiting.push(change);
      const rates = this.rates[change.type];
      rates[SECONDS - 1] = (rates[SECONDS - 1] ?? 0) + 1;
      if (this.#waiting.length > KEPT) this.#waiting.shift();
    }
  }

  /** Calls the listener after changes, at most four times per second. Returns a function that unsubscribes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #connected(connection: Connection): void {
    this.connection = connection;
    this.#notify();
  }

  #flush(): void {
    if (this.#waiting.length === 0) return;
    this.changes = [...this.#waiting.reverse(), ...this.changes].slice(0, KEPT);
    this.#waiting = [];
    this.#notify();
  }

  #tick(): void {
    for (const type of ['ip', 'service', 'node'] as const) {
      const rates = this.rates[type];
      if (rates.at(-1) !== 0) this.versions[type]++;
      rates.shift();
      rates.push(0);
    }
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
