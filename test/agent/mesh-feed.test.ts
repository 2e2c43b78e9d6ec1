import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { ConfigFolder } from '../../src/process/config-folder.ts';
import { startAgent } from './support/agent-under-test.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

it('waits for the remote clusters of a folder whose first read fails (regression: started without them)', async () => {
  vi.spyOn(ConfigFolder.prototype, 'list').mockRejectedValueOnce(new Error('busy'));
  const clustermeshConfig = temporaryFolder({ baltic: 'endpoints: ["http://127.0.0.1:1"]\n' });
  const { missing } = await startAgent([], '', { clustermeshConfig });
  expect(missing).toEqual([expect.stringMatching(/^cluster baltic is incomplete: not connected/)]);
});

it('names many unreachable clusters in one sentence (regression: one line of the log for each of 249)', async () => {
  const unreachable = ['baltic', 'carib', 'delta', 'egret', 'fjord'].map((name) => [
    name,
    'endpoints: ["http://127.0.0.1:1"]\n',
  ]);
  const clustermeshConfig = temporaryFolder(Object.fromEntries(unreachable));
  const { missing, agent } = await startAgent([], '', { clustermeshConfig });
  expect(missing).toEqual([
    expect.stringMatching(
      /^5 of 5 clusters are incomplete: baltic, carib, delta and 2 more; baltic: not connected.*connection refused/,
    ),
  ]);
  expect(agent.blockers()).toHaveLength(5);
});

it('logs each unusable configuration of a remote cluster that appears after the initial sync', async () => {
  const clustermeshConfig = temporaryFolder({});
  const { agent, logged } = await startAgent([], '', { clustermeshConfig });
  expect(logged).toEqual([]);
  writeFileSync(join(clustermeshConfig, 'baltic'), 'endpoints: 7\n');
  await expect
    .poll(() => logged)
    .toEqual([expect.stringMatching(/^warn {2}rejected \(unusable-config\) .*baltic/)]);
  expect(agent.rejections().byReason).toEqual({ 'unusable-config': 1 });
});

it('leaves no timer of the time limit of its initial sync behind', async () => {
  const limits: string[] = [];
  const clock: Clock = {
    now: () => systemClock.now(),
    wallTime: () => systemClock.wallTime(),
    after: (ms, callback) => {
      const timer = systemClock.after(ms, callback);
      if (ms !== 123_456) return timer;
      limits.push('set');
      return {
        cancel: () => {
          limits.push('cancelled');
          timer.cancel();
        },
      };
    },
  };
  await startAgent([], '', { timeoutMs: 123_456 }, clock);
  expect(limits).toEqual(['set', 'cancelled']);
});
