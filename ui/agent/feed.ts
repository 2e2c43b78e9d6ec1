import type { ChangeDocument, HeartbeatDocument } from '../../src/api/routes/monitor-stream.ts';
import { ANSWER_MS, documentOf, problemOf } from './ask.ts';
import { agentNow } from './clock.ts';
import { fetchAgent, isTokenNeeded } from './token.tsx';

/** Number of changes kept for the live view. */
const MAX_CHANGES = 500;

/** Delay before the next attempt to connect. */
const RETRY_MS = 3_000;

/**
 * Time after which a hidden page closes its connection, because a browser allows six connections for all pages of an
 * agent.
 */
const MAX_HIDDEN_MS = 5_000;

/** After this number of missing heartbeats, the connection counts as broken. */
const MISSED_HEARTBEATS = 3;

/** The fields of an event of the stream. */
type StreamEvent = { readonly [field in 'event' | 'id' | 'data']?: string };

/** State of the connection to the agent. `stale`: it is open, but nothing was received for some time. */
export type Connection = 'connecting' | 'live' | 'stale' | 'disconnected';

/** Types of changes. */
export type ChangeType = ChangeDocument['type'];

/** Returns the name and the value of a line of an event. */
function fieldOf(line: string): readonly [name: string, value: string] {
  const colon = line.indexOf(': ');
  return [line.slice(0, colon), line.slice(colon + 2)];
}

/**
 * Receives the changes of the agent while the page is open. Keeps the last 500 changes, and a count for each type that
 * shows views when to read again. After a lost connection, and when a hidden page becomes visible, resumes after the
 * last change. A process without engines has no changes, so the answers to status requests determine the state of its
 * connection.
 */
export class Feed {
  connection: Connection = 'connecting';
  /** Time of the last data by the agent's clock; 0 before the first. */
  lastDataAt = 0;
  /** Why the agent refused to send changes; undefined if it has not. */
  refusal: string | undefined;
  /** Newest first. */
  changes: readonly ChangeDocument[] = [];
  /** Number of changes of each type since the page was opened. */
  readonly counts: Record<ChangeType, number> = { ip: 0, service: 0, node: 0 };
  /** Increases when all views must reload: after a reconnect or lost changes. */
  epoch = 0;
  /** Time of the last lost changes. */
  missedAt: Date | undefined;
  #lastID = '';
  /** Maximum silence of a working connection. Set from the interval in the heartbeats; this is the default. */
  #maxSilenceMs = MISSED_HEARTBEATS * 5_000;
  readonly #listeners = new Set<() => void>();
  /** Changes since the last notification, oldest first. */
  #pending: ChangeDocument[] = [];
  #isFollowing = false;
  /** True while the connection is closed, because the page is hidden. */
  #isPaused = false;
  #pauseTimer: ReturnType<typeof setTimeout> | undefined;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  /** Like `lastDataAt`, by the monotonic clock of the page. */
  #lastDataMs = 0;
  /** Closes the current stream. */
  #closed = new AbortController();

  constructor() {
    setInterval(() => this.#checkSilence(), 1_000);
    setInterval(() => this.#flush(), 250);
    document.addEventListener('visibilitychange', () => this.#followVisibility());
  }

  /** Calls the listener after changes, at most four times per second. Returns the function to unsubscribe it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Starts to receive the changes of an agent. Later calls have no effect. */
  follow(): void {
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void this.#open();
    this.#followVisibility(); // it may have been opened in the background
  }

  /**
   * Sets the connection to a process without changes after each request for its status. Has no effect while the changes
   * of an agent are received.
   */
  noteAnswer(isAnswered: boolean): void {
    if (this.#isFollowing) return;
    if (isAnswered) this.#noteData();
    this.#setConnection(isAnswered ? 'live' : 'disconnected');
  }

  /** Opens a stream, and the next one 3 s after its end. Uses no EventSource, because it cannot send a token. */
  async #open(): Promise<void> {
    const closed = new AbortController();
    this.#closed.abort();
    this.#closed = closed;
    clearTimeout(this.#retryTimer);
    let refusal: string | undefined;
    const answerTimer = setTimeout(() => closed.abort(), ANSWER_MS);
    try {
      const answer = await fetchAgent(
        this.#lastID === '' ? '/v1/monitor' : `/v1/monitor?from=${this.#lastID}`,
        closed.signal,
      );
      if (answer.ok && answer.body !== null) {
        clearTimeout(answerTimer);
        await this.#read(answer.body, closed);
      } else refusal = problemOf(answer, await documentOf(answer)).message;
    } catch {
      // each error is handled as a lost connection
    } finally {
      clearTimeout(answerTimer);
    }
    if (this.#isPaused || this.#closed !== closed) return;
    this.refusal = refusal;
    this.#setConnection('disconnected');
    if (!isTokenNeeded()) this.#retryTimer = setTimeout(() => void this.#open(), RETRY_MS);
  }

  #followVisibility(): void {
    clearTimeout(this.#pauseTimer);
    if (!document.hidden) this.#resume();
    else if (this.#isFollowing) this.#pauseTimer = setTimeout(() => this.#pause(), MAX_HIDDEN_MS);
  }

  #pause(): void {
    this.#isPaused = true;
    this.#setConnection('connecting');
    this.#closed.abort();
    clearTimeout(this.#retryTimer);
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    void this.#open();
  }

  async #read(body: ReadableStream<Uint8Array>, closed: AbortController): Promise<void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    this.#noteData(); // the headers
    // A stream that stays silent much longer than a stale one is closed, because the agent may be gone.
    const guard = setInterval(() => {
      if (this.#silenceMs() > 3 * this.#maxSilenceMs) closed.abort();
    }, 1_000);
    try {
      let rest = '';
      for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
        this.#noteData();
        if (this.connection === 'stale') this.#setConnection('live');
        const events = (rest + decoder.decode(value, { stream: true })).split('\n\n');
        rest = events.pop() ?? '';
        for (const event of events) this.#receive(Object.fromEntries(event.split('\n').map(fieldOf)));
      }
    } finally {
      clearInterval(guard);
    }
  }

  #receive({ event, id, data }: StreamEvent): void {
    if (id !== undefined) this.#lastID = id;
    if (event === 'synced') {
      if (this.connection !== 'connecting') this.epoch++;
      this.#setConnection('live');
    } else if (event === 'resync') {
      this.epoch++;
      this.missedAt = new Date(agentNow());
      this.#setConnection('live');
    } else if (event === 'heartbeat' && data !== undefined) {
      const { intervalMs }: HeartbeatDocument = JSON.parse(data);
      this.#maxSilenceMs = MISSED_HEARTBEATS * intervalMs;
    } else if (event === 'change' && data !== undefined) {
      const change: ChangeDocument = JSON.parse(data);
      this.counts[change.type]++;
      this.#pending.push(change);
      if (this.#pending.length > MAX_CHANGES) this.#pending.shift();
    }
  }

  #setConnection(connection: Connection): void {
    if (this.connection === connection) return;
    this.connection = connection;
    this.#notify();
  }

  #noteData(): void {
    this.lastDataAt = agentNow();
    this.#lastDataMs = performance.now();
  }

  /**
   * Returns the time since the last data, by two clocks: one can be set back, and the other may stop while the computer
   * sleeps.
   */
  #silenceMs(): number {
    return Math.max(agentNow() - this.lastDataAt, performance.now() - this.#lastDataMs);
  }

  #checkSilence(): void {
    if (this.connection === 'live' && this.#silenceMs() > this.#maxSilenceMs) this.#setConnection('stale');
  }

  #flush(): void {
    if (this.#pending.length === 0) return;
    this.changes = [...this.#pending.reverse(), ...this.changes].slice(0, MAX_CHANGES);
    this.#pending = [];
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
