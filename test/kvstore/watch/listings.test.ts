import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

const WATCHES = 200;
const KEYS = 512;

describe('the listings of many watches', () => {
  it('share the turns of a gate, 102,400 keys of 200 watches (regression: each took a slice before it passed)', async () => {
    const clock = new ManualClock();
    const turns: (() => void)[] = [];
    const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
    const backend = new MemoryBackend({ clock, random: () => 0.5, gate });
    for (let w = 0; w < WATCHES; w++)
      backend.server.txn({
        compare: [],
        writes: Array.from({ length: KEYS }, (_, i) => ({
          op: 'put' as const,
          key: `p${w}/${1000 + i}`,
          value: bytesOfText('x'),
          lease: NO_LEASE,
        })),
      });
    let received = 0;
    let listed = 0;
    const end = new AbortController();
    const readers = Array.from({ length: WATCHES }, async (_, w) => {
      for await (const batch of backend.watch(`p${w}/`, { signal: end.signal }))
        for (const { type } of batch)
          if (type === 'list-done') listed++;
          else received++;
    });
    await settle(20);
    let most = received;
    let taken = 0;
    while (turns.length > 0) {
      const before = received;
      turns.shift()?.();
      taken++;
      await settle(20);
      most = Math.max(most, received - before);
    }
    expect([received, listed]).toEqual([WATCHES * KEYS, WATCHES]);
    // A turn ends with the slice that reaches the limit.
    expect(most).toBeLessThan(4096 + 512);
    expect(taken).toBeGreaterThanOrEqual((WATCHES * KEYS) / 4096);
    end.abort();
    await Promise.all(readers);
    await backend.close();
  });
});
