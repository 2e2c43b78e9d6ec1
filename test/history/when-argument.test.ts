import { expect, it } from 'vitest';
import { WHEN } from '../../src/history/point-in-time.ts';

it.each([undefined, '14:03', new Date(0), {}, { sequence: 'x' }])(
  'a moment %j is rejected with both forms (regression: the message named `when.sequence`)',
  (when) => {
    expect(WHEN(when)).toMatch(/^ must be a time in milliseconds or \{ sequence \}, not /);
  },
);

it.each([0, { sequence: 1 }])('the moment %j is accepted', (when) => expect(WHEN(when)).toBeUndefined());
