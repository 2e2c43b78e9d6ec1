import { beforeEach, describe, expect, it } from 'vitest';
import { type ClusterState, NEW_CLUSTER } from '../../src/clustermesh/cluster-state.ts';
import { type ClusterFacts, ReportedStatus } from '../../src/clustermesh/cluster-status.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../base/support/manual-clock.ts';

const WELL: ClusterFacts = { complete: true, connected: true, isSynced: true, keys: 7 };

let clock: ManualClock;
let reported: ReportedStatus;

beforeEach(() => {
  clock = new ManualClock();
  reported = new ReportedStatus(clock);
});

function shown(state: Partial<ClusterState>, facts: Partial<ClusterFacts> = {}): string {
  reported.update({ ...NEW_CLUSTER, ...state }, { ...WELL, ...facts });
  return reported.status().state;
}

describe('the status of a cluster', () => {
  it('is connecting at first, and not connected', () => {
    expect(reported.status()).toEqual({
      state: 'connecting',
      ready: false,
      knownAt: undefined,
      connected: false,
      connectionChangedAt: WALL_TIME_AT_0,
      lastFailure: undefined,
    });
  });

  it.each([
    ['idle', 'connecting'],
    ['connecting', 'connecting'],
    ['handshake', 'handshake'],
    ['validating', 'validating'],
    ['draining', 'draining'],
    ['unconfigured', 'no-configuration'],
    ['failed', 'failed'],
    ['stopped', 'stopped'],
    ['removed', 'removed'],
  ] as const)('is, while its phase is %s, %s', (phase, state) => {
    expect(shown({ phase })).toBe(state);
  });

  it.each([
    [undefined, 'handshake'],
    ['connecting', 'connecting'],
    ['handshake', 'handshake'],
    ['watching', 'handshake'],
    ['unconfigured', 'no-configuration'],
    ['failed', 'failed'],
    ['stopped', 'stopped'],
    ['removed', 'draining'],
  ] as const)('is, while it is left for %s, %s', (next, state) => {
    expect(shown({ phase: 'leaving', next })).toBe(state);
  });

  it.each<readonly [string, Partial<ClusterState>, Partial<ClusterFacts>]>([
    ['ready', {}, {}],
    ['ready', { found: 'read' }, { keys: 0 }],
    ['ready', { found: 'none', failStatic: false }, { keys: 0 }],
    ['no-configuration', { found: 'none' }, { keys: 0 }],
    ['no-configuration', { found: 'gone' }, {}],
    ['no-configuration', { found: 'others' }, {}],
    ['unreachable', {}, { connected: false }],
    ['watching', {}, { connected: false, isSynced: false }],
    ['watching', {}, { complete: false, keys: 0 }],
    ['watching', { unproven: true }, {}],
  ])('is, while it is watched, %s, if %o %o', (state, more, facts) => {
    expect(shown({ phase: 'watching', ...more }, facts)).toBe(state);
  });
});

describe('a change of a cluster', () => {
  const update = (state: Partial<ClusterState>, facts: Partial<ClusterFacts> = {}): boolean =>
    reported.update({ ...NEW_CLUSTER, ...state }, { ...WELL, ...facts });

  it('is a change of its state, its connection or its failure count, and nothing else', () => {
    expect(update({ phase: 'watching' })).toBe(true);
    expect(update({ phase: 'watching', attempt: 9, id: 3 }, { keys: 8 })).toBe(false);
    expect(update({ phase: 'watching', failures: 1 })).toBe(true);
    expect(update({ phase: 'watching', failures: 1 })).toBe(false);
    expect(update({ phase: 'failed', failures: 1 })).toBe(true);
    expect(update({ phase: 'failed', failures: 1 }, { connected: false })).toBe(true);
    expect(update({ phase: 'failed', failures: 1 }, { connected: false })).toBe(false);
  });

  it('is not reported for a new cluster without a change', () => {
    expect(update({}, { connected: false })).toBe(false);
  });

  it('contains since when it is connected, and since when stale state is served', () => {
    clock.advance(1000);
    update({ phase: 'watching' });
    clock.advance(1000);
    update({ phase: 'watching' });
    expect(reported.status()).toMatchObject({
      connected: true,
      connectionChangedAt: WALL_TIME_AT_0 + 1000,
      knownAt: undefined,
    });
    update({ phase: 'watching' }, { connected: false });
    clock.advance(1000);
    update({ phase: 'connecting' }, { connected: false });
    expect(reported.status()).toMatchObject({
      ready: false,
      connected: false,
      connectionChangedAt: WALL_TIME_AT_0 + 2000,
      knownAt: WALL_TIME_AT_0 + 2000,
    });
    reported.recordWithdrawal();
    expect(reported.status().knownAt).toBeUndefined();
    update({ phase: 'watching' });
    expect(reported.status()).toMatchObject({ ready: true, knownAt: undefined });
  });

  it('contains the duration of the first and of the last sync', () => {
    const syncsAfter = (ms: number, phase: ClusterState['phase'], complete: boolean): unknown => {
      clock.advance(ms);
      update({ phase }, { complete });
      const { firstSyncMs, lastSyncMs } = reported.status();
      return [firstSyncMs, lastSyncMs];
    };
    expect(syncsAfter(100, 'connecting', false)).toEqual([undefined, undefined]);
    expect(syncsAfter(200, 'failed', false)).toEqual([undefined, undefined]);
    expect(syncsAfter(300, 'watching', true)).toEqual([500, 500]);
    expect(syncsAfter(1000, 'watching', true)).toEqual([500, 500]);
    expect(syncsAfter(10, 'leaving', false)).toEqual([500, 500]);
    expect(syncsAfter(20, 'watching', true)).toEqual([500, 20]);
  });

  it('contains its last failure, with the time', () => {
    clock.advance(500);
    reported.recordFailure({ code: 'unavailable', message: 'refused' });
    expect(reported.status()).toMatchObject({
      lastFailure: { code: 'unavailable', message: 'refused', at: WALL_TIME_AT_0 + 500 },
    });
  });

  it('is reported if the reason of its failure changes, and not if it is the same', () => {
    update({ phase: 'watching' }, { connected: false });
    const changesAfter = (message: string): boolean => {
      reported.recordFailure({ code: 'unavailable', message });
      return reported.update({ ...NEW_CLUSTER, phase: 'watching' }, { ...WELL, connected: false });
    };
    const reasons = ['refused', 'refused', 'certificate has expired', 'certificate has expired', 'refused'];
    expect(reasons.map(changesAfter)).toEqual([true, false, true, false, true]);
  });

  it('is progress if more keys arrived than ever before', () => {
    const progressAfter = (count: number): number => {
      clock.advance(10);
      reported.recordArrived(count);
      return reported.progressAt;
    };
    expect([0, 5, 5, 3, 5, 6].map(progressAfter)).toEqual([0, 20, 20, 20, 20, 60]);
  });
});
