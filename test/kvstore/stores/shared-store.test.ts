import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { FaultyMemoryBackend } from '../../../src/kvstore/memory/faulty-memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { SharedStore } from '../../../src/kvstore/stores/shared-store.ts';
import { rejectedAs } from '../../../src/net/fields.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { giveUpPut } from '../support/given-up-write.ts';
import { advance, settle } from '../support/settle.ts';

const P = 'nodes/';

class Member {
  readonly backend: FaultyMemoryBackend;
  readonly store: SharedStore<string>;
  readonly seen = new Map<string, string>();
  readonly story: string[] = [];
  readonly failures: string[] = [];
  onDelete = (name: string): void => {
    this.seen.delete(name);
    this.story.push(`${name} gone`);
  };
  #ended = new AbortController();
  #running: Promise<void> | undefined;

  constructor(server: MemoryServer, clock: ManualClock, deleteDelayMs?: number) {
    this.backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5, leaseSeconds: 30 });
    this.store = new SharedStore<string>({
      backend: this.backend,
      prefix: P,
      clock,
      random: () => 0.5,
      rejections: new RejectionLog(),
      decode: (name, value, at) => {
        const text = textOfBytes(value) ?? '';
        if (text === 'not accepted') return rejectedAs('invalid', 'value', name, 'must be accepted', at);
        return { ok: true, value: text };
      },
      observer: {
        onUpdate: (name, value) => {
          this.seen.set(name, value);
          this.story.push(`${name}=${value}`);
        },
        onDelete: (name) => this.onDelete(name),
      },
      onFailure: (_error, task) => this.failures.push(task),
      deleteDelayMs,
    });
    this.start();
  }

  start(): void {
    this.#ended = new AbortController();
    this.#running = this.store.run(this.#ended.signal);
  }

  async stop(): Promise<void> {
    this.#ended.abort();
    await this.#running;
    this.#running = undefined;
  }
}

describe('a shared store', () => {
  let clock: ManualClock;
  let server: MemoryServer;
  let a: Member;
  let b: Member;
  const remove = (name: string): unknown =>
    server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(`${P}${name}`) }] });

  beforeEach(async () => {
    clock = new ManualClock();
    server = new MemoryServer({ clock });
    a = new Member(server, clock);
    b = new Member(server, clock);
    a.store.local.upsert('a', bytesOfText('1'));
    b.store.local.upsert('b', bytesOfText('2'));
    await settle(4);
  });

  afterEach(async () => {
    for (const member of [a, b]) {
      await member.stop();
      await member.backend.close();
    }
  });

  it('shows every member the keys of all members', () => {
    for (const member of [a, b]) expect(Object.fromEntries(member.seen)).toEqual({ a: '1', b: '2' });
  });

  it('re-creates a local key that another client deletes, without a notification', async () => {
    remove('a');
    await settle(4);
    expect(server.range(keyRange(`${P}a`)).count).toBe(1);
    await advance(clock, 60_000);
    expect(b.story.filter((line) => line.startsWith('a'))).toEqual(['a=1', 'a=1']);
  });

  it('restores a local key that another client overwrites, within a second (regression: after five minutes)', async () => {
    await b.backend.update(`${P}a`, bytesOfText('other'));
    await settle(4);
    expect(b.seen.get('a')).toBe('other');
    await advance(clock, 1000);
    expect(b.seen.get('a')).toBe('1');
  });

  it('restores nothing after its end', async () => {
    await b.stop();
    const { pending } = clock;
    await b.backend.update(`${P}a`, bytesOfText('other'));
    await settle(4);
    expect(clock.pending, 'the put back waits').toBeGreaterThan(pending);
    await a.stop();
    await advance(clock, 5000);
    expect(textOfBytes(server.range(keyRange(`${P}a`)).kvs[0]?.value ?? new Uint8Array())).toBe('other');
    expect(a.store.status().local).toMatchObject({ putBacks: 0, pending: 0 });
  });

  it('restores a local key whose new value it cannot decode', async () => {
    await b.backend.update(`${P}a`, bytesOfText('not accepted'));
    await advance(clock, 1000);
    expect(b.seen.get('a')).toBe('1');
  });

  it('compares none of 20,000 unchanged keys (regression: each with a transaction every five minutes)', async () => {
    const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    const store = new SharedStore<Uint8Array>({
      backend,
      prefix: 'many/',
      clock,
      random: () => 0.5,
      rejections: new RejectionLog(),
      batched: true,
      decode: (_name, value) => ({ ok: true, value }),
      observer: { onUpdate: () => {}, onDelete: () => {} },
    });
    const ended = new AbortController();
    const running = store.run(ended.signal);
    for (let i = 0; i < 20_000; i++) store.local.upsert(`n${i}`, bytesOfText('1'));
    await store.local.markSynced();
    await settle(200);
    expect(store.status().shared.keys).toBe(20_000);
    const txn = vi.spyOn(server, 'txn');
    await advance(clock, 11 * 60_000);
    expect([txn.mock.calls.length, store.status().local.writes]).toEqual([0, 20_000]);
    ended.abort();
    await running;
    await backend.close();
  });

  it('reports when its keys are complete, batch by batch, and requires no failure callback', async () => {
    const story: string[] = [];
    const backend = new FaultyMemoryBackend({ server, clock, random: () => 0.5 });
    const store = new SharedStore<string>({
      backend,
      prefix: P,
      clock,
      random: () => 0.5,
      rejections: new RejectionLog(),
      decode: (_name, value) => ({ ok: true, value: textOfBytes(value) ?? '' }),
      observer: {
        onUpdate: (name) => {
          story.push(name);
          throw new Error('a broken observer');
        },
        onDelete: () => {},
        batch: (apply) => {
          story.push('(');
          apply();
          story.push(')');
        },
      },
    });
    const ended = new AbortController();
    const running = store.run(ended.signal);
    void store.synced.then(() => story.push('synced'));
    await settle(4);
    expect([story.slice(0, 4), story.at(-1)]).toEqual([['(', 'a', 'b', ')'], 'synced']);
    expect(store.status().faults).toBe(2);
    ended.abort();
    await running;
    await backend.close();
  });

  it('an abandoned put does not land after the delete of its name (regression: it stayed for a moment)', async () => {
    const land = giveUpPut(a.backend.link, `${P}c`);
    a.store.local.upsert('c', bytesOfText('late'));
    await settle(4);
    a.store.local.delete('c');
    await advance(clock, 1000);
    await land();
    await advance(clock, 60_000);
    expect(b.story.filter((line) => line.startsWith('c'))).toEqual([]);
  });

  it('an abandoned put does not land over a later one (regression: corrected minutes later)', async () => {
    const land = giveUpPut(a.backend.link, `${P}c`);
    a.store.local.upsert('c', bytesOfText('v1'));
    await settle(4);
    a.store.local.upsert('c', bytesOfText('v2'));
    await advance(clock, 1000);
    await land();
    await settle(4);
    expect(b.story.filter((line) => line.startsWith('c'))).toEqual(['c=v2']);
  });

  it('keeps a name that another member has taken over', async () => {
    const land = giveUpPut(a.backend.link, `${P}c`);
    a.store.local.upsert('c', bytesOfText('late'));
    await settle(4);
    a.store.local.delete('c');
    await advance(clock, 1000);
    b.store.local.upsert('c', bytesOfText('taken over'));
    await settle(4);
    expect(a.seen.get('c')).toBe('taken over');
    await advance(clock, 6 * 60_000);
    expect(b.story.filter((line) => line.startsWith('c'))).toEqual(['c=taken over']);
    await land();
    await advance(clock, 6 * 60_000);
    expect(a.seen.get('c')).toBe('taken over');
  });

  it('delays a delete, and delivers it if the key does not return', async () => {
    b.store.local.delete('b');
    await advance(clock, 29_000);
    expect(a.seen.get('b')).toBe('2');
    expect(a.store.status().delayedDeletes).toBe(1);
    await advance(clock, 2000);
    expect(a.seen.has('b')).toBe(false);
  });

  it('drops a delete if the key returns in time', async () => {
    b.store.local.delete('b');
    await advance(clock, 20_000);
    b.store.local.upsert('b', bytesOfText('3'));
    await advance(clock, 60_000);
    expect(a.story.filter((line) => line.startsWith('b'))).toEqual(['b=2', 'b=3']);
  });

  it('a member that dies is removed after its lease and the delay', async () => {
    b.backend.link.down();
    await advance(clock, 45_000);
    expect(a.seen.get('b')).toBe('2');
    await advance(clock, 30_000);
    expect(a.seen.has('b')).toBe(false);
  });

  it('the end delivers no delayed delete; drain delivers all', async () => {
    b.store.local.delete('b');
    await settle(4);
    await a.stop();
    await advance(clock, 60_000);
    expect(a.seen.get('b')).toBe('2');
    await a.store.drain();
    expect([...a.seen.keys()]).toEqual([]);
  });

  it('its next run delivers the delayed deletes of the last one (regression: they were never delivered)', async () => {
    b.store.local.delete('b');
    remove('a');
    await settle(4);
    await a.stop();
    a.start();
    await settle(4);
    expect([...a.seen.keys()]).toEqual(['a', 'b']);
    await advance(clock, 31_000);
    expect([...a.seen.keys()]).toEqual(['a']);
  });

  it('an observer that throws is counted, also for a delayed delete (regression: the process ended)', async () => {
    a.onDelete = () => {
      throw new Error('a broken observer');
    };
    b.store.local.delete('b');
    remove('b');
    await advance(clock, 31_000);
    expect(a.store.status().faults).toBe(1);
    await b.stop();
    await a.stop();
    await a.store.drain();
    expect(a.store.status()).toMatchObject({ faults: 2, delayedDeletes: 0 });
    expect(a.failures).toEqual(['shared keys', 'shared keys']);
  });

  it('reports its loops while it runs', async () => {
    expect(a.store.status().background.tasks.map(({ name, state }) => `${name}: ${state}`)).toEqual([
      'local keys: running',
      'shared keys: running',
    ]);
    await a.stop();
    expect(a.store.status().background).toMatchObject({ tasks: [], failures: 0 });
  });

  it('without a delay delivers deletes immediately', async () => {
    const c = new Member(server, clock, 0);
    await settle(4);
    remove('b');
    await settle(4);
    expect(c.story).toContain('b gone');
    await c.stop();
    await c.backend.close();
  });
});
