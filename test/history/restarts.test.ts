import { expect, it } from 'vitest';
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
