import { expect } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import type { WatchState } from '../../../src/kvstore/session/backend.ts';
import { NO_LEASE, type TransportEvent, type WatchObserver } from '../../../src/kvstore/session/transport.ts';
import { ListAndWatch, type ListAndWatchOptions } from '../../../src/kvstore/watch/list-and-watch.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { WatchRecorder } from './watch-recorder.ts';

/** The options of a {@link ListAndWatch} that a test may change. */
export type WatchChoices = Omit<Partial<ListAndWatchOptions>, 'transport' | 'clock'>;

/** A separate watch of `p/` over a server in this process. The test controls the link. */
export class WatchWorld {
  readonly clock: ManualClock = new ManualClock();
  readonly server: MemoryServer = new MemoryServer({ clock: this.clock });
  readonly link: FaultyLink = new FaultyLink(new MemoryTransport(this.server), this.clock);
  /** The states reported to the owners of the watches. */
  readonly states: WatchState[] = [];
  readonly #ended = new AbortController();
  readonly #recorders: WatchRecorder[] = [];

  constructor() {
    this.clock.advance(3_600_000); // a time is distinguished from a difference of times
  }

  put(...names: readonly string[]): void {
    for (const name of names) this.#put(`p/${name}`);
  }

  /** Writes outside of the watched prefix: the store's revision grows. */
  putElsewhere(): void {
    this.#put('elsewhere');
  }

  #put(key: string): void {
    const put = { op: 'put', key, value: bytesOfText(key), lease: NO_LEASE } as const;
    this.server.txn({ compare: [], writes: [put] });
  }

  remove(name: string): void {
    this.server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`p/${name}`) }] });
  }

  watch({ limits, ...choices }: WatchChoices = {}): ListAndWatch {
    return new ListAndWatch({
      prefix: 'p/',
      random: () => 0.5,
      signal: this.#ended.signal,
      onState: (state) => this.states.push(state),
      ...choices,
      limits: { ...WATCH_LIMITS, ...limits },
      transport: this.link,
      clock: this.clock,
    });
  }

  /** Reads a watch until the world ends. */
  read(choices: WatchChoices = {}, options: { mayGoBack?: boolean } = {}): WatchRecorder {
    const recorder = new WatchRecorder(this.watch(choices), options);
    this.#recorders.push(recorder);
    return recorder;
  }

  /** Changes the events of streams from now on. */
  telling(change: (observer: WatchObserver) => Partial<WatchObserver>): void {
    const watch = this.link.watch.bind(this.link);
    this.link.watch = (request, observer) =>
      watch(request, {
        onCreated: (header) => observer.onCreated(header),
        onEvents: (events, header, isPartial) => observer.onEvents(events, header, isPartial),
        onProgress: (header, isRequested) => observer.onProgress(header, isRequested),
        onEnd: (reason) => observer.onEnd(reason),
        ...change(observer),
      });
  }

  /** From now on streams lose such events, like servers with bugs (etcd #17529, #18089, #19179). */
  losing(isLost: (event: TransportEvent) => boolean): void {
    this.telling((observer) => ({
      onEvents: (events, header, isPartial) => {
        const kept = events.filter((event) => !isLost(event));
        if (kept.length > 0) observer.onEvents(kept, header, isPartial);
      },
    }));
  }

  /** Ends the watches, and checks their events and leftovers. */
  async end(): Promise<void> {
    this.#ended.abort();
    for (const recorder of this.#recorders) {
      await recorder.done;
      expect(recorder.breaches).toEqual([]);
    }
    expect([this.link.streams, this.clock.pending]).toEqual([0, 0]);
  }
}
