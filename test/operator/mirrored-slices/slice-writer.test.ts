import { expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { type KnownSlice, SliceWriter } from '../../../src/operator/mirrored-slices/slice-writer.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { TinyCluster } from '../support/tiny-cluster.ts';

it('a writer queues the slices on the server in steps (regression: in one turn, or synced before the first)', async () => {
  const clock = new ManualClock();
  const turns: (() => void)[] = [];
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 1 });
  const objects = new Map<string, KnownSlice>();
  for (let at = 0; at < 1000; at++)
    objects.set(`shop/${at}`, {
      metadata: { namespace: 'shop', name: `${at}`, uid: `${at}`, resourceVersion: '1' },
      labels: {},
      digest: '',
      isManaged: true,
    });
  const slices = { objects, notReadyReason: () => undefined, follow: () => {}, listen: () => {} };
  const source = {
    name: 'test',
    start: () => {},
    notReadyReason: () => undefined,
    wantedSlice: () => undefined,
    unwantedReason: () => undefined,
    rejected: 0,
  };
  const writer = new SliceWriter({
    source,
    slices,
    writer: new TinyCluster(),
    clock,
    random: () => 0.5,
    gate,
  });
  const ended = new AbortController();
  void gate.pass(1); // this turn has no more room
  const running = writer.run(ended.signal);
  await settle();
  expect(writer.status().published).toMatchObject({ pending: 0, synced: false });
  turns.shift()?.();
  await settle();
  expect(writer.status().published?.pending).toBe(gate.slice); // the next step waits for the next turn
  ended.abort();
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) turn();
  await running;
});
