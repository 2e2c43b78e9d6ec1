import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ServedAnswer, ServedRequest } from '../../../src/k8s/memory/faults.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { collectors } from '../../../src/operator/collect/collectors.ts';
import { objectKey } from '../../../src/operator/collect/observed-kind.ts';
import type { Duty } from '../../../src/operator/duty.ts';
import { CiliumSliceDuty } from '../../../src/operator/slices/cilium-slice-duty.ts';
import type { SliceMode } from '../../../src/operator/slices/cilium-slices.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const CEPS = { group: 'cilium.io', version: 'v2', plural: 'ciliumendpoints' };
const SLICES = { group: 'cilium.io', version: 'v2alpha1', plural: 'ciliumendpointslices' };
const META = { apiVersion: 'cilium.io/v2alpha1', kind: 'CiliumEndpointSlice' };
const MOST = 3;

interface Slice extends KubernetesObject {
  readonly namespace: string;
  readonly endpoints: readonly { readonly name: string; readonly id: number; readonly networking: unknown }[];
}

/** `namespace/name` → its content in the slices; if it is in two, that of the last one. */
type Held = ReadonlyMap<string, { readonly id: number; readonly networking: unknown }>;

function heldIn(slices: readonly Slice[]): Held {
  return new Map(
    slices.flatMap(({ namespace, endpoints }) =>
      endpoints.map(({ name, id, networking }) => [`${namespace}/${name}`, { id, networking }] as const),
    ),
  );
}

function isOurs({ metadata }: Slice): boolean {
  return !metadata.name.startsWith('other-');
}

class World {
  readonly clock = new ManualClock();
  readonly api = new MemoryApiServer({ clock: this.clock });
  readonly #transport = new MemoryApiTransport(this.api);
  readonly slicesUser = new ApiUser(this.#transport, SLICES);
  readonly wanted = new Map<string, { readonly id: number; readonly networking: unknown }>();
  /** Endpoints that were in a slice, were wanted, and were in none after a write. */
  readonly gaps: string[] = [];
  /**
   * Endpoints whose pod was deleted once. A new pod of the name is another one and may be missing for a
   * while.
   */
  readonly #gone = new Set<string>();
  readonly #mode: SliceMode;
  readonly actions: { readonly action: string; readonly reason: string; readonly outcome: string }[] = [];
  #seed = 0;
  duty: Duty | undefined;
  /** Fields of endpoints that the CRD of slices does not have, so that the server drops them. */
  dropped: readonly string[] = [];
  /** Called after each write, before its answer. */
  onWritten: () => Promise<void> = () => Promise.resolve();
  #stop: (() => Promise<void>) | undefined;

  constructor(mode: SliceMode) {
    this.#mode = mode;
  }

  #user(namespace: string): ApiUser {
    return new ApiUser(this.#transport, CEPS, namespace);
  }

  async put(namespace: string, name: string, id: number, ip: string): Promise<void> {
    const user = this.#user(namespace);
    const key = `${namespace}/${name}`;
    const networking = { addressing: [{ ipv4: ip }], node: '192.0.2.1' };
    if ((await user.ask({ path: user.path(name) })).status === 404) await user.create(name);
    const contentType = 'application/merge-patch+json';
    const status = id === 0 ? { identity: null, networking } : { identity: { id }, networking };
    await user.ask({ method: 'PATCH', path: `${user.path(name)}/status`, body: { status }, contentType });
    if (id === 0) this.#gone.add(key);
    if (id === 0) this.wanted.delete(key);
    else this.wanted.set(key, { id, networking });
  }

  async drop(namespace: string, name: string): Promise<void> {
    await this.#user(namespace).ask({ method: 'DELETE', path: this.#user(namespace).path(name) });
    this.wanted.delete(`${namespace}/${name}`);
    this.#gone.add(`${namespace}/${name}`);
  }

  /** Another client creates a slice with an endpoint that is in another slice, or in none. */
  async copy(namespace: string, name: string, n: number): Promise<void> {
    const endpoints = [
      { name, id: 1001, networking: { addressing: [{ ipv4: '10.9.9.9' }], node: '192.0.2.9' } },
    ];
    const body = { ...META, namespace, endpoints, metadata: { name: `other-${n}` } };
    await this.slicesUser.ask({ method: 'POST', path: this.slicesUser.path(), body });
  }

  async slices(): Promise<readonly Slice[]> {
    const path = `${this.slicesUser.path()}?limit=500`;
    const request = { method: 'GET', path, authorization: '', contentType: '', body: '' };
    const { body } = await this.api.handleElsewhere({ ...request, closed: new AbortController().signal });
    let text = '';
    for await (const bytes of body) text += new TextDecoder().decode(bytes);
    return (JSON.parse(text) as { items: readonly Slice[] }).items;
  }

  start(): void {
    const handle = async (request: ServedRequest): Promise<ServedAnswer> => {
      const isWrite = request.method !== 'GET';
      const before = isWrite ? heldIn((await this.slices()).filter(isOurs)) : new Map();
      const answer = await this.api.handle({ ...request, body: this.#stored(request.body) });
      if (isWrite) {
        const after = heldIn(await this.slices());
        for (const key of before.keys())
          if (this.wanted.has(key) && !this.#gone.has(key) && !after.has(key)) this.gaps.push(key);
        await this.onWritten();
      }
      return answer;
    };
    const client = new KubernetesClient(new MemoryApiTransport({ handle }), {
      clock: this.clock,
      random: () => 0,
    });
    const duties = collectors({
      clock: this.clock,
      kubernetes: client,
      slices: { mode: this.#mode, maxEndpoints: MOST },
      random: () => this.#random(),
      onAction: (action) => this.actions.push(action),
      kvstore: {
        backend: new MemoryBackend({ clock: this.clock }),
        cluster: 'atlantic',
        identities: { min: 256, max: 65_535 },
      },
      intervals: { endpoints: 0, identities: 0, nodes: 0, kvstoreIdentities: 0, locks: 0 },
    });
    this.duty = duties.find(({ name }) => name === 'endpoint-slices');
    const ended = new AbortController();
    const running = this.duty?.run(ended.signal);
    this.#stop = async () => {
      ended.abort();
      await settle();
      await running;
      await client.close();
    };
  }

  #random(): number {
    this.#seed = (this.#seed * 16_807 + 7) % 2_147_483_647;
    return this.#seed / 2_147_483_647;
  }

  /** Returns the body of a request without the dropped fields. */
  #stored(body: string): string {
    if (body === '' || this.dropped.length === 0) return body;
    return JSON.stringify(
      JSON.parse(body, (key, value: unknown) => (this.dropped.includes(key) ? undefined : value)),
    );
  }

  async stop(): Promise<void> {
    await this.#stop?.();
    this.#stop = undefined;
  }

  async restart(): Promise<void> {
    await this.stop();
    this.start();
  }

  /** Returns the errors of the slices after all writes. */
  async faults(): Promise<readonly string[]> {
    const slices = await this.slices();
    const faults: string[] = [];
    const all = slices.flatMap(({ namespace, endpoints }) =>
      endpoints.map(({ name }) => `${namespace}/${name}`),
    );
    if (new Set(all).size < all.length) faults.push(`in two slices: ${all.join()}`);
    for (const { metadata, endpoints } of slices) {
      if (endpoints.length === 0) faults.push(`${metadata.name} is empty`);
      if (endpoints.length > MOST) faults.push(`${metadata.name} is too large`);
      if (this.#mode === 'identity' && new Set(endpoints.map(({ id }) => id)).size > 1)
        faults.push(`${metadata.name} has several identities`);
    }
    const [held, wanted] = [heldIn(slices), this.wanted].map((one) => JSON.stringify([...one].sort()));
    if (held !== wanted) faults.push(`has ${held} and not ${wanted}`);
    return [...faults, ...this.gaps.map((key) => `${key} was in none for a while`)];
  }
}

/** Returns a world of one endpoint whose slice was deleted while the watch of slices is behind. */
async function worldWithUnseenDelete(): Promise<World> {
  const world = new World('identity');
  await world.put('shop', 'a', 1001, '10.0.0.1');
  world.start();
  await advance(world.clock, 3000);
  const [slice] = await world.slices();
  world.api.faults.inject({ do: 'hang' }, { matches: ({ path }) => path.includes('slices?watch'), times: 9 });
  world.api.endWatches();
  await advance(world.clock, 2000);
  await world.slicesUser.delete(slice?.metadata.name ?? '');
  return world;
}

describe('the slices of endpoints', () => {
  it.each(['DELETE', 'PATCH'] as const)(
    'are repaired if another client sends a %s before the answer of a write arrives (regression: they stayed so)',
    async (method) => {
      const world = new World('identity');
      world.start();
      await advance(world.clock, 3000);
      world.onWritten = async () => {
        world.onWritten = () => Promise.resolve();
        const [slice] = await world.slices();
        const path = world.slicesUser.path(slice?.metadata.name);
        const contentType = 'application/merge-patch+json';
        await world.slicesUser.ask({ method, path, body: { endpoints: [] }, contentType });
        await settle(6);
      };
      await world.put('shop', 'a', 1001, '10.0.0.1');
      await advance(world.clock, 1000);
      await settle(20); // the clock must not advance before the answer
      await advance(world.clock, 5000);
      expect(await world.faults()).toEqual([]);
      expect(world.duty?.status()).toMatchObject({ failures: 0, published: { synced: true } });
      await world.stop();
    },
  );

  it('are repaired if another client changes their namespace (regression: readers got endpoints of another namespace)', async () => {
    const world = new World('identity');
    await world.put('shop', 'a', 1001, '10.0.0.1');
    world.start();
    await advance(world.clock, 3000);
    const [slice] = await world.slices();
    const path = world.slicesUser.path(slice?.metadata.name);
    const contentType = 'application/merge-patch+json';
    await world.slicesUser.ask({ method: 'PATCH', path, body: { namespace: 'bank' }, contentType });
    await advance(world.clock, 3000);
    expect((await world.slices()).map(({ namespace }) => namespace)).toEqual(['shop']);
    await world.stop();
  });

  it('contain the fields for readers, are batched for half a second, and are deleted when they are empty', async () => {
    const world = new World('identity');
    world.start();
    await advance(world.clock, 3000);
    for (const [i, name] of ['a', 'b', 'c', 'd'].entries())
      await world.put('shop', name, 1001, `10.0.0.${i}`);
    await world.put('shop', 'e', 1002, '10.0.0.9');
    await world.put('shop', 'no-identity', 0, '10.0.0.8');
    await advance(world.clock, 400);
    expect(await world.slices()).toEqual([]);
    await advance(world.clock, 2000);
    const slices = await world.slices();
    expect(slices.map(({ endpoints }) => endpoints.map(({ name }) => name).join('')).sort()).toEqual([
      'abc',
      'd',
      'e',
    ]);
    expect(slices[0]).toMatchObject({ ...META, namespace: 'shop' });
    expect(slices[0]?.metadata.name).toMatch(/^ces-[a-z0-9]{9}-[a-z0-9]{5}$/);
    expect(slices[0]?.endpoints[0]).toEqual({
      name: expect.any(String),
      id: expect.any(Number),
      encryption: {},
      networking: { addressing: [{ ipv4: expect.any(String) }], node: '192.0.2.1' },
    });
    expect(world.duty?.status()).toMatchObject({
      state: 'running',
      failures: 0,
      published: { synced: true, keys: 3, pending: 0, writes: 3, rejected: 1 },
    });
    await world.drop('shop', 'd');
    await advance(world.clock, 2000);
    expect(await world.faults()).toEqual([]);
    expect(await world.slices()).toHaveLength(2);
    await world.stop();
  });

  /** Puts an endpoint of a pod as Cilium 1.21 writes it. */
  async function putOwned(world: World): Promise<void> {
    const user = new ApiUser(new MemoryApiTransport(world.api), CEPS, 'shop');
    const owner = { apiVersion: 'v1', kind: 'Pod', name: 'a', uid: 'pod-1' };
    await user.create('a', {}, { ownerReferences: [owner] });
    const path = `${user.path('a')}/status`;
    const contentType = 'application/merge-patch+json';
    await user.ask({ method: 'PATCH', path, body: { status: { 'service-account': 'web' } }, contentType });
    await world.put('shop', 'a', 1001, '10.0.0.1');
  }

  it('contain the service account and the uid of the pod (regression: a take-over from Cilium removed both from all slices)', async () => {
    const world = new World('identity');
    await putOwned(world);
    world.start();
    await advance(world.clock, 3000);
    const [slice] = await world.slices();
    expect(slice?.endpoints).toEqual([
      {
        name: 'a',
        id: 1001,
        'pod-uid': 'pod-1',
        'service-account': 'web',
        encryption: {},
        networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '192.0.2.1' },
      },
    ]);
    await world.restart();
    await advance(world.clock, 3000);
    expect(world.duty?.status().published).toMatchObject({ synced: true, writes: 0 });
    await world.stop();
  });

  it('are written once, also after a restart, if the CRD of an older Cilium does not have all fields', async () => {
    const world = new World('identity');
    world.dropped = ['pod-uid', 'service-account'];
    await putOwned(world);
    world.start();
    await advance(world.clock, 3000);
    await world.put('shop', 'a', 1001, '10.0.0.2');
    await advance(world.clock, 60_000);
    const [slice] = await world.slices();
    expect(slice?.endpoints[0]).not.toHaveProperty('pod-uid');
    expect(world.duty?.status().published).toMatchObject({ synced: true, writes: 2 });
    // Regression: each start wrote all slices, and changes had to wait for them.
    await world.restart();
    await advance(world.clock, 3000);
    expect(world.duty?.status().published).toMatchObject({ synced: true, writes: 0 });
    await world.stop();
  });

  it('are not written again if an API server that is behind shows an earlier write', async () => {
    const world = new World('identity');
    await world.put('shop', 'a', 1001, '10.0.0.1');
    world.start();
    await advance(world.clock, 3000);
    const ips = ['10.0.0.2', '10.0.0.3'];
    world.api.faults.inject(
      { do: 'hang' },
      { matches: ({ path }) => path.includes('slices?watch'), times: 9 },
    );
    world.api.endWatches();
    await advance(world.clock, 2000);
    for (const ip of ips) {
      await world.put('shop', 'a', 1001, ip);
      await advance(world.clock, 2000);
    }
    expect(world.duty?.status().published?.writes).toBe(3);
    world.api.faults.clear();
    await advance(world.clock, 60_000);
    expect(world.duty?.status().published?.writes).toBe(3);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('are created again if they were deleted before a list, without an event', async () => {
    const world = new World('identity');
    world.start();
    await advance(world.clock, 3000);
    world.api.faults.inject(
      { do: 'hang' },
      { matches: ({ path }) => path.includes('slices?watch'), times: 3 },
    );
    world.api.endWatches();
    await advance(world.clock, 100);
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await advance(world.clock, 2000);
    for (const { metadata } of await world.slices()) await world.slicesUser.delete(metadata.name);
    expect(world.duty?.status().published?.writes).toBe(1);
    world.api.compact();
    world.api.endWatches();
    await advance(world.clock, 120_000);
    expect(await world.slices()).toHaveLength(1);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('contain a moved endpoint once if the answer of a write was lost (regression: its old slice kept it)', async () => {
    const world = new World('identity');
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await world.put('shop', 'b', 1001, '10.0.0.2');
    world.start();
    await advance(world.clock, 3000);
    const isCreate = ({ method, path }: ServedRequest): boolean =>
      method === 'POST' && path.includes('slices');
    world.api.faults.inject({ do: 'cut', afterBytes: 1 }, { matches: isCreate });
    await world.put('shop', 'a', 1002, '10.0.0.1');
    await advance(world.clock, 120_000);
    expect(await world.faults()).toEqual([]);
    expect(world.duty?.status().published?.pending).toBe(0);
    await world.stop();
  });

  it('are retried without limit, while upstream gives up after 15 attempts', async () => {
    const world = new World('identity');
    world.api.deny('create', 'ciliumendpointslices');
    world.start();
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await advance(world.clock, 40 * 60_000);
    expect(world.duty?.status().failures).toBeGreaterThan(20);
    expect(world.duty?.status()).toMatchObject({
      lastFailure: {
        code: 'refused',
        message: expect.stringMatching(
          /^cannot create ciliumendpointslices.cilium.io\/v2alpha1 ces-.*: .+: grant the verb "create" on the resource "ciliumendpointslices"/,
        ),
      },
      published: { synced: false, pending: 1 },
    });
    world.api.allow('create', 'ciliumendpointslices');
    await advance(world.clock, 101_000);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('are not retried after the end of the duty (regression: a timer kept the process alive)', async () => {
    const world = new World('identity');
    world.api.deny('create', 'ciliumendpointslices');
    world.start();
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await advance(world.clock, 60_000);
    await world.stop();
    expect(world.clock.pending).toBe(0);
  });

  it('are retried after a second if they were written in between', async () => {
    const world = new World('identity');
    world.start();
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await advance(world.clock, 2000);
    world.api.deny('update', 'ciliumendpointslices');
    await world.put('shop', 'a', 1001, '10.0.0.2');
    await advance(world.clock, 300_000);
    world.api.allow('update', 'ciliumendpointslices');
    await advance(world.clock, 101_000);
    expect(await world.faults()).toEqual([]);
    world.api.deny('update', 'ciliumendpointslices');
    await world.put('shop', 'a', 1001, '10.0.0.3');
    await advance(world.clock, 1000);
    world.api.allow('update', 'ciliumendpointslices');
    await advance(world.clock, 2000);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('are created again if they are missing on a server whose watch is behind', async () => {
    const world = await worldWithUnseenDelete();
    await world.put('shop', 'a', 1001, '10.0.0.2');
    await advance(world.clock, 10_000);
    expect((await world.slices()).map(({ endpoints }) => endpoints.map(({ name }) => name))).toEqual([['a']]);
    await world.stop();
  });

  it('that can be neither written nor read again are a failure, and written when that is possible', async () => {
    const world = await worldWithUnseenDelete();
    const { failures = 0 } = world.duty?.status() ?? {};
    world.api.deny('get', 'ciliumendpointslices');
    await world.put('shop', 'a', 1001, '10.0.0.2');
    await advance(world.clock, 1000);
    expect(world.duty?.status().failures).toBeGreaterThan(failures);
    expect(world.duty?.status().lastFailure?.message).toMatch(/grant the verb "get"/);
    world.api.allow('get', 'ciliumendpointslices');
    await advance(world.clock, 10_000);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('whose writes conflict three times in a row are a failure (regression: nothing showed it)', async () => {
    const world = new World('identity');
    const body = JSON.stringify({ kind: 'Status', code: 409, message: 'already exists' });
    const matches = ({ method }: ServedRequest): boolean => method === 'POST';
    world.start();
    await world.put('shop', 'a', 1001, '10.0.0.1');
    world.api.faults.inject({ do: 'answer', status: 409, body }, { matches, times: 3 });
    await advance(world.clock, 2000);
    expect(world.duty?.status().failures).toBe(0);
    await advance(world.clock, 3000);
    expect(world.duty?.status()).toMatchObject({
      failures: 1,
      lastFailure: { code: 'conflict', message: expect.stringMatching(/^cannot create .*: already exists$/) },
    });
    await advance(world.clock, 10_000);
    expect(await world.faults()).toEqual([]);
    await world.stop();
  });

  it('have a status whose cost does not grow with the endpoints', async () => {
    const clock = new ManualClock();
    const ceps = ['a', 'b'].map((name) => ({
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumEndpoint',
      metadata: { name, namespace: 'shop', uid: name, resourceVersion: '1' },
      status: name === 'a' ? { identity: { id: 1001 }, networking: {} } : {},
    }));
    const objects = new Map(ceps.map((cep) => [objectKey(cep), cep]));
    let walks = 0;
    const values = objects.values.bind(objects);
    objects.values = () => {
      walks++;
      return values();
    };
    const kind = { objects, notReadyReason: () => undefined, follow: () => {}, listen: () => {} };
    const duty = new CiliumSliceDuty({
      clock,
      random: Math.random,
      endpoints: kind,
      slices: { ...kind, objects: new Map() },
      reader: { get: () => Promise.resolve(undefined), list: async function* () {} },
      writer: { write: () => Promise.resolve({ outcome: 'dry-run' }) },
    });
    const stop = new AbortController();
    const ended = duty.run(stop.signal);
    await advance(clock, 1000);
    const before = walks;
    expect(duty.status().published).toMatchObject({ keys: 1, rejected: 1 });
    expect(walks).toBe(before);
    stop.abort();
    await settle();
    await ended;
  });

  it('are created and deleted with a log line, and updated without one', async () => {
    const world = new World('identity');
    world.start();
    await world.put('shop', 'a', 1001, '10.0.0.1');
    await advance(world.clock, 2000);
    await world.put('shop', 'a', 1001, '10.0.0.2');
    await advance(world.clock, 2000);
    await world.drop('shop', 'a');
    await advance(world.clock, 2000);
    const said = world.actions.map(({ action: what, reason: why, outcome }) => [
      what.replace(/ces-.*/, 'ces-…'),
      why,
      outcome,
    ]);
    const place = 'ciliumendpointslices.cilium.io/v2alpha1 ces-…';
    expect(said).toEqual([
      [`create ${place}`, 'the desired slice has 1 endpoint of shop', 'done'],
      [`delete ${place}`, 'the desired slice has 0 endpoints of shop', 'done'],
    ]);
    await world.stop();
  });

  type Deed =
    | { readonly do: 'put'; readonly at: number; readonly id: number; readonly ip: number }
    | { readonly do: 'drop'; readonly at: number }
    | { readonly do: 'wait'; readonly ms: number }
    | { readonly do: 'restart' | 'stop' | 'start' | 'down' | 'up' | 'compact' }
    | { readonly do: 'lose' | 'empty'; readonly which: number }
    | { readonly do: 'copy'; readonly at: number; readonly n: number };
  const at = fc.nat(7);
  const action: fc.Arbitrary<Deed> = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant('put' as const),
        at,
        ip: fc.nat(3),
        id: fc.constantFrom(0, 1001, 1001, 1002),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('drop' as const), at }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.nat(4000) }) },
    fc.record({
      do: fc.constantFrom('restart' as const, 'down' as const, 'up' as const, 'compact' as const),
    }),
    fc.record({ do: fc.constantFrom('lose' as const, 'empty' as const), which: fc.nat(1) }),
    fc.record({ do: fc.constant('copy' as const), at, n: fc.nat(2) }),
  );

  it('contain each endpoint once, and none is missing while it moves, whatever happens in the meantime', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom<SliceMode>('identity', 'fcfs'),
        fc.array(action, { maxLength: 40 }),
        async (mode, actions) => {
          const world = new World(mode);
          for (const i of [0, 1, 2]) await world.put('shop', `pod-${i}`, 1001, '10.0.0.1');
          world.start();
          await advance(world.clock, 3000);
          for (const what of actions) {
            if (what.do === 'wait') await advance(world.clock, what.ms);
            else if (what.do === 'restart') await world.restart();
            else if (what.do === 'compact') world.api.compact();
            else if (what.do === 'down') world.api.down();
            else if (what.do === 'up') world.api.up();
            else if ('at' in what) {
              world.api.up();
              const [namespace, name] = [what.at < 5 ? 'shop' : 'bank', `pod-${what.at}`];
              if (what.do === 'copy') await world.copy(namespace, name, what.n);
              else if (what.do === 'drop') await world.drop(namespace, name);
              else await world.put(namespace, name, what.id, `10.0.0.${what.ip}`);
            } else if ('which' in what) {
              world.api.up();
              const slice = (await world.slices())[what.which];
              if (slice === undefined) continue;
              const path = world.slicesUser.path(slice.metadata.name);
              // A delete by another client is not our gap.
              if (what.do === 'lose') await world.slicesUser.ask({ method: 'DELETE', path });
              else await world.slicesUser.ask({ method: 'PUT', path, body: { ...slice, endpoints: [] } });
            }
          }
          world.api.up();
          await advance(world.clock, 300_000);
          expect(await world.faults()).toEqual([]);
          expect(world.duty?.status().published).toMatchObject({ synced: true, pending: 0 });
          await world.stop();
        },
      ),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 60) },
    );
  });
});
