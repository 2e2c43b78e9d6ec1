import { expect, it } from 'vitest';
import { AnswerBody, type Flow } from '../../../src/k8s/rest/answer-body.ts';

const KIB = 1024;

function body(): { readonly body: AnswerBody; readonly did: string[] } {
  const did: string[] = [];
  const flow: Flow = {
    pause: () => did.push('pause'),
    resume: () => did.push('resume'),
    abort: ({ message }) => did.push(message),
  };
  return { body: new AnswerBody(flow), did };
}

async function sizes(pieces: AsyncIterable<Uint8Array>): Promise<readonly number[]> {
  const found: number[] = [];
  for await (const { length } of pieces) found.push(length);
  return found;
}

it('returns the data of one turn as one piece, in order', async () => {
  const { body: one, did } = body();
  const read = sizes(one);
  for (const bytes of [[1, 2], [3], [4, 5, 6]]) one.push(Uint8Array.from(bytes));
  await new Promise(setImmediate);
  one.push(Uint8Array.from([7]));
  one.end(null);
  expect(await read).toEqual([6, 1]);
  expect(did).toEqual([]);

  const { body: other } = body();
  for (const bytes of [[1, 2], [3]]) other.push(Uint8Array.from(bytes));
  const first = await other[Symbol.asyncIterator]().next();
  expect([...(first.value ?? [])]).toEqual([1, 2, 3]);
});

it('reuses the memory of pieces that were read', async () => {
  const { body: one } = body();
  const pieces = one[Symbol.asyncIterator]();
  const push = (...all: readonly number[][]): void => {
    for (const bytes of all) one.push(Uint8Array.from(bytes));
  };
  push([1, 2], [3]);
  const first = (await pieces.next()).value ?? new Uint8Array();
  push([4], [5]);
  expect([...first]).toEqual([1, 2, 3]);
  const second = (await pieces.next()).value ?? new Uint8Array();
  expect([...second]).toEqual([4, 5]);
  expect(second.buffer).toBe(first.buffer);
  push([6, 7], [8, 9]);
  expect([...((await pieces.next()).value ?? [])]).toEqual([6, 7, 8, 9]);
});

it('pauses the connection while too much data waits for a slow reader', async () => {
  const { body: one, did } = body();
  for (let i = 0; i < 4; i++) one.push(new Uint8Array(16 * KIB));
  expect(did).toEqual([]);
  one.push(new Uint8Array(1));
  expect(did).toEqual(['pause']);
  const pieces = one[Symbol.asyncIterator]();
  expect((await pieces.next()).value?.length).toBe(64 * KIB + 1);
  expect(did).toEqual(['pause', 'resume']);
});

it('returns the data before an error, then throws it; the first error counts', async () => {
  const { body: one } = body();
  one.push(Uint8Array.from([1]));
  one.end(new Error('reset'));
  one.end(new Error('again'));
  const pieces = one[Symbol.asyncIterator]();
  expect((await pieces.next()).value?.length).toBe(1);
  await expect(pieces.next()).rejects.toThrow('reset');
});

it('is complete after its end, whatever happens to the connection', async () => {
  const { body: one } = body();
  one.end(null);
  one.end(new Error('reset'));
  expect(await sizes(one)).toEqual([]);
});

it('closes the connection if it is not read completely', async () => {
  const { body: one, did } = body();
  one.push(Uint8Array.from([1]));
  for await (const _ of one) break;
  expect(did).toEqual(['the body was not read completely']);
});
