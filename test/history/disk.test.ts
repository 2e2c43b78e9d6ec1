import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { FRAME_BYTES, PREAMBLE_BYTES } from '../../src/history/disk/frames.ts';
import { History, type HistoryOptions } from '../../src/history/history.ts';
import type { PrefixRecord } from '../../src/history/types.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Claim } from '../../src/ipcache/types.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { MemoryFolder } from '../restore/support/memory-folder.ts';
import { FIXED_SUM, mutated, random, readAll } from './support/fuzz.ts';

const MIB = 1 << 20;
const KVSTORE = { source: 'kvstore' } as const;

function podClaim(i: number): Claim {
  const k8s = { namespace: `shop-${i % 7}`, podName: `checkout-${i.toString(36)}-${(i * 7919) % 65_536}` };
  return { ...KVSTORE, identity: 1000 + i, hostIP: `192.168.0.${i % 200}`, k8s };
}

interface Started {
  readonly cache: IPCache;
  readonly history: History;
}

/** A folder, a clock, and processes that store their history there. */
class Machine {
  readonly clock: ManualClock = new ManualClock();
  readonly folder: MemoryFolder = new MemoryFolder();

  constructor() {
    this.clock.setWallTimeBy(1_000_000);
  }

  async start(
    options: Partial<HistoryOptions> = {},
    maxBytes: number = MIB,
    checksum = crc32,
  ): Promise<Started> {
    const cache = new IPCache();
    const { clock, folder } = this;
    const disk = { folder, maxBytes, checksum };
    const history = new History({ ipcache: cache, clock, memory: 256 << 10, disk, ...options });
    await history.open();
    history.start();
    return { cache, history };
  }

  get size(): number {
    return [...this.folder.files.values()].reduce((sum, { length }) => sum + length, 0);
  }
}

async function end({ history }: Started): Promise<void> {
  history.stop();
  await history.close();
}

/** Writes changes, ten in a millisecond, and flushes each second. */
async function write(
  machine: Machine,
  { cache, history }: Started,
  count: number,
  each: (i: number) => unknown = () => {},
): Promise<void> {
  for (let i = 0; i < count; i++) {
    if (i % 10 === 0) machine.clock.advance(1);
    const key = `10.0.${(i >> 8) & 7}.${i & 255}`;
    if (i % 3 === 2) cache.delete(key, KVSTORE);
    else cache.upsert(key, podClaim(i));
    if (i % 1000 === 0) await history.flush();
    await each(i);
  }
}

describe('a history on disk', () => {
  it('is uncertain after a restart at times that a clock with merged pieces may have shown twice', async () => {
    const machine = new Machine();
    const started = await machine.start({}, 16 * MIB);
    const begun = machine.clock.wallTime();
    started.cache.upsert('10.0.0.0', podClaim(1));
    for (let second = 0; second < 600; second++) {
      if (second < 300) machine.clock.setWallTimeBy(second % 2 === 0 ? 100_000 : -99_900);
      for (const _half of [1, 2]) {
        started.history.at('10.0.0.0', begun); // reads the clock
        machine.clock.advance(500);
      }
    }
    const moments = Array.from({ length: 550 }, (_, second) => begun + 1000 * second + 300);
    const reasonsIn = ({ past }: History): Promise<readonly unknown[]> =>
      Promise.all(moments.map(async (at) => (await past.at('10.0.0.0', at))?.reason));
    const reasons = await reasonsIn(started.history);
    expect(reasons).toContain(undefined);
    await end(started);
    const restarted = await machine.start({}, 16 * MIB);
    expect(await reasonsIn(restarted.history)).toEqual(reasons);
    await end(restarted);
  });

  it('is certain again after an uncertain interval that began in an earlier segment', async () => {
    const machine = new Machine();
    const started = await machine.start({}, 16 * MIB);
    const { history } = started;
    const span = history.beginUncertainty('cluster-incomplete', 'baltic');
    if (span === undefined) throw new Error('not started');
    await write(machine, started, 5000);
    await history.flush();
    const during = machine.clock.wallTime();
    machine.clock.advance(10);
    history.endUncertainty(span);
    machine.clock.advance(10);
    const after = machine.clock.wallTime();
    await write(machine, started, 40_000);
    const reasonsIn = async ({ past }: History): Promise<readonly unknown[]> =>
      Promise.all(
        [during, after].map(async (at) => {
          const moment = await past.at('10.0.0.0', at);
          return [moment?.reason, moment?.subjects];
        }),
      );
    const expected = [
      ['cluster-incomplete', ['baltic']],
      [undefined, []],
    ];
    expect(await reasonsIn(history)).toEqual(expected);
    await end(started);
    machine.clock.advance(1000);
    const restarted = await machine.start({}, 16 * MIB);
    expect(await reasonsIn(restarted.history)).toEqual(expected);
    await end(restarted);
  });

  it('answers from the disk before the start, for a program that only reads (regression: nothing was retained)', async () => {
    const machine = new Machine();
    const started = await machine.start();
    const { from } = started.history.retained;
    machine.clock.advance(10);
    started.cache.upsert('10.9.0.1', podClaim(7));
    machine.clock.advance(10);
    const at = machine.clock.wallTime();
    machine.clock.advance(10);
    started.cache.delete('10.9.0.1', KVSTORE);
    machine.clock.advance(10);
    await end(started);
    const files = [...machine.folder.files.keys()];

    const { clock, folder } = machine;
    const disk = { folder, maxBytes: MIB, checksum: crc32 };
    const reader = new History({ ipcache: new IPCache(), clock, disk });
    await reader.open();
    const { past } = reader;
    expect(past.retained).toEqual({ from, to: clock.wallTime() });
    expect(await past.lookup('10.9.0.1', at)).toMatchObject({
      certain: true,
      effective: { identity: 1007, until: at + 10 },
    });
    const changes: PrefixRecord[] = [];
    for await (const slice of past.of('10.9.0.1')) changes.push(...slice);
    expect(changes).toMatchObject([{ before: { identity: 1007 } }, { after: { identity: 1007 } }]);
    expect(await past.timeOf(changes[0]?.sequence ?? 0)).toBe(at + 10);
    expect([...folder.files.keys()]).toEqual(files);
  });

  it('answers for an earlier process that was killed directly after it created a file', async () => {
    const machine = new Machine();
    const started = await machine.start({}, 16 * MIB);
    const { from } = started.history.retained;
    started.cache.upsert('10.9.0.1', podClaim(7));
    machine.clock.advance(10);
    const at = machine.clock.wallTime();
    await write(machine, started, 5000);
    await started.history.flush();
    const last = [...machine.folder.files.keys()].sort().at(-1) ?? '';
    const bytes = machine.folder.files.get(last) ?? new Uint8Array();
    const head =
      PREAMBLE_BYTES + FRAME_BYTES + new DataView(bytes.buffer, bytes.byteOffset).getUint32(PREAMBLE_BYTES);
    machine.folder.files.set(last, bytes.slice(0, head));
    machine.clock.advance(1000);
    const { history } = await machine.start({}, 16 * MIB);
    expect(history.status().retainedFrom).toBe(from);
    expect(await history.past.at('10.9.0.1', at)).toMatchObject({
      certain: true,
      effective: { identity: 1007 },
    });
  });

  it('does not hold a time that is no number (regression: the end of the process before)', async () => {
    const machine = new Machine();
    const started = await machine.start();
    machine.clock.advance(10);
    started.cache.upsert('10.9.0.1', podClaim(7));
    await end(started);
    const { history } = await machine.start();
    for (const when of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      const notRetained = { effective: undefined, certain: false, reason: 'not-retained' };
      expect(history.at('10.9.0.1', when)).toMatchObject(notRetained);
      expect(await history.past.at('10.9.0.1', when)).toMatchObject(notRetained);
    }
  });

  it('answers for moments that have left the memory, and these are certain', async () => {
    const machine = new Machine();
    const started = await machine.start({}, 16 * MIB);
    const { cache, history } = started;
    cache.upsert('10.9.0.1', podClaim(7));
    machine.clock.advance(10);
    const at = machine.clock.wallTime();
    machine.clock.advance(10);
    cache.delete('10.9.0.1', KVSTORE);
    await write(machine, started, 40_000);
    expect(history.at('10.9.0.1', at)).toMatchObject({ certain: false, reason: 'not-retained' });
    const moment = await history.past.at('10.9.0.1', at);
    expect(moment).toMatchObject({ certain: true, claimsComplete: true, effective: { identity: 1007 } });
    expect(await history.past.lookup('10.9.0.1', at)).toMatchObject({ certain: true, prefix: '10.9.0.1/32' });
    const records: number[] = [];
    for await (const slice of history.past.records()) records.push(...slice.map(({ sequence }) => sequence));
    expect(records).toEqual(records.map((_, i) => records.length - i));
    expect(records.length).toBeGreaterThan(30_000);
  });

  it('does not use the memory of a segment again while a list reads it', async () => {
    const machine = new Machine();
    const started = await machine.start({}, 16 * MIB);
    const { from } = started.history.retained;
    await write(machine, started, 20_000);
    const { past } = started.history;
    const list = async (each: (slice: number) => Promise<unknown>): Promise<readonly unknown[]> => {
      const all: unknown[] = [];
      let slices = 0;
      for await (const slice of past.records()) {
        all.push(...slice);
        await each(slices++);
      }
      return all;
    };
    const alone = await list(async () => {});
    const interrupted = await list(async (slice) => {
      // Reads all segments that have a record of the prefix.
      if (slice % 10 === 5) await past.at(`10.0.${slice % 7}.${slice % 256}`, from);
    });
    expect(interrupted).toEqual(alone);
    expect(started.history.status().disk).toMatchObject({ damaged: 0 });
  });

  it('has no certain answer for changes after a segment that became full while its file was created', async () => {
    const machine = new Machine();
    const { folder } = machine;
    const create = folder.create.bind(folder);
    let continueCreate = (): void => {};
    folder.create = async (name) => {
      await new Promise<void>((resolve) => {
        continueCreate = resolve;
      });
      const sink = await create(name);
      let writes = 0;
      // The process dies after the head and the first records.
      return { ...sink, write: (bytes) => (++writes > 2 ? new Promise(() => {}) : sink.write(bytes)) };
    };
    const { cache, history } = await machine.start();
    cache.upsert('10.9.0.1', podClaim(1));
    void history.flush();
    const turns = async (): Promise<void> => {
      for (let turn = 0; turn < 100; turn++) await Promise.resolve();
    };
    await turns();
    for (let i = 0; i < 1000; i++) cache.upsert('10.0.0.1', podClaim(i));
    machine.clock.advance(10);
    cache.upsert('10.9.0.1', podClaim(2));
    machine.clock.advance(10);
    const at = machine.clock.wallTime();
    machine.clock.advance(10);
    continueCreate();
    await turns();
    folder.create = create;
    const next = await machine.start();
    expect(await next.history.past.at('10.9.0.1', at)).toMatchObject({ certain: false });
  });

  it('H5: stays below its maximum, and the oldest segments are dropped first', async () => {
    const machine = new Machine();
    const started = await machine.start();
    await write(machine, started, 100_000, (i) => {
      if (i % 500 === 0) expect(machine.size).toBeLessThanOrEqual(MIB);
    });
    await end(started);
    expect(machine.size).toBeLessThanOrEqual(MIB);
    expect(machine.size).toBeGreaterThan(MIB / 2);
    const numbers = [...machine.folder.files.keys()]
      .map((name) => Number(name.slice(7)))
      .sort((a, b) => a - b);
    expect(numbers[0]).toBeGreaterThan(0);
    expect(numbers).toEqual(numbers.map((_, i) => (numbers[0] ?? 0) + i));
    expect(started.history.status().disk).toMatchObject({ bytes: machine.size, failure: undefined });
  });

  it('continues the sequence numbers of the process before', async () => {
    const machine = new Machine();
    const first = await machine.start();
    first.cache.upsert('10.0.0.1', podClaim(1));
    await end(first);
    const second = await machine.start();
    machine.clock.advance(1);
    second.cache.upsert('10.0.0.1', podClaim(2));
    const records: (readonly [number, string])[] = [];
    for await (const slice of second.history.past.records())
      records.push(...slice.map((one) => [one.sequence, one.kind === 'mark' ? one.mark : one.kind] as const));
    expect(records).toEqual([
      [4, 'prefix'],
      [3, 'start'],
      [2, 'prefix'],
      [1, 'start'],
    ]);
    expect(await second.history.past.at('10.0.0.1', { sequence: 2 })).toMatchObject({
      certain: true,
      claimsComplete: false,
      decidedBy: undefined, // regression: only-claim, although other claims may have existed
      effective: { identity: 1001 },
    });
  });

  it('lists the effective claims of an earlier process only if the other key of the address cannot differ', async () => {
    const machine = new Machine();
    const first = await machine.start();
    const change = (key: string): void => {
      for (const identity of [300, 301]) {
        first.cache.upsert(key, { identity, source: 'kvstore' });
        machine.clock.advance(10);
      }
    };
    for (const key of ['10.0.0.1/32', '10.0.0.1', '10.0.0.0/24']) change(key);
    first.cache.upsert('10.0.0.1/32', { identity: 302, source: 'kvstore' }); // the endpoint hides it
    first.cache.delete('10.0.0.1', { source: 'kvstore' }); // 302 is visible then, not nothing
    await end(first);
    const { history } = await machine.start();
    const effective = async (key: string): Promise<unknown> => {
      const records: PrefixRecord[] = [];
      for await (const slice of history.past.of(key)) records.push(...slice);
      return records.map(
        (one) => one.effective && [one.effective.before?.identity, one.effective.after?.identity],
      );
    };
    expect(await effective('10.0.0.1')).toEqual([
      undefined,
      undefined,
      [300, 301],
      undefined,
      undefined,
      undefined,
    ]);
    expect(await effective('10.0.0.0/24')).toEqual([
      [300, 301],
      [undefined, 300],
    ]);
  });

  it('of an earlier process is certain only if a change proves the effective claim', async () => {
    const machine = new Machine();
    const first = await machine.start();
    first.cache.upsert('10.0.0.1', podClaim(1)); // before: nothing is known of 10.0.0.2
    first.cache.upsert('10.0.0.2', podClaim(2));
    machine.clock.advance(10);
    const at = machine.clock.wallTime();
    machine.clock.advance(10);
    first.cache.delete('10.0.0.2', KVSTORE);
    machine.clock.advance(10);
    const after = machine.clock.wallTime();
    machine.clock.advance(10);
    await end(first);
    machine.clock.advance(500);
    const between = machine.clock.wallTime();
    machine.clock.advance(500);
    const { cache, history } = await machine.start();
    cache.upsert('10.0.0.3', podClaim(3));
    const ask = (key: string, when: number): Promise<unknown> => history.past.at(key, when);
    expect(await ask('10.0.0.1', at)).toMatchObject({ certain: true, effective: { identity: 1001 } });
    expect(await ask('10.0.0.1', after)).toMatchObject({ certain: true, effective: { identity: 1001 } });
    // That no CIDR 10.0.0.2/32 was behind it is not recorded.
    expect(await ask('10.0.0.2', after)).toMatchObject({
      certain: false,
      reason: 'agent-not-running',
      claims: [],
    });
    expect(await ask('10.0.0.1', between)).toMatchObject({
      certain: false,
      decidedBy: undefined,
      reason: 'agent-not-running',
      effective: { identity: 1001 },
    });
    expect(await ask('10.0.0.3', at)).toMatchObject({ certain: false, reason: 'agent-not-running' });
    expect(await history.past.lookup('10.0.0.1', at)).toMatchObject({ certain: true });
  });

  it('of an earlier process from the start of the next one has no rule (regression: only-claim)', async () => {
    const machine = new Machine();
    const first = await machine.start();
    first.cache.upsert('10.0.0.9', podClaim(9));
    const at = machine.clock.wallTime();
    machine.clock.advance(10);
    await end(first);
    const ipcache = new IPCache();
    ipcache.upsert('10.0.0.1', podClaim(1)); // restored before the start of the history
    const { history } = await machine.start({ ipcache });
    expect(await history.past.at('10.0.0.1', at)).toMatchObject({
      ...{ certain: false, reason: 'agent-not-running', claimsComplete: false },
      ...{ claims: [{ identity: 1001 }], decidedBy: undefined },
    });
  });

  it('of an earlier process does not know prefixes that existed before its records and ended after them', async () => {
    const machine = new Machine();
    const { clock } = machine;
    const first = await machine.start();
    const at = clock.wallTime();
    clock.advance(10);
    for (const key of ['10.9.0.1', '10.9.0.1/32']) first.cache.upsert(key, podClaim(1));
    first.cache.upsert('10.9.0.0/16', podClaim(2));
    const later = clock.wallTime();
    clock.advance(10);
    for (const key of ['10.9.0.1', '10.9.0.1/32']) first.cache.delete(key, KVSTORE);
    const last = clock.wallTime();
    clock.advance(10);
    await end(first);
    const second = await machine.start();
    // No prefix, the address itself, and a shorter prefix. No length between them has a record.
    expect(await second.history.past.lookup('10.9.0.1', at)).toMatchObject({ certain: false });
    expect(await second.history.past.lookup('10.9.0.1', later)).toMatchObject({ certain: true });
    expect(await second.history.past.lookup('10.9.0.1', last)).toMatchObject({
      certain: false,
      reason: 'agent-not-running',
      prefix: '10.9.0.0/16',
    });
  });

  it('keeps services and nodes over a restart', async () => {
    const machine = new Machine();
    const first = await machine.start();
    const backends = [{ address: '10.0.0.1' }, { address: '10.0.0.2' }];
    const times: number[] = [];
    const record = (change: Parameters<History['recordDocument']>[3]): void => {
      machine.clock.advance(5);
      first.history.recordDocument('service', 'shop/cart', 'baltic', change);
      machine.clock.advance(5);
      times.push(machine.clock.wallTime());
    };
    record({ before: undefined, after: { name: 'cart', backends } });
    record({ before: { backends: backends.slice(1) }, after: { backends: [] } });
    record({ before: { backends: [] }, after: { backends: backends.slice(1) } });
    machine.clock.advance(5);
    await end(first);
    const ended = machine.clock.wallTime();
    machine.clock.advance(5);
    const { history } = await machine.start();
    const states = await Promise.all(
      times.map(async (at) => history.past.documentAt('service', 'shop/cart', undefined, at)),
    );
    expect(states.map(({ certain }) => certain)).toEqual([true, true, true]);
    expect(states.map(({ document }) => document?.['backends'])).toEqual([
      backends,
      backends.slice(0, 1),
      backends,
    ]);
    const changes = times.map((at) => at - 5);
    expect(states.map(({ since }) => since)).toEqual(changes);
    expect(states.map(({ until }) => until)).toEqual([...changes.slice(1), ended]); // regression: until now
    const before = await history.past.documentAt('service', 'shop/cart', undefined, (times[0] ?? 0) - 7);
    expect(before).toMatchObject({ certain: true, document: undefined });
    const slices: unknown[] = [];
    for await (const slice of history.past.documentsOf('service', 'shop/cart')) slices.push(...slice);
    expect(slices).toHaveLength(3);
  });
});

describe('a disk that fails', () => {
  it('leaves the memory, names the failure, and is complete again after it', async () => {
    const machine = new Machine();
    const started = await machine.start();
    const { cache, history } = started;
    cache.upsert('10.0.0.1', podClaim(1));
    await history.flush();
    machine.folder.room = 100;
    machine.clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(2));
    await history.flush();
    expect(history.status().disk?.failure).toMatchObject({ code: 'ENOSPC' });
    machine.clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(3));
    await history.flush();
    const at = machine.clock.wallTime();
    machine.folder.room = MIB;
    machine.clock.advance(10_000);
    await history.flush();
    expect(history.status().disk?.failure).toBeUndefined();
    machine.clock.advance(1000);
    await history.flush();
    history.stop(); // killed
    const next = await machine.start();
    expect(await next.history.past.at('10.0.0.1', at)).toMatchObject({
      certain: true,
      effective: { identity: 1003 },
    });
    let count = 0;
    for await (const slice of next.history.past.of('10.0.0.1')) count += slice.length;
    expect(count).toBe(3);
  });

  it('leaves no file that is not counted (regression: until the next start, if its segment left the memory)', async () => {
    const machine = new Machine();
    const started = await machine.start();
    const { history } = started;
    for (let failure = 0; failure < 2; failure++) {
      machine.folder.room = machine.size + 5000;
      await write(machine, started, 1000);
      await history.flush();
      expect(history.status().disk?.failure).toMatchObject({ code: 'ENOSPC' });
      expect(history.status().disk?.bytes).toBeGreaterThanOrEqual(machine.size);
      machine.folder.room = MIB;
      await write(machine, started, 15_000);
      machine.clock.advance(10_000);
      await history.flush();
      expect(history.status().disk).toMatchObject({ bytes: machine.size, failure: undefined });
    }
    await write(machine, started, 1000);
    await history.flush();
    for (let i = 0; i < 15_000; i++) started.cache.upsert('10.0.0.1', podClaim(i));
    await history.flush(); // a segment left the memory while its file was open
    await end(started);
    expect(history.status().disk).toMatchObject({ bytes: machine.size, failure: undefined });
    const namesOf = (verb: string): string[] =>
      machine.folder.calls.filter((call) => call.startsWith(verb)).map((call) => call.slice(verb.length));
    expect(namesOf('close ').sort()).toEqual(namesOf('create ').sort());
  });

  it('whose folder cannot be read leaves the memory', async () => {
    const machine = new Machine();
    machine.folder.names = (): Promise<never> => Promise.reject(new Error('input/output error'));
    const { cache, history } = await machine.start();
    cache.upsert('10.0.0.1', podClaim(1));
    await history.flush();
    expect(history.status().disk?.failure).toMatchObject({ message: 'input/output error' });
    expect(await history.past.at('10.0.0.1', machine.clock.wallTime())).toMatchObject({ certain: true });
    expect(machine.folder.files.size).toBe(0);
  });

  it('with a file of a later version has it renamed, and begins another life', async () => {
    const machine = new Machine();
    const first = await machine.start();
    first.cache.upsert('10.0.0.1', podClaim(1));
    await end(first);
    const [[name = '', bytes] = []] = machine.folder.files;
    if (bytes !== undefined) bytes[7] = 3;
    await end(await machine.start());
    expect([...machine.folder.files.keys()].sort()).toEqual([`${name}.newer`, '000002-000000']);
  });

  it('with a removed segment in the middle has lost answers around it', async () => {
    const machine = new Machine();
    const first = await machine.start();
    first.cache.upsert('10.9.0.1', podClaim(1));
    const at = machine.clock.wallTime() + 1;
    await write(machine, first, 6000);
    const after = machine.clock.wallTime();
    first.cache.delete('10.9.0.1', KVSTORE);
    machine.clock.advance(1);
    await end(first);
    const names = [...machine.folder.files.keys()].sort();
    expect(names.length).toBeGreaterThan(4);
    machine.folder.files.delete(names[2] ?? '');
    machine.clock.advance(10);
    const { history } = await machine.start();
    // The change before the gap proves it until the gap, the one after it from there on.
    expect(await history.past.at('10.9.0.1', at)).toMatchObject({
      certain: true,
      effective: { identity: 1001 },
    });
    expect(await history.past.at('10.9.0.1', after - 1)).toMatchObject({ certain: true });
    const middle = await history.past.at('10.0.0.1', Math.floor((at + after) / 2));
    expect(middle?.certain === false || middle?.effective !== undefined).toBe(true);
  });

  it('counts a segment as damaged once if two queries read it at the same time', async () => {
    const machine = new Machine();
    const first = await machine.start();
    await write(machine, first, 6000);
    await end(first);
    machine.clock.advance(10);
    const { history } = await machine.start();
    const [name = ''] = [...machine.folder.files.keys()].sort();
    machine.folder.files.delete(name);
    const readAllRecords = async (): Promise<void> => {
      for await (const _ of history.past.records());
    };
    await Promise.all([readAllRecords(), readAllRecords()]);
    expect(history.status().disk).toMatchObject({ damaged: 1 });
  });
});

describe('a file of a history', () => {
  it('that is changed is torn, damaged or of a later version, never something else', async () => {
    for (const checked of [true, false]) {
      const machine = new Machine();
      const started = await machine.start({}, MIB, checked ? crc32 : (): number => FIXED_SUM);
      await write(machine, started, 300);
      started.history.mark('joined', 'baltic');
      started.history.recordDocument('node', 'baltic/n1', 'kvstore', {
        before: undefined,
        after: { name: 'n1' },
      });
      await started.history.flush();
      const [open = new Uint8Array()] = machine.folder.files.values();
      const torn = new Uint8Array(open);
      await end(started);
      const [complete = new Uint8Array()] = machine.folder.files.values();
      // Reading overwrites the bytes.
      expect(readAll(torn.slice(), checked)).toBe('complete');
      expect(readAll(complete.slice(), checked)).toBe('complete');
      const next = random(1);
      const counts = new Map<string, number>();
      for (let i = 0; i < 600; i++) {
        const outcome = readAll(mutated(i % 2 === 0 ? torn : complete, next), checked);
        counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
      }
      expect(counts.get('damaged')).toBeGreaterThan(0);
      expect(counts.get('torn') ?? 0).toBeGreaterThan(0);
    }
  });
});
