import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
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

/** Returns true if this process watches the folder. */
function isWatched(folder: string): boolean {
  const inode = ` ino:${statSync(folder).ino.toString(16)} `;
  return readdirSync('/proc/self/fdinfo').some((fd) => {
    try {
      return readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8').includes(inode);
    } catch {
      return false; // the descriptor of this very list
    }
  });
}

it('a folder that was replaced is watched instead of the old one, and at the end neither', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'pin-watch-'));
  onTestFinished(() => rmSync(scratch, { recursive: true }));
  const [folder, old] = [join(scratch, 'pins'), join(scratch, 'old')];
  mkdirSync(folder);
  const clock = new ManualClock();
  const watch = new PinWatch(folder, clock, async () => {});
  expect(isWatched(folder)).toBe(true);
  renameSync(folder, old);
  mkdirSync(folder);
  clock.advance(10_000);
  expect([isWatched(old), isWatched(folder)]).toEqual([false, true]);
  watch[Symbol.dispose]();
  expect([isWatched(old), isWatched(folder), clock.pending]).toEqual([false, false, 0]);
});
