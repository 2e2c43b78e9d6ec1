import { describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

describe('a memory kvstore', () => {
  it.each([false, true])(
    'lets the event loop turn while 100,000 keys are published, batched: %s (regression: after all of them)',
    async (batched) => {
      const clock = new ManualClock();
      const backend = new MemoryBackend({ clock, random: () => 0.5 });
      const store = new SyncStore({
        backend,
        prefix: 'p/',
        clock,
        random: () => 0.5,
        batched,
        follow: false,
      });
      for (let i = 0; i < 100_000; i++) store.upsert(`${i}`, bytesOfText('1'));
      const ended = new AbortController();
      const running = store.run(ended.signal);
      const most = { written: 0, before: 0, turns: 0 };
      let isLanded = false;
      void store.flushed().then(() => {
        isLanded = true;
      });
      while (!isLanded) {
        await new Promise((resolve) => setImmediate(resolve));
        const { writes } = store.status();
        most.written = Math.max(most.written, writes - most.before);
        most.before = writes;
        most.turns++;
      }
      expect(most.written).toBeLessThanOrEqual(1024);
      expect(most.turns).toBeGreaterThan(97);
      ended.abort();
      await running;
      await backend.close();
    },
  );
});
