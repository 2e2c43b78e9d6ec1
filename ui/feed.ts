import type { ChangeDocument } from '../src/api/routes/monitor-stream.ts';
import { fetchAgent, isTokenNeeded } from './token.tsx';

/** How many changes are kept for the live view. */
const KEPT = 500;

/** Rates are counted for each second of the last minute. */
export const SECONDS = 60;

/** A connection that was refused, and not only lost, is tried again after this time. */
const RETRY_MS = 3_000;

/** An event of a stream, as far as the agent sends such. */
type StreamEvent = { readonly [field in 'event' | 'id' | 'data']?: string };

/** The events of a stream, as they come. */
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

/** How the connection to the agent stands. */
export type Connection = 'connecting' | 'live' | 'lost';

/**
 * Every change of the agent while the page is open: the last 500 of them, how many came in each second, and a number that
 * goes up for each view to know that something is new. Reconnects by itself and goes on where it was.
 */
export class Feed {
  connection: Connection = 'connecting';
  /** Newest first. */
  changes: readonly ChangeDocument[] = [];
  /** For each type, changes in each of the last seconds, the current one last. */
  readonly rates: Readonly<Record<ChangeDocument['type'], number[]>> = {
    ip: new Array<number>(SECONDS).fill(0),
    service: new Array<number>(SECONDS).fill(0),
    node: new Array<number>(SECONDS).fill(0),
  };
  /** For each type, goes up when something of it has changed. */
  readonly versions: Record<ChangeDocument['type'], number> = { ip: 0, service: 0, node: 0 };
  /** Goes up when all that is shown is to be asked for anew: the agent is back, or changes were missed. */
  epoch = 0;
  /** When changes were missed last, if any were. */
  missedAt: Date | undefined;
  #last = '';
  readonly #listeners = new Set<() => void>();
  #waiting: ChangeDocument[] = [];

  constructor() {
    void this.#open();
    setInterval(() => this.#tick(), 1_000);
    setInterval(() => this.#flush(), 250);
  }

  /** Not with an EventSource: that shows no token. */
  async #open(): Promise<void> {
    try {
      const answer = await fetchAgent(this.#last === '' ? '/v1/monitor' : `/v1/monitor?from=${this.#last}`);
      if (answer.ok && answer.body !== null)
        for await (const event of eventsOf(answer.body)) this.#heard(event);
    } catch {
      // It is lost, whatever has happened.
    }
    this.#connected('lost');
    if (!isTokenNeeded()) setTimeout(() => this.#open(), RETRY_MS);
  }

  #heard({ event, id, data }: StreamEvent): void {
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

  /** Calls back when anything of it has changed, at most four times a second. Gives how to end that. */
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
