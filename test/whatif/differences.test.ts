import { expect, it } from 'vitest';
import { Differences } from '../../src/whatif/differences.ts';

it('keeps no more differences than its limit, also if others end', () => {
  const differences = new Differences<{ readonly kind: 'gone' }>(1);
  differences.set('a', { kind: 'gone' });
  differences.set('b', { kind: 'gone' });
  differences.set('b', undefined);
  differences.set('c', { kind: 'gone' });
  expect([differences.count('gone'), differences.kept.length]).toEqual([2, 1]);
  differences.set('a', undefined);
  differences.set('d', { kind: 'gone' });
  expect([differences.count('gone'), differences.kept.length]).toEqual([2, 1]);
});
