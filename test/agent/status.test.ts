import { expect, it } from 'vitest';
import { Agent } from '../../src/agent/agent.ts';
import { STATUS } from '../../src/api/schemas/status-schemas.ts';
import { createLog } from '../../src/process/log.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { NO_INPUTS, startAgent, type TestKey } from './support/agent-under-test.ts';

it('the status of an agent is valid before its initial sync, and then has its duration', async () => {
  const clock = new ManualClock();
  const agent = new Agent(NO_INPUTS, {
    log: createLog('error', 'text', { write: () => {} }),
    clock,
    random: () => 0.5,
  });
  const before: unknown = JSON.parse(JSON.stringify(agent.status()));
  expect(STATUS.parse(before)).toEqual(before);
  await agent.start(new AbortController().signal);
  expect(agent.status().syncedMs).toBe(0);
  await agent.stop();
});

it('an agent logs at its end how many keys it rejected, beyond those that it logged one by one', async () => {
  const keys = Array.from({ length: 23 }, (_, i): TestKey => ['own', `x${i}`, '']);
  const { agent, logged } = await startAgent(keys);
  const more = (): readonly string[] => logged.filter((line) => line.includes('more rejections'));
  expect(more()).toEqual([]);
  await agent.stop();
  expect(more()).toEqual(['warn  3 more rejections of reason unknown-key']);
});
