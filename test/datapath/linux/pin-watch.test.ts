import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { PinWatch } from '../../../src/datapath/linux/pin-watch.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

it('checks continue if the path of the folder becomes unreadable (regression: a timer threw)', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'pin-watch-'));
  onTestFinished(() => rmSync(scratch, { recursive: true }));
  const parent = join(scratch, 'parent');
  const folder = join(parent, 'pins');
  mkdirSync(folder, { recursive: true });
  const clock = new ManualClock();
  let checks = 0;
  using _watch = new PinWatch(folder, clock, async () => void checks++);
  rmSync(parent, { recursive: true });
  writeFileSync(parent, 'a file, so that the path is invalid');
  clock.advance(10_000);
  clock.advance(0);
  expect([checks, clock.pending]).toEqual([1, 1]);
});
