import { expect, it } from 'vitest';
import { bytesOfText } from '../../src/kvstore/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { ManualClock } from '../base/manual-clock.ts';
import { giveUpPut } from './given-up-put.ts';

it('a key that was never written leaves no trace when it is deleted (regression: it kept its place on a lease)', async () => {
  const backend = new MemoryBackend({ clock: new ManualClock(), random: () => 0.5 });
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
