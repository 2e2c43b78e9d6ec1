import { expect, it } from 'vitest';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { DryRunBackend } from '../../src/operator/dry-run-backend.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

it('a dry run prints each write once, with its effect on the next ones, and writes nothing', async () => {
  const clock = new ManualClock();
  const backend = new MemoryBackend({ server: new MemoryServer({ clock }), clock });
  await backend.update('a', bytesOfText('1'));
  const lines: string[] = [];
  const dryRun = new DryRunBackend(backend, (line) => lines.push(line));
  expect(await dryRun.delete('a')).toBe(true);
  expect(await dryRun.delete('a')).toBe(false);
  expect(await dryRun.createIfExists('a', 'b', bytesOfText('2'))).toBe(false);
  expect(await dryRun.createOnly('a', bytesOfText('3'))).toBe(true);
  expect(await dryRun.createOnly('a', bytesOfText('4'))).toBe(false);
  expect(await dryRun.updateIfDifferent('a', bytesOfText('3'))).toBe(false);
  expect(lines).toEqual(['delete a: no object requires it', 'put a 3: the key does not exist']);
  expect((await backend.listPrefix('')).map(({ key }) => key)).toEqual(['a']);
  await backend.close();
});
