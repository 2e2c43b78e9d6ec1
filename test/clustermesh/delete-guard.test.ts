import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Failure } from '../../src/base/failure.ts';
import { DeleteGuard } from '../../src/clustermesh/delete-guard.ts';
import { WatchStates } from '../../src/clustermesh/watch-states.ts';
import type { KeyRead, KvstoreBackend, WatchState } from '../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { settle } from '../kvstore/support/settle.ts';

const KEY = 'cilium/cluster-config/east';

function shown(revision: number, modRevision = 7, clusterID = 'one'): KeyRead {
  const header = { clusterID, revision, raftTerm: 1 };
  return { header, kv: { key: KEY, value: new Uint8Array(0), createRevision: 5, modRevision } };
}

describe('deletes of a cluster', () => {
  let clock: ManualClock;
  let caller: AbortController;
  /** Reads that are under way, oldest first. */
  let reads: PromiseWithResolversOf<KeyRead>[];
  let failures: (Failure | undefined)[];
  let gone: number;
  let guard: DeleteGuard;

  interface PromiseWithResolversOf<T> {
    readonly resolve: (value: T) => void;
    readonly reject: (error: unknown) => void;
  }

  beforeEach(() => {
    clock = new ManualClock();
    caller = new AbortController();
    [reads, failures, gone] = [[], [], 0];
    const backend: Pick<KvstoreBackend, 'read'> = {
      read: (key, options) => {
        expect([key, options?.signal]).toEqual([KEY, caller.signal]);
        return new Promise((resolve, reject) => reads.push({ resolve, reject }));
      },
    };
    guard = new DeleteGuard({
      // The guard uses nothing else of the backend.
      backend: backend as KvstoreBackend,
      key: KEY,
      initialRead: shown(8),
      clock,
      random: () => 0.5,
      signal: caller.signal,
      onKeyLost: () => gone++,
      onFailure: (failure) => failures.push(failure),
    });
  });

  /** Requests a permission, and records the answer when it arrives. */
  const ask = (revision: number): { answer: boolean | undefined } => {
    const asked: { answer: boolean | undefined } = { answer: undefined };
    void guard.allows(revision).then((answer) => {
      asked.answer = answer;
    });
    return asked;
  };

  it('are trusted after a read that returns the unchanged configuration, at their revision or later', async () => {
    const asked = ask(10);
    await settle();
    expect([asked.answer, reads.length]).toEqual([undefined, 1]);
    reads[0]?.resolve(shown(10));
    await settle();
    expect([asked.answer, gone, failures]).toEqual([true, 0, []]);
  });

  it('cost one read for all of them up to its revision', async () => {
    const first = [ask(10), ask(11), ask(12)];
    await settle();
    expect(reads).toHaveLength(1);
    reads[0]?.resolve(shown(20));
    await settle();
    expect(first.map(({ answer }) => answer)).toEqual([true, true, true]);
    expect(await guard.allows(20)).toBe(true);
    expect(reads).toHaveLength(1);
    const later = ask(21);
    await settle();
    expect([reads.length, later.answer]).toEqual([2, undefined]);
  });

  it('that arrive during a read are proven by the next one, unless its revision is sufficient', async () => {
    const first = ask(10);
    await settle();
    const second = ask(15);
    reads[0]?.resolve(shown(12));
    await settle();
    expect([first.answer, second.answer, reads.length]).toEqual([true, undefined, 2]);
    reads[1]?.resolve(shown(15));
    await settle();
    expect([second.answer, gone]).toEqual([true, 0]);
  });

  it.each([
    ['there is no configuration', { ...shown(10), kv: undefined }],
    // Regression: a cluster that exported slices, then services, and then slices again lost its backends for a moment.
    ['it was written again, even with the same value', shown(10, 9)],
    ['the store is another one', shown(10, 7, 'two')],
    ['the store is behind the delete', shown(9)],
  ])('are not trusted if %s, nor is any later one', async (_, found) => {
    const [asked, other] = [ask(10), ask(9)];
    await settle();
    reads[0]?.resolve(found);
    await settle();
    expect([asked.answer, other.answer, gone]).toEqual([false, false, 1]);
    expect(await guard.allows(1)).toBe(false);
    expect(reads).toHaveLength(1);
  });

  it('wait while the kvstore does not answer, with a backoff, and each failure is reported until a read succeeds', async () => {
    const asked = ask(10);
    await settle();
    for (const delay of [25, 50]) {
      reads.at(-1)?.reject(new KvstoreError('unavailable', 'down'));
      await settle();
      const before = reads.length;
      clock.advance(delay / 2 - 1);
      await settle();
      expect(reads).toHaveLength(before);
      clock.advance(delay * 2);
      await settle();
      expect(reads).toHaveLength(before + 1);
    }
    expect(failures.map((failure) => failure?.message)).toEqual(['down', 'down']);
    reads.at(-1)?.resolve(shown(10));
    await settle();
    expect([asked.answer, failures.at(-1), failures.length]).toEqual([true, undefined, 3]);
    const next = ask(11);
    await settle();
    reads.at(-1)?.resolve(shown(11));
    await settle();
    expect([next.answer, failures.length]).toEqual([true, 3]);
  });

  it('are not trusted after the signal fires, and that is not a failure', async () => {
    const asked = ask(10);
    await settle();
    caller.abort();
    reads[0]?.reject(new KvstoreError('aborted', 'aborted'));
    await settle();
    expect([asked.answer, failures, gone]).toEqual([false, [], 0]);
    expect(await guard.allows(1)).toBe(false);
    expect(reads).toHaveLength(1);
  });

  it('are not trusted if the signal fires during the backoff', async () => {
    const asked = ask(10);
    await settle();
    reads[0]?.reject(new KvstoreError('unavailable', 'down'));
    await settle();
    caller.abort();
    await settle();
    expect([asked.answer, reads.length, clock.pending]).toEqual([false, 1, 0]);
  });
});

describe('the watches of a cluster', () => {
  const name = fc.constantFrom('nodes', 'ip', 'services');
  const state = fc.constantFrom<WatchState>(
    'listing',
    'watching',
    'waiting',
    'forbidden',
    'ended',
    'diverged',
  );

  it('count as answered if one is watching, or listing while another one is watching', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(name, state), { maxLength: 8, size: 'max' }),
        fc.boolean(),
        (observed, clears) => {
          const readings = new WatchStates();
          for (const [reading, entered] of observed) readings.observe(reading, entered);
          if (clears) readings.clear();
          const last = new Map(clears ? [] : observed);
          const going = [...last].filter(([, entered]) => entered !== 'ended' && entered !== 'diverged');
          const someWatch = going.some(([, entered]) => entered === 'watching');
          const isUp = (entered: WatchState | undefined): boolean =>
            entered === 'watching' || (entered === 'listing' && someWatch);
          expect(readings.size).toBe(going.length);
          const allList = going.every(([, entered]) => entered === 'listing');
          expect(readings.areUp).toBe(allList ? undefined : going.every(([, entered]) => isUp(entered)));
          for (const reading of ['nodes', 'ip', 'services', 'unknown']) {
            expect(readings.isUp(reading)).toBe(isUp(new Map<string, WatchState>(going).get(reading)));
          }
        },
      ),
    );
  });
});
