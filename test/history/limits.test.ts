import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { ChangeLog, type UncertainSpan } from '../../src/history/change-log.ts';
import { History } from '../../src/history/history.ts';
import { RecordReader } from '../../src/history/record-reader.ts';
import type { PrefixRecord, Uncertainty } from '../../src/history/types.ts';
import type { AddressList } from '../../src/ipcache/address-list.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { parsePrefix, prefixRegister } from '../../src/net/prefix.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';
import { attributes } from '../ipcache/support/naive-ipcache.ts';
import { H5_staysBelowItsMaximum, podClaim } from './support/laws.ts';
import { groupsAround, itemsOf } from './support/past-lists.ts';
import { H2_visibleClaimsAreRight } from './support/visible-claims.ts';

const KIB = 1024;
const START = WALL_TIME_AT_0;

function recorded(memory?: number): { clock: ManualClock; cache: IPCache; history: History } {
  const clock = new ManualClock();
  const cache = new IPCache();
  const history = new History({ ipcache: cache, clock, memory });
  history.start();
  return { clock, cache, history };
}

async function marksOf({ past }: History): Promise<readonly unknown[]> {
  return (await itemsOf(past.records())).map((record) => record.kind === 'mark' && record.mark);
}

describe('the memory of a history', () => {
  it('H5: stays below its maximum, and the newest changes are retained', () => {
    H5_staysBelowItsMaximum();
  });

  it('counts each change once (regression: records of causes were counted as changes)', async () => {
    const { cache, history } = recorded();
    for (const revision of ['1', '2', '3']) {
      history.setCause({ store: 'baltic', revision });
      cache.upsert(`10.0.0.${revision}`, podClaim(1));
    }
    expect(history.status().records).toMatchObject({ prefix: 3, mark: 1, batch: 3 });
    expect(await itemsOf(history.past.records())).toHaveLength(history.status().recordsInMemory);
  });

  it('yields few records of services with many backends in a slice (regression: 128, which took 65 ms)', async () => {
    const { history } = recorded(4096 * KIB);
    const backends = Array.from({ length: 200 }, (_, at) => ({ address: `10.0.0.${at}`, state: 'active' }));
    for (let at = 0; at < 60; at++)
      history.recordDocument('service', `shop/${at}`, 'baltic', { before: undefined, after: { backends } });
    const lengths: number[] = [];
    for await (const slice of history.past.records()) lengths.push(slice.length);
    expect([lengths.reduce((a, b) => a + b), Math.max(...lengths)]).toEqual([61, 9]);
  });

  it('does not keep the uncertain intervals of dropped records while an earlier interval lasts', () => {
    const clock = new ManualClock();
    const log = new ChangeLog(clock, 256 * KIB);
    log.beginSpan('cluster-incomplete', 'baltic');
    for (let i = 0; i < 20_000; i++) {
      clock.advance(1);
      log.endSpan(log.beginSpan('cluster-incomplete', 'adriatic'));
      log.addMark('unreachable', 'adriatic', 'a reason of some length');
    }
    const { recordsInMemory } = log.counts();
    expect(log.spans.length).toBeLessThan(2 * recordsInMemory);
    expect(log.spans[0]?.subject).toBe('baltic');
  });

  it('keeps the interval of lost changes while more changes are lost, although its end was dropped', () => {
    const clock = new ManualClock();
    const log = new ChangeLog(clock, 256 * KIB);
    const key = prefixRegister();
    parsePrefix('10.0.0.1', key);
    const writer = { source: 'kvstore', owner: '' } as const;
    const change = { writer, before: undefined, after: undefined, effect: 0 };
    const loseChanges = (): void => {
      for (let i = 0; i < 20_001; i++) log.addClaim(key, change);
    };
    for (let second = 0; second < 6; second++) {
      loseChanges();
      clock.advance(1000);
    }
    loseChanges();
    const lostBefore = log.counts().lost.rate;
    for (let i = 0; i < 20_000; i++) {
      if (i % 100 === 0) clock.advance(1);
      log.addMark('unreachable', 'adriatic', 'a reason of some length');
    }
    loseChanges();
    expect(log.counts().lost.rate).toBeGreaterThan(lostBefore);
    expect(log.spans).toContainEqual(expect.objectContaining({ reason: 'lost', toMs: clock.now() }));
  });

  it('H2: a certain answer is right, whatever was dropped', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(5), { minLength: 20, maxLength: 20 }), fc.nat(1000), (pattern, seed) => {
        const { clock, cache, history } = recorded(256 * KIB);
        const keys = pattern.map((_, i) => `10.0.0.${i}`);
        const copies: { readonly at: number; readonly claims: ReadonlyMap<string, string | undefined> }[] =
          [];
        const now = new Map<string, string | undefined>();
        for (let i = 0; i < 9_000; i++) {
          clock.advance(1);
          const at = (i * 7 + (pattern[i % 20] ?? 0)) % 20;
          const key = keys[at] ?? '';
          if ((i + (pattern[at] ?? 0)) % 6 === 0) cache.delete(key, { source: 'kvstore' });
          else cache.upsert(key, podClaim(i + seed));
          const entry = cache.get(key);
          now.set(key, entry && attributes(entry));
          if (i % 301 === 0) copies.push({ at: clock.wallTime(), claims: new Map(now) });
        }
        let certain = 0;
        for (const { at, claims } of copies) {
          const answers = keys.flatMap((key) => {
            const moment = history.at(key, at);
            if (moment?.certain !== true) return [];
            return [[key, moment.effective && attributes(moment.effective)] as const];
          });
          certain += answers.length;
          expect(answers, `at ${at}`).toEqual(answers.map(([key]) => [key, claims.get(key)]));
        }
        expect(certain).toBeGreaterThan(20);
        expect(certain).toBeLessThan(copies.length * keys.length);
      }),
      { numRuns: 4 },
    );
  });

  it('is all that lookupMany and lookupEntries read: 0 and not certain before the retained changes, the identity of now in the future', () => {
    const { clock, cache, history } = recorded();
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(1000);
    const identities = new Uint32Array(3).fill(7);
    const certain = new Uint8Array(3).fill(7);
    const times = [START - 1, START + 500, START + 60_000];
    const addresses = times.map(() => '10.0.0.1');
    expect(history.lookupMany(addresses, times, identities, certain)).toBe(2);
    expect([[...identities], [...certain]]).toEqual([
      [0, 1001, 1001],
      [0, 1, 0],
    ]);
    certain.fill(7);
    const entries = history.lookupEntries(addresses, times, certain);
    const names = entries.map((entry) => entry?.k8s?.podName);
    expect([names, [...certain]]).toEqual([
      [undefined, podClaim(1).k8s?.podName, podClaim(1).k8s?.podName],
      [0, 1, 0],
    ]);
    expect(() => history.lookupEntries(addresses, [START])).toThrow('lookupEntries: times and certain');
  });

  it('looks up addresses as numbers and in flow records like those as text', () => {
    const { clock, cache, history } = recorded();
    const texts = ['10.0.0.1', '10.0.0.2', '10.9.9.9'];
    for (const [index, text] of texts.slice(0, 2).entries()) cache.upsert(text, podClaim(index));
    clock.advance(1000);
    cache.delete('10.0.0.1', { source: 'kvstore' });
    cache.upsert('fd00::1', podClaim(3));
    clock.advance(1000);
    const at = (ms: number): readonly number[] => texts.map(() => START + ms);
    const bytes = Uint8Array.from(texts.flatMap((text) => [0, 0, ...text.split('.').map(Number), 0, 0]));
    const lists: readonly AddressList[] = [
      Uint32Array.of(0x0a00_0001, 0x0a00_0002, 0x0a09_0909),
      { bytes, family: 4, offset: 2, stride: 8 },
    ];
    for (const ms of [500, 1500])
      for (const list of lists) {
        const [expected, found] = [new Uint32Array(3), new Uint32Array(3)];
        expect(history.lookupMany(list, at(ms), found)).toBe(history.lookupMany(texts, at(ms), expected));
        expect(found).toEqual(expected);
        expect(history.lookupEntries(list, at(ms))).toEqual(history.lookupEntries(texts, at(ms)));
      }
    const v6: AddressList = { bytes: Uint8Array.of(0xfd, ...new Array(14).fill(0), 1), family: 6 };
    const keys = [500, 1500].map((ms) => history.lookupEntries(v6, at(ms))[0]?.key);
    expect(keys).toEqual([undefined, 'fd00::1']);
    expect(() => history.lookupMany(5 as never, [], new Uint32Array(1))).toThrow('lookupMany: addresses');
  });

  it('has a mark with the key of a document that is too large for it', async () => {
    const { history } = recorded(256 * KIB);
    history.recordDocument('service', 'shop/cart', 'baltic', {
      before: undefined,
      after: { name: 'x'.repeat(256 * KIB) },
    });
    expect(await itemsOf(history.past.records({ limit: 1 }))).toEqual([
      expect.objectContaining({ kind: 'mark', mark: 'lost', subject: 'shop/cart', detail: '1' }),
    ]);
  });

  it('must be enough for its segments', () => {
    expect(() => recorded(1000)).toThrow(/memory must be at least/);
  });
});

describe('changes above the maximum rate', () => {
  it('are counted as lost after five seconds, and answers for earlier moments are not certain', async () => {
    const { clock, cache, history } = recorded(4 * KIB * KIB);
    let i = 0;
    const second = (changes: number): void => {
      for (let n = 0; n < changes; n++) cache.upsert(`10.0.0.${i % 250}`, podClaim(i++));
      clock.advance(1000);
    };
    for (let n = 0; n < 5; n++) second(21_000);
    expect(history.status().lost.rate).toBe(0);
    const before = clock.wallTime();
    clock.advance(1);
    for (let n = 0; n < 2; n++) second(21_000);
    expect(history.status().lost.rate).toBe(42_000);
    expect(history.at('10.0.0.1', before)).toMatchObject({ certain: false, reason: 'lost' });
    // Within the loss, a later change is missing, too.
    expect(history.at('10.0.0.1', clock.wallTime() - 1500)).toMatchObject({ certain: false, reason: 'lost' });
    second(10);
    clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(7));
    const moment = history.at('10.0.0.1', clock.wallTime());
    expect(moment).toMatchObject({ certain: true, effective: { identity: 1007 } });
    expect(await itemsOf(history.past.records({ limit: 20 }))).toContainEqual(
      expect.objectContaining({ kind: 'mark', mark: 'lost' }),
    );
  });
});

describe('the visible claims before and after a change', () => {
  const identities = (record: PrefixRecord): unknown =>
    record.effective && [record.effective.before?.identity, record.effective.after?.identity];

  it('H2: are right or absent, whatever was lost or released without a record', async () => {
    // With this seed, the eighth run fails if a release counts as recorded. With the default one, the 86th run fails.
    expect(await H2_visibleClaimsAreRight(60, 15)).toBeGreaterThan(100);
  });

  it('are omitted if later changes were lost, because they would be those of the lost ones', async () => {
    const { clock, cache, history } = recorded(16 * KIB * KIB);
    cache.upsert('10.9.0.1', { identity: 300, source: 'kvstore' });
    clock.advance(1);
    cache.upsert('10.9.0.1', { identity: 301, source: 'kvstore' });
    let i = 0;
    for (let second = 0; second < 6; second++) {
      for (let n = 0; n < 21_000; n++) cache.upsert(`10.0.0.${i % 250}`, podClaim(i++));
      if (second === 5) cache.delete('10.9.0.1', { source: 'kvstore' }); // lost
      clock.advance(1000);
    }
    clock.advance(1000);
    cache.upsert('10.9.0.1', { identity: 302, source: 'kvstore' });
    clock.advance(1000);
    cache.upsert('10.9.0.1', { identity: 303, source: 'kvstore' });
    const expected = [[302, 303], [undefined, 302], undefined, undefined];
    expect((await itemsOf(history.past.of('10.9.0.1'))).map(identities)).toEqual(expected);
  });

  it('are omitted if the release of a restored claim was not recorded since', async () => {
    const { clock, cache, history } = recorded();
    const claim = { identity: 300 };
    cache.upsert('10.0.0.1', { ...claim, source: 'restored', owner: 'far' });
    clock.advance(1000);
    cache.upsert('10.0.0.1', { ...claim, source: 'kvstore' });
    clock.advance(1000);
    cache.delete('10.0.0.1', { source: 'restored', owner: 'far' });
    clock.advance(1000);
    cache.upsert('10.0.0.1', { identity: 301, source: 'kvstore' });
    const records = await itemsOf(history.past.of('10.0.0.1'));
    expect(records.map(identities)).toEqual([[300, 301], undefined, undefined]);
  });
});

describe('a clock that is set', () => {
  it('back gives the later of two moments, which is not certain', async () => {
    const { clock, cache, history } = recorded();
    clock.advance(5000);
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(5000);
    history.checkClock();
    clock.setWallTimeBy(-6000);
    history.checkClock();
    clock.advance(10_000);
    expect(history.at('10.0.0.1', START + 7000)).toMatchObject({ certain: false, reason: 'clock' });
    expect(history.at('10.0.0.1', START + 2000)).toMatchObject({ certain: true, claims: [] });
    expect(await marksOf(history)).toContain('clock-set');
  });

  it('is marked with the size of the step in seconds (regression: -6000, without a unit)', async () => {
    const { clock, history } = recorded();
    clock.setWallTimeBy(-6000);
    history.checkClock();
    const [mark] = await itemsOf(history.past.records());
    expect(mark).toMatchObject({ mark: 'clock-set', detail: '-6.0 s' });
  });

  it('back past the start holds the moments since (regression: retained from the start, to before it)', async () => {
    const { clock, cache, history } = recorded();
    clock.advance(10_000);
    clock.setWallTimeBy(-3_600_000);
    history.checkClock();
    clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(9000);
    const now = START + 20_000 - 3_600_000;
    const retained = { from: now - 10_000, to: now };
    expect([history.retained, history.past.retained]).toEqual([retained, retained]);
    for (const moment of [history.at('10.0.0.1', now - 5000), await history.past.at('10.0.0.1', now - 5000)])
      expect(moment).toMatchObject({ certain: true, reason: undefined, claims: [{}], retained });
  });

  it('has the same answers from memory as from memory and disk', async () => {
    const step = fc.tuple(fc.integer({ min: 0, max: 4000 }), fc.integer({ min: -9000, max: 9000 }));
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 5 }), async (steps) => {
        const { clock, cache, history } = recorded();
        for (const [i, [ms, set]] of steps.entries()) {
          clock.advance(ms);
          cache.upsert('10.0.0.1', podClaim(i));
          clock.advance(ms);
          clock.setWallTimeBy(set);
          history.checkClock();
        }
        for (let at = START - 40_000; at < START + 60_000; at += 2003)
          expect(history.at('10.0.0.1', at)).toEqual(await history.past.at('10.0.0.1', at));
        expect(history.retained.from).toBeLessThanOrEqual(history.retained.to);
      }),
      { numRuns: 10 },
    );
  });

  it('back hides no change from lists and causes (regression: all of its segment)', async () => {
    const { clock, cache, history } = recorded();
    clock.advance(10_000);
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(5000);
    history.checkClock();
    clock.setWallTimeBy(-3_600_000);
    history.checkClock();
    clock.advance(5000);
    cache.upsert('10.0.0.2', podClaim(2));
    clock.advance(5000);
    history.checkClock();
    clock.setWallTimeBy(7_200_000);
    history.checkClock();
    for (const [key, at] of [
      ['10.0.0.1', START + 10_000],
      ['10.0.0.2', START + 20_000 - 3_600_000],
    ] as const) {
      const range = { from: at - 1000, to: at + 1000 };
      expect(await itemsOf(history.past.records(range))).toMatchObject([{ key, at }]);
      expect(await groupsAround(history, at)).toMatchObject([{ at, samples: [key] }]);
    }
  });

  it('between two comparisons gives no certain answer for the time between them', () => {
    const { clock, cache, history } = recorded();
    clock.advance(10_000);
    history.checkClock();
    clock.advance(300);
    clock.setWallTimeBy(-6000);
    clock.advance(400);
    cache.upsert('10.0.0.1', podClaim(1)); // at 4700, and 10,700 of the old time
    clock.advance(300);
    history.checkClock();
    clock.advance(10_000);
    const reasons = [4600, 10_200, 10_600].map((at) => history.at('10.0.0.1', START + at)?.reason);
    expect(reasons).toEqual(['clock', 'clock', 'clock']);
    expect(history.at('10.0.0.1', START + 14_000)).toMatchObject({ certain: true, claims: [{}] });
  });

  it('is noticed by the next question', () => {
    const { clock, cache, history } = recorded();
    clock.advance(10_000);
    cache.upsert('10.0.0.1', podClaim(1));
    clock.setWallTimeBy(-6000);
    clock.advance(100);
    expect(history.at('10.0.0.1', START + 4050)).toMatchObject({ certain: false, reason: 'clock' });
    expect(history.at('10.0.0.1', START + 9000)).toMatchObject({ certain: false, reason: 'clock' });
  });

  it('by less than a second has no mark, and moves the times of later changes', async () => {
    const { clock, cache, history } = recorded();
    clock.advance(1000);
    history.checkClock();
    clock.setWallTimeBy(300);
    history.checkClock();
    clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(1000);
    expect(history.at('10.0.0.1', START + 2299)).toMatchObject({ certain: true, claims: [] });
    expect(history.at('10.0.0.1', START + 2300)).toMatchObject({ certain: true, claims: [{}] });
    expect(await marksOf(history)).not.toContain('clock-set');
  });

  it('forward gives the state of that moment, which is not certain', () => {
    const { clock, cache, history } = recorded();
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(1000);
    clock.setWallTimeBy(60_000);
    history.checkClock();
    clock.advance(1000);
    cache.delete('10.0.0.1', { source: 'kvstore' });
    clock.advance(1000);
    const moment = history.at('10.0.0.1', START + 30_000);
    expect(moment).toMatchObject({ certain: false, reason: 'clock', effective: { identity: 1001 } });
  });
});

describe('a history that was stopped', () => {
  it('gives no certain answers, because later changes are not undone', () => {
    const { clock, cache, history } = recorded();
    clock.advance(1000);
    history.stop();
    cache.upsert('10.0.0.1', podClaim(1));
    clock.advance(1000);
    expect(history.at('10.0.0.1', START + 500)).toMatchObject({ certain: false, reason: 'lost' });
  });
});

describe('an answer that is not certain', () => {
  it('names each incomplete cluster once, and no cluster of another reason (regression: only the reason)', async () => {
    const { clock, cache, history } = recorded();
    const begin = (reason: Uncertainty, cluster: string): UncertainSpan => {
      const span = history.beginUncertainty(reason, cluster);
      if (span === undefined) throw new Error('not started');
      return span;
    };
    cache.upsert('10.0.0.1', { source: 'kvstore', identity: 7 });
    const before = begin('cluster-incomplete', 'atlantic');
    clock.advance(1000);
    history.endUncertainty(before);
    const restored = { source: 'restored', owner: 'baltic', identity: 7 } as const;
    cache.upsert('10.0.0.1', restored);
    begin('cluster-incomplete', 'baltic');
    begin('cluster-incomplete', 'Kubernetes ciliumendpoints');
    begin('withdrawing', 'caspian');
    const at = clock.wallTime();
    clock.advance(1000);
    cache.withdraw(restored); // a second interval of baltic
    clock.advance(1000);
    const subjects = ['baltic', 'Kubernetes ciliumendpoints'];
    const uncertain = { certain: false, reason: 'cluster-incomplete', subjects };
    const { past } = history;
    expect(history.at('10.0.0.1', at)).toMatchObject(uncertain);
    expect(history.lookup('10.0.0.2', at)).toMatchObject(uncertain);
    expect(await past.at('10.0.0.1', at)).toMatchObject(uncertain);
    expect(await past.lookup('10.0.0.2', at)).toMatchObject(uncertain);
    expect(await past.changedSince(at, 10)).toMatchObject(uncertain);
    expect(await past.documentAt('node', 'baltic/n1', undefined, at)).toMatchObject(uncertain);
  });

  it('names ten of 255 incomplete clusters', () => {
    const { clock, history } = recorded();
    for (let i = 0; i < 255; i++) history.beginUncertainty('cluster-incomplete', `c${i}`);
    clock.advance(1000);
    const first = Array.from({ length: 10 }, (_, i) => `c${i}`);
    expect(history.at('10.0.0.1', clock.wallTime())?.subjects).toEqual(first);
  });
});

describe('a claim that was restored', () => {
  it('is not denied with certainty for moments before its release, which is not recorded', () => {
    const { clock, cache, history } = recorded();
    const claim = { source: 'restored', owner: 'baltic', identity: 7 } as const;
    cache.upsert('10.0.0.1', claim);
    clock.advance(1000);
    cache.upsert('10.0.0.1', { source: 'kvstore', identity: 7 });
    clock.advance(1000);
    cache.withdraw(claim);
    clock.advance(1000);
    expect(history.at('10.0.0.1', START + 500)).toMatchObject({
      certain: false,
      reason: 'cluster-incomplete',
    });
    expect(history.at('10.0.0.1', START + 2000)).toMatchObject({ certain: true, effective: { identity: 7 } });
  });
});

describe('a look-up', () => {
  it('that finds no prefix says if that is certain', () => {
    const { clock, history } = recorded();
    clock.advance(1000);
    const found = { certain: true, claims: [], prefix: '10.0.0.1/32' };
    expect(history.lookup('10.0.0.1', START + 500)).toMatchObject(found);
    expect(history.lookup('10.0.0.1', START - 500)).toMatchObject({ certain: false, reason: 'not-retained' });
    expect(history.lookup('10.0.0.1', START + 5000)).toMatchObject({ certain: false, reason: 'clock' });
    expect(history.lookup('10.0.0', START)).toBeUndefined();
  });

  it('that finds no prefix has the times of the address (regression: on disk, those of the shortest prefix)', async () => {
    const { clock, cache, history } = recorded();
    clock.advance(1000);
    cache.upsert('10.0.0.0/8', podClaim(1));
    clock.advance(1000);
    cache.upsert('10.0.0.1', podClaim(2));
    const found = { prefix: '10.0.0.1/32', effective: undefined, effectiveUntil: START + 2000 };
    expect(history.lookup('10.0.0.1', START + 500)).toMatchObject(found);
    expect(await history.past.lookup('10.0.0.1', START + 500)).toMatchObject(found);
  });

  it('reads each later change once (regression: twice, to find the prefix and then its claims)', () => {
    const { clock, cache, history } = recorded();
    for (let identity = 1; identity <= 20; identity++) {
      clock.advance(1000);
      cache.upsert('10.0.0.1', { source: 'kvstore', identity });
    }
    const read = vi.spyOn(RecordReader.prototype, 'claimAt');
    expect(history.lookup('10.0.0.1', START + 1000)).toMatchObject({ effective: { identity: 1 } });
    expect(read).toHaveBeenCalledTimes(20);
    read.mockRestore();
  });
});

describe('records', () => {
  it('of a range with NaN are rejected (regression: an empty list)', () => {
    const { history } = recorded();
    for (const name of ['from', 'to', 'fromSequence', 'beforeSequence', 'limit']) {
      const range = { [name]: Number.NaN };
      const message = `range.${name} must be a number, not NaN`;
      expect(() => history.past.records(range)).toThrow(message);
      expect(() => history.past.of('10.0.0.1', range)).toThrow(message);
      expect(() => history.past.documentsOf('service', 'a/b', range)).toThrow(message);
    }
  });

  it('end after a limit that is no integer, rounded up (regression: all others were read, too)', async () => {
    const { cache, history } = recorded();
    for (let i = 0; i < 1000; i++) cache.upsert('10.0.0.1', podClaim(i));
    for (const list of [history.past.records({ limit: 2.5 }), history.past.of('10.0.0.1', { limit: 2.5 })]) {
      const slices = [];
      for await (const slice of list) slices.push(slice.length);
      expect(slices).toEqual([3]);
    }
  });

  it('of a service that lost its backends one by one name it once among the emptied ones', async () => {
    const { clock, history } = recorded();
    for (let i = 3; i > 0; i--) {
      clock.advance(10);
      const backends = [{ address: `10.0.0.${i}` }];
      history.recordDocument('service', 'shop/cart', 'k8s', {
        before: { backends },
        after: { backends: [] },
      });
    }
    const isEmptied = (): boolean => true;
    const groups = await groupsAround(history, clock.wallTime(), { isEmptied });
    expect(groups.map(({ changed, emptied }) => [changed, emptied])).toContainEqual([3, ['shop/cart']]);
  });

  it('of a service cost the same whatever its number of backends (regression: all were sorted for each)', async () => {
    const { clock, history } = recorded();
    let reads = 0;
    const backends = Array.from({ length: 500 }, (_, at) => ({
      weight: 500,
      get address(): string {
        reads++;
        return `10.0.${at >> 8}.${at & 255}:80/TCP`;
      },
    }));
    for (let weight = 0; weight < 500; weight++) {
      clock.advance(1);
      const change = (to: number): object => ({ backends: [{ address: '10.0.0.7:80/TCP', weight: to }] });
      history.recordDocument('service', 'shop/cart', 'k8s', {
        before: { ...change(weight) },
        after: { ...change(weight + 1) },
      });
    }
    const past = await history.past.documentAt('service', 'shop/cart', { backends }, START + 10);
    expect(reads).toBeLessThan(30 * 500);
    const found = past.document?.['backends'] as readonly { address: string; weight: number }[];
    expect(found).toHaveLength(500);
    expect(found.find(({ address }) => address === '10.0.0.7:80/TCP')?.weight).toBe(10);
  });

  it('of a node with two addresses have no common host (regression: the first one)', async () => {
    const { cache, history } = recorded();
    const hosts = ['192.168.0.1', 'fd01::1', '192.168.0.1'];
    for (const [at, hostIP] of hosts.entries())
      cache.upsert(`10.0.0.${at}`, { source: 'kvstore', identity: 1, hostIP });
    const around = async (nodeOf: (host: string) => string): Promise<unknown> =>
      (await groupsAround(history, START, { nodeOf })).find(({ added }) => added > 0);
    const ofNode = { added: 3, node: 'baltic/node-1', host: undefined };
    expect(await around(() => 'baltic/node-1')).toMatchObject(ofNode);
    expect(await around((host) => host)).toMatchObject({ added: 2, host: '192.168.0.1' });
  });

  it('keep their cause in a segment that begins with a mark', async () => {
    const { clock, cache, history } = recorded(256 * KIB);
    const cause = { store: 'atlantic', revision: '7' };
    history.setCause(cause);
    for (let i = 0; i < 2000; i++) {
      clock.advance(1);
      cache.upsert(`10.0.0.${i % 250}`, podClaim(i));
      history.mark('reachable', 'atlantic', 'x'.repeat(i % 150));
    }
    const records = await itemsOf(history.past.records());
    const causes = records.flatMap((record) => (record.kind === 'prefix' ? [record.cause] : []));
    expect(causes.filter((one) => one?.store !== 'atlantic')).toEqual([]);
    expect(causes.length).toBeGreaterThan(500);
  });

  it('keep every attribute of a claim', () => {
    fc.assert(
      fc.property(
        fc.record({
          identity: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
          owner: fc.string({ unit: 'grapheme', maxLength: 40 }),
          hostIP: fc.constantFrom(undefined, '192.168.0.1', 'fd00::1234:5678:9abc:def0'),
          encryptKey: fc.integer({ min: 0, max: 255 }),
          namespace: fc.string({ unit: 'grapheme', maxLength: 80 }),
          podName: fc.string({ unit: 'grapheme', maxLength: 120 }),
          serviceAccount: fc.string({ maxLength: 9 }),
          port: fc.constantFrom(undefined, 0, 65_535),
        }),
        fc.constantFrom('10.0.0.1', '10.0.0.0/8', '0.0.0.0/0', 'fd00::1', 'fd00::/17'),
        ({ identity, owner, hostIP, encryptKey, namespace, podName, serviceAccount, port }, key) => {
          const { clock, cache, history } = recorded();
          const namedPorts = port === undefined ? undefined : new Map([['http', { port, protocol: 6 }]]);
          const k8s = { namespace, podName, serviceAccount, namedPorts };
          const claim = { identity, source: 'k8s', owner, hostIP, encryptKey, k8s } as const;
          cache.upsert(key, claim);
          const entry = cache.get(key);
          clock.advance(10);
          cache.delete(key, claim);
          clock.advance(10);
          const past = history.at(key, START + 5)?.effective;
          expect(past && [past.source, past.owner, attributes(past)]).toEqual(
            entry && [entry.source, entry.owner, attributes(entry)],
          );
        },
      ),
      { numRuns: 300 },
    );
  });
});
