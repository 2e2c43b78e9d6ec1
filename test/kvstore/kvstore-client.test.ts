import { expect, it } from 'vitest';
import { bytesOfText } from '../../src/kvstore/bytes.ts';
import { KvstoreClient } from '../../src/kvstore/kvstore-client.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../src/kvstore/memory/memory-transport.ts';
import { RateLimit } from '../../src/kvstore/rate-limit.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FaultyMemory } from './support/faulty-memory.ts';
import { giveUpPut } from './support/given-up-put.ts';
import { settle } from './support/settle.ts';
import { WatchRecorder } from './support/watch-recorder.ts';

it('a key that was never written leaves no trace when it is deleted (regression: it kept its place on a lease)', async () => {
  const backend = new FaultyMemory({ clock: new ManualClock(), random: () => 0.5 });
  const lost: string[] = [];
  backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
  for (let i = 0; i < 1500; i++) {
    giveUpPut(backend.link, `gone/${i}`);
    const put = backend.update(`gone/${i}`, bytesOfText('1'), { leased: true });
    await expect(put).rejects.toMatchObject({ code: 'deadline' });
    expect(await backend.delete(`gone/${i}`)).toBe(false);
  }
  await backend.update('there', bytesOfText('1'), { leased: true });
  expect(backend.status().leases).toBe(1);
  for (const lease of backend.server.leases) backend.server.expireLease(lease);
  await backend.update('there', bytesOfText('2'), { leased: true });
  expect(lost).toEqual(['there']);
  await backend.close();
});

it('keys deleted by their prefix leave no trace either (regression: they kept their places on leases)', async () => {
  const backend = new FaultyMemory({ clock: new ManualClock(), random: () => 0.5 });
  for (let i = 0; i < 1500; i++) {
    await backend.update(`gone/${i}`, bytesOfText('1'), { leased: true });
    await backend.deletePrefix('gone/');
  }
  expect(backend.status().leases).toBe(1);
  await backend.close();
});

it('who waits for a turn when the client is closed is told that (regression: that it had given up itself)', async () => {
  const clock = new ManualClock();
  const transport = new MemoryTransport(new MemoryServer({ clock }));
  const rateLimit = new RateLimit({ qps: 1 }, clock);
  const client = new KvstoreClient({ kind: 'memory', transport, clock, random: () => 0.5, rateLimit });
  await client.get('a');
  const waiting = client.get('a');
  await settle();
  await client.close();
  await expect(waiting).rejects.toMatchObject({ code: 'closed' });
  await expect(client.get('a')).rejects.toMatchObject({ code: 'closed' });
});

it('many watches without a signal are no leak to Node (regression: it said so on the console)', async () => {
  const backend = new FaultyMemory({ clock: new ManualClock(), random: () => 0.5 });
  const warnings: Error[] = [];
  const onWarning = (warning: Error): unknown => warnings.push(warning);
  process.on('warning', onWarning);
  const watches = Array.from({ length: 20 }, (_, i) => new WatchRecorder(backend.watch(`p${i}/`)));
  await settle(4);
  await backend.close();
  await Promise.all(watches.map(({ done }) => done));
  await settle();
  process.off('warning', onWarning);
  expect(warnings).toEqual([]);
});
