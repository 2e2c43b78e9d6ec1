import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { DryRunBackend } from '../../src/operator/dry-run-backend.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

describe('a dry run', () => {
  let backend: MemoryBackend;
  let lines: string[];
  let dryRun: DryRunBackend;
  beforeEach(async () => {
    const clock = new ManualClock();
    backend = new MemoryBackend({ server: new MemoryServer({ clock }), clock });
    await backend.update('a', bytesOfText('1'));
    lines = [];
    dryRun = new DryRunBackend(backend, (line) => lines.push(line));
  });
  afterEach(async () => {
    expect((await backend.listPrefix('')).map(({ key, value }) => `${key} ${textOfBytes(value)}`)).toEqual([
      'a 1',
    ]);
    await backend.close();
  });

  it('prints each write once, with its effect on the next ones, and writes nothing', async () => {
    expect(await dryRun.delete('a')).toBe(true);
    expect(await dryRun.delete('a')).toBe(false);
    expect(await dryRun.createOnly('a', bytesOfText('3'))).toBe(true);
    expect(await dryRun.createOnly('a', bytesOfText('4'))).toBe(false);
    expect(await dryRun.updateIfDifferent('a', bytesOfText('3'))).toBe(false);
    expect(await dryRun.createOnly('b', bytesOfText('2'))).toBe(true);
    expect(lines).toEqual([
      'delete a: no object requires it',
      'put a 3: the key does not exist',
      'put b 2: the key does not exist',
    ]);
  });

  it('prints the writes of a batch, and those of a prefix, with the value that is replaced', async () => {
    const writes = [
      { key: 'a', value: Uint8Array.of(0xff, 0xfe) },
      { key: 'b', value: bytesOfText('2') },
      { key: 'b', value: undefined },
      { key: 'c', value: undefined },
    ];
    expect(await dryRun.writeAll(writes)).toMatchObject({ isComplete: true });
    expect(await dryRun.update('a', bytesOfText('3'))).toBe(0);
    expect(await dryRun.deletePrefix('a')).toBe(1);
    expect(lines).toEqual([
      'put a 2 bytes: the value is 1',
      'put b 2: the key does not exist',
      'delete b: no object requires it',
      'put a 3: the value is 2 bytes',
      'delete a: no object requires it',
    ]);
  });

  it('prints the reason of a delete, which may depend on the value', async () => {
    const reasonOf = (key: string, value: Uint8Array): string => `${key} was ${textOfBytes(value)}`;
    await new DryRunBackend(backend, (line) => lines.push(line), reasonOf).delete('a');
    expect(lines).toEqual(['delete a: a was 1']);
  });

  it('locks nothing, and the caller continues as if it held the lock', async () => {
    const lock = await dryRun.lock('locks/x');
    expect([lock.key, lock.lost.aborted]).toEqual(['locks/x', false]);
    await lock.release();
    expect(lines).toEqual([]);
  });

  it('reads what the kvstore has', async () => {
    expect(textOfBytes((await dryRun.get('a'))?.value ?? new Uint8Array())).toBe('1');
    expect((await dryRun.read('a')).kv?.key).toBe('a');
    expect((await dryRun.listPrefix('a')).map(({ key }) => key)).toEqual(['a']);
    expect(dryRun.status()).toEqual(backend.status());
    expect(await dryRun.endpoints()).toEqual(await backend.endpoints());
  });
});
