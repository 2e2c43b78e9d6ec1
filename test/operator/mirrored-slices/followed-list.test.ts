import { expect, it, vi } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { FollowedList } from '../../../src/operator/mirrored-slices/followed-list.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { SERVICES } from './support/slice-world.ts';

it('follows nothing if the signal has fired before (regression: followed for ever)', () => {
  const source = { follow: vi.fn(), firstServed: vi.fn() };
  const leave = vi.fn();
  const reader = { kind: 'Service', read: () => undefined, change: () => {} };
  const context = { source, clock: new ManualClock(), gate: undefined, rejections: new RejectionLog() };
  new FollowedList('services').follow(SERVICES, reader, context, { signal: AbortSignal.abort(), leave });
  expect([source.follow.mock.calls.length, leave.mock.calls.length]).toEqual([0, 1]);
});

it('leaves, and ends the watch, when the signal fires', async () => {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock });
  const source = new KubernetesClient(new MemoryApiTransport(api), { clock, random: () => 0.5 });
  const leave = vi.fn();
  const ended = new AbortController();
  const reader = { kind: 'Service', read: () => undefined, change: () => {} };
  const context = { source, clock, gate: undefined, rejections: new RejectionLog() };
  new FollowedList('services').follow(SERVICES, reader, context, { signal: ended.signal, leave });
  await settle(10);
  expect([api.watches, leave.mock.calls.length]).toEqual([1, 0]);
  ended.abort();
  await settle(10);
  expect([api.watches, leave.mock.calls.length]).toEqual([0, 1]);
  await source.close();
});
