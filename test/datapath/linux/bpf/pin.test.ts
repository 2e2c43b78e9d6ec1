import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { movePin, unpin } from '../../../../src/datapath/linux/bpf/pin.ts';

it('a folder at the path of a pin is named in the error (regression: only "is a folder")', () => {
  const folder = mkdtempSync(join(tmpdir(), 'pin-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [pin, blocking] = [join(folder, 'services4_new'), join(folder, 'services4')];
  writeFileSync(pin, '');
  mkdirSync(blocking);
  expect(() => unpin(blocking)).toThrow(`unlink ${blocking}: EISDIR: is a folder`);
  expect(() => movePin(pin, blocking)).toThrow(`rename to ${blocking}: EISDIR: is a folder`);
  unpin(pin);
  expect(() => movePin(pin, join(folder, 'other'))).toThrow(
    `rename to ${join(folder, 'other')}: ENOENT: no such file or folder`,
  );
  expect(() => unpin(pin)).not.toThrow();
});
