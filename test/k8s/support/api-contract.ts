import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KubernetesClient, type KubernetesClientOptions } from '../../../src/k8s/kubernetes-client.ts';
import { LineScanner } from '../../../src/k8s/reflector/line-scanner.ts';
import type { KubernetesObject, ResourceKind } from '../../../src/k8s/resource.ts';
import { textOf } from '../../../src/k8s/rest/api-transport.ts';
import {
  type ObjectPlace,
  type ObjectWrite,
  type PatchOperation,
  pointer,
  type WriteOutcome,
} from '../../../src/k8s/rest/object-writer.ts';
import type { ApiHarness } from './api-harness.ts';
import { ApiUser, type ReadAnswer } from './api-user.ts';
import { RecordingSink } from './recording-sink.ts';

const CONFIG_MAPS: ResourceKind = { group: '', version: 'v1', plural: 'configmaps' };
const WIDGETS: ResourceKind = { group: 'contract.test', version: 'v1', plural: 'widgets' };
const LEASES: ResourceKind = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases' };
const NAMESPACES: ResourceKind = { group: '', version: 'v1', plural: 'namespaces' };

interface ListBody {
  readonly metadata: {
    readonly resourceVersion: string;
    readonly continue?: string;
    readonly remainingItemCount?: number;
  };
  readonly items: readonly KubernetesObject[];
}

interface EventBody {
  readonly type: string;
  readonly object: KubernetesObject & { readonly code?: number; readonly reason?: string };
}

/**
 * The behaviour of an API server on which a reflector relies; the same tests for one in this process and a
 * real one.
 */
export function describeApiContract(name: string, open: () => Promise<ApiHarness>): void {
  describe(`the API of ${name}`, () => {
    let harness: ApiHarness;
    let maps: ApiUser;
    let widgets: ApiUser;
    beforeAll(async () => {
      harness = await open();
      const namespaces = new ApiUser(harness.transport, NAMESPACES);
      await namespaces.create('contract');
      await harness.serveWidgets();
      maps = new ApiUser(harness.transport, CONFIG_MAPS, 'contract');
      widgets = new ApiUser(harness.transport, WIDGETS, 'contract');
    });
    afterAll(() => harness.close());

    const clientOf = (
      access: ApiHarness['access'],
      options: KubernetesClientOptions = {},
    ): KubernetesClient => new KubernetesClient(access, { clock: harness.clock, ...options });
    const inSet = (set: string): object => ({ labels: { set } });
    const read = (path: string): Promise<ReadAnswer> => maps.ask({ path });
    async function list(query: string, user: ApiUser = maps): Promise<ListBody> {
      const { status, body } = await read(`${user.path()}?${query}`);
      expect(status, JSON.stringify(body)).toBe(200);
      return body as ListBody;
    }
    /** Returns the events of a watch until it ends, or until there are `count`. */
    async function watch(query: string, count = Number.POSITIVE_INFINITY): Promise<EventBody[]> {
      const over = new AbortController();
      const path = `${maps.path()}?watch=true&${query}`;
      const { status, body } = await harness.transport.send({ path, signal: over.signal });
      expect(status).toBe(200);
      const scanner = new LineScanner(1_000_000);
      const events: EventBody[] = [];
      for await (const bytes of body) {
        for (const line of scanner.feed(bytes)) events.push(JSON.parse(line));
        if (events.length >= count) break;
      }
      over.abort();
      return events;
    }

    it('returns one version for all pages of a list, and the remaining count unless there is a selector', async () => {
      for (const n of ['a', 'b', 'c']) await maps.create(`page-${n}`, {}, inSet('pages'));
      const first = await list('limit=1&labelSelector=set%3Dpages');
      expect(first.items).toHaveLength(1);
      expect(first.metadata.remainingItemCount).toBeUndefined();
      await maps.create('page-d', {}, inSet('pages'));
      const rest = await list(`limit=500&labelSelector=set%3Dpages&continue=${first.metadata.continue}`);
      expect(rest.items.map(({ metadata }) => metadata.name)).toEqual(['page-b', 'page-c']);
      expect(rest.metadata.resourceVersion).toBe(first.metadata.resourceVersion);
      expect(rest.metadata.continue ?? '').toBe('');
      const all = await list('limit=1');
      expect(all.metadata.remainingItemCount).toBeGreaterThanOrEqual(3);
    });

    it('has no pages when it lists from its memory', async () => {
      for (const n of ['a', 'b']) await maps.create(`remembered-${n}`, {}, inSet('remembered'));
      const query = 'resourceVersion=0&limit=1&labelSelector=set%3Dremembered';
      await harness.until('it is seen', async () => (await list(query)).items.length === 2);
    });

    it('answers 410 to a continue token of a compacted history, with one that continues inconsistently', async () => {
      for (const n of ['a', 'b']) await maps.create(`token-${n}`, {}, inSet('tokens'));
      const first = await list('limit=1&labelSelector=set%3Dtokens');
      await maps.create('token-c', {}, inSet('tokens'));
      await harness.compact();
      const query = `limit=500&labelSelector=set%3Dtokens&continue=${first.metadata.continue}`;
      const { status, body } = await read(`${maps.path()}?${query}`);
      expect({ status, body }).toMatchObject({
        status: 410,
        body: { kind: 'Status', reason: 'Expired', code: 410 },
      });
      const { metadata } = body as ListBody;
      const rest = await list(`limit=500&labelSelector=set%3Dtokens&continue=${metadata.continue}`);
      expect(rest.items.map((item) => item.metadata.name)).toEqual(['token-b', 'token-c']);
    });

    it('waits for a version that it has not reached, and then reports it', async () => {
      const { status, body } = await read(`${maps.path()}?resourceVersion=900000000`);
      expect({ status, body }).toMatchObject({
        status: 504,
        body: { code: 504, details: { causes: [{ reason: 'ResourceVersionTooLarge' }] } },
      });
    });

    it('sends nothing on a watch from a version that it has not reached', async () => {
      expect(await watch('resourceVersion=900000000&timeoutSeconds=2&allowWatchBookmarks=true')).toEqual([]);
    });

    it('ends a watch regularly after its time, with a bookmark before it if the kind has changed', async () => {
      const { metadata } = await list('limit=1');
      // Long enough for the create on a busy machine: a change in the last second has no bookmark.
      const watched = watch(
        `resourceVersion=${metadata.resourceVersion}&timeoutSeconds=6&allowWatchBookmarks=true`,
      );
      const { metadata: created } = await maps.create('bookmarked');
      const events = await watched;
      // One or several: the server sends one per second towards the end.
      expect(events.map(({ type }) => type).join()).toMatch(/^ADDED(,BOOKMARK)+$/);
      expect(events[1]?.object.metadata.resourceVersion).toBe(created.resourceVersion);
    });

    it('starts a watch with all objects and a bookmark, or reports that it does not support this', async () => {
      await maps.create('streamed', {}, inSet('streamed'));
      const query = 'watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan';
      const path = `${maps.path()}?${query}&allowWatchBookmarks=true&timeoutSeconds=2&labelSelector=set%3Dstreamed`;
      const { status, body } = await harness.transport.send({ path, signal: new AbortController().signal });
      const lines = (await textOf(body)).trim().split('\n');
      expect(status).toBe(harness.offersStreams ? 200 : 422);
      if (!harness.offersStreams) return;
      const [added, end] = lines.map((line) => JSON.parse(line) as EventBody);
      expect([added?.type, added?.object.metadata.name]).toEqual(['ADDED', 'streamed']);
      expect(end?.object.metadata['annotations']).toEqual({ 'k8s.io/initial-events-end': 'true' });
      expect(end?.object.metadata.resourceVersion).toMatch(/^[1-9]/);
    });

    it('sends the changes of one object in order, each with its version', async () => {
      const { metadata } = await list('limit=1');
      const created = await maps.create('told');
      const changed = await maps.patch('told', { data: { a: '1' } });
      await maps.delete('told');
      const events = await watch(`resourceVersion=${metadata.resourceVersion}`, 3);
      expect(events.map(({ type, object }) => [type, object.metadata.name])).toEqual([
        ['ADDED', 'told'],
        ['MODIFIED', 'told'],
        ['DELETED', 'told'],
      ]);
      const versions = events.map(({ object }) => object.metadata.resourceVersion);
      expect(versions.slice(0, 2)).toEqual([
        created.metadata.resourceVersion,
        changed.metadata.resourceVersion,
      ]);
      expect(new Set(versions).size).toBe(3);
    });

    it('shows an object that leaves a selector as deleted, and one that enters it as added (K 7)', async () => {
      const { metadata } = await list('limit=1');
      await maps.create('selected', {}, inSet('in'));
      await maps.patch('selected', { metadata: { labels: { set: 'out' } } });
      await maps.patch('selected', { metadata: { labels: { set: 'in' } } });
      const events = await watch(`resourceVersion=${metadata.resourceVersion}&labelSelector=set%3Din`, 3);
      expect(events.map(({ type }) => type)).toEqual(['ADDED', 'DELETED', 'ADDED']);
    });

    it('selects by labels in every form, and by name', async () => {
      await maps.create('one', {}, { labels: { app: 'web', tier: 'front' } });
      await maps.create('two', {}, { labels: { app: 'db' } });
      const named = async (query: string): Promise<readonly string[]> =>
        (await list(query)).items.map((item) => item.metadata.name);
      expect(await named('labelSelector=app%3Dweb')).toEqual(['one']);
      expect(await named('labelSelector=app,!tier')).toEqual(['two']);
      expect(await named('labelSelector=app+in+(web,db),tier%21%3Dfront')).toEqual(['two']);
      expect(await named('labelSelector=app,app+notin+(db)')).toEqual(['one']);
      expect(await named('fieldSelector=metadata.name%3Dtwo')).toEqual(['two']);
      expect((await read(`${maps.path()}?labelSelector=app+like+x`)).status).toBe(400);
    });

    it('gives a recreated object another uid, and keeps the version of an unchanged one', async () => {
      const first = await maps.create('again', { data: { a: '1' } });
      const same = await maps.patch('again', { data: { a: '1' } });
      expect(same.metadata).toMatchObject({
        uid: first.metadata.uid,
        resourceVersion: first.metadata.resourceVersion,
      });
      await maps.delete('again');
      const second = await maps.create('again');
      expect(second.metadata.uid).not.toBe(first.metadata.uid);
    });

    it('rejects conflicts: a second create, an old version, another uid', async () => {
      const made = await maps.create('contested');
      const body = { metadata: { name: 'contested' } };
      expect(await maps.ask({ method: 'POST', path: maps.path(), body })).toMatchObject({
        status: 409,
        body: { reason: 'AlreadyExists' },
      });
      await maps.patch('contested', { data: { a: '1' } });
      expect(await maps.ask({ method: 'PUT', path: maps.path('contested'), body: made })).toMatchObject({
        status: 409,
        body: { reason: 'Conflict' },
      });
      const preconditions = { uid: '00000000-0000-0000-0000-000000000000' };
      const options = { kind: 'DeleteOptions', apiVersion: 'v1', preconditions };
      expect(await maps.ask({ method: 'DELETE', path: maps.path('contested'), body: options })).toMatchObject(
        { status: 409, body: { reason: 'Conflict' } },
      );
      const mine = { ...options, preconditions: { uid: made.metadata.uid } };
      expect(await maps.ask({ method: 'DELETE', path: maps.path('contested'), body: mine })).toMatchObject({
        status: 200,
      });
      expect(await read(maps.path('contested'))).toMatchObject({ status: 404, body: { reason: 'NotFound' } });
    });

    it('writes the status separately', async () => {
      const meta = { apiVersion: 'contract.test/v1', kind: 'Widget' };
      const made = await widgets.create('gear', { ...meta, spec: { teeth: 7 }, status: { turns: 1 } });
      expect(made['status']).toBeUndefined();
      const json = 'application/json-patch+json';
      const patch = (uid: string): unknown => [
        { op: 'test', path: '/metadata/uid', value: uid },
        { op: 'add', path: '/status', value: { turns: 2 } },
      ];
      const path = `${widgets.path('gear')}/status`;
      const done = await widgets.ask({
        method: 'PATCH',
        path,
        body: patch(made.metadata.uid),
        contentType: json,
      });
      expect(done).toMatchObject({ status: 200, body: { spec: { teeth: 7 }, status: { turns: 2 } } });
      const other = await widgets.ask({ method: 'PATCH', path, body: patch('another'), contentType: json });
      expect(other.status).toBe(422);
      const main = await widgets.patch('gear', { spec: { teeth: 8 }, status: { turns: 3 } });
      expect(main).toMatchObject({ spec: { teeth: 8 }, status: { turns: 2 } });
    });

    it('serves its kinds, and answers 404 for others', async () => {
      const client = clientOf(harness.access);
      const [nothing, noVersion] = [
        { group: 'contract.test', version: 'v1', plural: 'nothings' },
        { group: 'contract.test', version: 'v9', plural: 'widgets' },
      ];
      expect(await client.firstServed([nothing, noVersion, WIDGETS, CONFIG_MAPS])).toEqual(WIDGETS);
      expect(await client.firstServed([nothing, noVersion])).toBeUndefined();
      await client.close();
      expect(await read('/apis/contract.test/v1/nothings')).toMatchObject({ status: 404 });
      const health = await harness.transport.send({ path: '/healthz', signal: new AbortController().signal });
      expect(await textOf(health.body)).toBe('ok');
    });

    // ── Our writer and reader
    // ───────────────────────────────────────────────────────────────────────────────

    const never = new AbortController().signal;
    async function withClient(
      access: ApiHarness['access'],
      work: (client: KubernetesClient) => Promise<void>,
    ): Promise<void> {
      const client = clientOf(access);
      await work(client).finally(() => client.close());
    }
    const outcomeOf = async (outcome: Promise<WriteOutcome>): Promise<string> => (await outcome).outcome;
    const mapAt = (place: string): ObjectPlace => ({ kind: CONFIG_MAPS, namespace: 'contract', name: place });

    it('accepts writes: create, update at its version only, delete at its uid and version only', () =>
      withClient(harness.access, async (client) => {
        const writer = client.writer();
        const lease: ObjectPlace = { kind: LEASES, namespace: 'contract', name: 'held' };
        const fresh = { metadata: { name: 'held' }, spec: { holderIdentity: 'a', leaseDurationSeconds: 15 } };
        const create: ObjectWrite = { verb: 'create', kind: LEASES, namespace: 'contract', object: fresh };
        const made = await writer.write(create, 'it is new', never);
        if (made.outcome !== 'done' || made.object === undefined) throw new Error(JSON.stringify(made));
        expect(await outcomeOf(writer.write(create, 'again', never))).toBe('conflict');
        const { object: first } = made;
        const update: ObjectWrite = {
          verb: 'update',
          place: lease,
          object: { ...first, spec: { holderIdentity: 'b', leaseDurationSeconds: 15 } },
        };
        const second = await writer.write(update, 'b holds it', never);
        expect(second).toMatchObject({ outcome: 'done', object: { spec: { holderIdentity: 'b' } } });
        expect(await outcomeOf(writer.write(update, 'at the old version', never))).toBe('conflict');
        const { uid, resourceVersion } = first.metadata;
        const remove: ObjectWrite = { verb: 'delete', place: lease, uid };
        const other = '00000000-0000-0000-0000-000000000000';
        expect(await outcomeOf(writer.write({ ...remove, uid: other }, 'another life', never))).toBe(
          'conflict',
        );
        expect(await outcomeOf(writer.write({ ...remove, resourceVersion }, 'old', never))).toBe('conflict');
        expect(await client.reader().get(lease, never)).toMatchObject({ spec: { holderIdentity: 'b' } });
        expect(await outcomeOf(writer.write(remove, 'it is over', never))).toBe('done');
        expect(await outcomeOf(writer.write(remove, 'it is gone', never))).toBe('not-found');
        expect(await client.reader().get(lease, never)).toBeUndefined();
        expect(await outcomeOf(writer.write(update, 'it is gone', never))).toMatch(/^(not-found|conflict)$/);
        const noKind = { ...create, kind: { ...LEASES, plural: 'nothings' } };
        expect(await outcomeOf(writer.write(noKind, 'there is no such kind', never))).toBe('not-found');
        const noName = { ...create, object: { metadata: { name: 'No Name' } } };
        expect(await outcomeOf(writer.write(noName, 'it has no name', never))).toBe('invalid');
      }));

    it('applies a patch with tests completely or not at all, with names that must be escaped', () =>
      withClient(harness.access, async (client) => {
        const meta = { apiVersion: 'contract.test/v1', kind: 'Widget' };
        const names = ['n1', 'a/b', 'a~b', 'a~1b'];
        await widgets.create('patched', meta);
        await widgets.ask({
          method: 'PATCH',
          path: `${widgets.path('patched')}/status`,
          body: { status: { nodes: Object.fromEntries(names.map((n) => [n, { at: n }])) } },
          contentType: 'application/merge-patch+json',
        });
        const place: ObjectPlace = { kind: WIDGETS, namespace: 'contract', name: 'patched' };
        const without = (name: string, at: string): readonly PatchOperation[] => [
          { op: 'test', path: pointer('status', 'nodes', name, 'at'), value: at },
          { op: 'remove', path: pointer('status', 'nodes', name) },
        ];
        const patch = (operations: readonly PatchOperation[]): Promise<WriteOutcome> =>
          client.writer().write({ verb: 'patch', place, subresource: 'status', operations }, 'gone', never);
        const mixed = [...without('n1', 'n1'), ...without('a/b', 'another')];
        expect(await outcomeOf(patch(mixed))).toBe('conflict');
        expect(await outcomeOf(patch(without('not-there', 'x')))).toBe('conflict');
        expect(await outcomeOf(patch(names.slice(1).flatMap((n) => [...without(n, n)])))).toBe('done');
        expect(await client.reader().get(place, never)).toMatchObject({
          status: { nodes: { n1: { at: 'n1' } } },
        });
        const many = Array.from({ length: 10_001 }, () => without('n1', 'n1')[0]).filter(
          (one) => one !== undefined,
        );
        expect(await outcomeOf(patch(many))).toBe('invalid');
        expect(await outcomeOf(patch(many.slice(1)))).toBe('done');
      }));

    it('lists pages from etcd, and names the missing right to read or write', async () => {
      for (const n of ['a', 'b', 'c']) await maps.create(`paged-${n}`, {}, inSet('paged'));
      await withClient(harness.access, async (client) => {
        const pages: string[][] = [];
        const kind = { ...CONFIG_MAPS, labelSelector: 'set=paged' };
        for await (const page of client.reader().list(kind, never, 2))
          pages.push(page.map(({ metadata }) => metadata.name));
        expect(pages).toEqual([['paged-a', 'paged-b'], ['paged-c']]);
        const none = client.reader().list({ ...kind, plural: 'nothings' }, never);
        await expect(none[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: 'missing' });
      });
      await withClient(harness.powerless, async (client) => {
        const remove: ObjectWrite = { verb: 'delete', place: mapAt('paged-a'), uid: 'any' };
        expect(await client.writer().write(remove, 'no right', never)).toMatchObject({
          outcome: 'refused',
          message: expect.stringMatching(
            /.: grant the verb "delete" on the resource "configmaps" of the API group ""$/,
          ),
        });
        await expect(client.reader().get(mapAt('paged-a'), never)).rejects.toMatchObject({
          code: 'forbidden',
          message: expect.stringMatching(/.: grant the verb "get" on the resource "configmaps"/),
        });
      });
    });

    // ── Our client
    // ──────────────────────────────────────────────────────────────────────────────────────────

    const only = (set: string): ResourceKind => ({ ...CONFIG_MAPS, labelSelector: `set=${set}` });
    const names = (sink: RecordingSink): readonly string[] =>
      [...sink.objects.values()].map(({ metadata }) => metadata.name).sort();

    it('is followed: lists, events, a recreated object', async () => {
      const client = clientOf(harness.access);
      const sink = new RecordingSink();
      await maps.create('f1', {}, inSet('followed'));
      const followed = client.follow(only('followed'), sink);
      await followed.waitForListed({ quietMs: 20_000 });
      expect(names(sink)).toEqual(['f1']);
      const f2 = await maps.create('f2', {}, inSet('followed'));
      await maps.delete('f1');
      const again = await maps.create('f1', {}, inSet('followed'));
      await harness.until(
        'all is there',
        () => sink.versions.get('contract/f1') === again.metadata.resourceVersion,
      );
      expect(sink.versions.get('contract/f2')).toBe(f2.metadata.resourceVersion);
      expect(sink.breaches).toEqual([]);
      expect(followed.status()).toMatchObject({ state: 'watching', objects: 2, lists: 1, failures: 0 });
      await client.close();
    });

    it('names the missing right', async () => {
      const client = clientOf(harness.powerless);
      const followed = client.follow(only('x'), new RecordingSink());
      await harness.until('it is refused', () => followed.status().state === 'forbidden');
      expect(followed.status().lastFailure?.message).toMatch(
        /.: grant the verb "list" on the resource "configmaps" of the API group ""$/,
      );
      await client.close();
    });

    it('answers 401 to an unknown token, which is retried', async () => {
      const client = clientOf(harness.unknown);
      const followed = client.follow(only('x'), new RecordingSink());
      await harness.until('it is refused, and waits', () => followed.status().state === 'waiting');
      expect(followed.status().lastFailure).toMatchObject({ code: 'unauthorized' });
      await client.close();
    });

    it('is followed through a restart: changes in the meantime are delivered, and nothing twice', async () => {
      const client = clientOf(harness.access, { random: () => 0 });
      const sink = new RecordingSink();
      await maps.create('d1', {}, inSet('death'));
      await maps.create('d2', {}, inSet('death'));
      const followed = client.follow(only('death'), sink);
      await followed.waitForListed({ quietMs: 20_000 });
      const last = await maps.create('d3', {}, inSet('death'));
      await harness.until(
        'it is told',
        () => sink.versions.get('contract/d3') === last.metadata.resourceVersion,
      );
      await harness.kill();
      await harness.until('it is missed', () => followed.status().state === 'waiting');
      expect(names(sink)).toEqual(['d1', 'd2', 'd3']);
      await harness.restart();
      await maps.delete('d2');
      await maps.create('d4', {}, inSet('death'));
      await harness.until('it goes on', () => names(sink).join() === 'd1,d3,d4');
      expect(sink.breaches).toEqual([]);
      await client.close();
    });

    it('accepts a watch from a version that it has forgotten by its restart, sends 410 in it, and ends it regularly', async () => {
      const events = await watch('resourceVersion=1&timeoutSeconds=20');
      expect(events).toMatchObject([
        { type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } },
      ]);
    });

    it('without a kind causes no error: the kind is followed as soon as it exists', async () => {
      const client = clientOf(harness.access, { random: () => 0 });
      const sink = new RecordingSink();
      const kind = { group: 'contract.test', version: 'v1', plural: 'nothings' };
      const followed = client.follow(kind, sink);
      await harness.until('it is missed', () => followed.status().state === 'missing');
      expect(followed.status()).toMatchObject({ failures: 0, listed: false });
      await client.close();
    });
  });
}
