import { describe, expect, it } from 'vitest';
import {
  ApiError,
  type ApiErrorCode,
  asApiError,
  errorOfAnswer,
  errorOfStatus,
  retryAfter,
} from '../../../src/k8s/rest/api-error.ts';

describe('an answer of an API server', () => {
  it.each<[number, ApiErrorCode, boolean]>([
    [400, 'rejected', false],
    [401, 'unauthorized', true],
    [403, 'forbidden', false],
    [404, 'missing', false],
    [409, 'conflict', false],
    [410, 'expired', true],
    [422, 'invalid', false],
    [429, 'throttled', true],
    [499, 'rejected', false],
    [500, 'internal', true],
    [502, 'internal', true],
    [503, 'unavailable', true],
    [504, 'unavailable', true],
  ])('%i is %s, whether it may succeed later: %s', (status, code, retryable) => {
    const expected = { code, retryable, message: 'why', retryAfterMs: 0 };
    expect(errorOfStatus({ code: status, message: 'why' })).toMatchObject(expected);
    expect(errorOfStatus({ message: 'why' }, status)).toMatchObject(expected);
    expect(errorOfAnswer(status, '{"message":"why"}', 0)).toMatchObject(expected);
  });

  it('about a version that it has not reached is recognised by its cause, or by its text', () => {
    const causes = [7, { reason: 'Other' }, { reason: 'ResourceVersionTooLarge' }];
    const message = 'Too large resource version: 9, current: 7';
    expect(errorOfStatus({ code: 504, details: { causes } }).code).toBe('future-version');
    expect(errorOfStatus({ code: 504, message }).code).toBe('future-version');
    expect(errorOfStatus({ code: 400, message }).code).toBe('rejected');
    expect(errorOfStatus({ code: 504, details: { causes: causes.slice(0, 2) } }).code).toBe('unavailable');
    for (const details of [7, null, { causes: 7 }])
      expect(errorOfStatus({ code: 504, details }).code).toBe('unavailable');
  });

  it('without a usable code has that of its HTTP status', () => {
    expect(errorOfStatus({ code: '410' }, 503)).toMatchObject({
      code: 'unavailable',
      message: 'status 503',
    });
    for (const status of [undefined, null, 7, 'oh'])
      expect(errorOfStatus(status, 500)).toMatchObject({ code: 'internal', message: 'status 500' });
    expect(errorOfStatus({ message: 7 }, 500).message).toBe('status 500');
    expect(errorOfStatus({})).toMatchObject({ code: 'rejected', message: 'status 0' });
  });

  it('that is not a Status is reported: text, a page of HTML, another JSON', () => {
    expect(errorOfAnswer(503, ' not ready\n', 0)).toMatchObject({
      code: 'unavailable',
      message: 'status 503: not ready',
    });
    expect(errorOfAnswer(500, '7', 0).message).toBe('status 500: 7');
    expect(errorOfAnswer(502, `<html>${'x'.repeat(10_000)}`, 0).message.length).toBeLessThan(400);
  });

  it('is retried after the delay of its header or its details, whichever is longer', () => {
    const busy = (retryAfterSeconds: unknown): object => ({ code: 429, details: { retryAfterSeconds } });
    expect(errorOfStatus(busy(3), 0, 1_000).retryAfterMs).toBe(3_000);
    expect(errorOfStatus(busy(3), 0, 5_000).retryAfterMs).toBe(5_000);
    expect(errorOfAnswer(429, JSON.stringify(busy(2)), 0).retryAfterMs).toBe(2_000);
    expect(errorOfAnswer(429, 'slow down', 4_000).retryAfterMs).toBe(4_000);
    const asked = ['2', 0.5, 61, 3600, 0, -1, 'soon', undefined, null].map(retryAfter);
    expect(asked).toEqual([2_000, 500, 60_000, 60_000, 0, 0, 0, 0, 0]);
  });
});

it('an unknown thrown value counts as a broken connection', () => {
  const known = new ApiError('silent', 'no word');
  expect(asApiError(known)).toBe(known);
  const cause = new Error('reset');
  expect(asApiError(cause)).toMatchObject({ code: 'broken', message: 'reset', cause });
  expect(asApiError('odd')).toMatchObject({ code: 'broken', message: 'odd', cause: 'odd' });
});
