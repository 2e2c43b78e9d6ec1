import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { type Failure, failureOf, laterFailure, messageOf } from '../../src/base/failure.ts';

describe('the message of a failure', () => {
  it('of a file contains a text instead of the code', async () => {
    const error: unknown = await readFile('/nowhere/file').catch((cause: unknown) => cause);
    expect(messageOf(error)).toBe('no such file or folder');
    expect(failureOf(error, { wallTime: () => 7 })).toEqual({
      code: 'ENOENT',
      message: 'no such file or folder',
      at: 7,
    });
  });

  it('of an address contains the address', async () => {
    const first = createServer();
    await new Promise<void>((resolve) => first.listen(0, '127.0.0.1', resolve));
    const address = first.address();
    const port = typeof address === 'object' ? address?.port : undefined;
    const second = createServer();
    const error = await new Promise((resolve) => second.once('error', resolve).listen(port, '127.0.0.1'));
    first.close();
    expect(messageOf(error)).toBe(`address already in use: 127.0.0.1:${port}`);
  });

  it.each([
    [{ code: 'ECONNREFUSED', syscall: 'connect', address: '::1', port: 80 }, 'connection refused: [::1]:80'],
    [{ code: 'ENOTFOUND', syscall: 'getaddrinfo', hostname: 'a.example' }, 'unknown host name: a.example'],
    [{ code: 'EACCES', syscall: 'connect', address: '/a.sock' }, 'permission denied'],
    // Regression: the warning about the lock of a folder contained the path of a temporary socket, and the port -1.
    [{ code: 'EACCES', syscall: 'listen', address: '/state/.1a2b3c4d', port: -1 }, 'permission denied'],
    [
      { code: 'EEXIST', syscall: 'mkdir', message: "EEXIST: file already exists, mkdir '/a, b'" },
      'file already exists',
    ],
    [{ code: 'EUNATCH', syscall: 'open' }, 'raw'],
    [{ code: 'ENOENT' }, 'raw'],
  ])('%j', (fields, message) => {
    expect(messageOf(Object.assign(new Error('raw'), fields))).toBe(message);
  });

  it('of any other value is its message or its text', () => {
    expect([messageOf(new TypeError('a')), messageOf('b'), messageOf(undefined)]).toEqual([
      'a',
      'b',
      'undefined',
    ]);
  });

  it('of an object without a prototype is its content (regression: a TypeError)', () => {
    expect(messageOf(Object.assign(Object.create(null), { reason: 'full' }))).toBe('{"reason":"full"}');
  });
});

it('of two failures, the later one is reported, and the first of two at one moment', () => {
  const failureAt = (at: number): Failure => ({ code: 'internal', message: '', at });
  const [early, late, same] = [failureAt(1), failureAt(2), failureAt(1)];
  expect(laterFailure(undefined, undefined)).toBeUndefined();
  expect([laterFailure(early, undefined), laterFailure(undefined, early)]).toEqual([early, early]);
  expect([laterFailure(early, late), laterFailure(late, early)]).toEqual([late, late]);
  expect(laterFailure(early, same)).toBe(early);
});
