import { expect } from 'vitest';
import type { Rejection } from '../../../src/base/rejection.ts';

/** Checks that a rejection names field and value, in a message of bounded length, whatever the input. */
export function checkRejection({ field, value, message }: Rejection): void {
  expect(field).not.toBe('');
  expect(value).not.toBe('');
  const subject = value === 'undefined' ? field : `${field} ${value}`;
  const at = message.indexOf(subject);
  expect(at).toBeGreaterThanOrEqual(0);
  // A requirement follows a colon, a predicate does not.
  expect(message.slice(at + subject.length)).toMatch(/^(:| undefined:| is) /);
  expect(message.length).toBeLessThan(1024);
}
