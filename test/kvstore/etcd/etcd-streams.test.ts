import { connect, constants } from 'node:http2';
import { queryObjects } from 'node:v8';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import type { WatchObserver, WatchStream } from '../../../src/kvstore/session/transport.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

const MB = 1 << 20;
/** The HTTP/2 window of an unread stream; see `etcd-connection.ts`. */
const WINDOW_BYTES = MB / 4;

let etcd: EtcdProcess;
let writer: EtcdBackend;
let link: TcpProxy;

beforeAll(async () => {
  const [started] = await startEtcd();
  if (started === undefined) throw new Error('no etcd');
  etcd = started;
  writer = new EtcdBackend({ endpoints: [etcd.url] });
});

beforeEach(async () => {
  link = new TcpProxy(etcd.clientPort);
  await link.start();
});

afterEach(() => link.close());

afterAll(async () => {
  await writer.close();
  await etcd.dispose();
});

/** Writes keys of 20 kB, each at a separate revision. Returns the first revision. */
async function write(prefix: string, keys: number): Promise<number> {
  const value = bytesOfText('x'.repeat(20_000));
  const first = await writer.update(`${prefix}first`, value);
  for (let at = 1; at < keys; at += 100)
    await Promise.all(Array.from({ length: 100 }, (_, i) => writer.update(`${prefix}${at + i}`, value)));
  return first;
}

/** Waits until the link is quiet. */
async function quiet(): Promise<void> {
  let received = -1;
  let looks = 0;
  await until('nothing more comes', () => {
    looks = link.received === received ? looks + 1 : 0;
    received = link.received;
    return looks > 20;
  });
}

it('messages that a paused stream has not requested stay with the server (regression: sixteen messages of any size were received)', async () => {
  const startRevision = await write('paused/', 3001);
  const transport = new EtcdTransport({ endpoints: [`http://127.0.0.1:${link.port}`] }, () => 0);
  let created = false;
  let events = 0;
  const pauseAfterEach = (): void => {
    if (events < 3001) stream.pause();
  };
  const observer: WatchObserver = {
    onCreated: () => {
      created = true;
      stream.pause();
    },
    onEvents: (told) => {
      events += told.length;
      pauseAfterEach();
    },
    onProgress: () => {},
    onEnd: () => {},
  };
  const stream: WatchStream = transport.watch({ prefix: 'paused/', startRevision }, observer);
  await until('it is accepted', () => created);
  await quiet();
  expect(link.received).toBeLessThan(WINDOW_BYTES + MB);
  stream.resume();
  await until('something is told', () => events > 0);
  await quiet();
  // etcd catches up by 1,000 revisions per message: 20 MB.
  expect(link.received).toBeLessThan(21 * MB + WINDOW_BYTES);
  expect(events).toBeLessThan(1001);
  await until('all is told', () => {
    stream.resume();
    return events === 3001;
  });
  await transport.close();
});

it('watches leave no stream, here or on the server, whenever they are ended (regression: those ended exactly at list-done)', async () => {
  const backend = new EtcdBackend({ endpoints: [`http://127.0.0.1:${link.port}`] });
  await write('ended/', 101);
  const streams = streamCounter(etcd.url);
  await backend.get('ended/first');
  const before = streams();
  for (let round = 0; round < 7; round++) {
    for (const moment of ['begun', 'list-done', 'watching'] as const) {
      const controller = new AbortController();
      const recorder = new WatchRecorder(backend.watch('ended/', { signal: controller.signal }));
      await until(moment, () => {
        if (moment === 'begun') return backend.openStreams > 0;
        return moment === 'watching' ? recorder.status().state === moment : recorder.listed;
      });
      controller.abort();
      await recorder.done;
    }
  }
  for await (const batch of backend.watch('ended/')) if (batch.at(-1)?.type === 'list-done') break;
  await until('the streams are closed', () => backend.openStreams === 0 && streams() <= before);
  await until('the server has none', async () => (await watchStreams()) === 0);
  await backend.close();
});

it('a client that only watches is connected, is not when it is cut off, and is again', async () => {
  const backend = new EtcdBackend({ endpoints: [`http://127.0.0.1:${link.port}`] });
  expect(backend.status()).toMatchObject({ connected: false, clusterID: undefined });
  const recorder = new WatchRecorder(backend.watch('connected/'));
  await until('it watches', () => recorder.status().state === 'watching');
  expect(backend.status()).toMatchObject({ connected: true, lastFailure: undefined });
  link.mode = 'refuse';
  await until('it is cut off', () => !backend.status().connected);
  link.mode = 'open';
  await until('it is back', () => backend.status().connected);
  await backend.close();
  expect(backend.status().connected).toBe(false);
  await recorder.done;
});

it('a watch without a reader is not known to the server', async () => {
  const signal = new AbortController().signal;
  const before = queryObjects(WeakRef, { format: 'count' });
  for (let i = 0; i < 1000; i++) writer.watch('unread/', { signal });
  expect(writer.status().watches).toEqual([]);
  expect(queryObjects(WeakRef, { format: 'count' }) - before).toBeLessThan(100);
});

/** Counts the HTTP/2 streams of this process that are still referenced. */
function streamCounter(url: string): () => number {
  const session = connect(url);
  const stream = session.request();
  stream.on('error', () => {});
  const type = stream.constructor;
  stream.close(constants.NGHTTP2_CANCEL);
  session.destroy();
  return () => queryObjects(type, { format: 'count' });
}

/** Returns the server's number of open watch streams. */
async function watchStreams(): Promise<number> {
  const metrics = await (await fetch(`${etcd.url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watch_stream_total (\d+)$/m.exec(metrics)?.[1]);
}

it('an answer that arrived while one turn took longer than the deadline counts (regression: late without being read)', async () => {
  const transport = new EtcdTransport({ endpoints: [etcd.url], deadlineMs: 300 }, () => 0);
  await transport.range(keyRange('a'), { deadlineMs: 60_000 }); // connected
  const outcomes: unknown[] = [];
  for (const blockedMs of [1500, 3000, 6000]) {
    const answer = transport.range(keyRange('a'));
    setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockedMs));
    outcomes.push(await answer.catch(({ code }: { readonly code: string }) => code));
    if (outcomes.at(-1) !== 'deadline') break; // an etcd on a busy machine may answer later
  }
  await transport.close();
  expect(outcomes.at(-1)).toMatchObject({ count: 0 });
});
