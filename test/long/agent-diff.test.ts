import { describe, expect, it } from 'vitest';
import { type Ask, parseAnswer } from '../../src/api/api-client.ts';
import { diffAgents } from '../../src/client/diff/agent-diff.ts';
import { type TestApp, testApp } from '../api/support/test-app.ts';

const PREFIXES = 1_000_000;

function filled(isDivergent: (i: number) => boolean): TestApp {
  const test = testApp();
  for (let i = 0; i < PREFIXES; i++) {
    const key = `10.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;
    const identity = isDivergent(i) ? 7 : 256 + (i % 5000);
    test.model.ipcache.upsert(key, {
      identity,
      source: 'clustermesh',
      owner: 'baltic',
      hostIP: '192.168.0.1',
    });
  }
  return test;
}

function cpuSeconds(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1e6;
}

describe('the difference of two agents with 1,000,000 prefixes', () => {
  it('finds ten differences with less than 1 MB of answers, and less work than the prefixes cost', async () => {
    const divergent = new Set(Array.from({ length: 10 }, (_, i) => 3 + i * 99_991));
    const building = process.cpuUsage();
    const [a, b] = [filled((i) => divergent.has(i)), filled(() => false)];
    const built = cpuSeconds(building);
    let characters = 0;
    const asking =
      ({ app }: TestApp): Ask =>
      async (path) => {
        const answer = await app.request(path);
        const text = await answer.text();
        characters += text.length;
        return parseAnswer(answer.headers.get('content-type') ?? undefined, text);
      };
    const [askA, askB] = [asking(a), asking(b)];
    await Promise.all([askA('/v1/digest'), askB('/v1/digest')]); // starts the digests
    characters = 0;
    const asked = process.cpuUsage();
    const { differences } = await diffAgents(askA, askB);
    const spent = cpuSeconds(asked);
    process.stderr.write(
      `diff: ${spent.toFixed(2)} s of CPU, ${characters} bytes; filled in ${built.toFixed(2)} s\n`,
    );
    expect(differences.length).toBe(10);
    expect(characters).toBeLessThan(1_000_000);
    expect(spent).toBeLessThan(built);
  }, 120_000);

  it('counts a million differences, in answers of at most 2 MB', async () => {
    const [a, b] = [filled(() => true), filled(() => false)];
    let longest = 0;
    const asking =
      ({ app }: TestApp): Ask =>
      async (path) => {
        const text = await (await app.request(path)).text();
        longest = Math.max(longest, text.length);
        return JSON.parse(text);
      };
    const { writers, differences, notListed, notCompared } = await diffAgents(asking(a), asking(b));
    expect(writers).toMatchObject([{ writer: 'clustermesh baltic', differ: PREFIXES }]);
    expect([differences.length, notListed, notCompared]).toEqual([10_000, PREFIXES - 10_000, 0]);
    expect(longest).toBeLessThan(2_000_000);
  }, 600_000);
});
