import { beforeEach, describe, expect, it } from 'vitest';
import type { ApiFault } from '../../../src/k8s/memory/faults.ts';
import { MemoryApiServer, type MemoryApiServerOptions } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { textOf } from '../../../src/k8s/rest/api-transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { ApiUser, type ReadAnswer } from '../support/api-user.ts';

const PODS = { group: '', version: 'v1', plural: 'pods' };
const NODES = { group: '', version: 'v1', plural: 'nodes' };

let clock: ManualClock;
let api: MemoryApiServer;
let pods: ApiUser;
let nodes: ApiUser;
function serve(options: Partial<MemoryApiServerOptions> = {}): void {
  clock = new ManualClock();
  api = new MemoryApiServer({ clock, ...options });
  // Bypasses all faults and the state of the server.
  const transport = new MemoryApiTransport({ handle: (request) => api.handleElsewhere(request) });
  pods = new ApiUser(transport, PODS, 'n');
  nodes = new ApiUser(transport, NODES);
}
beforeEach(() => serve());

/** Sends a request to the server itself, subject to faults. */
function ask(path: string, request: object = {}): Promise<ReadAnswer> {
  return new ApiUser(new MemoryApiTransport(api), PODS).ask({ path, ...request });
}

/** Collects the events of a watch as `TYPE name version`, while it continues. */
async function watch(query: string, plural = 'pods'): Promise<{ readonly lines: string[]; end: string }> {
  const { body } = await new MemoryApiTransport(api).send({
    path: `/api/v1/${plural}?watch=true&${query}`,
    signal: new AbortController().signal,
  });
  const seen = { lines: [] as string[], end: '' };
  void (async () => {
    for await (const bytes of body)
      for (const line of new TextDecoder().decode(bytes).trim().split('\n')) {
        const { type, object } = JSON.parse(line);
        const { name = '', resourceVersion = object.code, annotations = {} } = object.metadata;
        seen.lines.push([type, name, resourceVersion, ...Object.keys(annotations)].filter(Boolean).join(' '));
      }
  })().then(
    () => {
      seen.end = 'ended';
    },
    () => {
      seen.end = 'broken';
    },
  );
  await settle();
  return seen;
}

describe('a request', () => {
  it.each<[string, string, object, number, string]>([
    ['to nowhere', '/', {}, 404, 'NotFound'],
    ['to a version that is not served', '/api/v2/pods', {}, 404, 'NotFound'],
    ['to a group that is not served', '/apis/no.test/v1', {}, 404, 'NotFound'],
    ['for a kind that is in no namespace, in one', '/api/v1/namespaces/n/nodes', {}, 404, 'NotFound'],
    ['for a part that there is not', '/api/v1/namespaces/n/pods/p/log', {}, 404, 'NotFound'],
    ['for the status of what has none', '/api/v1/namespaces/n/configmaps/p/status', {}, 404, 'NotFound'],
    ['for what there is not', '/api/v1/namespaces/n/pods/none', {}, 404, 'NotFound'],
    ['to delete all', '/api/v1/namespaces/n/pods', { method: 'DELETE' }, 405, 'MethodNotAllowed'],
    ['with a version that is none', '/api/v1/pods?resourceVersion=x', {}, 400, 'BadRequest'],
    ['to go on with what is no token', '/api/v1/pods?continue=x', {}, 400, 'BadRequest'],
    ['with a selector that is none', '/api/v1/pods?labelSelector=a+like+b', {}, 400, 'BadRequest'],
    [
      'to create what is no object',
      '/api/v1/namespaces/n/pods',
      { method: 'POST', body: 7 },
      400,
      'BadRequest',
    ],
    [
      'to create without metadata',
      '/api/v1/namespaces/n/pods',
      { method: 'POST', body: {} },
      400,
      'BadRequest',
    ],
    [
      ...(['to create in another namespace', '/api/v1/namespaces/n/pods'] as const),
      ...([
        { method: 'POST', body: { metadata: { name: 'a', namespace: 'm' } } },
        400,
        'BadRequest',
      ] as const),
    ],
  ])('%s is rejected', async (_, path, request, status, reason) => {
    expect(await ask(path, request)).toMatchObject({
      status,
      body: { kind: 'Status', code: status, reason },
    });
  });

  it.each(['No Name', 'a_b', '-a', 'a-', '', 7, undefined])('to create %j is refused', async (name) => {
    const body = { metadata: { name } };
    const refused = await ask('/api/v1/namespaces/n/pods', { method: 'POST', body });
    expect(refused).toMatchObject({ status: 422, body: { reason: 'Invalid' } });
  });

  it.each([
    ['another version', { apiVersion: 'v2' }, 'the apiVersion of the object is "v2", but the path is of v1'],
    ['another group', { apiVersion: 'cilium.io/v1' }, '"cilium.io/v1", but the path is of v1'],
    [
      'another kind',
      { apiVersion: 'v1', kind: 'Node' },
      'the kind of the object is "Node", but the path is of Pod',
    ],
    ['no text as its kind', { kind: 7 }, 'the kind of the object is 7'],
  ])('to create or replace with %s is rejected', async (_, type, message) => {
    const path = '/api/v1/namespaces/n/pods';
    const rejected = {
      status: 400,
      body: { reason: 'BadRequest', message: expect.stringContaining(message) },
    };
    const body = { ...type, metadata: { name: 'p' } };
    expect(await ask(path, { method: 'POST', body })).toMatchObject(rejected);
    expect(
      (await ask(path, { method: 'POST', body: { ...body, apiVersion: 'v1', kind: 'Pod' } })).status,
    ).toBe(201);
    expect(await ask(`${path}/p`, { method: 'PUT', body })).toMatchObject(rejected);
    expect((await ask(`${path}/p`, { method: 'PUT', body: { metadata: { name: 'p' } } })).status).toBe(200);
  });

  it('that is not JSON is rejected', async () => {
    const closed = new AbortController().signal;
    const request = { method: 'POST', path: '/api/v1/namespaces/n/pods', body: '{', closed };
    const answer = await api.handle({ ...request, authorization: '', contentType: 'application/json' });
    expect([answer.status, answer.isStream]).toEqual([400, false]);
  });

  it('for a patch of an unknown type, or under another name, is rejected', async () => {
    await pods.create('p');
    const patch = (contentType: string, body: unknown): Promise<ReadAnswer> =>
      ask('/api/v1/namespaces/n/pods/p', { method: 'PATCH', contentType, body });
    expect((await patch('application/strategic-merge-patch+json', {})).status).toBe(415);
    const renamed = await patch('application/merge-patch+json', { metadata: { name: 'q' } });
    expect(renamed.status).toBe(400);
    const another = await patch('application/merge-patch+json', { metadata: { uid: 'another' } });
    expect(another.status).toBe(409);
  });

  it('is authorized by its token, and rejected by verb, resource and token', async () => {
    api.tokens.add('a');
    const transport = new MemoryApiTransport(api);
    const list = async (token: string, path = '/api/v1/pods'): Promise<number> => {
      transport.token = token;
      return (await new ApiUser(transport, PODS).ask({ path })).status;
    };
    expect([await list(''), await list('b'), await list('a'), await list('', '/healthz')]).toEqual([
      401, 401, 200, 200,
    ]);
    api.tokens.clear();
    api.deny('list', 'pods', 'a');
    expect([await list('a'), await list('b'), await list('a', '/api/v1/nodes')]).toEqual([403, 200, 200]);
    api.deny('list', 'pods');
    expect(await list('b')).toBe(403);
    api.allow('list', 'pods');
    expect([await list('a'), await list('b')]).toEqual([403, 200]);
    api.allow('list', 'pods', 'a');
    expect(await list('a')).toBe(200);
  });

  it('for discovery returns the served kinds, which may change', async () => {
    const named = async (path: string): Promise<readonly string[]> => {
      const { body } = await ask(path);
      return (body as { readonly resources: readonly { readonly name: string }[] }).resources.map(
        (one) => one.name,
      );
    };
    expect(await named('/apis/coordination.k8s.io/v1')).toEqual(['leases']);
    expect(await named('/api/v1')).toContain('pods/status');
    expect((await ask('/apis/cilium.io/v2')).body).toMatchObject({ groupVersion: 'cilium.io/v2' });
    expect((await ask('/api/v1')).body).toMatchObject({ kind: 'APIResourceList', groupVersion: 'v1' });
    const type = { group: 'w.test', version: 'v1', kind: 'Widget', plural: 'widgets', namespaced: true };
    api.serve(type);
    expect(await named('/apis/w.test/v1')).toEqual(['widgets']);
    api.stopServing(type);
    expect((await ask('/apis/w.test/v1')).status).toBe(404);
    expect((await ask('/version')).body).toMatchObject({ major: '1', minor: '20' });
    for (const path of ['/healthz', '/livez', '/readyz'])
      expect(await ask(path)).toEqual({ status: 200, body: 'ok' });
  });
});

describe('an object', () => {
  it('gets a uid, a time and its kind, and keeps them', async () => {
    clock.setWallTimeBy(Date.UTC(2026, 0, 2, 3, 4, 5, 678) - clock.wallTime());
    const made = await pods.create('p', { spec: { a: 1 } }, { labels: { x: 'y' } });
    expect(made).toMatchObject({
      apiVersion: 'v1',
      kind: 'Pod',
      spec: { a: 1 },
      metadata: { name: 'p', namespace: 'n', labels: { x: 'y' }, creationTimestamp: '2026-01-02T03:04:05Z' },
    });
    const { uid, creationTimestamp } = made.metadata;
    const replaced = await ask('/api/v1/namespaces/n/pods/p', {
      method: 'PUT',
      body: { metadata: {}, spec: { b: 1 } },
    });
    expect(replaced).toMatchObject({
      status: 200,
      body: { spec: { b: 1 }, metadata: { name: 'p', namespace: 'n', uid, creationTimestamp } },
    });
    expect(replaced.body).not.toMatchObject({ spec: { a: 1 } });
    const node = await nodes.create('x');
    expect('namespace' in node.metadata).toBe(false);
    expect(node.metadata.uid).not.toBe(uid);
  });

  it('is separate in each namespace', async () => {
    const [n, m] = [
      await pods.create('p'),
      await ask('/api/v1/namespaces/m/pods', { method: 'POST', body: { metadata: { name: 'p' } } }),
    ];
    expect(m).toMatchObject({ status: 201, body: { metadata: { namespace: 'm' } } });
    await pods.delete('p');
    expect((await ask('/api/v1/namespaces/m/pods/p')).body).toEqual(m.body);
    expect((await ask(`/api/v1/namespaces/n/pods/${n.metadata.name}`)).status).toBe(404);
  });

  it('has a status subresource, or its status with the rest if its kind has no such subresource', async () => {
    const [apart, within] = ['/api/v1/namespaces/n/pods', '/api/v1/namespaces/n/configmaps'];
    const said: unknown[] = [];
    for (const path of [apart, within]) {
      const put = async (method: string, at: string, status: unknown): Promise<void> => {
        const { body } = await ask(at, { method, body: { metadata: { name: 'p' }, status } });
        said.push((body as { readonly status?: unknown }).status);
      };
      await put('POST', path, 1);
      await put('PUT', `${path}/p`, 2);
      await put('PUT', `${path}/p/status`, 3);
      await put('PUT', `${path}/p`, undefined);
    }
    const failure = 'Failure'; // no such part exists
    expect(said).toEqual([undefined, undefined, 3, 3, 1, 2, failure, undefined]);
  });

  it('that is equal in another order is not written', async () => {
    const made = await pods.create('p', { spec: { a: 1, b: [{ c: 1, d: 2 }] } });
    const same = await ask('/api/v1/namespaces/n/pods/p', {
      method: 'PUT',
      body: { spec: { b: [{ d: 2, c: 1 }], a: 1 }, metadata: { name: 'p' } },
    });
    expect(same.body).toMatchObject({ metadata: { resourceVersion: made.metadata.resourceVersion } });
  });

  it('is deleted at the requested version and uid', async () => {
    const { metadata } = await pods.create('p');
    const remove = (preconditions: object): Promise<ReadAnswer> =>
      ask('/api/v1/namespaces/n/pods/p', { method: 'DELETE', body: { preconditions } });
    expect((await remove({ resourceVersion: '1' })).status).toBe(409);
    expect((await remove({ uid: 'another' })).status).toBe(409);
    const { uid, resourceVersion } = metadata;
    expect((await remove({ uid, resourceVersion })).status).toBe(200);
    expect((await remove({})).status).toBe(404);
  });
});

describe('a list', () => {
  it('contains its namespace only, in order, and the remaining count unless there is a selector', async () => {
    for (const name of ['b', 'a', 'c']) await pods.create(name);
    await nodes.create('x');
    const list = async (query: string, path = '/api/v1/namespaces/n/pods'): Promise<unknown> => {
      const { body } = await ask(`${path}?${query}`);
      const { kind, metadata, items } = body as {
        kind: string;
        metadata: { remainingItemCount?: number; continue?: string };
        items: { metadata: { name: string } }[];
      };
      const names = items.map((item) => item.metadata.name).join();
      return [kind, names, metadata.remainingItemCount, metadata.continue === undefined];
    };
    expect(await list('')).toEqual(['PodList', 'a,b,c', undefined, true]);
    expect(await list('limit=2')).toEqual(['PodList', 'a,b', 1, false]);
    expect(await list('limit=3')).toEqual(['PodList', 'a,b,c', undefined, true]);
    expect(await list('limit=2&labelSelector=!x')).toEqual(['PodList', 'a,b', undefined, false]);
    expect(await list('limit=2&resourceVersion=0')).toEqual(['PodList', 'a,b,c', undefined, true]);
    expect(await list('', '/api/v1/namespaces/m/pods')).toEqual(['PodList', '', undefined, true]);
    expect(await list('', '/api/v1/nodes')).toEqual(['NodeList', 'x', undefined, true]);
  });

  it('in pages contains the state at its start', async () => {
    for (const name of ['a', 'b', 'c']) await pods.create(name, { spec: 1 });
    const first = await ask('/api/v1/pods?limit=1');
    await nodes.create('x');
    await pods.patch('b', { spec: 2 });
    await pods.delete('c');
    await pods.create('d');
    await pods.create('c', { spec: 3 });
    const { metadata } = first.body as { readonly metadata: { readonly continue: string } };
    const { body } = await ask(`/api/v1/pods?limit=9&continue=${metadata.continue}`);
    const { items } = body as {
      readonly items: readonly { readonly metadata: { readonly name: string }; readonly spec: unknown }[];
    };
    expect(items.map(({ metadata: { name }, spec }) => [name, spec])).toEqual([
      ['b', 1],
      ['c', 1],
    ]);
  });

  it('of many objects is complete', async () => {
    for (let i = 0; i < 401; i++) await nodes.create(`x${i}`);
    const { body } = await ask('/api/v1/nodes');
    expect((body as { readonly items: readonly unknown[] }).items).toHaveLength(401);
  });

  it('from memory contains the known state of the server, from etcd the current one', async () => {
    await pods.create('a');
    api.holdCache();
    const { metadata } = await pods.create('b');
    const count = async (query: string): Promise<unknown> => {
      const { status, body } = await ask(`/api/v1/pods?${query}`);
      return status === 200 ? (body as { readonly items: readonly unknown[] }).items.length : status;
    };
    expect([await count(''), await count('resourceVersion=0')]).toEqual([2, 1]);
    const behind = count(`resourceVersion=${metadata.resourceVersion}`);
    await advance(clock, 3_000);
    expect(await behind).toBe(504);
    const soon = count(`resourceVersion=${metadata.resourceVersion}`);
    await advance(clock, 1_000);
    api.releaseCache();
    await advance(clock, 2_000);
    expect([await soon, await count('resourceVersion=0')]).toEqual([2, 2]);
  });
});

describe('a watch', () => {
  it('sends everything from 0, changes since a version, and new changes', async () => {
    await pods.create('a');
    const { metadata } = await pods.create('b');
    await pods.delete('a');
    await pods.create('c');
    const all = await watch('');
    const since = await watch(`resourceVersion=${metadata.resourceVersion}`);
    await nodes.create('x');
    await pods.patch('b', { spec: 1 });
    await settle();
    expect(all.lines).toEqual(['ADDED b 3', 'ADDED c 5', 'MODIFIED b 7']);
    expect(since.lines).toEqual(['DELETED a 4', 'ADDED c 5', 'MODIFIED b 7']);
    expect(api.watches).toBe(2);
  });

  it('from a compacted version reports this, and ends', async () => {
    await pods.create('a');
    await pods.create('b');
    api.compact();
    const late = await watch('resourceVersion=2');
    expect(late).toEqual({ lines: ['ERROR 410'], end: 'ended' });
    expect((await watch('resourceVersion=3')).end).toBe('');
  });

  it('has bookmarks every minute and before its end, if the kind has events, or if the server follows all kinds', async () => {
    for (const idleProgress of [false, true]) {
      serve({ idleProgress });
      await pods.create('a');
      const idle = await watch('resourceVersion=2&allowWatchBookmarks=true&timeoutSeconds=150');
      const busy = await watch('resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150');
      const none = await watch('resourceVersion=1&timeoutSeconds=150');
      await nodes.create('x');
      await advance(clock, 147_999);
      const at = idleProgress ? 'BOOKMARK 3' : 'BOOKMARK 2';
      expect(idle.lines).toEqual(idleProgress ? [at, at] : []);
      expect(busy.lines).toEqual(['ADDED a 2', at, at]);
      await advance(clock, 1);
      expect(busy.lines).toEqual(['ADDED a 2', at, at, at]);
      expect(none.lines).toEqual(['ADDED a 2']);
      await advance(clock, 1_999);
      expect([idle.end, busy.end, none.end]).toEqual(['', '', '']);
      await advance(clock, 1);
      expect([idle.end, busy.end, none.end]).toEqual(['ended', 'ended', 'ended']);
      expect([api.watches, clock.pending]).toEqual([0, 0]);
    }
  });

  it('sends no version that it has not reached, and no bookmark before it', async () => {
    await pods.create('a');
    const ahead = await watch('resourceVersion=4&allowWatchBookmarks=true&timeoutSeconds=150');
    await pods.create('b');
    await pods.create('c');
    await advance(clock, 61_000);
    expect(ahead.lines).toEqual([]);
    await pods.create('d');
    await advance(clock, 60_000);
    expect(ahead.lines).toEqual(['ADDED d 5', 'BOOKMARK 5']);
  });

  it('may start with all objects if supported: a bookmark follows them, at least as new as requested', async () => {
    await pods.create('a');
    const query = 'sendInitialEvents=true&resourceVersionMatch=NotOlderThan';
    expect(await ask(`/api/v1/pods?watch=1&${query}`)).toMatchObject({ status: 422 });
    serve({ streamingLists: true });
    await pods.create('a');
    await pods.create('b');
    const end = 'k8s.io/initial-events-end';
    const marked = await watch(`${query}&allowWatchBookmarks=true&resourceVersion=2`);
    expect(marked.lines).toEqual(['ADDED a 2', 'ADDED b 3', `BOOKMARK 3 ${end}`]);
    expect((await watch(query)).lines).toEqual(['ADDED a 2', 'ADDED b 3']);
    expect(await ask(`/api/v1/pods?watch=true&${query}&resourceVersion=9`)).toMatchObject({ status: 504 });
  });

  it('contains its namespace and selector only', async () => {
    const inNamespace = await new MemoryApiTransport(api).send({
      path: '/api/v1/namespaces/m/pods?watch=true&timeoutSeconds=1',
      signal: new AbortController().signal,
    });
    const selected = await watch('labelSelector=x&resourceVersion=1');
    await pods.create('a', {}, { labels: { x: '1' } });
    await pods.create('b');
    await pods.patch('a', { metadata: { labels: { x: null } } });
    await pods.delete('a');
    await advance(clock, 1_000);
    expect(selected.lines).toEqual(['ADDED a 2', 'DELETED a 4']);
    expect(await textOf(inNamespace.body)).toBe('');
  });

  it('whose reader does not read is ended, and sends the events that fit', async () => {
    const { body } = await new MemoryApiTransport(api).send({
      path: '/api/v1/pods?watch=true&resourceVersion=1',
      signal: new AbortController().signal,
    });
    for (let i = 0; i < 1_010; i++) await pods.create(`p${i}`);
    expect(api.watches).toBe(1);
    const lines = (await textOf(body)).trim().split('\n');
    expect(lines).toHaveLength(1_001);
    expect([api.watches, clock.pending]).toEqual([0, 0]);
  });

  it('sends all changes since its version, however many, and then new ones (regression: it ended)', async () => {
    for (let i = 0; i < 1_010; i++) await pods.create(`p${i}`);
    const since = await watch('resourceVersion=1');
    await settle();
    await pods.create('new');
    await settle();
    expect([since.lines.length, since.lines.at(-1)]).toEqual([1_011, 'ADDED new 1012']);
  });
});

describe('a server', () => {
  it('with cut connections drops its watches, and with ended ones reports this', async () => {
    const [cut, ended] = [await watch(''), await watch('')];
    api.cut();
    await settle();
    expect([cut.end, ended.end]).toEqual(['broken', 'broken']);
    const orderly = await watch('');
    void api.endWatches();
    await settle();
    expect(orderly.end).toBe('ended');
    expect(clock.pending).toBe(0);
  });

  it('that is down does not answer, and has no history when it is up again', async () => {
    await pods.create('a');
    const { metadata } = await pods.create('b');
    api.holdCache();
    const open = await watch('');
    api.down();
    await expect(ask('/healthz')).rejects.toMatchObject({ code: 'unreachable' });
    await pods.create('c');
    api.up();
    await settle();
    expect(open.end).toBe('broken');
    const { body } = await ask('/api/v1/pods?resourceVersion=0');
    expect((body as { readonly items: readonly unknown[] }).items).toHaveLength(3);
    expect((await watch(`resourceVersion=${metadata.resourceVersion}`)).lines).toEqual(['ERROR 410']);
    api.up();
    expect((await watch('resourceVersion=4')).end).toBe('');
  });

  it('that is paused sends nothing until it resumes', async () => {
    const open = await watch('resourceVersion=1');
    api.pause();
    api.pause();
    const asking = ask('/healthz');
    let answered = false;
    void asking.then(() => {
      answered = true;
    });
    await pods.create('a');
    await settle(5);
    expect([answered, open.lines]).toEqual([false, []]);
    api.resume();
    await settle(5);
    expect([answered, open.lines]).toEqual([true, ['ADDED a 2']]);
    api.resume();
    expect((await ask('/healthz')).status).toBe(200);
  });

  it('that is restored has the state of the backup, and assigns versions again', async () => {
    await pods.create('a');
    const backup = api.backup();
    const b = await pods.create('b');
    api.restore(backup);
    expect((await ask('/api/v1/namespaces/n/pods/b')).status).toBe(404);
    expect((await ask('/api/v1/namespaces/n/pods/a')).status).toBe(200);
    const c = await pods.create('c');
    expect(c.metadata.resourceVersion).toBe(b.metadata.resourceVersion);
    expect(c.metadata.uid).not.toBe(b.metadata.uid);
  });
});

describe('an injected fault', () => {
  const HEALTHZ = '/healthz';
  it.each<[string, ApiFault, unknown]>([
    ['answers this instead', { do: 'answer', status: 418, body: 'tea' }, { status: 418, body: 'tea' }],
    ['says lines', { do: 'lines', lines: [{ a: 1 }, 7] }, { status: 200, body: '{"a":1}\n7\n' }],
    ['ends the answer', { do: 'end', afterBytes: 1 }, { status: 200, body: 'o' }],
    ['ends it not where it is not so long', { do: 'end', afterBytes: 3 }, { status: 200, body: 'ok' }],
    ['gives it in pieces', { do: 'pieces', bytes: 1 }, { status: 200, body: 'ok' }],
  ])('%s, once', async (_, fault, expected) => {
    api.faults.inject(fault);
    expect(await ask(HEALTHZ)).toEqual(expected);
    expect(await ask(HEALTHZ)).toEqual({ status: 200, body: 'ok' });
  });

  it('cuts an answer, or sends it in pieces', async () => {
    const pieces = async (): Promise<readonly string[]> => {
      const { body } = await new MemoryApiTransport(api).send({
        path: HEALTHZ,
        signal: new AbortController().signal,
      });
      const seen: string[] = [];
      try {
        for await (const bytes of body) seen.push(new TextDecoder().decode(bytes));
      } catch {
        seen.push('broken');
      }
      return seen;
    };
    api.faults.inject({ do: 'cut', afterBytes: 1 });
    api.faults.inject({ do: 'pieces', bytes: 1 });
    expect([await pieces(), await pieces()]).toEqual([
      ['o', 'broken'],
      ['o', 'k'],
    ]);
  });

  it('applies to matching requests, as often as requested, in order, until all are removed', async () => {
    const teapot = (body: string): ApiFault => ({ do: 'answer', status: 418, body });
    api.faults.inject(teapot('pods'), { matches: ({ path }) => path.includes('pods'), times: 2 });
    api.faults.inject(teapot('first'));
    api.faults.inject(teapot('second'));
    const said: unknown[] = [];
    for (const path of [HEALTHZ, '/api/v1/pods', HEALTHZ, HEALTHZ, '/api/v1/pods', '/api/v1/pods'])
      said.push((await ask(path)).body);
    expect(said.slice(0, 5)).toEqual(['first', 'pods', 'second', 'ok', 'pods']);
    expect(said[5]).toMatchObject({ kind: 'PodList' });
    api.faults.inject(teapot('late'), { times: 9 });
    api.faults.clear();
    expect(await ask(HEALTHZ)).toEqual({ status: 200, body: 'ok' });
  });

  it('rejects, or never answers: the client disconnects', async () => {
    api.faults.inject({ do: 'refuse' });
    await expect(ask(HEALTHZ)).rejects.toMatchObject({ code: 'unreachable' });
    api.faults.inject({ do: 'hang' });
    const leaving = new AbortController();
    const asking = new MemoryApiTransport(api).send({ path: HEALTHZ, signal: leaving.signal });
    await settle();
    leaving.abort();
    await expect(asking).rejects.toMatchObject({ code: 'unreachable' });
  });
});
