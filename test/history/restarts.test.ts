import { expect, it } from 'vitest';
import { EarlierLifeState } from '../../src/history/past/earlier-life-state.ts';
import { EFFECT } from '../../src/ipcache/claims/claim-state.ts';
import {
  H1_theDiskHasWhatTheMemoryHasNot,
  H2_aCertainAnswerIsRight,
  H2_aLossIsNotCertain,
} from './support/lives.ts';

it('H1, H2: over restarts, a certain answer is right, whatever happened to the files', async () => {
  await H2_aCertainAnswerIsRight(100);
});

it('H1: changes that have left the memory are read from the disk', async () => {
  expect(await H1_theDiskHasWhatTheMemoryHasNot()).toBe(12);
});

it('H2: with one file of an earlier process removed, a certain answer is right', async () => {
  expect(await H2_aLossIsNotCertain()).toBeGreaterThan(100);
});

it('a claim of the first millisecond of an earlier life has a start (regression: 0 was no time)', () => {
  const state = new EarlierLifeState(['10.0.0.1']);
  const writer = { source: 'k8s', owner: '' } as const;
  const after = { ...writer, identity: 7, hostIP: undefined, encryptKey: 0, k8s: undefined };
  state.add(
    { key: '10.0.0.1', writer, before: undefined, after, effect: EFFECT.after, ms: 0 } as never,
    false,
  );
  expect(state.result(5, () => false)).toMatchObject({ effectiveSince: 0, effectiveUntil: undefined });
});
