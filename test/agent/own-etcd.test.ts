import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createLog } from '../../src/agent/log.ts';
import { openOwnEtcd, readClusterID } from '../../src/agent/own-etcd.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { FakeClock } from './support/fake-clock.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

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

const REACH = {
  clock: new FakeClock(),
  random: () => 0.5,
  log: createLog('silent', 'text', { write: () => {} }),
};

it('a configuration of the own etcd that breaks is reported, and when it is whole again (freeze: silence)', async () => {
  const path = join(temporaryFolder({ own: 'endpoints: ["http://127.0.0.1:1"]\n' }), 'own');
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const { signal } = new AbortController();
  const backend = await openOwnEtcd(path, undefined, {
    ...REACH,
    ...{ clock, signal, onProblem: (why: string | undefined) => problems.push(why) },
  });
  onTestFinished(() => backend.close());
  const look = async (content: string, seen: number): Promise<void> => {
    writeFileSync(path, content);
    await vi.waitFor(async () => {
      await clock.advance(10_000);
      expect(problems).toHaveLength(seen);
    });
  };
  await look('endpoints: [', 1);
  await look('endpoints: []', 2);
  await look('endpoints: ["http://127.0.0.1:1"]\n', 3);
  expect(problems).toEqual([
    expect.stringContaining('no YAML'),
    expect.stringContaining('must be a list'),
    undefined,
  ]);
});

it('what is no file in place of that configuration ends the start with a reason, and does not block it', async () => {
  const folder = temporaryFolder({});
  execFileSync('mkfifo', [join(folder, 'fifo')]);
  const { signal } = new AbortController();
  for (const [name, why] of [
    ['fifo', 'is a FIFO, not a file'],
    ['', 'is a folder, not a file'],
    ['nothing', 'there is no such file or folder'],
  ] as const) {
    const opened = openOwnEtcd(join(folder, name), undefined, { ...REACH, signal });
    await expect(opened).rejects.toThrow(`--kvstore-config ${join(folder, name)}: ${why}`);
  }
});
