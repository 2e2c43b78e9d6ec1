import { expect, it, vi } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { FollowedList } from '../../../src/operator/mirrored-slices/followed-list.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { SERVICES } from './support/slice-world.ts';

it('follows nothing if the signal has fired before (regression: followed for ever)', () => {
  const source = { follow: vi.fn(), firstServed: vi.fn() };
  const leave = vi.fn();
  const reader = { kind: 'Service', read: () => undefined, change: () => {} };
  const context = { source, clock: new ManualClock(), gate: undefined, rejections: new RejectionLog() };
  new FollowedList('services').follow(SERVICES, reader, context, { signal: AbortSignal.abort(), leave });
  expect([source.follow.mock.calls.length, leave.mock.calls.length]).toEqual([0, 1]);
});
