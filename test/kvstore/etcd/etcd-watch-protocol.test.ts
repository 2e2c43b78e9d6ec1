import { afterEach, expect, it } from 'vitest';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import {
  boolField,
  bytesField,
  type EncodedField,
  int64Field,
  message,
  numberField,
} from '../../../src/kvstore/codec/proto-writer.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import type { WatchStream } from '../../../src/kvstore/session/transport.ts';
import { until } from '../../base/support/until.ts';
import { settle } from '../support/settle.ts';
import { FakeServer, NO_KEYS } from './support/fake-server.ts';

const open: { stop(): void; close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const { stop, close } of open.splice(0)) {
    await close();
    stop();
  }
});

const headerAt = (revision: number): EncodedField =>
  bytesField(1, message(numberField(1, 7), numberField(3, revision)));
const HEADER = headerAt(20);
const CREATED = message(HEADER, boolField(3, true));
const event = (key: string, revision: number): EncodedField =>
  bytesField(11, message(bytesField(2, message(bytesField(1, Buffer.from(key)), numberField(3, revision)))));

/**
 * Returns the lines of an observer of a watch stream with these answers. Unless an answer ends the stream, the server
 * ends it after the client has received the only answer, or progress: an earlier end would discard waiting messages.
 */
async function received(...answers: readonly Buffer[]): Promise<readonly string[]> {
  let endStream = (): void => {};
  const server = new FakeServer({
    watch: (call) => {
      endStream = () => call.end();
      call.once('data', () => {
        for (const answer of answers) call.write(answer);
      });
    },
  });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  const lines: string[] = [];
  await new Promise<void>((resolve) => {
    transport.watch(
      { prefix: 'p/', startRevision: 3 },
      {
        onCreated: ({ revision }) => {
          lines.push(`created ${revision}`);
          if (answers.length === 1) endStream();
        },
        onEvents: (events, _header, isPartial) =>
          lines.push(`${isPartial ? 'partial ' : ''}${events.map((one) => `${one.key}@${one.modRevision}`)}`),
        onProgress: ({ revision }) => {
          lines.push(`progress ${revision}`);
          endStream();
        },
        onEnd: (reason) => {
          lines.push(reason instanceof KvstoreError ? `${reason.code}: ${reason.message}` : `${reason}`);
          resolve();
        },
      },
    );
  });
  return lines;
}

it('a watch that is created twice ends with an error (regression: no progress for two minutes, and shown as ready)', async () => {
  const lines = await received(CREATED, CREATED, message(HEADER, event('p/a', 20)));
  expect(lines).toEqual([
    'created 20',
    expect.stringMatching(
      /^internal: etcd at 127\.0\.0\.1:\d+: a second response that the watch was created/,
    ),
  ]);
});

it('an answer before the watch is created ends it with an error', async () => {
  const lines = await received(message(HEADER, event('p/a', 20)), CREATED);
  expect(lines).toEqual([
    expect.stringMatching(/^internal: etcd at 127\.0\.0\.1:\d+: a response before the watch was created/),
  ]);
});

it('an event with a lower revision than the one before ends the watch with an error (regression: it was ignored)', async () => {
  expect(
    await received(CREATED, message(HEADER, event('p/a', 20)), message(HEADER, event('p/b', 15))),
  ).toEqual([
    'created 20',
    'p/a@20',
    expect.stringMatching(/^internal: etcd at .*: an event of p\/b at revision 15 after revision 20$/),
  ]);
});

it('an event with a higher revision than the header of its message ends the watch with an error (regression: later writes were ignored)', async () => {
  expect(
    await received(CREATED, message(HEADER, event('p/a', 20)), message(HEADER, event('p/b', 2 ** 62))),
  ).toEqual([
    'created 20',
    'p/a@20',
    expect.stringMatching(
      /^internal: etcd at .*: an event of p\/b at revision 4611686018427388000 in an answer at revision 20$/,
    ),
  ]);
});

it.each([2 ** 53, 2 ** 62])(
  'a message at revision %d ends the watch with an error (regression: it was rounded, so that later revisions were equal)',
  async (revision) => {
    expect(await received(CREATED, message(headerAt(revision), event('p/a', revision)))).toEqual([
      'created 20',
      expect.stringMatching(/^internal: etcd at .*: an answer at revision \d+, which is too high$/),
    ]);
  },
);

it('a message of another etcd cluster ends the watch with an error (regression: its events were delivered)', async () => {
  const other = message(bytesField(1, message(numberField(1, 8), numberField(3, 21))), event('p/a', 21));
  expect(await received(CREATED, other)).toEqual([
    'created 20',
    expect.stringMatching(/^internal: etcd at .*: an answer of etcd cluster 8 to a watch of cluster 7$/),
  ]);
});

it('a watch that was created without the id of the etcd cluster takes the next id, as of the gRPC proxy (regression: it ended)', async () => {
  const created = message(bytesField(1, message(numberField(3, 20))), boolField(3, true));
  const other = message(bytesField(1, message(numberField(1, 8), numberField(3, 22))), event('p/b', 22));
  expect(await received(created, message(headerAt(21), event('p/a', 21)), other)).toEqual([
    'created 20',
    'p/a@21',
    expect.stringMatching(/an answer of etcd cluster 8 to a watch of cluster 7$/),
  ]);
});

it('a read of a watch fails if another etcd cluster answers (regression: its keys were delivered)', async () => {
  const server = new FakeServer({ watch: (call) => void call.write(CREATED), range: () => NO_KEYS });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  const ignored = (): void => {};
  const stream = await new Promise<WatchStream>((resolve) => {
    const observer = {
      onCreated: () => resolve(watch),
      onEvents: ignored,
      onProgress: ignored,
      onEnd: ignored,
    };
    const watch = transport.watch({ prefix: 'p/', startRevision: 3 }, observer);
  });
  await expect(stream.range(prefixRange('p/'))).rejects.toMatchObject({
    code: 'internal',
    message: expect.stringMatching(/an answer of etcd cluster {2}to a watch of cluster 7$/),
  });
});

it('a fragment without events ends the watch with an error (regression: counted as progress)', async () => {
  const lines = await received(CREATED, message(HEADER, boolField(7, true)));
  expect(lines).toEqual([
    'created 20',
    expect.stringMatching(/^internal: etcd at 127\.0\.0\.1:\d+: a fragment without events/),
  ]);
});

it('an event without a key-value ends the watch with an error, after the events before it', async () => {
  const lines = await received(CREATED, message(HEADER, bytesField(11, message(numberField(1, 1)))));
  expect(lines).toEqual([
    'created 20',
    expect.stringMatching(/^internal: etcd at 127\.0\.0\.1:\d+: a watch event without a key-value/),
  ]);
});

it('a watch that the server cancels or ends names its endpoint (regression: no endpoint)', async () => {
  const reason = bytesField(6, Buffer.from('mvcc: out of order'));
  expect(await received(message(HEADER, boolField(4, true), reason))).toEqual([
    expect.stringMatching(/^unavailable: etcd at 127\.0\.0\.1:\d+ canceled the watch: mvcc: out of order$/),
  ]);
  expect(await received(CREATED)).toEqual([
    'created 20',
    expect.stringMatching(/^unavailable: lost the connection to etcd at 127\.0\.0\.1:\d+: the server ended/),
  ]);
});

it('the reason of a canceled watch and the key of an event are cut in messages (regression: up to 64 MiB)', async () => {
  const long = Buffer.alloc(100_000, 'x');
  const [canceled = ''] = await received(message(HEADER, boolField(4, true), bytesField(6, long)));
  expect(canceled).toMatch(/canceled the watch: x+$/);
  expect(canceled.length).toBeLessThan(1_100);
  const lines = await received(
    CREATED,
    message(HEADER, event('p/a', 20)),
    message(HEADER, event(`p/${long}`, 15)),
  );
  expect(lines.at(-1)).toMatch(/an event of p\/x+… at revision 15 after/);
  expect(lines.at(-1)?.length).toBeLessThan(1_200);
});

it('a revision of many events is delivered in slices, of which the last one is marked complete', async () => {
  const events = Array.from({ length: 1100 }, (_, i) => event(`p/${i}`, i < 50 ? 20 : 21));
  const lines = await received(
    ...[CREATED, message(HEADER, boolField(7, true), event('p/a', 19))],
    ...[message(headerAt(21), ...events), message(HEADER)],
  );
  const shapes = lines.slice(0, -1).map((line) => `${line.split(',').length} ${line.slice(0, 9)}`);
  expect(shapes).toEqual([
    ...['1 created 2', '1 partial p'],
    ...['512 partial p', '512 partial p', '76 p/1024@21', '1 progress '],
  ]);
});

it('a paused watch receives no further slice of a revision until it is resumed', async () => {
  const events = Array.from({ length: 1100 }, (_, i) => event(`p/${i}`, 20));
  const server = new FakeServer({
    watch: (call) =>
      void call.once('data', () => {
        for (const answer of [CREATED, message(HEADER, ...events)]) call.write(answer);
      }),
  });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  const slices: number[] = [];
  const stream = transport.watch(
    { prefix: 'p/', startRevision: 3 },
    {
      onCreated: () => {},
      onEvents: ({ length }) => {
        slices.push(length);
        if (slices.length === 1) setImmediate(() => stream.pause()); // the next slice is scheduled
      },
      onProgress: () => {},
      onEnd: () => {},
    },
  );
  await until('the first slice', () => slices.length > 0);
  await settle(10);
  expect(slices).toEqual([512]);
  stream.resume();
  await until('all slices', () => slices.length === 3);
  expect(slices).toEqual([512, 512, 76]);
  stream.cancel();
});

it('progress counts as requested if the server answers no watch (regression: a notification of the server before the answer)', async () => {
  const server = new FakeServer({
    watch: (call) => {
      call.once('data', () => {
        call.write(CREATED);
        // As etcd: the answer has watch id -1, and a notification without a request that of the watch.
        call.once('data', () => {
          call.write(message(HEADER));
          call.write(message(HEADER, int64Field(2, '-1')));
          call.write(message(HEADER, numberField(2, 1)));
        });
      });
    },
  });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  open.push({ stop: () => server.stop(), close: () => transport.close() });
  const requested: boolean[] = [];
  const stream = transport.watch(
    { prefix: 'p/', startRevision: 3 },
    {
      onCreated: () => stream.requestProgress(),
      onEvents: () => {},
      onProgress: (_header, isRequested) => requested.push(isRequested),
      onEnd: () => {},
    },
  );
  await until('three notifications', () => requested.length === 3);
  expect(requested).toEqual([false, true, false]);
  stream.cancel();
});
