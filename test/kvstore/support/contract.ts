import { getEventListeners } from 'node:events';
import { isDeepStrictEqual } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { bytesOfText, keyOfBytes, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { type KeyWrite, MAX_COMPARED_WRITES, MAX_WRITES } from '../../../src/kvstore/session/backend.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { SharedStore } from '../../../src/kvstore/stores/shared-store.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import type { StoreDecoder } from '../../../src/kvstore/stores/watch-store.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import type { ContractClient, ContractKvstore, Entry, OpenOptions } from './contract-harness.ts';
import { WatchRecorder } from './watch-recorder.ts';

const P = 'contract/';
const { batchEvents: BATCH_EVENTS, highWaterBytes: HIGH_WATER_BYTES, pageKeys: PAGE_KEYS } = WATCH_LIMITS;
const bytes = bytesOfText;

function numbered(count: number, from = 0, prefix = P): Entry[] {
  return Array.from({ length: count }, (_, i) => {
    const n = String(from + i).padStart(6, '0');
    return [`${prefix}${n}`, `value ${n}`];
  });
}

/**
 * The contract of every backend (SEMANTICS 5, `src/kvstore/session/backend.ts`), with the same tests for
 * each. `open` returns a new, empty server.
 */
export function backendContract(
  name: string,
  open: (options?: OpenOptions) => Promise<ContractKvstore>,
): void {
  let kvstore: ContractKvstore;
  let client: ContractClient;
  const recorders: WatchRecorder[] = [];
  const controllers: AbortController[] = [];

  beforeEach(async () => {
    kvstore = await open();
    client = await kvstore.client();
  });

  afterEach(async () => {
    for (const controller of controllers.splice(0)) controller.abort();
    const breaches = recorders.splice(0).flatMap((recorder) => recorder.breaches);
    await kvstore.dispose();
    expect(breaches).toEqual([]);
  });

  /** Replaces the server for tests that need a special one. */
  async function reopen(options: OpenOptions): Promise<void> {
    await kvstore.dispose();
    kvstore = await open(options);
    client = await kvstore.client();
  }

  function watch(
    prefix = P,
    options: { mayGoBack?: boolean; by?: ContractClient; exactKey?: boolean } = {},
  ): WatchRecorder {
    const controller = new AbortController();
    controllers.push(controller);
    const { by = client, exactKey } = options;
    const watching = by.backend.watch(prefix, { signal: controller.signal, exactKey });
    const recorder = new WatchRecorder(watching, options);
    recorders.push(recorder);
    return recorder;
  }

  async function listed(recorder: WatchRecorder): Promise<WatchRecorder> {
    await kvstore.until('list-done', () => recorder.listed);
    await kvstore.until('watching', () => recorder.status().state === 'watching');
    return recorder;
  }

  /** Waits until the watch has exactly the content of the server. */
  async function converged(recorder: WatchRecorder, prefix = P): Promise<void> {
    await kvstore.until(`${prefix} converged`, async () => {
      if (!recorder.listed) return false;
      const content = await kvstore.content(prefix);
      return (
        recorder.content.size === content.size &&
        [...content].every(([key, value]) => recorder.content.get(key) === value)
      );
    });
  }

  describe(`${name}: reads and writes`, () => {
    it('an absent key is undefined', async () => {
      expect(await client.backend.get(`${P}none`)).toBeUndefined();
      expect(await client.backend.listPrefix(P)).toEqual([]);
    });

    it('a written key is read back, with its revisions', async () => {
      const { backend } = client;
      const created = await backend.update(`${P}a`, bytes('1'));
      const modified = await backend.update(`${P}a`, bytes('2'));
      const found = await backend.get(`${P}a`);
      expect(modified).toBeGreaterThan(created);
      expect(textOfBytes(found?.value ?? bytes(''))).toBe('2');
      expect(found).toMatchObject({ key: `${P}a`, createRevision: created, modRevision: modified });
    });

    it('read returns the revision and the identity of the store beside the key', async () => {
      const { backend } = client;
      const modRevision = await backend.update(`${P}a`, bytes('1'));
      const revision = await backend.update(`${P}b`, bytes('1'));
      const { kv, header } = await backend.read(`${P}a`);
      expect([kv?.modRevision, header.revision]).toEqual([modRevision, revision]);
      expect(header.clusterID).toBe(backend.status().clusterID);
      expect(await backend.read(`${P}none`)).toMatchObject({ kv: undefined, header: { revision } });
    });

    it('a prefix is listed completely, in order, without siblings', async () => {
      await kvstore.load([
        ['c1/a', '1'],
        ['c1/b', '2'],
        ['c10/a', '3'],
        ['c1', '4'],
        ['c1.', '5'],
      ]);
      const keys = (await client.backend.listPrefix('c1/')).map(({ key }) => key);
      expect(keys).toEqual(['c1/a', 'c1/b']);
    });

    it('binary, UTF-8 and empty values are read back unchanged', async () => {
      const values = [Uint8Array.of(), Uint8Array.of(0, 255, 128, 10), bytes('čaj 茶 🍵')];
      for (const [i, value] of values.entries()) await client.backend.update(`${P}${i}`, value);
      const read = await client.backend.listPrefix(P);
      expect(read.map(({ value }) => [...value])).toEqual(values.map((value) => [...value]));
    });

    it('keys that are not UTF-8 stay distinct', async () => {
      const keys = [0x80, 0x81, 0xff].map((byte) => P + keyOfBytes(Uint8Array.of(byte)));
      for (const key of keys) await client.backend.update(key, bytes(key));
      const read = await client.backend.listPrefix(P);
      expect(read.map(({ key }) => key)).toEqual(keys);
    });

    it('several writes are one transaction, with puts and deletes', async () => {
      const { backend } = client;
      await kvstore.load([
        [`${P}a`, 'old'],
        [`${P}b`, 'old'],
      ]);
      const writes = [{ key: `${P}a`, value: bytes('1') }, { key: `${P}b` }, { key: `${P}none` }];
      const many = Array.from({ length: MAX_WRITES - 3 }, (_, i) => ({
        key: `${P}n${i}`,
        value: bytes('2'),
      }));
      const { revision, isComplete } = await backend.writeAll([...writes, ...many], { fenced: true });
      const found = await backend.listPrefix(P);
      expect([found.length, isComplete]).toEqual([MAX_WRITES - 2, true]);
      expect(new Set(found.map(({ modRevision }) => modRevision))).toEqual(new Set([revision]));
      expect(textOfBytes(found[0]?.value ?? bytes(''))).toBe('1');
    });

    it.each([false, true])(
      'of several writes, equal ones are omitted if all are equal (leased: %s)',
      async (leased) => {
        const { backend } = client;
        const of = (key: string, value: string): KeyWrite => ({
          key: `${P}${key}`,
          value: bytes(value),
          mayBeEqual: true,
        });
        for (const key of ['a', 'b']) await backend.update(`${P}${key}`, bytes('1'), { leased });
        const before = await backend.get(`${P}a`);
        const always = { key: `${P}c`, value: bytes('1') };
        const equal = await backend.writeAll([of('a', '1'), of('b', '1'), always], { leased, fenced: true });
        expect([equal.isComplete, await backend.get(`${P}a`)]).toEqual([false, before]);
        expect((await backend.get(`${P}c`))?.modRevision).toBe(equal.revision);
        const other = await backend.writeAll([of('a', '1'), of('b', '2'), { key: `${P}c` }], {
          leased,
          fenced: true,
        });
        expect(other.isComplete).toBe(true);
        const found = await backend.listPrefix(P);
        expect(found.map(({ key, value, modRevision }) => [key, textOfBytes(value), modRevision])).toEqual([
          [`${P}a`, '1', other.revision],
          [`${P}b`, '2', other.revision],
        ]);
      },
    );

    it('a put that may be equal is written if the key has another lease, or none', async () => {
      const { backend } = client;
      await kvstore.put(`${P}a`, '1');
      const write = { key: `${P}a`, value: bytes('1'), mayBeEqual: true };
      expect(await backend.writeAll([write], { leased: true })).toMatchObject({ isComplete: true });
      expect(await backend.writeAll([write], { leased: true })).toMatchObject({ isComplete: false });
    });

    it('several writes of keys that need more than one lease are bound to the session', async () => {
      const other = await kvstore.client();
      for (let i = 0; i < 1500; i += 100) {
        const writes = Array.from({ length: 100 }, (_, n) => ({ key: `${P}${i + n}`, value: bytes('1') }));
        await other.backend.writeAll(writes, { leased: true });
      }
      expect([other.backend.status().leases, (await kvstore.content(P)).size]).toEqual([2, 1500]);
      await other.backend.writeAll([{ key: `${P}7` }, { key: `${P}8`, value: bytes('unleased') }]);
      await other.backend.close();
      await kvstore.until('expired', async () => (await kvstore.content(P)).size === 1);
    });

    it.each([0, MAX_WRITES + 1])('%i writes in one transaction are refused', async (count) => {
      const writes = Array.from({ length: count }, (_, i) => ({ key: `${P}${i}`, value: bytes('1') }));
      await expect(client.backend.writeAll(writes)).rejects.toMatchObject({ code: 'invalid-request' });
      const compared = [...writes, ...numbered(MAX_COMPARED_WRITES + 1)].map((_, i) => ({
        key: `${P}${i}`,
        value: bytes('1'),
        mayBeEqual: true,
      }));
      await expect(client.backend.writeAll(compared)).rejects.toMatchObject({ code: 'invalid-request' });
    });

    it.each([2, MAX_WRITES - 1])(
      'a transaction of %i writes that then writes the first key again is refused, and writes nothing (regression: etcd accepted a delete in another nested transaction)',
      async (count) => {
        const writes = Array.from({ length: count }, (_, i) => ({ key: `${P}${i}`, value: bytes('1') }));
        for (const last of [{ key: `${P}0`, value: bytes('2') }, { key: `${P}0` }])
          await expect(client.backend.writeAll([...writes, last])).rejects.toMatchObject({
            code: 'invalid-request',
          });
        expect(await kvstore.content(P)).toEqual(new Map());
      },
    );

    it('an empty key is refused, and nothing is deleted', async () => {
      await kvstore.put(`${P}a`, '1');
      const { backend } = client;
      const calls = [
        backend.get(''),
        backend.delete(''),
        backend.update('', bytes('1')),
        backend.writeAll([{ key: '' }]),
      ];
      for (const call of await Promise.allSettled(calls))
        expect(call).toMatchObject({ status: 'rejected', reason: { code: 'invalid-request' } });
      expect((await kvstore.content(P)).size).toBe(1);
    });

    it('a transaction that writes a key twice is refused, also if its values are equal to those of the store', async () => {
      await kvstore.put(`${P}a`, '1');
      const write = { key: `${P}a`, value: bytes('1'), mayBeEqual: true };
      await expect(client.backend.writeAll([write, write])).rejects.toMatchObject({
        code: 'invalid-request',
      });
    });

    it('the largest transaction of compared writes is accepted', async () => {
      const writes = Array.from({ length: MAX_WRITES }, (_, i) => ({
        key: `${P}${i}`,
        value: bytes('1'),
        mayBeEqual: i < MAX_COMPARED_WRITES,
      }));
      const options = { leased: true, fenced: true };
      expect(await client.backend.writeAll(writes, options)).toMatchObject({ isComplete: true });
      expect(await client.backend.writeAll(writes, options)).toMatchObject({ isComplete: false });
      expect((await kvstore.content(P)).size).toBe(MAX_WRITES);
    });

    it.each([128, 129, 159, 160, MAX_WRITES])(
      'of %i writes in a transaction without a fence, the largest number may be compared (regression: refused by etcd)',
      async (count) => {
        const writes = Array.from({ length: count }, (_, i) => ({
          key: `${P}${i}`,
          value: bytes('1'),
          mayBeEqual: i < MAX_COMPARED_WRITES,
        }));
        for (const isComplete of [true, false])
          expect(await client.backend.writeAll(writes, { leased: true })).toMatchObject({ isComplete });
        expect((await kvstore.content(P)).size).toBe(count);
      },
    );

    it('delete returns whether the key existed', async () => {
      await kvstore.put(`${P}a`, '1');
      expect(await client.backend.delete(`${P}a`)).toBe(true);
      expect(await client.backend.delete(`${P}a`)).toBe(false);
    });

    it('a delete bound to a revision keeps a key that was written since', async () => {
      const old = await client.backend.update(`${P}a`, bytes('1'));
      const now = await client.backend.update(`${P}a`, bytes('2'));
      expect(await client.backend.delete(`${P}a`, { ifModRevision: old })).toBe(false);
      expect(await client.backend.delete(`${P}a`, { ifModRevision: now })).toBe(true);
    });

    it('deletePrefix deletes the prefix and no other key', async () => {
      await kvstore.load([
        ['c1/a', '1'],
        ['c1/b', '2'],
        ['c10/a', '3'],
      ]);
      expect(await client.backend.deletePrefix('c1/')).toBe(2);
      expect([...(await kvstore.content('c1')).keys()]).toEqual(['c10/a']);
    });

    it('createOnly: of many concurrent calls for one key, one wins', async () => {
      const others = [client, await kvstore.client(), await kvstore.client()];
      const results = await Promise.all(
        Array.from({ length: 12 }, (_, i) => others[i % 3]?.backend.createOnly(`${P}race`, bytes(String(i)))),
      );
      expect(results.filter((won) => won === true)).toHaveLength(1);
      expect((await kvstore.content(P)).get(`${P}race`)).toBe(String(results.indexOf(true)));
    });

    it('updateIfDifferent writes different values only', async () => {
      const { backend } = client;
      expect(await backend.updateIfDifferent(`${P}a`, bytes('1'))).toBe(true);
      expect(await backend.updateIfDifferent(`${P}a`, bytes('1'))).toBe(false);
      expect(await backend.updateIfDifferent(`${P}a`, bytes('2'))).toBe(true);
      const races = await Promise.all(
        Array.from({ length: 8 }, () => backend.updateIfDifferent(`${P}b`, bytes('same'))),
      );
      expect(races.filter(Boolean)).toHaveLength(1);
    });

    it('updateIfDifferent binds a key without a lease to the session', async () => {
      await kvstore.put(`${P}a`, '1');
      expect(await client.backend.updateIfDifferent(`${P}a`, bytes('1'), { leased: true })).toBe(true);
      expect(await client.backend.updateIfDifferent(`${P}a`, bytes('1'), { leased: true })).toBe(false);
      await client.loseLeases();
      await kvstore.until('the key is gone', async () => (await kvstore.content(P)).size === 0);
    });
  });

  describe(`${name}: leases`, () => {
    it('a leased key is deleted with its client, another one stays', async () => {
      const brief = await kvstore.client({ leaseSeconds: 2 });
      await brief.backend.update(`${P}leased`, bytes('1'), { leased: true });
      await brief.backend.update(`${P}plain`, bytes('2'));
      const recorder = await listed(watch());
      await brief.down();
      await kvstore.until('expiry', () => !recorder.content.has(`${P}leased`));
      expect([...recorder.content.keys()]).toEqual([`${P}plain`]);
    });

    it('a client that lives keeps its keys beyond their lease', async () => {
      // Renewed at a third of that time. A busy machine may be late by some seconds.
      const brief = await kvstore.client({ leaseSeconds: 9 });
      await brief.backend.update(`${P}leased`, bytes('1'), { leased: true });
      await kvstore.pass(11_000);
      expect((await kvstore.content(P)).size).toBe(1);
    });

    it('close revokes the leases', async () => {
      const other = await kvstore.client();
      await other.backend.update(`${P}leased`, bytes('1'), { leased: true });
      await other.backend.close();
      await kvstore.until('the key is gone', async () => (await kvstore.content(P)).size === 0);
    });

    it('a lost lease is reported with its keys, and the next write gets a new one (trap: stuck after lease loss)', async () => {
      const brief = await kvstore.client({ leaseSeconds: 12 });
      const lost: string[] = [];
      brief.backend.onLeaseLost({ onLeaseLost: (keys) => lost.push(...keys) });
      await brief.backend.update(`${P}a`, bytes('1'), { leased: true });
      await brief.backend.update(`${P}b`, bytes('2'), { leased: true });
      await brief.loseLeases();
      await kvstore.until('the loss is told', () => lost.length === 2);
      expect(lost.sort()).toEqual([`${P}a`, `${P}b`]);
      expect(await brief.backend.updateIfDifferent(`${P}a`, bytes('1'), { leased: true })).toBe(true);
      expect([...(await kvstore.content(P))]).toEqual([[`${P}a`, '1']]);
      expect(brief.backend.status().leasesLost).toBe(1);
    });

    it('a write under an expired lease is repeated under a new one', async () => {
      await client.backend.update(`${P}a`, bytes('1'), { leased: true });
      await client.loseLeases();
      await client.backend.update(`${P}a`, bytes('2'), { leased: true });
      expect([...(await kvstore.content(P))]).toEqual([[`${P}a`, '2']]);
    });

    it('a leased key that was deleted and that a restore brings back is deleted, though its client lives', async () => {
      // Long enough to see the restored key before it expires.
      const brief = await kvstore.client({ leaseSeconds: 9 });
      const put = async (keys: readonly string[]): Promise<void> => {
        for (const key of keys) await brief.backend.updateIfDifferent(key, bytes('1'), { leased: true });
      };
      await put([`${P}wanted`, `${P}unwanted`]);
      const restore = await kvstore.backup();
      await brief.backend.delete(`${P}unwanted`);
      const recorder = watch(P, { mayGoBack: true, by: brief });
      await listed(recorder);
      brief.backend.onLeaseLost({ onLeaseLost: (keys) => void put(keys) });
      await restore();
      await kvstore.until('it is back', () => recorder.content.size === 2);
      await kvstore.until('it is gone', async () => (await kvstore.content(P)).size === 1);
      // The other key has a lease that was granted soon after the restore, and would have expired by then.
      await kvstore.pass(6_000);
      expect([...(await kvstore.content(P)).keys()]).toEqual([`${P}wanted`]);
    });

    it('more keys than fit on a lease are spread over several', async () => {
      for (const [key, value] of numbered(1001)) {
        await client.backend.update(key, bytes(value), { leased: true });
      }
      expect(client.backend.status().leases).toBe(2);
    });
  });

  describe(`${name}: locks`, () => {
    it('leaves nothing on a signal that many locks have shared (regression: a listener for each)', async () => {
      const { signal } = new AbortController();
      const turn = async (): Promise<void> => {
        const lock = await client.backend.lock('locks/a', { signal });
        await lock.release();
      };
      for (let i = 0; i < 3; i++) await turn();
      await Promise.all([turn(), turn(), turn()]);
      expect(getEventListeners(signal, 'abort')).toEqual([]);
    });

    it('one at a time, for callers in this client and in others', async () => {
      const clients = [client, await kvstore.client(), await kvstore.client()];
      let holders = 0;
      const order: number[] = [];
      const turn = async (i: number): Promise<void> => {
        const lock = await clients[i % 3]?.backend.lock('locks/a');
        expect(++holders).toBe(1);
        order.push(i);
        await kvstore.pass(5);
        holders--;
        await lock?.release();
      };
      const turns = Array.from({ length: 9 }, (_, i) => turn(i));
      await kvstore.until('all turns', () => order.length === 9);
      await Promise.all(turns);
      await kvstore.until('no key is left', async () => (await kvstore.content('locks/')).size === 0);
    });

    it('different paths do not block each other, nor `a` and `ab`', async () => {
      const held = await Promise.all(['locks/a', 'locks/ab', 'locks/a/b'].map((p) => client.backend.lock(p)));
      const other = await kvstore.client();
      expect((await other.backend.lock('locks/b')).key).toMatch(/^locks\/b\/[0-9a-f]+$/);
      expect([...(await kvstore.content('locks/')).keys()]).toHaveLength(4);
      await Promise.all(held.map((lock) => lock.release()));
    });

    it('a caller that aborts leaves nothing', async () => {
      const other = await kvstore.client();
      const lock = await client.backend.lock('locks/a');
      const waits = [client, other].map(async ({ backend }) => {
        const controller = new AbortController();
        const waiting = backend.lock('locks/a', { signal: controller.signal }).catch((e: unknown) => e);
        await kvstore.pass(50);
        controller.abort();
        return waiting;
      });
      for (const wait of waits) expect(await wait).toMatchObject({ code: 'aborted' });
      await kvstore.until('one key is left', async () => (await kvstore.content('locks/')).size === 1);
      await lock.release();
      expect((await other.backend.lock('locks/a')).lost.aborted).toBe(false);
    });

    it('a lock is lost with its lease: the holder is notified, and cannot write under it', async () => {
      const other = await kvstore.client();
      const lock = await client.backend.lock('locks/a');
      expect(await client.backend.createOnly(`${P}a`, bytes('1'), { ifLocked: lock })).toBe(true);
      expect(await client.backend.createOnly(`${P}a`, bytes('2'), { ifLocked: lock })).toBe(false);
      await client.loseLeases();
      const next = await other.backend.lock('locks/a');
      const lateWrite = client.backend.update(`${P}a`, bytes('late'), { ifLocked: lock });
      await expect(lateWrite).rejects.toMatchObject({ code: 'lock-lost' });
      await expect(client.backend.delete(`${P}a`, { ifLocked: lock })).rejects.toMatchObject({
        code: 'lock-lost',
      });
      expect(await other.backend.updateIfDifferent(`${P}a`, bytes('1'), { ifLocked: next })).toBe(false);
      expect(await other.backend.updateIfDifferent(`${P}a`, bytes('3'), { ifLocked: next })).toBe(true);
      await kvstore.until('the holder is told', () => lock.lost.aborted);
      expect([...(await kvstore.content(P))]).toEqual([[`${P}a`, '3']]);
    });

    it('a lock that was released during a disconnect is free once the client is back', async () => {
      const other = await kvstore.client();
      const lock = await client.backend.lock('locks/a');
      await client.down();
      await lock.release();
      await client.up();
      await kvstore.until('it is free', async () => (await kvstore.content('locks/')).size === 0);
      await (await other.backend.lock('locks/a')).release();
    });
  });

  describe(`${name}: list and watch`, () => {
    it('an empty prefix is listed immediately, and then followed', async () => {
      const recorder = await listed(watch());
      expect(recorder.story).toEqual(['list-done']);
      await kvstore.put(`${P}a`, '1');
      await kvstore.until('the event', () => recorder.content.size === 1);
      expect(recorder.story).toEqual(['list-done', `create ${P}a`]);
    });

    it.each([PAGE_KEYS - 1, PAGE_KEYS, PAGE_KEYS + 1, 2 * PAGE_KEYS + 1])(
      'lists %i keys over pages, in order',
      async (count) => {
        const entries = numbered(count);
        await kvstore.load(entries);
        const recorder = await listed(watch());
        expect(recorder.story).toEqual([...entries.map(([key]) => `create ${key}`), 'list-done']);
        expect(recorder.batches.every((batch) => batch.length <= BATCH_EVENTS)).toBe(true);
      },
    );

    it('writes during the list are delivered once', async () => {
      await kvstore.load(numbered(3 * PAGE_KEYS));
      const recorder = watch();
      const release = recorder.hold();
      await kvstore.until('some of the list', () => recorder.batches.length > 0);
      await kvstore.load(numbered(50, 100).map(([key]) => [key, 'changed']));
      await kvstore.load(numbered(50, 3 * PAGE_KEYS));
      await kvstore.remove(`${P}000007`);
      release();
      await converged(recorder);
    });

    it('put, modify, delete, create again', async () => {
      const recorder = await listed(watch());
      await kvstore.put(`${P}a`, '1');
      await kvstore.put(`${P}a`, '2');
      await kvstore.remove(`${P}a`);
      await kvstore.put(`${P}a`, '3');
      await kvstore.until('all', () => recorder.events.length === 5);
      expect(recorder.story.slice(1)).toEqual(
        ['create', 'modify', 'delete', 'create'].map((t) => `${t} ${P}a`),
      );
    });

    it('the writes of one transaction are one batch', async () => {
      const recorder = await listed(watch());
      await kvstore.put(`${P}gone`, 'x');
      // Unread events would be merged with later ones.
      await kvstore.until('gone', () => recorder.content.size === 1);
      await kvstore.together([...numbered(100), [`${P}gone`, undefined]]);
      await kvstore.until('all', () => recorder.content.size === 100);
      const batch = recorder.batches.find((events) => events.some(({ type }) => type === 'delete'));
      expect(batch?.length).toBe(101);
    });

    it('events are in the order of revisions', async () => {
      const recorder = await listed(watch());
      for (const [key, value] of numbered(200)) await kvstore.put(key, value);
      await kvstore.until('all', () => recorder.content.size === 200);
      const revisions = recorder.events.slice(1).map(({ modRevision }) => modRevision);
      expect(revisions).toEqual([...revisions].sort((a, b) => a - b));
    });

    it('a watch of `c1/` sees nothing of `c10/` (trap: prefix without slash)', async () => {
      const recorder = await listed(watch('c1/'));
      await kvstore.load([
        ['c10/x', '1'],
        ['c1/x', '2'],
        ['c1', '3'],
      ]);
      await kvstore.until('the event', () => recorder.content.size > 0);
      expect([...recorder.content.keys()]).toEqual(['c1/x']);
      expect(() => client.backend.watch('c1')).toThrow('must end in "/"');
    });

    it('a watch of an exact key sees no other key', async () => {
      await client.backend.update('c', bytes('1'));
      await client.backend.update('c/x', bytes('2'));
      const recorder = await listed(watch('c', { exactKey: true }));
      expect([...recorder.content.keys()]).toEqual(['c']);
      await kvstore.load([
        ['c0', '3'],
        ['c/y', '4'],
        ['b', '5'],
      ]);
      await client.backend.delete('c');
      await kvstore.until('the delete', () => recorder.content.size === 0);
      await client.backend.update('c', bytes('6'));
      await kvstore.until('the key', () => recorder.content.size > 0);
      expect([...recorder.content.keys()]).toEqual(['c']);
    });

    it('keys that are not UTF-8 and binary values are delivered', async () => {
      const key = P + keyOfBytes(Uint8Array.of(0xfe, 0x2f, 0x80));
      await client.backend.update(key, Uint8Array.of(0xff, 0));
      const recorder = await listed(watch());
      expect(recorder.content.get(key)).toBe('ff00');
      await client.backend.delete(key);
      await kvstore.until('the delete', () => recorder.content.size === 0);
    });

    it('two watches of one prefix each receive everything', async () => {
      const [first, second] = [watch(), watch()];
      await listed(first);
      await listed(second);
      await kvstore.load(numbered(300));
      await converged(first);
      await converged(second);
    });
  });

  describe(`${name}: faults`, () => {
    /**
     * Disconnects the client, runs `meanwhile`, reconnects it, and waits until the watch is correct again.
     */
    async function whileAway(recorder: WatchRecorder, meanwhile: () => Promise<void>): Promise<void> {
      await client.down();
      await kvstore.until('it notices', () => recorder.status().state === 'waiting');
      await meanwhile();
      await client.up();
      await converged(recorder);
    }

    it('changes during a disconnect are delivered, including deletes (trap: deletes missed)', async () => {
      await kvstore.load(numbered(20));
      const recorder = await listed(watch());
      await whileAway(recorder, async () => {
        await kvstore.put(`${P}000001`, 'changed');
        await kvstore.remove(`${P}000002`);
        await kvstore.remove(`${P}000003`);
        await kvstore.put(`${P}000003`, 'again');
        await kvstore.put(`${P}new`, 'new');
      });
      expect(recorder.events.filter(({ type }) => type === 'list-done')).toHaveLength(1);
    });

    it('every state of a watch is reported as it is entered, even if the listener throws', async () => {
      const states: string[] = [];
      const controller = new AbortController();
      controllers.push(controller);
      const onState = (state: string): void => {
        states.push(state);
        throw new Error('a broken listener');
      };
      const recorder = new WatchRecorder(client.backend.watch(P, { signal: controller.signal, onState }));
      recorders.push(recorder);
      await listed(recorder);
      await client.down();
      await kvstore.until('it notices', () => states.at(-1) === 'waiting');
      await client.up();
      await kvstore.until('it is back', () => states.at(-1) === 'watching');
      controller.abort();
      await kvstore.until('it ends', () => states.at(-1) === 'ended');
      expect(states.slice(0, 3)).toEqual(['listing', 'watching', 'waiting']);
    });

    it('an interruption of a catch-up loses nothing (trap: etcd3 watcher)', async () => {
      await kvstore.load(numbered(10));
      const recorder = await listed(watch());
      await whileAway(recorder, async () => {
        await Promise.all(numbered(1500, 100).map(([key, value]) => kvstore.put(key, value)));
        await client.cutNextCatchUp();
      });
      expect(recorder.content.size).toBe(1510);
    });

    it('a second disconnect right after the first watch was accepted loses nothing (trap: etcd3 watcher)', async () => {
      await kvstore.load(numbered(10));
      const recorder = await listed(watch());
      await whileAway(recorder, async () => {
        await kvstore.load(numbered(200, 100));
        await client.cutAfterCreated();
      });
      expect(recorder.content.size).toBe(210);
    });

    it('a compaction during a disconnect loses nothing', async () => {
      await kvstore.load(numbered(50));
      const recorder = await listed(watch());
      await whileAway(recorder, async () => {
        await kvstore.remove(`${P}000001`);
        await kvstore.put(`${P}000002`, 'changed');
        await kvstore.put(`${P}new`, 'new');
        await kvstore.compact();
      });
    });

    it('a compaction of more keys than are compared one by one loses nothing', async () => {
      await kvstore.load(numbered(3000));
      const recorder = await listed(watch());
      await whileAway(recorder, async () => {
        await kvstore.remove(`${P}000001`);
        await kvstore.put(`${P}000002`, 'changed');
        await kvstore.compact();
        await kvstore.put(`${P}new`, 'new');
      });
    });

    /** Writes elsewhere, so that every write below the prefix is before the compaction. */
    async function compactBehindOthers(): Promise<void> {
      for (let i = 0; i < 3; i++) await kvstore.put('elsewhere/a', String(i));
      await kvstore.compact();
    }

    /** Expects that a write arrives, and that this number of failures has occurred. */
    async function followsWell(recorder: WatchRecorder, failures = 0): Promise<void> {
      await kvstore.put(`${P}arrives`, `${Math.random()}`);
      await converged(recorder);
      expect(recorder.status()).toMatchObject({ state: 'watching', failures });
    }

    it.each([1, 20, 3000])(
      'a prefix of %i keys that was idle before a compaction settles at once (regression: it waited for ever)',
      async (count) => {
        await kvstore.load(numbered(count));
        await compactBehindOthers();
        const recorder = await listed(watch());
        await followsWell(recorder);
        expect(recorder.status()).toMatchObject({ listings: 1, streams: 1 });
      },
    );

    it.each([20, 3000])(
      'an idle prefix of %i keys takes no notice of a compaction, and compares its keys after a disconnect',
      async (count) => {
        await kvstore.load(numbered(count));
        const recorder = await listed(watch());
        await compactBehindOthers();
        await followsWell(recorder);
        await whileAway(recorder, compactBehindOthers);
        await listed(recorder);
        await followsWell(recorder, recorder.status().failures);
        await whileAway(recorder, compactBehindOthers);
        await listed(recorder);
        // Compared with the history, and not listed again. About a second after a disconnect the watch compares the
        // values on a new stream.
        const { listings, streams } = recorder.status();
        expect(listings).toBe(1);
        expect(streams).toBeGreaterThanOrEqual(3);
        expect(recorder.events.filter(({ type }) => type === 'modify')).toHaveLength(1);
      },
    );

    it('an empty prefix on a compacted store is complete, and followed through the next compaction', async () => {
      await compactBehindOthers();
      const recorder = await listed(watch());
      await whileAway(recorder, compactBehindOthers);
      await listed(recorder);
      await followsWell(recorder, recorder.status().failures);
    });

    it('a compaction during a list loses nothing, and does not restart it', async () => {
      await kvstore.load(numbered(5 * PAGE_KEYS).map(([key]) => [key, 'x'.repeat(500)]));
      const recorder = watch();
      const release = recorder.hold();
      await kvstore.until(
        'the list stands still',
        () => recorder.status().queuedBytes > HIGH_WATER_BYTES / 2,
      );
      await kvstore.remove(`${P}000001`);
      await kvstore.put(`${P}000002`, 'changed');
      await kvstore.compact();
      release();
      await converged(recorder);
    });

    it('a restart loses nothing', async () => {
      await kvstore.load(numbered(50));
      const recorder = await listed(watch());
      await kvstore.restart();
      await kvstore.put(`${P}new`, 'new');
      await converged(recorder);
    });

    it('a restore to an older revision is detected', async () => {
      await kvstore.load(numbered(50));
      const restore = await kvstore.backup();
      const recorder = await listed(watch(P, { mayGoBack: true }));
      await kvstore.load(numbered(50, 25).map(([key]) => [key, 'lost with the backup']));
      await kvstore.remove(`${P}000000`);
      await converged(recorder);
      await restore();
      await converged(recorder);
      expect(recorder.content.size).toBe(50);
    });

    it('a restore is detected even if the revisions have grown beyond the earlier ones', async () => {
      await kvstore.load(numbered(50));
      const restore = await kvstore.backup();
      const recorder = await listed(watch(P, { mayGoBack: true }));
      for (const [key] of numbered(10, 10)) await kvstore.put(key, 'lost with the backup');
      await converged(recorder);
      await client.down();
      await restore();
      for (const [key] of numbered(30, 60)) await kvstore.put(key, 'only after the restore');
      await client.up();
      await converged(recorder);
      expect(recorder.content.get(`${P}000010`)).toBe('value 000010');
    });

    it('the same with more keys than are compared one by one', async () => {
      await kvstore.load(numbered(3000));
      const restore = await kvstore.backup();
      const recorder = await listed(watch(P, { mayGoBack: true }));
      for (const [key] of numbered(10, 10)) await kvstore.put(key, 'lost with the backup');
      await kvstore.remove(`${P}000005`);
      await converged(recorder);
      await client.down();
      await restore();
      for (const [key] of numbered(30, 6000)) await kvstore.put(key, 'only after the restore');
      await client.up();
      await converged(recorder);
    });

    it.each([
      [20, 'with its history'],
      [20, 'compacted'],
      [3000, 'with its history'],
      [3000, 'compacted'],
    ] as const)(
      'a restored store of %i keys that has grown to the same revisions is noticed, %s (regression: stale values stayed)',
      async (count, compacted) => {
        await kvstore.load(numbered(count));
        const restore = await kvstore.backup();
        const recorder = await listed(watch(P, { mayGoBack: true }));
        const write = async (value: string): Promise<void> => {
          for (const [key] of numbered(10, 10)) await kvstore.put(key, value);
        };
        await write('lost with the backup');
        await converged(recorder);
        await client.down();
        await restore();
        await write('only after the restore');
        if (compacted === 'compacted') await compactBehindOthers();
        await client.up();
        await converged(recorder);
      },
    );

    it('a store restored during a list is listed in its new state (regression: a mixture of two)', async () => {
      const entries = numbered(2 * PAGE_KEYS);
      await kvstore.load(entries.map(([key]) => [key, 'x'.repeat(500)]));
      const restore = await kvstore.backup();
      await kvstore.load(entries.map(([key]) => [key, 'lost with the backup'.repeat(20)]));
      const recorder = watch(P, { mayGoBack: true });
      const release = recorder.hold();
      await kvstore.until('the list stands still', () => recorder.status().queuedBytes > HIGH_WATER_BYTES);
      await restore();
      await kvstore.load(entries.map(([key]) => [key, 'only after the restore'.repeat(20)]));
      release();
      await converged(recorder);
    });

    it('a page of more than 4 MB is delivered', async () => {
      await kvstore.load(numbered(60).map(([key]) => [key, key.repeat(6000)]));
      const recorder = await listed(watch());
      await converged(recorder);
      await whileAway(recorder, async () => {
        for (const [key] of numbered(60)) await kvstore.put(key, `again ${key}`.repeat(6000));
      });
    });

    it('an expired token is fetched again (trap: etcd3 watcher dies)', async () => {
      await reopen({ auth: true });
      await kvstore.load(numbered(5));
      const recorder = await listed(watch());
      await client.expireToken();
      await kvstore.put(`${P}new`, 'new');
      await converged(recorder);
    });

    it('a forbidden prefix is a visible state, and other watches continue (trap: one forbidden watcher)', async () => {
      await reopen({ auth: true });
      await client.forbid('secret/');
      const secret = watch('secret/');
      const open = watch();
      await listed(open);
      await kvstore.until('forbidden', () => secret.status().state === 'forbidden');
      expect(secret.status().lastFailure?.code).toBe('forbidden');
      await kvstore.put(`${P}a`, '1');
      await converged(open);
      await client.allow('secret/');
      await kvstore.put('secret/a', '1');
      await converged(secret, 'secret/');
    });

    it('rights that are revoked during a watch are detected when another call is refused, and everything continues when they are back', async () => {
      await reopen({ auth: true });
      await kvstore.load(numbered(5));
      const recorder = await listed(watch());
      await client.forbid(P);
      await expect(client.backend.get(`${P}a`)).rejects.toMatchObject({ code: 'forbidden' });
      await kvstore.until('forbidden', () => recorder.status().state === 'forbidden');
      expect(client.backend.status()).toMatchObject({ connected: true, lastFailure: { code: 'forbidden' } });
      expect(recorder.content.size).toBe(5);
      await client.allow(P);
      await kvstore.put(`${P}new`, 'new');
      await converged(recorder);
      expect(recorder.status().listings).toBe(1);
    });

    it('a black hole is detected, and nothing is lost', async () => {
      await kvstore.load(numbered(5));
      const recorder = await listed(watch());
      await client.blackHole();
      await kvstore.put(`${P}new`, 'new');
      await kvstore.until('it notices', () => recorder.status().state === 'waiting');
      await client.up();
      await converged(recorder);
    });

    it('a call into a black hole ends with its deadline', async () => {
      await client.backend.get(`${P}a`);
      await client.blackHole();
      let failure: unknown;
      const call = client.backend.get(`${P}a`, { deadlineMs: 2000 }).catch((error: unknown) => {
        failure = error;
      });
      await kvstore.until('the deadline', () => failure !== undefined);
      await call;
      expect(failure).toBeInstanceOf(KvstoreError);
      expect(['deadline', 'unavailable']).toContain((failure as KvstoreError).code);
      await client.up();
    });

    it('a cluster without leader is a temporary failure', async () => {
      await reopen({ members: 3 });
      await kvstore.load(numbered(5));
      const recorder = await listed(watch());
      await kvstore.loseLeader();
      await kvstore.until('it notices', () => recorder.status().state === 'waiting');
      await kvstore.electLeader();
      await kvstore.put(`${P}new`, 'new');
      await converged(recorder);
    });

    it('a slow reader delays only its own watch, and memory is limited (I11)', async () => {
      const slow = await listed(watch('slow/'));
      const quick = await listed(watch());
      const release = slow.hold();
      const big = 'x'.repeat(80_000);
      await kvstore.put('slow/first', big);
      await kvstore.until('the reader is stopped', () => slow.content.size === 1);
      for (let round = 0; round < 4; round++) {
        for (let i = 0; i < 100; i++) await kvstore.put(`slow/${round}-${i}`, big);
        await kvstore.pass(10);
      }
      await kvstore.put(`${P}quick`, '1');
      await converged(quick);
      expect(slow.status().queuedBytes).toBeLessThan(2 * HIGH_WATER_BYTES);
      expect(slow.content.size).toBe(1);
      release();
      await converged(slow, 'slow/');
    });

    it('a reader that is blocked through a compaction loses nothing', async () => {
      const slow = await listed(watch());
      const release = slow.hold();
      const big = 'x'.repeat(80_000);
      for (let i = 0; i < 300; i++) await kvstore.put(`${P}${i % 175}`, `${i} ${big}`);
      await kvstore.remove(`${P}3`);
      await kvstore.compact();
      await kvstore.put(`${P}after`, '1');
      release();
      await converged(slow);
    });

    it.each(['listing', 'watching', 'waiting', 'forbidden'] as const)(
      'aborting while %s ends it at once, without deletes',
      async (state) => {
        if (state === 'forbidden') await reopen({ auth: true });
        await kvstore.load(numbered(2 * PAGE_KEYS));
        if (state === 'waiting') await client.down();
        if (state === 'forbidden') await client.forbid(P);
        const controller = new AbortController();
        const recorder = new WatchRecorder(client.backend.watch(P, { signal: controller.signal }));
        recorders.push(recorder);
        await kvstore.until(state, () => recorder.status().state === state);
        controller.abort();
        await kvstore.until('the end', () => recorder.ended);
        expect(recorder.events.filter(({ type }) => type === 'delete')).toEqual([]);
        expect(recorder.status().state).toBe('ended');
        expect(client.backend.status().watches).toEqual([]);
        await client.up();
      },
    );

    it('a reader that leaves the loop ends the watch', async () => {
      await kvstore.load(numbered(3));
      for await (const _batch of client.backend.watch(P)) break;
      expect(client.backend.status().watches).toEqual([]);
      await kvstore.until('no stream is left', () => client.openStreams() === 0);
    });

    it('close ends the watches of a client and leaves no stream (trap: etcd3 leaks)', async () => {
      const recorder = await listed(watch());
      await client.backend.close();
      await kvstore.until('the end', () => recorder.ended);
      await kvstore.until('no stream is left', () => client.openStreams() === 0);
      await expect(client.backend.get(`${P}a`)).rejects.toMatchObject({ code: 'closed' });
    });
  });

  describe(`${name}: keys of a store that another client changes`, () => {
    const random = (): number => 0.1;

    it.each(['sync store', 'shared store'])(
      'a %s puts them back, also those changed during a disconnect',
      async (kind) => {
        const { backend } = client;
        const common = { backend, prefix: P, clock: kvstore.clock, random, canary: 'synced/contract' };
        const decode: StoreDecoder<Uint8Array> = (_name, value) => ({ ok: true, value });
        const observer = { onUpdate: () => {}, onDelete: () => {} };
        const rejections = new RejectionLog();
        const store =
          kind === 'sync store'
            ? new SyncStore(common)
            : new SharedStore({ ...common, decode, observer, rejections });
        const controller = new AbortController();
        controllers.push(controller);
        const running = store.run(controller.signal);
        const local = store instanceof SyncStore ? store : store.local;
        const wanted = ['a', 'b', 'c', 'd'].map((key): Entry => [`${P}${key}`, `of ${key}`]);
        for (const key of ['a', 'b', 'c', 'd']) local.upsert(key, bytes(`of ${key}`));
        await local.markSynced();
        const isBack = (): Promise<void> =>
          kvstore.until('all keys are back', async () => {
            const canary = await kvstore.content('synced/');
            return canary.size === 1 && isDeepStrictEqual(await kvstore.content(P), new Map(wanted));
          });
        const spoil = async (deleted: string, overwritten: string): Promise<void> => {
          await kvstore.remove(`${P}${deleted}`);
          await kvstore.put(`${P}${overwritten}`, 'of another client');
        };
        await spoil('a', 'b');
        await kvstore.remove('synced/contract');
        await isBack();
        await client.down();
        await spoil('c', 'd');
        await client.up();
        await isBack();
        controller.abort();
        await running;
      },
    );
  });
}
