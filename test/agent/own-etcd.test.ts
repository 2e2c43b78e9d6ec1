import { expect, it } from 'vitest';
import { createLog } from '../../src/agent/log.ts';
import { readClusterID } from '../../src/agent/own-etcd.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { FakeClock } from './support/fake-clock.ts';

it('an own kvstore that does not answer is told at once, once, and given up after half a minute', async () => {
  const backend = new MemoryBackend();
  await backend.close();
  const clock = new FakeClock();
  const logged: string[] = [];
  const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const { signal } = new AbortController();
  const asked = readClusterID(backend, 'own', { log, clock, random: () => 0.5, signal });
  const rejected = expect(asked).rejects.toThrow(
    /^the kvstore of cluster own does not answer: .*; check the endpoints and certificates of --kvstore-config$/,
  );
  await clock.advance(1);
  expect(logged).toEqual([
    expect.stringMatching(/^warn {2}the kvstore of cluster own does not answer, and is asked for 30 s: /),
  ]);
  await clock.advance(60_000);
  await rejected;
  expect(logged).toHaveLength(1);
});
