import { afterEach, beforeEach, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { objectScanner } from '../../../src/k8s/object-scanner.ts';
import {
  type FollowedResource,
  type FollowOptions,
  objectVersion,
  type ResourceKind,
  ScannedObject,
} from '../../../src/k8s/resource.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { ApiUser } from '../support/api-user.ts';
import { RecordingSink } from '../support/recording-sink.ts';
import { ScriptedApi } from '../support/scripted-api.ts';

const PODS: ResourceKind = { group: '', version: 'v1', plural: 'pods' };

let clock: ManualClock;
let asked: string[];
let clients: KubernetesClient[];
beforeEach(() => {
  clock = new ManualClock();
  asked = [];
  clients = [];
});
afterEach(async () => {
  for (const client of clients) await client.close();
  expect(clock.pending).toBe(0);
});

/** Returns the purpose of a request. */
function nameOf(path: string): string {
  const query = new URL(path, 'http://server').searchParams;
  if (query.has('sendInitialEvents')) return `stream ${query.get('resourceVersion') ?? ''}`.trim();
  return query.has('watch') ? 'watch' : 'list';
}

function follow(
  server: MemoryApiServer,
  options?: FollowOptions,
): {
  readonly sink: RecordingSink;
  readonly followed: FollowedResource;
} {
  const way = new MemoryApiTransport(server);
  const transport: ApiTransport = {
    send: (request) => {
      if (request.path.startsWith('/api/v1/pods')) asked.push(nameOf(request.path));
      return way.send(request);
    },
    reset: () => way.reset(),
    close: () => way.close(),
  };
  const client = new KubernetesClient(transport, { clock, random: () => 0 });
  clients.push(client);
  const sink = new RecordingSink();
  return { sink, followed: client.follow(PODS, sink, options) };
}

function served(streamingLists: boolean): { readonly server: MemoryApiServer; readonly pods: ApiUser } {
  const server = new MemoryApiServer({ clock, streamingLists });
  const writing = new MemoryApiTransport({ handle: (request) => server.handleElsewhere(request) });
  return { server, pods: new ApiUser(writing, PODS, 'n') };
}

it('a server that supports it streams its objects, more than fit into a queue; nothing is listed', async () => {
  const { server, pods } = served(true);
  for (let i = 0; i < 1200; i++) await pods.create(`p${i}`);
  const { sink, followed } = follow(server);
  await settle(300);
  expect(asked).toEqual(['stream', 'watch']);
  expect(followed.status()).toMatchObject({ listed: true, objects: 1200, lists: 1, failures: 0 });
  await pods.delete('p7');
  await settle();
  expect(sink.objects.size).toBe(1199);
  expect(sink.breaches).toEqual([]);
});

it('the scanner reads the objects of a stream and of a watch (regression: only those of lists)', async () => {
  const { server, pods } = served(true);
  await pods.create('a');
  const scanner = objectScanner({ metadata: {}, fields: {}, begin: () => {}, value: ({ name }) => name });
  const { sink, followed } = follow(server, { keep: objectVersion, fields: ['spec'], scanner });
  const scanned = (): readonly unknown[] =>
    [...sink.objects.values()].map((object) => object instanceof ScannedObject && object.value);
  await settle(30);
  expect(scanned()).toEqual(['a']);
  await pods.create('b');
  await settle(30);
  expect(scanned()).toEqual(['a', 'b']);
  await pods.delete('a');
  await settle(30);
  expect(scanned()).toEqual(['b']);
  expect(followed.status()).toMatchObject({ lists: 1, watches: 1, rejected: 0, failures: 0 });
});

it('a server without support is tried once, and that is not a failure', async () => {
  const { server, pods } = served(false);
  await pods.create('a');
  const { sink, followed } = follow(server);
  await settle(30);
  expect(asked).toEqual(['stream', 'list', 'watch']);
  expect(followed.status()).toMatchObject({ listed: true, failures: 0, lastFailure: undefined });
  server.down();
  await pods.create('b');
  server.up();
  await advance(clock, 60_000);
  expect(sink.objects.size).toBe(2);
  expect(asked.filter((name) => name.startsWith('stream'))).toEqual(['stream']);
});

it('a stream that never ends is replaced by a list', async () => {
  const { server, pods } = served(false);
  await pods.create('a');
  // Like a server that treats it as an ordinary watch.
  server.faults.inject({ do: 'hang' }, { matches: ({ path }) => path.includes('sendInitialEvents') });
  const { sink } = follow(server);
  await advance(clock, 59_000);
  expect(asked).toEqual(['stream']);
  await advance(clock, 2000);
  expect(sink.objects.size).toBe(1);
  expect(asked).toEqual(['stream', 'list', 'watch']);
});

it('a server that treats a stream as a watch is asked for a list at its first bookmark (regression: changes and bookmarks delayed the list for 10 minutes)', async () => {
  const api = new ScriptedApi();
  const client = new KubernetesClient(api, { clock, random: () => 0 });
  clients.push(client);
  const sink = new RecordingSink();
  const followed = client.follow(PODS, sink);
  const a = { metadata: { name: 'a', namespace: 'n', uid: '1', resourceVersion: '5' } };
  const stream = await api.takes('stream');
  for (let i = 0; i < 4; i++) {
    await stream.say({ type: 'MODIFIED', object: a });
    await advance(clock, 20_000);
  }
  await stream.say({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '6' } } });
  const list = await api.takes('list');
  await list.list('6', [a]);
  expect(followed.status()).toMatchObject({ listed: true, objects: 1, failures: 0 });
});

it.each([
  ['an ordinary bookmark', { type: 'BOOKMARK', object: { metadata: { resourceVersion: '6' } } }],
  ['an error', { type: 'ERROR', object: { code: 422 } }],
])('objects before %s of a stream are delivered (regression: known, but never delivered)', async (_, end) => {
  const api = new ScriptedApi();
  const client = new KubernetesClient(api, { clock, random: () => 0 });
  clients.push(client);
  const sink = new RecordingSink();
  client.follow(PODS, sink);
  const a = { metadata: { name: 'a', namespace: 'n', uid: '1', resourceVersion: '5' } };
  const stream = await api.takes('stream');
  await stream.say({ type: 'ADDED', object: a }, end);
  const list = await api.takes('list');
  await list.list('6', [a]);
  expect([...sink.objects.values()]).toEqual([a]);
});

it('a broken stream deletes nothing, and is requested again, not older than the last version', async () => {
  const { server, pods } = served(true);
  await pods.create('a');
  const { sink } = follow(server);
  await settle(30);
  const b = await pods.create('b');
  await pods.delete('a');
  await settle(30);
  expect([...sink.objects.keys()]).toEqual(['n/b']);
  // The last event was a delete, so a list follows the lost connection.
  server.faults.inject(
    { do: 'cut', afterBytes: 40 },
    { matches: ({ path }) => path.includes('sendInitial') },
  );
  server.cut();
  await advance(clock, 30_000);
  expect([...sink.objects.keys()]).toEqual(['n/b']);
  const streams = asked.filter((name) => name.startsWith('stream'));
  expect(streams.length).toBe(3);
  expect(Number(streams[1]?.split(' ')[1])).toBeGreaterThan(Number(b.metadata.resourceVersion));
  expect(asked).not.toContain('list');
});
