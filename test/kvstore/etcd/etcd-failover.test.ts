import { status } from '@grpc/grpc-js';
import { afterEach, describe, expect, it } from 'vitest';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { bytesField, int64Field, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import type { EtcdConfig } from '../../../src/kvstore/etcd/etcd-config.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import type { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';
import { FakeServer } from './support/fake-server.ts';
import { TcpProxy } from './support/tcp-proxy.ts';

const P = 'failover/';
const value = bytesOfText('value');
const cleanUps: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function started(members: number): Promise<readonly EtcdProcess[]> {
  const etcds = await startEtcd(members);
  for (const etcd of etcds) cleanUps.push(() => etcd.dispose());
  return etcds;
}

/** Options with which a black hole is noticed soon. */
const SOON = { deadlineMs: 1000, keepAliveTimeMs: 500, keepAliveTimeoutMs: 500 };

/** A client with a separate link to each member. */
async function clientOf(
  members: readonly EtcdProcess[],
  limits: Partial<EtcdConfig> = {},
): Promise<{ readonly backend: EtcdBackend; readonly links: readonly TcpProxy[] }> {
  const links = members.map(({ clientPort }) => new TcpProxy(clientPort));
  for (const link of links) {
    await link.start();
    cleanUps.push(() => link.close());
  }
  const backend = new EtcdBackend(
    { endpoints: links.map(({ port }) => `http://127.0.0.1:${port}`), ...limits },
    { random: () => 0 },
  );
  cleanUps.push(() => backend.close());
  return { backend, links };
}

async function watching(recorder: WatchRecorder): Promise<void> {
  await until('it watches', () => recorder.listed && recorder.status().state === 'watching');
}

/** Retries until it succeeds, because the backend does not retry failed calls. */
async function put(backend: EtcdBackend, key: string): Promise<void> {
  await until(`${key} is written`, () =>
    backend.update(P + key, value).then(
      () => true,
      () => false,
    ),
  );
}

describe('several endpoints', () => {
  it.each(['refuse', 'black-hole'] as const)(
    'when the one in use is gone (%s) another is used, and what is known there is not told again',
    async (mode) => {
      const { backend, links } = await clientOf(await started(3), SOON);
      await put(backend, 'a');
      const recorder = new WatchRecorder(backend.watch(P));
      await watching(recorder);
      // The first member, or another one if it is slow to answer.
      const used = links.filter(({ connections }) => connections > 0);
      expect(used).toHaveLength(1);

      for (const link of used) link.mode = mode;
      await put(backend, 'b');
      await until('the write is seen', () => recorder.content.has(`${P}b`));
      await watching(recorder);
      expect(recorder.story).toEqual([`create ${P}a`, 'list-done', `create ${P}b`]);
      expect(recorder.status()).toMatchObject({ listings: 1 });
      expect(recorder.breaches).toEqual([]);
      expect(links.some((link) => link.connections > 0 && !used.includes(link))).toBe(true);
      await backend.close();
      await recorder.done;
    },
  );

  it('an endpoint of another cluster is detected by its id: nothing is deleted', async () => {
    const [own, stranger] = [...(await started(1)), ...(await started(1))];
    if (own === undefined || stranger === undefined) throw new Error('no etcd');
    const { backend, links } = await clientOf([own, stranger]);
    for (const key of ['a', 'b']) await put(backend, key);
    const recorder = new WatchRecorder(backend.watch(P, { endOnDivergence: true }));
    await watching(recorder);
    // At least as many revisions, so that only the id differs.
    for (let i = 0; i < 10; i++) await stranger.ctl(['put', `${P}stranger`, String(i)]);
    const [first] = links;
    if (first !== undefined) first.mode = 'refuse';
    await recorder.done;
    expect(recorder.status().state).toBe('diverged');
    expect([...recorder.content.keys()]).toEqual([`${P}a`, `${P}b`]);
  });
});

it('a transaction without writes is answered by the quorum (regression: a member that lagged compared its own state)', async () => {
  const members = await started(3);
  const transports = members.map(({ url }) => new EtcdTransport({ endpoints: [url] }, () => 0));
  for (const transport of transports) cleanUps.push(() => transport.close());
  const statuses = await Promise.all(transports.map((transport) => transport.endpoints()));
  const lagging = statuses.findIndex(([status]) => status?.isLeader !== true);
  const [member, transport] = [members[lagging], transports[lagging]];
  const other = transports[(lagging + 1) % transports.length];
  if (member === undefined || transport === undefined || other === undefined) throw new Error('no etcd');
  const key = `${P}a`;
  const put = { op: 'put', key, value, lease: '0' } as const;
  await transport.range(keyRange(key)); // connects
  member.freeze();
  let revision = 0;
  for (let i = 0; i < 100; i++) revision = (await other.txn({ compare: [], writes: [put] })).header.revision;
  const compared = transport.txn({
    compare: [{ key, target: 'mod-revision', equals: revision }],
    writes: [],
  });
  await new Promise((resolve) => setTimeout(resolve, 50)); // sent
  member.thaw();
  expect(await compared).toMatchObject({ header: { revision }, succeeded: true });
});

it.each([
  [
    'a learner of etcd 3.6',
    { code: status.FAILED_PRECONDITION, details: 'etcdserver: rpc not supported for learner' },
  ],
  ['a server without the method', { code: status.UNIMPLEMENTED, details: 'Received HTTP status code 404' }],
  ['a server whose answers have no header', Buffer.alloc(0)],
])('another endpoint is used after %s (regression: stayed there)', async (_, answer) => {
  const header = bytesField(1, message(numberField(1, 7), numberField(3, 20)));
  const [bad, good] = [
    new FakeServer({ range: () => answer }),
    new FakeServer({ range: () => message(header) }),
  ];
  const transport = new EtcdTransport({ endpoints: [await bad.start(), await good.start()] }, () => 0);
  cleanUps.push(async () => [bad, good].map((server) => server.stop()));
  cleanUps.push(() => transport.close());
  await expect(transport.range(keyRange('a'))).rejects.toMatchObject({ retryable: true });
  expect((await transport.range(keyRange('a'))).header.revision).toBe(20);
});

it.each([
  ['etcdserver: too many requests', 20], // of a member that applies entries too slowly
  ['etcdserver: mvcc: database space exceeded', 'overloaded'], // of all members
] as const)(
  'the next endpoint is used if one refuses a call for a cause of its own (regression: a slow member was called for ever): %s',
  async (details, outcome) => {
    const header = bytesField(1, message(numberField(1, 7), numberField(3, 20)));
    const [bad, good] = [
      new FakeServer({ range: () => ({ code: status.RESOURCE_EXHAUSTED, details }) }),
      new FakeServer({ range: () => message(header) }),
    ];
    const transport = new EtcdTransport({ endpoints: [await bad.start(), await good.start()] }, () => 0);
    cleanUps.push(async () => [bad, good].map((server) => server.stop()));
    cleanUps.push(() => transport.close());
    const read = (): Promise<unknown> =>
      transport.range(keyRange('a')).then(
        ({ header: { revision } }) => revision,
        ({ code }: KvstoreError) => code,
      );
    expect([await read(), await read()]).toEqual(['overloaded', outcome]);
  },
);

it('a new configuration keeps the endpoint (regression: after each renewal of certificates all clients used the first one)', async () => {
  const header = bytesField(1, message(numberField(1, 7), numberField(3, 20)));
  const reads = [0, 0, 0];
  const endpoints: string[] = [];
  for (const index of reads.keys()) {
    const count = (): Buffer => {
      reads[index] = (reads[index] ?? 0) + 1;
      return message(header);
    };
    const server = new FakeServer({ range: count });
    cleanUps.push(async () => server.stop());
    endpoints.push(await server.start());
  }
  const transport = new EtcdTransport({ endpoints }, () => 0.5);
  cleanUps.push(() => transport.close());
  await transport.range(keyRange('a'));
  transport.reconfigure({ endpoints });
  await transport.range(keyRange('a'));
  expect(reads).toEqual([0, 2, 0]);
});

it.each([
  ['an empty message', Buffer.alloc(0)],
  ['an answer for another lease', message(int64Field(2, '8'), numberField(3, 60))],
])(
  '%s is no answer to a keepalive (regression: the lease counted as ended, or as alive)',
  async (_, answer) => {
    const server = new FakeServer({ keepAlive: (call) => void call.once('data', () => call.write(answer)) });
    const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
    cleanUps.push(async () => server.stop());
    cleanUps.push(() => transport.close());
    const message = expect.stringMatching(/^etcd at 127\.0\.0\.1:\d+: an answer for lease [08], not 7$/);
    await expect(transport.keepLeaseAlive('7')).rejects.toMatchObject({ code: 'internal', message });
  },
);

it('an answer to a transaction without a header is no success', async () => {
  const server = new FakeServer({ txn: () => Buffer.alloc(0) });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  cleanUps.push(async () => server.stop());
  cleanUps.push(() => transport.close());
  const message = expect.stringMatching(/^etcd at 127\.0\.0\.1:\d+: an answer without a revision$/);
  await expect(transport.txn({ compare: [], writes: [] })).rejects.toMatchObject({
    code: 'internal',
    message,
  });
});

it('a watch that is not accepted in time ends, because a healthy server may still let it wait', async () => {
  const [etcd] = await started(1);
  if (etcd === undefined) throw new Error('no etcd');
  const link = new TcpProxy(etcd.clientPort);
  await link.start();
  cleanUps.push(() => link.close());
  link.mode = 'stalled';
  const endpoints = [`http://127.0.0.1:${link.port}`];
  const transport = new EtcdTransport({ endpoints, deadlineMs: 500 }, () => 0);
  cleanUps.push(() => transport.close());
  const reason = await new Promise((onEnd) => {
    const silent = { onCreated: () => {}, onEvents: () => {}, onProgress: () => {} };
    transport.watch({ prefix: P, startRevision: 1 }, { ...silent, onEnd });
  });
  const message = `no answer from etcd at 127.0.0.1:${link.port} in time; check the network and the load of etcd`;
  expect(reason).toMatchObject({ code: 'deadline', message });
});
