import fc from 'fast-check';
import { expect } from 'vitest';
import type { ServiceEvent } from '../../../src/servicecache/events.ts';
import { formatServiceID } from '../../../src/servicecache/service-id.ts';
import {
  type ServiceSource,
  type ServiceStream,
  ServiceStreamClosedError,
} from '../../../src/servicecache/service-stream.ts';
import { FoldingListener } from './folding-listener.ts';
import { apply, history, type Operation } from './operations.ts';
import { text } from './plain.ts';
import { cacheOf } from './scene.ts';

type MakeStream = (source: ServiceSource, signal?: AbortSignal) => ServiceStream;

/** Numbers the states of each service in the order of the reports of the cache. */
class Versions {
  readonly #states = new Map<string, (ServiceEvent | undefined)[]>();

  note(event: ServiceEvent): void {
    const key = formatServiceID(event.id);
    const states = this.#states.get(key) ?? [];
    states.push(event.action === 'delete' ? undefined : event);
    this.#states.set(key, states);
  }

  /** Returns the latest version of every announced service. */
  latest(): ReadonlyMap<string, number> {
    const known = [...this.#states].filter(([, states]) => states.at(-1) !== undefined);
    return new Map(known.map(([key, states]) => [key, states.length - 1]));
  }

  /** Returns the latest version that is equal to this event. */
  of(event: ServiceEvent): number {
    const says = (each: ServiceEvent | undefined): string =>
      each ? text([each.service, each.endpoints]) : '';
    const told = event.action === 'delete' ? '' : says(event);
    return (this.#states.get(formatServiceID(event.id)) ?? []).findLastIndex((each) => says(each) === told);
  }

  /** Returns the latest version that was not announced; -1 for none. */
  lastGone(key: string): number {
    return (this.#states.get(key) ?? []).lastIndexOf(undefined);
  }
}

/**
 * What a consumer must acknowledge: a version, by an event at position `from` or later among those delivered;
 * -1 for none.
 */
interface Awaited {
  readonly key: string;
  readonly version: number;
  readonly from: number;
}

/** The events delivered to a consumer and acknowledged, stored independently of the stream. */
class Given {
  readonly #versions: Versions;
  readonly #given = new Map<string, ServiceEvent[]>();
  readonly #acknowledged = new Set<ServiceEvent>();

  constructor(versions: Versions) {
    this.#versions = versions;
  }

  note(event: ServiceEvent): void {
    const key = formatServiceID(event.id);
    this.#given.set(key, [...(this.#given.get(key) ?? []), event]);
  }

  acknowledge(event: ServiceEvent): void {
    this.#acknowledged.add(event);
  }

  awaitAll(): readonly Awaited[] {
    return [...this.#versions.latest()].map(([key, version]) => ({
      key,
      version,
      from: (this.#given.get(key)?.length ?? 0) - 1,
    }));
  }

  /**
   * Returns true if the awaited version was acknowledged. An equal later state counts, too, because a return
   * to an earlier state is not reported. For a consumer that did not know the service, its deletion is such a
   * state, which needs no acknowledgement.
   */
  has({ key, version, from }: Awaited): boolean {
    if (from < 0 && this.#versions.lastGone(key) > version) return true;
    return (this.#given.get(key) ?? [])
      .slice(Math.max(0, from))
      .some((event) => this.#acknowledged.has(event) && this.#versions.of(event) >= version);
  }
}

/** Runs a producer, a consumer that works on each event, and acknowledgements, in any possible order. */
async function race(
  make: MakeStream,
  schedule: fc.Scheduler,
  operations: readonly Operation[],
): Promise<void> {
  const cache = cacheOf();
  const versions = new Versions();
  cache.subscribe({
    onEvents: (events) =>
      events.forEach((event) => {
        versions.note(event);
      }),
  });
  const stream = make(cache);
  const folded = new FoldingListener();
  const given = new Given(versions);
  let awaited: readonly Awaited[] | undefined;

  const consume = async (): Promise<void> => {
    for await (const event of stream) {
      folded.onEvents([event]);
      given.note(event);
      await schedule.schedule(Promise.resolve(), 'the consumer works');
      void schedule.schedule(Promise.resolve(), 'an acknowledgement').then(() => {
        given.acknowledge(event);
        event.acknowledge();
      });
    }
  };
  const consumed = consume();
  const produced = schedule.scheduleSequence(
    [...operations, { op: 'markSynced' } as const].map((each) => ({
      label: each.op,
      builder: async () => {
        apply(cache, each);
        if (each.op === 'markSynced') awaited ??= given.awaitAll();
      },
    })),
  );
  let synced: string[] | undefined;
  const noteSynced = (): void => {
    const missing = awaited
      ?.filter((each) => !given.has(each))
      .map(({ key }) => `${key} was not acknowledged`);
    synced = missing ?? ['the inputs are not complete'];
  };
  stream.servicesSynced().then(noteSynced, () => {});
  await schedule.waitFor(produced.task);
  await drain(schedule);
  const pending = stream.pending;
  stream.close();
  await consumed;
  expect(synced, 'servicesSynced').toEqual([]);
  expect(pending).toBe(0);
  expect(text(folded.view())).toBe(text(viewOf(cache)));
  expect(folded.breaches).toEqual([]);
}

/** Runs everything that is scheduled, also by this work, until nothing is left. */
async function drain(schedule: fc.Scheduler): Promise<void> {
  do {
    await schedule.waitAll();
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  } while (schedule.count() > 0);
}

function viewOf(cache: ReturnType<typeof cacheOf>): ReadonlyMap<string, string> {
  const listener = new FoldingListener();
  cache.subscribe(listener)();
  return listener.view();
}

/** At the end the consumer has the content of the cache, and `servicesSynced` does not come too early. */
export const everythingArrives = (
  make: MakeStream,
): fc.IAsyncPropertyWithHooks<[fc.Scheduler, Operation[]]> =>
  fc.asyncProperty(fc.scheduler(), history, (schedule, operations) => race(make, schedule, operations));

/** Runs a producer and a slow consumer, and ends the stream by its signal at any time. */
async function raceToTheEnd(
  make: MakeStream,
  schedule: fc.Scheduler,
  operations: readonly Operation[],
): Promise<void> {
  const cache = cacheOf();
  const stop = new AbortController();
  const stream = make(cache, stop.signal);
  const late: string[] = [];
  const consume = async (): Promise<void> => {
    for await (const event of stream) {
      if (stop.signal.aborted) late.push(formatServiceID(event.id));
      await schedule.schedule(Promise.resolve(), 'the consumer works');
      event.acknowledge();
    }
  };
  const consumed = consume();
  const synced = stream.servicesSynced().then(
    () => true,
    (error: unknown) => error instanceof ServiceStreamClosedError,
  );
  schedule.scheduleSequence(
    [...operations, { op: 'markSynced' } as const].map((each) => ({
      label: each.op,
      builder: async () => apply(cache, each),
    })),
  );
  void schedule.schedule(Promise.resolve(), 'the end').then(() => stop.abort());
  await drain(schedule);
  await consumed;
  expect(await synced).toBe(true);
  // The event that was already on its way: a resolved promise cannot be changed.
  expect(late.length).toBeLessThanOrEqual(1);
  expect([stream.pending, cache.status().listeners]).toEqual([0, 0]);
}

/** Nothing more is delivered after the end, and all waiters are resolved. */
export const nothingAfterTheEnd = (
  make: MakeStream,
): fc.IAsyncPropertyWithHooks<[fc.Scheduler, Operation[]]> =>
  fc.asyncProperty(fc.scheduler(), history, (schedule, operations) =>
    raceToTheEnd(make, schedule, operations),
  );
