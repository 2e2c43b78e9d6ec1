import { describe, expect, it, vi } from 'vitest';
import { recordDocuments } from '../../../src/agent/recorded-documents.ts';
import type { ExplainedServiceDocument } from '../../../src/api/documents.ts';
import {
  causeDocument,
  type HistoryDocument,
  pastDocument,
  recordDocument,
} from '../../../src/api/history-documents.ts';
import type { ReadModel } from '../../../src/api/read-model.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { haveOneClass } from '../../base/support/hidden-class.ts';
import { TestModel } from '../support/model.ts';
import { testApp } from '../support/test-app.ts';

const CHECKOUT = { identity: 1234, source: 'kvstore', hostIP: '192.168.0.1' } as const;
const BATCH = { identity: 55, source: 'k8s', hostIP: '192.168.0.9' } as const;

/** An API whose prefix 10.0.0.1 had another identity one and two seconds ago. */
async function lived(): Promise<{
  ask: (path: string, body?: unknown) => Promise<{ status: number; body: never }>;
  begun: number;
  model: TestModel;
}> {
  const model = new TestModel();
  const { app } = testApp(model);
  const begun = model.clock.wallTime();
  model.ipcache.upsert('10.0.0.0/8', { identity: 2, source: 'generated' });
  await model.clock.advance(1000);
  model.ipcache.upsert('10.0.0.1', BATCH);
  await model.clock.advance(1000);
  model.ipcache.upsert('10.0.0.1', CHECKOUT);
  await model.clock.advance(1000);
  model.ipcache.delete('10.0.0.1', BATCH);
  await model.clock.advance(1000);
  const ask = async (path: string, body?: unknown): Promise<{ status: number; body: never }> => {
    const init = {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { 'content-type': 'application/json' },
    };
    const answer = await app.request(path, body === undefined ? {} : init);
    return { status: answer.status, body: (await answer.json()) as never };
  };
  return { ask, begun, model };
}

const iso = (ms: number): string => encodeURIComponent(new Date(ms).toISOString());

describe('at', () => {
  it('of now is the time of the request, although a large service is written in several turns', async () => {
    const model = new TestModel();
    const { app } = testApp(model);
    recordDocuments(model.history, model);
    const id = { namespace: 'shop', name: 'cart' };
    model.services.updateService(createService({ id, clusterIPs: ['172.16.0.10'] }));
    const backends = Array.from({ length: 10_000 }, (_, at) =>
      createBackend({ address: `10.9.${at >> 8}.${at & 255}`, ports: [] }),
    );
    model.services.updateEndpoints(createEndpointSlice({ service: id, backends }));
    await model.clock.advance(1000);
    const at = new Date(model.clock.wallTime()).toISOString();
    const answer = app.request('/v1/services/shop/cart?at=-0s');
    await new Promise(setImmediate);
    const advanced = model.clock.advance(1000);
    model.services.deleteService(id);
    const body = (await (await answer).json()) as ExplainedServiceDocument;
    await advanced;
    expect([body.backends.length, body.past?.at]).toEqual([10_000, at]);
  });

  it('gives the entry and the claims of an earlier moment', async () => {
    const { ask, begun } = await lived();
    expect(await ask(`/v1/ipcache/lookup/10.0.0.1?at=${iso(begun + 1500)}`)).toMatchObject({
      status: 200,
      body: { identity: 55, source: 'k8s', past: { certain: true } },
    });
    expect(await ask(`/v1/ipcache/lookup/10.0.0.1?at=${iso(begun + 500)}`)).toMatchObject({
      body: { prefix: '10.0.0.0/8', identity: 2 },
    });
    expect(await ask(`/v1/ipcache/explain/10.0.0.1?at=${iso(begun + 2500)}`)).toMatchObject({
      body: {
        decidedBy: 'source-precedence',
        claims: [
          { identity: 1234, effective: true, since: new Date(begun + 2000).toISOString() },
          { identity: 55, effective: false, until: new Date(begun + 3000).toISOString() },
        ],
      },
    });
  });

  it('of a list gives all prefixes of that moment, filtered by their entries of then', async () => {
    const { ask, begun } = await lived();
    const at = iso(begun + 1500);
    expect(await ask(`/v1/ipcache?at=${at}`)).toMatchObject({
      status: 200,
      body: {
        items: [
          { prefix: '10.0.0.0/8', past: { certain: true } },
          { prefix: '10.0.0.1/32', identity: 55, source: 'k8s' },
        ],
      },
    });
    expect(await ask(`/v1/ipcache?at=${at}&source=k8s`)).toMatchObject({
      body: { items: [{ identity: 55 }] },
    });
    expect(await ask(`/v1/ipcache?at=${at}&node=192.168.0.1`)).toMatchObject({
      body: { items: [], past: { at: new Date(begun + 1500).toISOString(), certain: true } },
    });
    expect(await ask(`/v1/ipcache?at=${iso(begun + 500)}&prefix=10.0.0.1`)).toMatchObject({
      body: { items: [] },
    });
    expect(await ask(`/v1/ipcache?at=${iso(begun - 500)}`)).toMatchObject({ status: 410 });
  });

  it('of a list is held for eight lists at most (regression: 32 of 200,000 changes took 4 GB)', async () => {
    const { ask, begun } = await lived();
    const tokens: string[] = [];
    for (let list = 1; list <= 9; list++) {
      const { body } = await ask(`/v1/ipcache?limit=1&at=${iso(begun + 1500)}`);
      tokens.push((body as { continue: string }).continue);
    }
    const statuses = await Promise.all(tokens.map((token) => ask(`/v1/ipcache?continue=${token}`)));
    expect(statuses.map(({ status }) => status)).toEqual([410, ...new Array<number>(8).fill(200)]);
    expect(statuses[8]?.body).toMatchObject({ items: [{ identity: 55 }], past: { certain: true } });
  });

  it('of a list is read for four lists at a time (regression: for any number)', async () => {
    const { ask, begun, model } = await lived();
    const { past } = model.history;
    const read = past.changedSince.bind(past);
    const waiting: (() => void)[] = [];
    const spy = vi.spyOn(past, 'changedSince').mockImplementation(async (...args) => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      return read(...args);
    });
    const path = `/v1/ipcache?at=${iso(begun + 1500)}`;
    const lists = Array.from({ length: 4 }, () => ask(path));
    await vi.waitFor(() => expect(waiting).toHaveLength(4), 60_000);
    expect(await ask(path)).toMatchObject({
      status: 429,
      body: { type: 'urn:dpcache:problem:too-many', detail: expect.stringContaining('4 concurrent') },
    });
    for (const resume of waiting) resume();
    expect((await Promise.all(lists)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    spy.mockRejectedValueOnce(new Error('bug'));
    expect(await ask(path)).toMatchObject({ status: 500 });
    spy.mockRestore();
    const again = await Promise.all(Array.from({ length: 4 }, () => ask(path)));
    expect(again.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  it('of a list is refused if more than 100,000 prefixes have changed since', async () => {
    const { ask, begun, model } = await lived();
    const spy = vi.spyOn(model.history.past, 'changedSince').mockResolvedValue('too-many');
    const at = new Date(begun + 1500).toISOString();
    expect(await ask(`/v1/ipcache?at=${at}`)).toMatchObject({
      status: 400,
      body: { detail: 'More than 100000 prefixes have changed since then.', field: 'at', value: at },
    });
    expect(spy).toHaveBeenCalledWith(begun + 1500, 100_000);
  });

  it('of a CIDR asks for exactly this prefix', async () => {
    const { ask, begun } = await lived();
    expect(await ask(`/v1/ipcache/explain/10.0.0.0/8?at=${iso(begun + 10)}`)).toMatchObject({
      body: { prefix: '10.0.0.0/8', claims: [{ identity: 2 }] },
    });
  });

  it('before the retained changes is 410 with the retained interval, and 400 if it is not a time', async () => {
    const { ask, begun } = await lived();
    expect(await ask(`/v1/ipcache/lookup/10.0.0.1?at=${iso(begun - 1)}`)).toMatchObject({
      status: 410,
      body: { type: 'urn:dpcache:problem:not-retained', retained: { from: new Date(begun).toISOString() } },
    });
    expect(await ask('/v1/ipcache/lookup/10.0.0.1?at=yesterday')).toMatchObject({
      status: 400,
      body: { type: 'urn:dpcache:problem:invalid-time', field: 'at', value: 'yesterday' },
    });
  });

  it('a sequence number of the future is 410 with the newest one (regression: changes were retained from a time on)', async () => {
    const { ask } = await lived();
    const future = '%2399999999';
    const paths = [
      ...['ipcache/lookup/10.0.0.1', 'ipcache/explain/10.0.0.0/8', 'ipcache', 'services/a/b', 'nodes/a/b'],
      'history/around',
    ].map((path) => `${path}?at=${future}`);
    for (const path of [...paths, `history?from=${future}`, `history?to=${future}`])
      expect([path, await ask(`/v1/${path}`)]).toMatchObject([
        path,
        {
          status: 410,
          body: {
            type: 'urn:dpcache:problem:not-retained',
            detail: 'No change has the sequence number #99999999 yet: the newest is #5.',
            value: '#99999999',
          },
        },
      ]);
    expect((await ask('/v1/lookup', { ips: [{ address: '10.0.0.1', at: '#6' }] })).body).toMatchObject({
      errors: [{ detail: expect.stringContaining('the newest is #5') }],
    });
    expect(await ask('/v1/ipcache/lookup/10.0.0.1?at=%235')).toMatchObject({ status: 200 });
  });

  it.each(['from', 'to'])(
    'a sequence number of %s that is no longer retained is named (regression: at)',
    async (field) => {
      const { ask, model } = await lived();
      vi.spyOn(model.history.past, 'timeOf').mockResolvedValue(undefined);
      expect(await ask(`/v1/history?${field}=%231`)).toMatchObject({
        status: 410,
        body: { field, value: '#1' },
      });
    },
  );

  it('a range that ends before it begins is 400 with both times', async () => {
    const { ask, begun } = await lived();
    const [early, late] = [new Date(begun + 1000).toISOString(), new Date(begun + 2000).toISOString()];
    expect(await ask(`/v1/history?from=${late}&to=${early}`)).toMatchObject({
      status: 400,
      body: {
        type: 'urn:dpcache:problem:invalid-time',
        detail: `from (${late}) is after to (${early}): exchange them.`,
        field: 'from',
        value: late,
      },
    });
    expect(await ask(`/v1/history?from=${late}&to=${late}`)).toMatchObject({ status: 200 });
    expect(await ask('/v1/history?from=%233&to=%231')).toMatchObject({
      status: 400,
      body: { value: '#3' },
    });
  });

  it('a range of sequence numbers has exactly these records, although others have the same times', async () => {
    const { ask } = await lived();
    const sequences = async (query: string): Promise<readonly number[]> => {
      const { body } = await ask(`/v1/history${query}`);
      return (body as { items: readonly { sequence: number }[] }).items.map(({ sequence }) => sequence);
    };
    const all = await sequences('');
    for (const from of all)
      for (const to of all.filter((one) => one >= from))
        expect(await sequences(`?from=%23${from}&to=%23${to}`)).toEqual(
          all.filter((one) => one >= from && one <= to),
        );
  });

  it('of something that is not known to have existed is 404 with the reason', async () => {
    const { ask, begun } = await lived();
    const future = iso(begun + 3_600_000);
    for (const path of ['/v1/ipcache/lookup/11.0.0.1', '/v1/ipcache/explain/11.0.0.1', '/v1/nodes/a/b']) {
      expect(await ask(`${path}?at=${future}`)).toMatchObject({
        status: 404,
        body: {
          reason: 'clock',
          detail: expect.stringMatching(
            /^It is not certain whether .* existed at .*: the clock of the agent has not/,
          ),
        },
      });
      const { body } = await ask(`${path}?at=${iso(begun + 1500)}`);
      expect(body).not.toHaveProperty('reason');
    }
  });

  it.each([
    [200, '/v1/ipcache/lookup/10.0.0.1?at=-1s'],
    [200, '/v1/ipcache/explain/10.0.0.1?at=-1s'],
    [200, '/v1/ipcache?at=-1s'],
    [404, '/v1/services/a/b?at=-1s'],
    [404, '/v1/nodes/a/b?at=-1s'],
    [200, '/v1/history?from=-2s&to=-1s'],
    [200, '/v1/history/around?at=-1s'],
    // The history is as old as the agent, so an hour ago is before it.
    [410, '/v1/ipcache/lookup/10.0.0.1?at=-1h'],
    [410, '/v1/services/a/b?at=-1h'],
    [410, '/v1/nodes/a/b?at=-1h'],
  ])(
    'relative to now is relative to the wall time, not to the monotonic time: %i for %s',
    async (status, path) => {
      const { ask } = await lived();
      expect((await ask(path)).status).toBe(status);
    },
  );

  it('relative to now, of a bulk lookup, is relative to the wall time', async () => {
    const { ask } = await lived();
    expect(await ask('/v1/lookup', { ips: [{ address: '10.0.0.1', at: '-1s' }] })).toMatchObject({
      body: { entries: [{ identity: 1234 }], errors: [] },
    });
  });

  it('of an agent without a history is 410, too, because 404 would mean that there was no entry', async () => {
    const model: ReadModel = new TestModel();
    Object.defineProperty(model, 'history', { value: undefined });
    const { app } = testApp(model as TestModel);
    const answer = await app.request('/v1/ipcache/lookup/10.0.0.1?at=-1m');
    expect(answer.status).toBe(410);
    expect(await answer.json()).toMatchObject({ detail: expect.stringContaining('records no history') });
  });

  it('of a bulk lookup is the time of each address', async () => {
    const { ask, begun } = await lived();
    const at = (ms: number): string => new Date(begun + ms).toISOString();
    const ips = [
      { address: '10.0.0.1', at: at(1500) },
      '10.0.0.1',
      { address: '10.0.0.1', at: at(500) },
      { address: 'x', at: at(500) },
      { address: '10.0.0.1', at: at(-5) },
      { address: '11.0.0.1', at: at(500) },
      { address: '11.0.0.1', at: at(3_600_000) },
    ];
    const { body } = await ask('/v1/lookup', { ips });
    expect(body).toMatchObject({
      entries: [{ identity: 55 }, { identity: 1234 }, { identity: 2 }, null, null, null, null],
      errors: [
        { index: 3, detail: 'not a valid IP address' },
        { index: 4, detail: `The moment ${at(-5)} is not retained: changes are retained from ${at(0)} on.` },
        { index: 6, detail: expect.stringContaining('It is not certain whether 11.0.0.1 existed') },
      ],
    });
  });
});

interface ClaimFields {
  readonly identity?: number;
}

describe('/v1/history', () => {
  it('lists the changes of a prefix with the visible identity before and after', async () => {
    const { ask } = await lived();
    const { body } = await ask('/v1/history?key=10.0.0.1');
    expect(body).toMatchObject({
      more: false,
      items: [
        { source: 'k8s', before: { identity: 55 }, effective: { before: 1234, after: 1234 } },
        { source: 'kvstore', after: { identity: 1234 }, effective: { before: 55, after: 1234 } },
        { source: 'k8s', after: { identity: 55 }, effective: { before: null, after: 55 } },
      ],
    });
  });

  it('continues after the last record', async () => {
    const { ask } = await lived();
    const keys: unknown[] = [];
    let path = '/v1/history?limit=2';
    for (;;) {
      const { items, more } = (await ask(path)).body as { items: { sequence: number }[]; more: boolean };
      keys.push(...items.map(({ sequence }) => sequence));
      if (!more) break;
      path = `/v1/history?limit=2&after=${items.at(-1)?.sequence}`;
    }
    expect(keys).toEqual([5, 4, 3, 2, 1]);
    expect((await ask('/v1/history?limit=5')).body).toMatchObject({ more: false, items: { length: 5 } });
    expect((await ask('/v1/history?limit=4')).body).toMatchObject({ more: true, items: { length: 4 } });
  });

  it('lists the changes of the service and of the node of a name together, newest first', async () => {
    const { ask, model } = await lived();
    const { past } = model.history;
    const record = (kind: string, sequence: number): never =>
      ({ kind, sequence, at: sequence, key: 'a/b', writer: 'own', cause: undefined }) as never;
    const asked: unknown[] = [];
    vi.spyOn(past, 'documentsOf').mockImplementation(async function* (kind, key, range) {
      asked.push([kind, key, range?.limit]);
      yield kind === 'service'
        ? [record(kind, 9), record(kind, 4), record(kind, 3)]
        : [record(kind, 8), record(kind, 5)];
    });
    const { body } = await ask('/v1/history?key=a%2Fb&limit=4');
    expect(asked).toEqual([
      ['service', 'a/b', 5],
      ['node', 'a/b', 5],
    ]);
    expect(body).toMatchObject({ more: true, items: [9, 8, 5, 4].map((sequence) => ({ sequence })) });
  });

  it('of a CIDR, and of the CIDR or the IP that is requested of a full length, lists this key', async () => {
    const { ask, model } = await lived();
    const of = vi.spyOn(model.history.past, 'of');
    for (const key of ['10.0.0.0/8', '10.1.2.3/8', '10.0.0.1', '10.0.0.1/32'])
      expect((await ask(`/v1/history?key=${encodeURIComponent(key)}`)).status).toBe(200);
    expect(of.mock.calls.map(([key]) => key)).toEqual([
      ...['10.0.0.0/8', '10.0.0.0/8', '10.0.0.1', '10.0.0.1/32'],
    ]);
    expect(await ask('/v1/history?key=a%2Fb%2Fc')).toMatchObject({ status: 400, body: { field: 'key' } });
  });

  it.each([
    ['?identity=1234', [1234]],
    ['?identity=55', [55, 55]],
    ['?identity=55&limit=1', [55]],
    ['?identity=55&key=10.0.0.1', [55, 55]],
    ['?identity=55&key=shop%2Fcart', []],
    ['?identity=77', []],
  ])('%s lists the changes of claims from or to this identity', async (query, identities) => {
    const { ask } = await lived();
    const { items } = (await ask(`/v1/history${query}`)).body as { items: Record<string, ClaimFields>[] };
    expect(items.map(({ before, after }) => (after ?? before)?.identity)).toEqual(identities);
  });

  it('has the number of retained changes, and the interval', async () => {
    const { ask, begun } = await lived();
    expect((await ask('/v1/history?limit=1')).body).toMatchObject({
      changesInMemory: 5,
      retained: { from: new Date(begun).toISOString(), to: new Date(begun + 4000).toISOString() },
    });
  });

  it.each(['?', '?key=10.0.0.1&', '?key=shop%2Fcart&'])(
    '%s ends when the client disconnects (regression: it read all segments)',
    async (query) => {
      const { model } = await lived();
      const { app } = testApp(model);
      const leaving = new AbortController();
      const answer = app.request(`/v1/history${query}from=-1h`, { signal: leaving.signal });
      leaving.abort();
      expect((await answer).status).toBe(400);
    },
  );

  it('has pages of at most 100,000 backends (regression: 1,000 records)', async () => {
    const { ask, model } = await lived();
    const backends = Array.from({ length: 30_000 }, () => ({ address: '' }));
    for (let i = 0; i < 5; i++)
      model.history.recordDocument('service', 'a/b', 'local', { before: undefined, after: { i, backends } });
    const pages = async (query: string): Promise<readonly string[]> => {
      const places: string[] = [];
      for (let after = 1_000; after > 0; ) {
        const { body } = await ask(`/v1/history?${query}limit=1000&after=${after}`);
        const { items, more } = body as HistoryDocument;
        after = more ? (items.at(-1)?.sequence ?? 0) : 0;
        places.push(items.map(({ sequence }) => sequence).join(' '));
      }
      return places;
    };
    expect(await pages('')).toEqual(['10 9 8', '7 6 5 4 3 2 1']);
    expect(await pages('key=a/b&')).toEqual(['10 9 8', '7 6']);
  });

  it('lists a range of time', async () => {
    const { ask, begun } = await lived();
    const { body } = await ask(`/v1/history?from=${iso(begun + 900)}&to=${iso(begun + 2100)}`);
    expect(body).toMatchObject({ items: [{ after: { identity: 1234 } }, { after: { identity: 55 } }] });
  });
});

describe('a record of the history has', () => {
  const HEAD = { sequence: 7, at: 1000 };
  const TIME = { sequence: 7, at: '1970-01-01T00:00:01.000Z' };
  const documentOf = (record: object): object => recordDocument({ ...HEAD, ...record } as never);

  it('the subject and the detail of a mark', () => {
    const mark = { kind: 'mark', mark: 'start', subject: 'baltic', detail: 'late' };
    expect(documentOf(mark)).toEqual({ ...TIME, ...mark });
    expect(documentOf({ ...mark, subject: '', detail: '' })).toEqual({
      ...TIME,
      kind: 'mark',
      mark: 'start',
    });
  });

  it('the part of a service or node before and after, its writer and its cause', () => {
    const cause = { store: 'baltic', revision: '9' };
    const record = {
      kind: 'service',
      key: 'a/b',
      writer: 'baltic',
      before: { x: 1 },
      after: { x: 2 },
      cause,
    };
    const { writer: source, ...rest } = record;
    expect(documentOf(record)).toEqual({ ...TIME, ...rest, source });
    expect(documentOf({ kind: 'node', key: 'a/b', writer: 'k8s' })).toEqual({
      ...{ ...TIME, kind: 'node', key: 'a/b', source: 'k8s' },
    });
  });

  it('in one hidden class for each form (regression: 5 instead of 1 µs for each)', () => {
    const cause = { store: 'baltic', revision: '7' };
    const record = { kind: 'service', key: 'a/b', writer: 'baltic', before: { x: 1 }, cause };
    const documents = Array.from({ length: 1000 }, () => documentOf(record));
    for (const document of documents) expect(haveOneClass(document, documents[0])).toBe(true);
  });

  it('the claim of a prefix before and after, and the visible identities', () => {
    const k8s = { namespace: 'shop', podName: 'cart', serviceAccount: 'robot' };
    const bare = { identity: 5, encryptKey: 0, hostIP: undefined, k8s: undefined };
    const full = { identity: 6, encryptKey: 3, hostIP: '1.1.1.1', k8s };
    const prefix = { kind: 'prefix', key: '10.0.0.1' };
    expect(
      documentOf({
        ...prefix,
        ...{ writer: { source: 'k8s', owner: 'me' }, before: bare, after: full },
        effective: { before: { identity: 1 }, after: undefined },
      }),
    ).toEqual({
      ...{ ...TIME, ...prefix, source: 'k8s', owner: 'me', before: { identity: 5 } },
      after: { identity: 6, encryptKey: 3, hostIP: '1.1.1.1', ...k8s },
      effective: { before: 1, after: null },
    });
    const effective = { before: undefined, after: { identity: 2 } };
    const anonymous = { ...full, k8s: { ...k8s, serviceAccount: '' } };
    const { serviceAccount: _, ...pod } = k8s;
    const writer = { source: 'k8s', owner: '' };
    expect(documentOf({ ...prefix, writer, before: anonymous, effective })).toEqual({
      ...{ ...TIME, ...prefix, source: 'k8s', effective: { before: null, after: 2 } },
      before: { identity: 6, encryptKey: 3, hostIP: '1.1.1.1', ...pod },
    });
    expect(documentOf({ ...prefix, writer })).toEqual({ ...TIME, ...prefix, source: 'k8s' });
  });
});

it('a group of changes has the fields that are known', () => {
  const group = {
    ...{ at: 1000, until: 2000, store: 'baltic', revisions: ['8', '9'], host: '1.1.1.1', node: 'a/b' },
    ...{ added: 1, changed: 2, deleted: 3, kinds: { prefix: 6 }, emptied: ['a/c'], samples: ['10.0.0.1'] },
    ...{ mark: { subject: 's', detail: 'd' }, withdrawal: true },
  };
  const times = { at: '1970-01-01T00:00:01.000Z', until: '1970-01-01T00:00:02.000Z' };
  expect(causeDocument(group as never)).toEqual({
    ...{ ...group, ...times, revisions: { first: '8', last: '9' } },
  });
  const { revisions: _, host: _host, node: _node, mark: _mark, withdrawal: _withdrawal, ...rest } = group;
  const unknown = { host: undefined, node: undefined, mark: undefined, withdrawal: false };
  expect(causeDocument({ ...rest, ...unknown, revisions: ['', ''] } as never)).toEqual({ ...rest, ...times });
});

it('a moment has its uncertainty, its interval and the time of its claim', () => {
  const [at, since, until] = [1, 2, 3].map((second) => `1970-01-01T00:00:0${second}.000Z`);
  const moment = { at: 1000, certain: false, subjects: ['shop/cart'], retained: { from: 2000, to: 3000 } };
  const retained = { from: since, to: until };
  const about = { effectiveSince: 2000, effectiveUntil: 3000, reason: 'lost', claimsComplete: false };
  expect(pastDocument({ ...moment, ...about } as never)).toEqual({
    ...{ at, certain: false, retained, reason: 'lost', subjects: ['shop/cart'], claimsComplete: false },
    ...{ effectiveSince: since, effectiveUntil: until },
  });
  expect(pastDocument({ ...moment, certain: true, subjects: [], claimsComplete: true } as never)).toEqual({
    ...{ at, certain: true, retained },
  });
});
