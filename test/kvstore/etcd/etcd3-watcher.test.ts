import { Etcd3, type WatchBuilder } from 'etcd3';
import { describe, expect, it } from 'vitest';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { EtcdAndWriter } from './support/etcd-and-writer.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

/**
 * Shows why `EtcdBackend` does not use the watcher of the etcd3 client. That watcher resumes after the
 * revision of the last *header*. While etcd catches up, the header has the store's revision, whatever has
 * been sent.
 */

const TRIES = 10;

const server = new EtcdAndWriter();

type Etcd3Watcher = Awaited<ReturnType<WatchBuilder['create']>>;

/** Keys below a prefix that each of two watches has reported. */
interface Told {
  readonly etcd3: ReadonlySet<string>;
  readonly etcd3Errors: readonly unknown[];
  readonly ours: ReadonlyMap<string, string>;
}

/**
 * Runs an etcd3 watcher and our watch over one link. Cuts the link, writes `count` keys, and cuts the link
 * again when the etcd3 watcher has reconnected.
 */
async function cutTwice(prefix: string, count: number): Promise<Told> {
  const link = new TcpProxy(server.etcd.clientPort);
  await link.start();
  const endpoint = `http://127.0.0.1:${link.port}`;
  const backend = new EtcdBackend({ endpoints: [endpoint] });
  const recorder = new WatchRecorder(backend.watch(prefix));
  await until('our watch has begun', () => recorder.status().state === 'watching');
  const client = new Etcd3({ hosts: endpoint });
  const watcher = await client.watch().prefix(prefix).create();
  const { keys, errors } = recorded(watcher);

  const away = new Promise((resolve) => watcher.once('disconnected', resolve));
  link.mode = 'refuse';
  await away;
  await server.write(prefix, count);
  let isCut = false;
  watcher.once('connected', () => {
    link.cut();
    isCut = true;
  });
  link.mode = 'open';
  await until('it is cut once more', () => isCut);
  await server.put(`${prefix}last`);
  await until('both have seen the last key', () =>
    [keys, recorder.content].every((seen) => seen.has(`${prefix}last`)),
  );

  await watcher.cancel();
  client.close();
  await backend.close();
  await recorder.done;
  await link.close();
  return { etcd3: keys, etcd3Errors: errors, ours: recorder.content };
}

function recorded(watcher: Etcd3Watcher): { readonly keys: Set<string>; readonly errors: unknown[] } {
  const keys = new Set<string>();
  const errors: unknown[] = [];
  watcher.on('put', ({ key }) => keys.add(key.toString()));
  watcher.on('error', (error) => errors.push(error));
  return { keys, errors };
}

/**
 * Returns the result of the first try in which the etcd3 watcher lost keys. Chance decides which of the two a
 * cut affects. Ours must have lost none in any try.
 */
async function firstLoss(prefix: string, count: number): Promise<Told> {
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const told = await cutTwice(`${prefix}${attempt}/`, count);
    expect(told.ours.size).toBe(count + 1);
    if (told.etcd3.size <= count) return told;
  }
  throw new Error(`nothing was lost in ${TRIES} tries`);
}

describe('the watcher of the etcd3 client, which is not used here', () => {
  it('loses the writes during a disconnect if it is disconnected again right after the reconnect', async () => {
    const { etcd3, etcd3Errors } = await firstLoss('twice/', 200);
    expect(etcd3.size).toBeLessThan(201);
    expect(etcd3Errors).toEqual([]);
  });
});
