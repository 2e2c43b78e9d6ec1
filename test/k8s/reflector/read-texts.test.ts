import { expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { readTexts } from '../../../src/k8s/reflector/read-texts.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

const LARGE_TEXT = JSON.stringify('x'.repeat(200_000));
const HALF_TEXT = LARGE_TEXT.slice(0, -1);

/** Returns the texts that are read at a time, large ones by their length. */
async function taken(texts: readonly string[], signal = new AbortController().signal): Promise<unknown[][]> {
  const gate = new TurnGate({ clock: new ManualClock(), nextTurn: (callback) => setImmediate(callback) });
  const batches: unknown[][] = [];
  const take = (values: readonly unknown[]): void =>
    void batches.push(values.map((value) => (typeof value === 'string' ? value.length : value)));
  await readTexts(texts, gate, take, signal);
  return batches;
}

it('reads texts in order, large ones separately, and invalid JSON as undefined', async () => {
  const texts = ['1', '{"a":2}', LARGE_TEXT, '3', 'no', HALF_TEXT, LARGE_TEXT, '4'];
  expect(await taken(texts)).toEqual([[1, { a: 2 }], [200_000], [3, undefined], [undefined], [200_000], [4]]);
});

it('reads nothing of an empty list, and each of many once, some at a time', async () => {
  expect(await taken([])).toEqual([]);
  const batches = await taken(Array.from({ length: 5000 }, (_, i) => String(i)));
  expect(batches.flat()).toEqual(Array.from({ length: 5000 }, (_, i) => i));
  const [first = []] = batches;
  expect(first.length).toBeGreaterThan(1);
  expect(first.length).toBeLessThan(5000);
  expect(batches.slice(0, -1).every(({ length }) => length === first.length)).toBe(true);
});

it('reads at most 64 KiB of small texts at a time (regression: 32 of up to 128 KiB, for 90 ms or more)', async () => {
  const text = JSON.stringify('x'.repeat(20_000));
  expect(await taken(['1', ...Array.from({ length: 7 }, () => text)])).toEqual([
    [1, 20_000, 20_000, 20_000],
    [20_000, 20_000, 20_000],
    [20_000],
  ]);
});

it('ends when its signal has fired', async () => {
  const ended = new AbortController();
  ended.abort();
  expect(await taken(['1', '2'], ended.signal)).toEqual([]);
});

it('passes on no value of a large text if its signal fires while the text is decoded (regression: counted as invalid)', async () => {
  const ended = new AbortController();
  const manyPieces = JSON.stringify(Array.from({ length: 1_000_000 }, () => 1));
  const reading = taken(['1', manyPieces, '2'], ended.signal);
  setImmediate(() => ended.abort());
  expect(await reading).toEqual([[1]]);
});
