import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { ApiObjectReader } from '../../../src/k8s/rest/object-reader.ts';
import {
  ApiObjectWriter,
  DryRunWriter,
  type ObjectWrite,
  type WriteOutcome,
} from '../../../src/k8s/rest/object-writer.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { ApiUser } from '../support/api-user.ts';

const CONFIG_MAPS = { group: '', version: 'v1', plural: 'configmaps' };
const { signal: never } = new AbortController();

function world(): { clock: ManualClock; api: MemoryApiServer; transport: MemoryApiTransport; maps: ApiUser } {
  const clock = new ManualClock();
  const api = new MemoryApiServer({ clock });
  const transport = new MemoryApiTransport(api);
  return { clock, api, transport, maps: new ApiUser(transport, CONFIG_MAPS, 'a') };
}

const removal = (name: string, uid: string): ObjectWrite => ({
  verb: 'delete',
  place: { kind: CONFIG_MAPS, namespace: 'a', name },
  uid,
});

it('calls its fence at the turn of the write, not at its call', async () => {
  const { clock, transport, maps } = world();
  let leads = true;
  const writer = new ApiObjectWriter(transport, clock, { perSecond: 1, mayWrite: () => leads });
  const outcomes: string[] = [];
  for (const name of ['x', 'y']) {
    const { metadata } = await maps.create(name);
    void writer
      .write(removal(name, metadata.uid), 'unused', never)
      .then(({ outcome }) => outcomes.push(outcome));
  }
  await advance(clock, 500);
  leads = false;
  await advance(clock, 1000);
  expect(outcomes).toEqual(['done', 'not-leader']);
  expect((await maps.ask({ path: maps.path('y') })).status).toBe(200);
});

it('reads and writes leave no listener on the signal of their caller, and no timer, also if they fail', async () => {
  const { clock, api, transport, maps } = world();
  const { signal } = new AbortController();
  const reader = new ApiObjectReader(transport, clock);
  const writer = new ApiObjectWriter(transport, clock, { perSecond: 1000 });
  const { metadata } = await maps.create('x');
  const read = async (name: string): Promise<unknown> =>
    reader.get({ kind: CONFIG_MAPS, namespace: 'a', name }, signal).catch(String);
  expect([await read('x'), await read('y')]).toMatchObject([{ metadata: { name: 'x' } }, undefined]);
  expect((await writer.write(removal('y', ''), 'unused', signal)).outcome).toBe('not-found');
  expect((await writer.write(removal('x', metadata.uid), 'unused', signal)).outcome).toBe('done');
  api.down();
  expect(await read('x')).toMatch(/^ApiError: (?!.*grant)/); // the right to read is not the cause
  expect([getEventListeners(signal, 'abort'), clock.pending]).toEqual([[], 0]);
});

it('waits as long as an overloaded server requests, and fails finally', async () => {
  const { clock, api, transport, maps } = world();
  const { metadata } = await maps.create('x');
  const writer = new ApiObjectWriter(transport, clock);
  const busy = { do: 'answer', status: 429, body: 'slow down', headers: { 'retry-after': '2' } } as const;
  api.faults.inject(busy, { times: 2 });
  let outcome: WriteOutcome | undefined;
  const write = (): Promise<void> =>
    writer.write(removal('x', metadata.uid), 'unused', never).then((came) => {
      outcome = came;
    });
  let writing = write();
  await advance(clock, 3900);
  expect(outcome).toBeUndefined();
  await advance(clock, 100);
  expect(outcome).toEqual({ outcome: 'done', object: undefined });
  await writing;
  api.faults.inject(busy, { times: 5 });
  writing = write();
  await advance(clock, 60_000);
  await writing;
  expect(outcome).toMatchObject({ outcome: 'failed', error: { code: 'throttled' } });
});

it.each([0, Number.NaN])('rejects %s attempts (regression: the write never ended)', (maxTries) => {
  const { clock, transport } = world();
  expect(() => new ApiObjectWriter(transport, clock, { maxTries })).toThrow('maxTries must be at least 1');
});

it('an answer that is no object is a failed write (regression: done, although nothing was stored)', async () => {
  const { clock, api, transport } = world();
  const writer = new ApiObjectWriter(transport, clock);
  api.faults.inject({ do: 'answer', status: 200, body: '<html>Log in</html>' });
  const object = { metadata: { name: 'x' } };
  expect(
    await writer.write({ verb: 'create', kind: CONFIG_MAPS, namespace: 'a', object }, '', never),
  ).toMatchObject({
    outcome: 'failed',
    error: { code: 'garbled', message: 'the response to create configmaps/v1 a/x is not an object' },
  });
});

it('a patch that violates the schema is invalid, unlike a failed test (regression: a conflict, so that callers repeated it)', async () => {
  const { clock, api, transport, maps } = world();
  await maps.create('x');
  const writer = new ApiObjectWriter(transport, clock);
  const write = async (value: string): Promise<WriteOutcome> => {
    const operations = [{ op: 'test', path: '/metadata/name', value }] as const;
    const place = { kind: CONFIG_MAPS, namespace: 'a', name: 'x' };
    return writer.write({ verb: 'patch', place, operations }, 'unused', never);
  };
  expect((await write('x')).outcome).toBe('done');
  expect((await write('y')).outcome).toBe('conflict');
  const causes = [{ reason: 'FieldValueRequired', message: 'Required value', field: 'spec.ports' }];
  const message = 'ConfigMap "x" is invalid: spec.ports: Required value';
  const body = JSON.stringify({ kind: 'Status', code: 422, reason: 'Invalid', message, details: { causes } });
  api.faults.inject({ do: 'answer', status: 422, body });
  expect(await write('x')).toEqual({ outcome: 'invalid', message });
});

it.each([
  [
    'User "agent" cannot create resource "configmaps" in API group "" in the namespace "a"',
    ': grant the verb "delete" on the resource "configmaps" of the API group ""',
  ],
  ['unable to create new content in namespace a because it is being terminated', ''],
  ['exceeded quota: maps, requested: count/configmaps=1, used: count/configmaps=2, limited: 2', ''],
])(
  'names the right to grant only if it is missing (regression: in a terminated namespace): %s',
  async (reason, remedy) => {
    const { clock, api, transport } = world();
    const message = `configmaps "x" is forbidden: ${reason}`;
    const body = JSON.stringify({ kind: 'Status', code: 403, reason: 'Forbidden', message });
    api.faults.inject({ do: 'answer', status: 403, body });
    const outcome = await new ApiObjectWriter(transport, clock).write(removal('x', ''), 'unused', never);
    expect(outcome).toEqual({ outcome: 'refused', message: `${message}${remedy}` });
  },
);

it('waits at least a second before it repeats a throttled request, also if the server states no time', async () => {
  const { clock, api, transport } = world();
  const writer = new ApiObjectWriter(transport, clock);
  api.faults.inject({ do: 'answer', status: 429, body: 'slow down' }, { times: 2 });
  let outcome: WriteOutcome | undefined;
  void writer.write(removal('x', 'u'), 'unused', never).then((answer) => {
    outcome = answer;
  });
  await advance(clock, 1999);
  expect(outcome).toBeUndefined();
  await advance(clock, 1);
  expect(outcome).toMatchObject({ outcome: 'not-found' });
});

it('reports an unknown outcome for a write without an answer in time, or whose signal fires', async () => {
  const { clock, api, transport } = world();
  const writer = new ApiObjectWriter(transport, clock, { timeoutMs: 5000 });
  api.faults.inject({ do: 'hang' }, { times: 2 });
  const outcomes: WriteOutcome[] = [];
  const ended = new AbortController();
  for (const signal of [never, ended.signal])
    void writer.write(removal('x', 'u'), 'unused', signal).then((outcome) => outcomes.push(outcome));
  await advance(clock, 4000);
  ended.abort();
  await advance(clock, 2000);
  expect(outcomes.map(({ outcome }) => outcome)).toEqual(['failed', 'failed']);
  expect(outcomes).toContainEqual({ outcome: 'failed', error: expect.objectContaining({ code: 'silent' }) });
});

it('prints each write with its reason instead of sending it in a dry run', async () => {
  const lines: string[] = [];
  const writer = new DryRunWriter((line) => lines.push(line));
  const kind = { group: 'cilium.io', version: 'v2', plural: 'ciliumnetworkpolicies' };
  const place = { kind, namespace: 'shop', name: 'p' };
  expect(await writer.write(removal('x', 'u'), 'its pod is gone')).toEqual({ outcome: 'dry-run' });
  await writer.write({ verb: 'patch', place, subresource: 'status', operations: [] }, 'node n1 is gone');
  await writer.write({ verb: 'create', kind, object: { metadata: { name: 'new' } } }, 'it is missing');
  expect(lines).toEqual([
    'delete configmaps/v1 a/x: its pod is gone',
    'patch ciliumnetworkpolicies.cilium.io/v2/status shop/p: node n1 is gone',
    'create ciliumnetworkpolicies.cilium.io/v2 new: it is missing',
  ]);
});

it('reads and writes objects of more than a MiB (regression: the answer was cut, and rejected as no object)', async () => {
  const { clock, transport, maps } = world();
  const text = 'x'.repeat(1_200_000);
  const made = await maps.create('large', { data: { text } });
  const place = { kind: CONFIG_MAPS, namespace: 'a', name: 'large' };
  expect(await new ApiObjectReader(transport, clock).get(place, never)).toMatchObject({ data: { text } });
  const object = { ...made, data: { text: `${text}y` } };
  const answer = await new ApiObjectWriter(transport, clock).write(
    { verb: 'update', place, object },
    'unused',
    never,
  );
  expect(answer).toMatchObject({ outcome: 'done', object: { data: { text: `${text}y` } } });
});

it('names the object that is larger than any that an API server stores', async () => {
  const { clock, api, transport } = world();
  const reader = new ApiObjectReader(transport, clock);
  const body = `{"items":[{"x":"${'x'.repeat(16 << 20)}"}]}`;
  api.faults.inject({ do: 'answer', status: 200, body }, { times: 2 });
  const get = reader.get({ kind: CONFIG_MAPS, namespace: 'a', name: 'huge' }, never);
  await expect(get).rejects.toThrow('configmaps/v1 a/huge exceeds 16 MiB, the maximum that is read');
  const list = reader.list(CONFIG_MAPS, never)[Symbol.asyncIterator]().next();
  await expect(list).rejects.toThrow(
    'an object of the list of configmaps/v1 exceeds 16 MiB, the maximum that is read',
  );
});
