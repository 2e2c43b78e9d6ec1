import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Heartbeat, KvstoreHealth } from '../../src/kvstore/health.ts';
import { MemoryServer } from '../../src/kvstore/memory/memory-server.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FaultyMemory } from './support/faulty-memory.ts';
import { advance, settle } from './support/settle.ts';

describe('the health of a kvstore', () => {
  let clock: ManualClock;
  let writer: FaultyMemory;
  let reader: FaultyMemory;
  let health: KvstoreHealth;
  let ended: AbortController;
  let running: Promise<unknown>;

  beforeEach(async () => {
    clock = new ManualClock();
    const server = new MemoryServer({ clock });
    writer = new FaultyMemory({ server, clock, random: () => 0.5 });
    reader = new FaultyMemory({ server, clock, random: () => 0.5 });
    health = new KvstoreHealth({ backend: reader, clock });
    ended = new AbortController();
    running = health.run(ended.signal);
    await settle();
  });

  afterEach(async () => {
    ended.abort();
    await running;
    await Promise.all([writer.close(), reader.close()]);
  });

  it('is unknown before the first look, and knows no heartbeat where nobody writes one', () => {
    expect(new KvstoreHealth({ backend: reader, clock }).status().quorum).toBe('unknown');
    expect(health.status()).toMatchObject({ quorum: 'ok', heartbeat: 'never' });
    expect(health.status().endpoints).toEqual([{ endpoint: 'memory', healthy: true, isLeader: true }]);
  });

  it('a heartbeat is fresh while it beats, and stale two minutes after the last beat', async () => {
    const stop = new AbortController();
    const heartbeat = new Heartbeat(writer, clock);
    const beating = heartbeat.run(stop.signal);
    await advance(clock, 10 * 60_000);
    expect(health.status().heartbeat).toBe('fresh');
    expect(heartbeat.status()).toMatchObject({ beats: 11, failures: 0 });
    stop.abort();
    await beating;
    await advance(clock, 100_000);
    expect(health.status().heartbeat).toBe('fresh');
    await advance(clock, 60_000);
    expect(health.status().heartbeat).toBe('stale');
  });

  it('a heartbeat that cannot be written is counted, and goes on when it can', async () => {
    const stop = new AbortController();
    const heartbeat = new Heartbeat(writer, clock);
    writer.link.down();
    const beating = heartbeat.run(stop.signal);
    await advance(clock, 61_000);
    expect(heartbeat.status()).toMatchObject({ beats: 0, failures: 2 });
    writer.link.up();
    await advance(clock, 60_000);
    expect(heartbeat.status().beats).toBe(1);
    stop.abort();
    await beating;
  });

  it('a kvstore that does not answer is failing until it does', async () => {
    reader.link.down();
    await advance(clock, 20_000);
    expect(health.status().quorum).toBe('failing');
    expect(health.status().lastFailure?.code).toBe('unavailable');
    reader.link.up();
    await advance(clock, 20_000);
    expect(health.status().quorum).toBe('ok');
  });
});
