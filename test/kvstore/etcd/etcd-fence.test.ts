import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/system-clock.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import { SyncStore } from '../../../src/kvstore/stores/sync-store.ts';
import { until } from '../../base/support/until.ts';
import { giveUpDelete, giveUpPut } from '../support/given-up-write.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';

let etcd: EtcdProcess;
let transport: EtcdTransport;
let client: KvstoreClient;
let other: EtcdBackend;

beforeAll(async () => {
  const [started] = await startEtcd();
  if (started === undefined) throw new Error('no etcd');
  etcd = started;
});
afterAll(() => etcd.dispose());

beforeEach(() => {
  transport = new EtcdTransport({ endpoints: [etcd.url] }, () => 0);
  client = new KvstoreClient({ kind: 'etcd', transport, clock: systemClock, random: Math.random });
  other = new EtcdBackend({ endpoints: [etcd.url] });
});
afterEach(() => Promise.all([client.close(), other.close()]));

async function content(prefix: string): Promise<Record<string, string | undefined>> {
  const found = await other.listPrefix(prefix);
  return Object.fromEntries(found.map(({ key, value }) => [key.slice(prefix.length), textOfBytes(value)]));
}

it('no write of a sync store takes effect after a later one, whatever arrives late at etcd', async () => {
  const ended = new AbortController();
  const store = new SyncStore({ backend: client, prefix: 'own/', clock: systemClock, random: Math.random });
  const running = store.run(ended.signal);
  const landed = (): Promise<void> => until('landed', () => store.status().pending === 0);
  const late = ['ghost', 'over', 'gone'].map((name) => giveUpPut(transport, `own/${name}`));
  for (const name of ['ghost', 'over', 'gone']) store.upsert(name, bytesOfText('v1'));
  await until('given up', () => store.status().failures === 3);
  store.delete('ghost');
  store.upsert('over', bytesOfText('v2'));
  await landed();
  late.push(giveUpDelete(transport, 'own/gone'));
  store.delete('gone');
  await until('given up', () => store.status().failures === 4);
  store.upsert('gone', bytesOfText('v2'));
  await landed();
  for (const land of late) await land();
  expect(await content('own/')).toEqual({ over: 'v2', gone: 'v2' });
  ended.abort();
  await running;
});

it('a place in the queue of a lock that arrives late at etcd blocks no other client', async () => {
  const { key, release } = await client.lock('locks/a');
  await release();
  const land = giveUpPut(transport, key);
  await expect(client.lock('locks/a')).rejects.toMatchObject({ code: 'deadline' });
  await (await client.lock('locks/a')).release();
  await land();
  expect(await content('locks/')).toEqual({});
  await (await other.lock('locks/a')).release();
});
