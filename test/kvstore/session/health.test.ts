import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { Heartbeat, KvstoreHealth } from '../../../src/kvstore/session/health.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

describe('the health of a kvstore', () => {
  let clock: ManualClock;
  let writer: FaultyMemoryBackend;
  let reader: FaultyMemoryBackend;
  let health: KvstoreHealth;
  let ended: AbortController;
  let running: Promise<unknown>;

  beforeEach(async () => {
    clock = new ManualClock();
    const server = new MemoryServer({ clock });
    writer = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    reader = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
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

  it('is unknown before the first check, and has no heartbeat if none is written', () => {
    expect(new KvstoreHealth({ backend: reader, clock }).status().quorum).toBe('unknown');
    expect(health.status()).toMatchObject({ quorum: 'ok', heartbeat: 'never' });
    expect(health.status().endpoints).toEqual([{ endpoint: 'memory', healthy: true, isLeader: true }]);
  });

  it('a failed check is counted and reported with its name, and the next one is on time', async () => {
    const reported: string[] = [];
    const stop = new AbortController();
    const onFailure = (_error: unknown, task: string): void => void reported.push(task);
    const watched = new KvstoreHealth({ backend: reader, clock, onFailure });
    reader.link.down();
    const looking = watched.run(stop.signal);
    await advance(clock, 16_000);
    expect(watched.status()).toMatchObject({ quorum: 'failing', failures: 2 });
    expect(watched.status().lastFailure?.message).toContain('refused');
    expect(reported).toEqual(['health', 'health']);
    reader.link.up();
    await advance(clock, 15_000);
    expect(watched.status()).toMatchObject({ quorum: 'ok', failures: 2 });
    stop.abort();
    await looking;
  });

  it('endpoints are current while the quorum fails (regression: they stayed healthy)', async () => {
    const endpoints = [{ endpoint: 'http://a:1', healthy: false, error: 'connection refused' }];
    const get = (): Promise<never> => Promise.reject(new Error('connection refused'));
    const down = new KvstoreHealth({ backend: { get, endpoints: async () => endpoints }, clock });
    await down.check();
    expect(down.status()).toMatchObject({ quorum: 'failing', endpoints });
  });

  it('a backend that never answers does not prevent the end', async () => {
    const never = <T>(): Promise<T> => new Promise(() => {});
    const stuck = new KvstoreHealth({ backend: { get: never, endpoints: never }, clock });
    const stop = new AbortController();
    const looking = stuck.run(stop.signal);
    await advance(clock, 60_000);
    stop.abort();
    await looking;
    expect(stuck.status()).toMatchObject({ quorum: 'unknown', failures: 0 });
  });

  it('a heartbeat is fresh while it is written, and stale two minutes after the last write', async () => {
    const stop = new AbortController();
    const heartbeat = new Heartbeat({ backend: writer, clock });
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

  it('a heartbeat that cannot be written is counted, and continues when it can', async () => {
    const stop = new AbortController();
    const heartbeat = new Heartbeat({ backend: writer, clock });
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

  it('a heartbeat that is exactly two minutes old is fresh', async () => {
    await writer.update('cilium/.heartbeat', new Uint8Array(0));
    await health.check();
    clock.advance(120_000);
    expect(health.status().heartbeat).toBe('fresh');
    clock.advance(1);
    expect(health.status().heartbeat).toBe('stale');
  });

  it('a heartbeat expires with the lease of its writer, and a failed write is reported with its name', async () => {
    const reported: string[] = [];
    const stop = new AbortController();
    const heartbeat = new Heartbeat({
      backend: writer,
      clock,
      onFailure: (_error, task) => reported.push(task),
    });
    const beating = heartbeat.run(stop.signal);
    await settle(4);
    expect(await reader.get('cilium/.heartbeat')).toBeDefined();
    for (const lease of writer.server.leases) writer.server.expireLease(lease);
    expect(await reader.get('cilium/.heartbeat')).toBeUndefined();
    writer.link.down();
    await advance(clock, 60_000);
    expect(reported).toEqual(['heartbeat']);
    stop.abort();
    await beating;
  });

  it('has no endpoints and no failure before its first check', () => {
    const { endpoints, failures } = new KvstoreHealth({ backend: reader, clock }).status();
    expect([endpoints, failures]).toEqual([[], 0]);
  });

  it('requires a signal to end', () => {
    const never = undefined as unknown as AbortSignal;
    expect(() => health.run(never)).toThrow('run: signal');
    expect(() => new Heartbeat({ backend: writer, clock }).run(never)).toThrow('run: signal');
    expect(() => health.check({} as AbortSignal)).toThrow('check: signal');
  });
});
