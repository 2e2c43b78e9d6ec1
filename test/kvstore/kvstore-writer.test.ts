import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { ClientWrites } from '../../src/kvstore/watch/client-writes.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { settle } from './support/settle.ts';

const [ONE, TWO] = [bytesOfText('1'), bytesOfText('2')];
const LEASED = { leased: true } as const;

let backend: MemoryBackend;
let records: string[];

/** Returns the records of the writes since the last call. */
function recorded(): readonly string[] {
  return records.splice(0);
}

beforeEach(() => {
  backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
  records = [];
  vi.spyOn(ClientWrites.prototype, 'put').mockImplementation((key) => void records.push(`put ${key}`));
  vi.spyOn(ClientWrites.prototype, 'forget').mockImplementation((key) => void records.push(`forget ${key}`));
  vi.spyOn(ClientWrites.prototype, 'forgetBelow').mockImplementation(
    (prefix) => void records.push(`forget ${prefix}*`),
  );
  vi.spyOn(ClientWrites.prototype, 'recordDelete').mockImplementation(
    (key) => void records.push(`deleted ${key}`),
  );
});
afterEach(() => backend.close());

it('the last leased put is recorded, one of each transaction, and puts without a lease are forgotten', async () => {
  await backend.update('a', ONE, LEASED);
  await backend.createOnly('b', ONE, { leased: 'expires-first' });
  expect(recorded()).toEqual(['put a', 'put b']);
  await backend.update('a', TWO);
  expect(recorded()).toEqual(['forget a']);
  await backend.writeAll([{ key: 'c', value: ONE }, { key: 'b' }, { key: 'd', value: ONE }], LEASED);
  expect(recorded()).toEqual(['forget b', 'put c', 'deleted b']);
});

it('a write that was not applied is not recorded', async () => {
  await backend.update('a', ONE, LEASED);
  recorded();
  expect(await backend.createOnly('a', TWO, LEASED)).toBe(false);
  expect(await backend.updateIfDifferent('a', ONE, LEASED)).toBe(false);
  expect(recorded()).toEqual([]);
  // The value is equal, so only the other write is made.
  const writes = [
    { key: 'a', value: ONE, mayBeEqual: true },
    { key: 'b', value: ONE },
  ];
  await backend.writeAll(writes, LEASED);
  expect(recorded()).toEqual(['put b']);
});

it('a delete is forgotten before it is sent, and recorded only if the key was leased', async () => {
  await backend.update('a', ONE, LEASED);
  await backend.update('b', ONE);
  recorded();
  const deleting = backend.delete('a');
  expect(recorded()).toEqual(['forget a']);
  expect(await deleting).toBe(true);
  expect(recorded()).toEqual(['deleted a']);
  await backend.delete('b');
  expect(recorded()).toEqual(['forget b']);
  await backend.update('a', ONE, LEASED);
  recorded();
  expect(await backend.delete('a', { ifModRevision: 1 })).toBe(false);
  expect(recorded()).toEqual(['forget a']);
});

it('a delete of a prefix records the leased keys below it', async () => {
  for (const key of ['p/a', 'p/b', 'q/a']) await backend.update(key, ONE, LEASED);
  await backend.update('p/c', ONE);
  recorded();
  const deleting = backend.deletePrefix('p/');
  expect(recorded()).toEqual(['forget p/*']);
  expect(await deleting).toBe(3);
  expect(recorded()).toEqual(['deleted p/a', 'deleted p/b']);
});

it('a key that is put under another lease is lost only with that one', async () => {
  const lost: (readonly string[])[] = [];
  backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(keys) });
  await backend.update('a', ONE, { leased: 'expires-first' });
  await backend.update('b', ONE, { leased: 'expires-first' });
  await backend.update('a', TWO, LEASED);
  const [first = ''] = backend.server.leases;
  backend.server.revokeLease(first);
  await backend.update('c', ONE, { leased: 'expires-first' });
  await settle();
  expect(lost).toEqual([['b']]);
});
