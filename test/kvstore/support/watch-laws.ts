import fc from 'fast-check';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyLink } from '../../../src/kvstore/memory/faulty-link.ts';
import { FaultyMemoryServer } from '../../../src/kvstore/memory/faulty-memory-server.ts';
import type { ServerSnapshot } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { NO_LEASE, type Transport, type WriteOperation } from '../../../src/kvstore/session/transport.ts';
import { ListAndWatch } from '../../../src/kvstore/watch/list-and-watch.ts';
import type { WatchLimits } from '../../../src/kvstore/watch/watch-limits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from './settle.ts';
import { WatchRecorder } from './watch-recorder.ts';

const P = 'p/';

/** One event of a store or of the link to it. */
export type Happening =
  | {
      readonly do: 'write';
      readonly entries: readonly (readonly [number, boolean])[];
      /** Writes the same value each time, like writers that start again. */
      readonly same?: boolean;
    }
  /** Writes outside of the prefix, which is idle. */
  | { readonly do: 'write-elsewhere'; readonly times: number }
  | { readonly do: 'compact' | 'cut' | 'down' | 'up' | 'black-hole' | 'backup' | 'restore' | 'expire-token' }
  | {
      readonly do:
        | 'lose-leader'
        | 'elect-leader'
        | 'hold'
        | 'release'
        | 'stall'
        | 'unstall'
        | 'turn'
        | 'settle';
    }
  | { readonly do: 'cut-after'; readonly events: number }
  | { readonly do: 'pass'; readonly ms: number };

const entry = fc.tuple(fc.nat(7), fc.boolean());
const write = fc.record({
  do: fc.constant('write' as const),
  entries: fc.array(entry, { minLength: 1, maxLength: 4 }),
});
const faults = ['compact', 'cut', 'down', 'up', 'black-hole', 'backup', 'restore', 'expire-token'] as const;
const others = ['lose-leader', 'elect-leader', 'hold', 'release', 'stall', 'unstall', 'settle'] as const;
const elsewhere = fc.record({
  do: fc.constant('write-elsewhere' as const),
  times: fc.integer({ min: 1, max: 9 }),
});

/** Events in any order. */
export const happenings: fc.Arbitrary<Happening[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: write },
    { weight: 1, arbitrary: elsewhere },
    { weight: 3, arbitrary: fc.constant<Happening>({ do: 'turn' }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constantFrom(...faults) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom(...others) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('cut-after' as const), events: fc.nat(4) }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('pass' as const),
        ms: fc.constantFrom(60, 1000, 12_000, 70_000),
      }),
    },
  ),
  { maxLength: 40, size: 'max' },
);

/** Values are written once, except `same` ones, so that no later equal write hides a lost one. */
let writes = 0;

function operation([n, put]: readonly [number, boolean], same: boolean): WriteOperation {
  const key = `${P}${n}`;
  if (!put) return { op: 'delete', range: keyRange(key) };
  const value = bytesOfText(same ? `the same ${n}` : `value ${writes++}`);
  return { op: 'put', key, value, lease: NO_LEASE };
}

/**
 * Limits so small that eight keys fill several pages, and a few events the queue. No periodic list hides a
 * loss before the check.
 */
const SMALL: WatchLimits = {
  batchEvents: 3,
  highWaterBytes: 400,
  lowWaterBytes: 200,
  sliceKeys: 1,
  firstPageKeys: 1,
  pageKeys: 2,
  deltaPages: 2,
  backlogRevisions: 8,
  revisionBytes: 16 << 20,
  rereadMs: 3_600_000,
};

class World {
  readonly clock = new ManualClock();
  readonly server: FaultyMemoryServer;
  readonly link: FaultyLink;
  readonly recorder: WatchRecorder;
  readonly ended = new AbortController();
  restored = false;
  #backup: ServerSnapshot | undefined;
  #release: (() => void) | undefined;

  constructor(wrap: (transport: Transport) => Transport, sliceEvents: number | undefined) {
    this.server = new FaultyMemoryServer({
      clock: this.clock,
      ...(sliceEvents === undefined ? {} : { sliceEvents }),
    });
    this.link = new FaultyLink(new MemoryTransport(this.server), this.clock);
    const watch = new ListAndWatch({
      prefix: P,
      clock: this.clock,
      random: () => 0.5,
      signal: this.ended.signal,
      transport: wrap(this.link),
      limits: SMALL,
    });
    this.recorder = new WatchRecorder(watch, { mayGoBack: true });
  }

  async happen(what: Happening): Promise<void> {
    switch (what.do) {
      case 'write':
        return this.#write(what.entries, what.same);
      case 'write-elsewhere':
        for (let i = 0; i < what.times; i++) this.#put('elsewhere');
        return;
      case 'pass':
        return advance(this.clock, what.ms);
      case 'turn':
        return settle(1);
      case 'settle':
        return settle();
      case 'cut-after':
        return this.link.cutNextWatchAfter(what.events);
      case 'hold':
        this.#release ??= this.recorder.hold();
        return;
      case 'release':
        return this.#letGo();
      case 'backup':
        this.#backup = this.server.snapshot();
        return;
      case 'restore':
        return this.#restore();
      default:
        return this.#fault(what.do);
    }
  }

  #fault(fault: (typeof faults)[number] | (typeof others)[number]): void {
    if (fault === 'compact') this.server.compact();
    if (fault === 'cut') this.link.cut();
    if (fault === 'down') this.link.down();
    if (fault === 'up') this.link.up();
    if (fault === 'black-hole') this.link.blackHole();
    if (fault === 'expire-token') this.link.expireToken();
    if (fault === 'lose-leader') this.server.loseLeader();
    if (fault === 'elect-leader') this.server.electLeader();
    if (fault === 'stall') this.link.stallWatch(P);
    if (fault === 'unstall') this.link.unstallWatch(P);
  }

  #write(entries: readonly (readonly [number, boolean])[], same = false): void {
    const once = new Map(entries); // a transaction writes a key once
    this.#txn([...once].map((entry) => operation(entry, same)));
  }

  #put(key: string): void {
    this.#txn([{ op: 'put', key, value: bytesOfText(`value ${writes++}`), lease: NO_LEASE }]);
  }

  #txn(operations: readonly WriteOperation[]): void {
    try {
      this.server.txn({ compare: [], writes: operations });
    } catch {
      // without a leader no one can write
    }
  }

  #restore(): void {
    if (this.#backup === undefined) return;
    this.restored = true;
    this.server.restore(this.#backup);
  }

  #letGo(): void {
    this.#release?.();
    this.#release = undefined;
  }

  /** Ends every fault, and waits longer than every backoff, deadline and watchdog. */
  async heal(): Promise<void> {
    this.server.electLeader();
    this.link.up();
    this.link.unstallWatch(P);
    this.#letGo();
    this.recorder.hold()();
    for (let i = 0; i < 5; i++) {
      await advance(this.clock, 25_000);
      await settle(30); // pages, slices and batches take one turn each
    }
  }

  content(): Map<string, string> {
    const { kvs } = this.server.range(prefixRange(P));
    return new Map(kvs.map(({ key, value }) => [key, textOfBytes(value) ?? '']));
  }
}

/**
 * I9: after any events, once the faults are over, the reader has exactly the content of the store. It never
 * receives a create of an existing key, a delete of an absent one, or a revision that goes back.
 *
 * @param sliceEvents maximum number of events that a stream delivers at a time
 */
export async function I9_nothingLostNothingInvented(
  script: readonly Happening[],
  wrap: (transport: Transport) => Transport = (transport) => transport,
  sliceEvents?: number,
): Promise<void> {
  const world = new World(wrap, sliceEvents);
  try {
    for (const what of script) await world.happen(what);
    await world.heal();
    const told = [...world.recorder.content].sort();
    const held = [...world.content()].sort();
    if (JSON.stringify(told) !== JSON.stringify(held)) {
      throw new Error(`told ${JSON.stringify(told)}, held ${JSON.stringify(held)}`);
    }
    if (!world.recorder.listed) throw new Error('list-done never came');
    if (world.recorder.breaches.length > 0) throw new Error(world.recorder.breaches.join('; '));
  } finally {
    world.ended.abort();
    await world.recorder.done;
  }
  if (world.link.streams > 0) throw new Error('a stream was left behind');
}
