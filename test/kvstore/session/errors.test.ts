import { describe, expect, it } from 'vitest';
import {
  abortedError,
  asKvstoreError,
  KvstoreError,
  neverTakesEffect,
  UNREACHABLE,
  withMissingRight,
} from '../../../src/kvstore/session/errors.ts';

describe('an error of a kvstore', () => {
  it.each([
    ['unavailable', 'retryable, unreachable'],
    ['deadline', 'retryable, unreachable'],
    ['no-leader', 'retryable, unreachable'],
    ['overloaded', 'retryable, without effect'],
    ['invalid-token', 'retryable, without effect'],
    ['internal', 'retryable'],
    ['compacted', ''],
    ['future-revision', ''],
    ['too-large', ''],
    ['forbidden', 'without effect'],
    ['invalid-request', 'without effect'],
    ['lease-not-found', 'without effect'],
    ['lock-lost', 'without effect'],
    ['not-leader', 'without effect'],
    ['aborted', ''],
    ['closed', ''],
  ] as const)('%s is %s', (code, expected) => {
    const error = new KvstoreError(code, 'why');
    const is = [
      ...(error.retryable ? ['retryable'] : []),
      ...(UNREACHABLE.has(code) ? ['unreachable'] : []),
      ...(neverTakesEffect(error) ? ['without effect'] : []),
    ];
    expect([is.join(', '), error.name]).toEqual([expected, 'KvstoreError']);
  });

  it('is made of any thrown value', () => {
    const error = new KvstoreError('closed', 'why');
    expect(asKvstoreError(error)).toBe(error);
    const thrown = new TypeError('x is not a function');
    expect(asKvstoreError(thrown)).toMatchObject({
      code: 'internal',
      message: thrown.message,
      cause: thrown,
    });
    expect(abortedError().code).toBe('aborted');
  });

  it('names the missing right, and no right otherwise', () => {
    const denied = new KvstoreError('forbidden', 'etcdserver: permission denied');
    const named = withMissingRight(denied, 'readwrite', 'cilium/');
    expect(named).toMatchObject({ code: 'forbidden', cause: denied });
    expect(named.message).toBe('etcdserver: permission denied; grant readwrite on cilium/ to the user');
    const other = new KvstoreError('forbidden', 'authentication failed');
    expect(withMissingRight(other, 'read', 'a')).toBe(other);
    const unavailable = new KvstoreError('unavailable', 'permission denied');
    expect(withMissingRight(unavailable, 'read', 'a')).toBe(unavailable);
  });
});
