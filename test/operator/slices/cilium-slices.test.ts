import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import {
  CiliumSlices,
  type CoreEndpoint,
  coreEndpoint,
  endpointsOf,
  type SliceMode,
} from '../../../src/operator/slices/cilium-slices.ts';

const MOST = 3;

interface Endpoint {
  readonly namespace: string;
  readonly name: string;
  readonly id: number;
  /** One or more, separated by a space. */
  readonly ip: string;
}

function coreOf({ name, id, ip }: Endpoint): CoreEndpoint {
  return { name, id, networking: { addressing: ip.split(' ').map((ipv4) => ({ ipv4 })) }, encryption: {} };
}

/** The content of a slice on a server. */
interface Stored {
  readonly namespace: string;
  readonly endpoints: readonly CoreEndpoint[];
}

/** Plans slices, and a server that receives them, one write at a time. */
class World {
  readonly wanted = new Map<string, Endpoint>();
  readonly server = new Map<string, Stored>();
  slices: CiliumSlices;
  readonly #mode: SliceMode;
  #under: { readonly name: string; readonly written: ReadonlyMap<string, CoreEndpoint> } | undefined;
  #drawn = 1;
  /** Endpoints in our slices on the server that have been wanted since: readers must not miss them. */
  #held = new Set<string>();
  /** Endpoints that were deleted once or touched by another client: they may be missing for a while. */
  readonly #gone = new Set<string>();

  constructor(mode: SliceMode) {
    this.#mode = mode;
    this.slices = this.#plan();
  }

  #plan(): CiliumSlices {
    return new CiliumSlices({ mode: this.#mode, maxEndpoints: MOST, random: () => this.#random() });
  }

  /** Another life takes over the server's content, and then the wanted endpoints. */
  restart(): void {
    this.#under = undefined;
    this.slices = this.#plan();
    for (const [slice, stored] of this.server) this.show(slice, stored);
    for (const endpoint of this.wanted.values()) this.put(endpoint);
  }

  #random(): number {
    this.#drawn = (this.#drawn * 16_807 + 7) % 2_147_483_647;
    return this.#drawn / 2_147_483_647;
  }

  /**
   * An endpoint stays in its slice, unless slices have one identity each and its identity changes. An equal
   * endpoint changes nothing.
   */
  put(endpoint: Endpoint): void {
    const key = `${endpoint.namespace}/${endpoint.name}`;
    const [known, from, dirty] = [this.wanted.get(key), this.#sliceOf(endpoint), [...this.slices.dirty]];
    this.wanted.set(key, endpoint);
    this.slices.put(endpoint.namespace, coreOf(endpoint));
    if (known === undefined || from === undefined) return;
    const moves = this.#mode === 'identity' && known.id !== endpoint.id;
    expect(this.#sliceOf(endpoint) !== from).toBe(moves);
    if (known.id === endpoint.id && known.ip === endpoint.ip) expect([...this.slices.dirty]).toEqual(dirty);
  }

  #sliceOf({ namespace, name }: Endpoint): string | undefined {
    return [...this.slices.dirty, ...this.server.keys()].find((slice) => {
      const planned = this.slices.get(slice);
      return planned?.namespace === namespace && planned.endpoints.has(name);
    });
  }

  remove(namespace: string, name: string): void {
    this.wanted.delete(`${namespace}/${name}`);
    this.#gone.add(`${namespace}/${name}`);
    this.slices.remove(namespace, name);
  }

  /** Sends one of the due writes; {@link answer} delivers its answer. */
  send(pick: number): void {
    if (this.#under !== undefined) return;
    const due = [...this.slices.dirty].filter((name) => this.slices.get(name)?.waitsFor.size === 0);
    const name = due[pick % Math.max(1, due.length)];
    const slice = name === undefined ? undefined : this.slices.get(name);
    if (name === undefined || slice === undefined) return;
    const written = new Map(slice.endpoints);
    this.#under = { name, written };
    if (written.size === 0) this.server.delete(name);
    else this.server.set(name, { namespace: slice.namespace, endpoints: [...written.values()] });
    const there = this.#onServer();
    for (const key of this.#held) if (!this.#gone.has(key)) expect(there, `${key} is in none`).toContain(key);
    this.#hold();
  }

  /** Removes copies by other clients, which do not count. */
  #hold(): void {
    const own = this.#onServer((slice) => !slice.startsWith('other-'));
    this.#held = new Set(own.filter((key) => this.wanted.has(key)));
  }

  answer(): void {
    const under = this.#under;
    this.#under = undefined;
    if (under !== undefined) this.slices.recordWrite(under.name, under.written);
  }

  /** Another client changes a slice. */
  tamper(pick: number, how: 'lose' | 'empty' | 'double'): void {
    this.answer();
    const names = [...this.server.keys()];
    const name = names[pick % Math.max(1, names.length)];
    const stored = name === undefined ? undefined : this.server.get(name);
    if (name === undefined || stored === undefined) return;
    for (const endpoint of stored.endpoints) this.#gone.add(`${stored.namespace}/${endpoint.name}`);
    if (how === 'lose') {
      this.server.delete(name);
      this.slices.recordDelete(name);
    } else
      this.show(
        how === 'empty' ? name : `other-${name}`,
        how === 'empty' ? { ...stored, endpoints: [] } : stored,
      );
    this.#hold();
  }

  show(name: string, stored: Stored): void {
    this.server.set(name, stored);
    const object = { metadata: { name, uid: name, resourceVersion: '1' }, ...stored } as KubernetesObject;
    this.slices.adopt(object, (key) => {
      const endpoint = this.wanted.get(key);
      return endpoint && coreOf(endpoint);
    });
  }

  #onServer(isMeant: (slice: string) => boolean = () => true): string[] {
    return [...this.server].flatMap(([slice, { namespace, endpoints }]) =>
      isMeant(slice) ? endpoints.map(({ name }) => `${namespace}/${name}`) : [],
    );
  }

  /** The plan has each endpoint once, with its current content, and obeys the rules of grouping. */
  check(): void {
    const planned = new Map<string, CoreEndpoint>();
    const names = new Set([...this.slices.dirty, ...this.server.keys()]);
    let count = 0;
    for (const name of names) {
      const slice = this.slices.get(name);
      if (slice === undefined) continue;
      count++;
      expect(slice.endpoints.size).toBeLessThanOrEqual(MOST);
      if (this.#mode === 'identity')
        expect(new Set([...slice.endpoints.values()].map(({ id }) => id)).size).toBeLessThanOrEqual(1);
      for (const [endpoint, core] of slice.endpoints) {
        expect(planned.has(`${slice.namespace}/${endpoint}`)).toBe(false);
        planned.set(`${slice.namespace}/${endpoint}`, core);
      }
      for (const other of slice.waitsFor) expect(this.slices.dirty).toContain(other);
      // Content that needs no write is equal to the plan.
      const stored = new Map(this.server.get(name)?.endpoints.map((core) => [core.name, core]));
      if (!this.slices.dirty.has(name)) expect(stored).toEqual(slice.endpoints);
    }
    expect(count).toBe(this.slices.size);
    const wanted = [...this.wanted].map(([key, endpoint]) => [key, coreOf(endpoint)] as const);
    expect([...planned].sort()).toEqual(wanted.sort());
  }

  /** Writes until there is nothing to write. */
  finish(): void {
    this.answer();
    for (let writes = 0; this.slices.dirty.size > 0; writes++) {
      expect(writes).toBeLessThan(100);
      this.send(writes);
      this.answer();
      this.check();
    }
    expect(this.#onServer().sort()).toEqual([...this.wanted.keys()].sort());
    expect([...this.server.values()].every(({ endpoints }) => endpoints.length > 0)).toBe(true);
    expect(this.slices.size).toBe(this.server.size);
  }
}

type Step =
  | { readonly do: 'put'; readonly endpoint: Endpoint }
  | { readonly do: 'remove'; readonly namespace: string; readonly name: string }
  | { readonly do: 'send'; readonly pick: number }
  | { readonly do: 'answer' }
  | { readonly do: 'restart' }
  | { readonly do: 'tamper'; readonly pick: number; readonly how: 'lose' | 'empty' | 'double' };

const namespace = fc.constantFrom('shop', 'shop', 'bank');
const name = fc.constantFrom('a', 'b', 'c', 'd', 'e');
const pick = fc.nat(5);
const endpoint = fc.record({
  namespace,
  name,
  id: fc.constantFrom(1001, 1001, 1002),
  ip: fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.1 10.0.0.2', '10.0.0.1 10.0.0.3'),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('put' as const), endpoint }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('remove' as const), namespace, name }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('send' as const), pick }) },
  { weight: 4, arbitrary: fc.constant<Step>({ do: 'answer' }) },
  { weight: 1, arbitrary: fc.constant<Step>({ do: 'restart' }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('tamper' as const),
      pick,
      how: fc.constantFrom('lose' as const, 'empty' as const, 'double' as const),
    }),
  },
);

describe('the plan of slices', () => {
  it('contains each endpoint once, is written to the server, and never removes one that moves', () => {
    const mode = fc.constantFrom<SliceMode>('identity', 'fcfs');
    fc.assert(
      fc.property(mode, fc.array(step, { minLength: 10, maxLength: 40, size: 'max' }), (of, script) => {
        const world = new World(of);
        for (const todo of script) {
          if (todo.do === 'put') world.put(todo.endpoint);
          else if (todo.do === 'remove') world.remove(todo.namespace, todo.name);
          else if (todo.do === 'send') world.send(todo.pick);
          else if (todo.do === 'answer') world.answer();
          else if (todo.do === 'restart') world.restart();
          else world.tamper(todo.pick, todo.how);
        }
        world.check();
        world.finish();
      }),
      { numRuns: Math.ceil(Math.max(fc.readConfigureGlobal().numRuns ?? 300, 32) / 2) },
    );
  });

  /** Returns the grouping of the endpoints. */
  const together = (slices: CiliumSlices): readonly string[] =>
    [...slices.dirty].map((name) => [...(slices.get(name)?.endpoints.keys() ?? [])].sort().join('')).sort();
  const put = (slices: CiliumSlices, id: number, ...names: readonly string[]): void => {
    for (const each of names)
      slices.put('shop', coreOf({ namespace: 'shop', name: each, id, ip: '10.0.0.1' }));
  };

  it('fills the fullest slice with room, and keeps those of one identity together', () => {
    const slices = new CiliumSlices({ maxEndpoints: MOST, random: Math.random });
    put(slices, 1001, 'a', 'b', 'c', 'd', 'e', 'f');
    put(slices, 1002, 'x');
    expect(together(slices)).toEqual(['abc', 'def', 'x']);
    for (const gone of ['a', 'b', 'd']) slices.remove('shop', gone);
    put(slices, 1001, 'g');
    expect(together(slices)).toEqual(['c', 'efg', 'x']);
    put(slices, 1001, 'h', 'i', 'j');
    expect(together(slices)).toEqual(['chi', 'efg', 'j', 'x']);
  });

  it('takes a hundred of any identity in the order of arrival, if configured', () => {
    const slices = new CiliumSlices({ mode: 'fcfs', random: Math.random });
    for (let i = 0; i < 101; i++) put(slices, 1000 + (i % 7), `pod-${i}`);
    slices.put('bank', coreOf({ namespace: 'bank', name: 'pod-0', id: 1001, ip: '10.0.0.1' }));
    expect([...slices.dirty].map((of) => slices.get(of)?.endpoints.size)).toEqual([100, 1, 1]);
  });

  it('generates names like upstream, and none twice', () => {
    const drawn = [...new Array(14).fill(0), ...new Array(14).fill(0), ...new Array(14).fill(0.999)];
    const slices = new CiliumSlices({ maxEndpoints: 1, random: () => drawn.shift() ?? 0 });
    put(slices, 1001, 'a', 'b');
    expect([...slices.dirty]).toEqual(['ces-bbbbbbbbb-bbbbb', 'ces-999999999-99999']);
  });
});

describe('the fields of an endpoint in a slice', () => {
  const networking = { addressing: [{ ipv4: '10.0.0.1' }] };
  const endpoint = (status: unknown): KubernetesObject => ({
    metadata: { namespace: 'shop', name: 'a', uid: 'u', resourceVersion: '1' },
    status,
  });

  it('are the uid of the first owner that is a pod, and no empty service account, as in Cilium', () => {
    const owned = (...ownerReferences: readonly unknown[]): KubernetesObject =>
      ({
        metadata: { namespace: 'shop', name: 'a', uid: 'u', resourceVersion: '1', ownerReferences },
        status: { identity: { id: 1 }, networking, 'service-account': '' },
      }) as KubernetesObject;
    const core = { name: 'a', id: 1, networking, encryption: {} };
    const node = { kind: 'CiliumNode', uid: 'n' };
    expect(coreEndpoint(owned(node))).toStrictEqual(core);
    expect(coreEndpoint(owned(node, { kind: 'Pod', uid: 'p' }, { kind: 'Pod', uid: 'q' }))).toStrictEqual({
      ...core,
      'pod-uid': 'p',
    });
  });

  it('are its identity, networking, encryption and named ports; none without the first two', () => {
    const id = 1001;
    expect(coreEndpoint(endpoint({ identity: { id }, networking }))).toStrictEqual({
      name: 'a',
      id,
      networking,
      encryption: {},
    });
    const more = { encryption: { key: 3 }, 'named-ports': [{ name: 'http', port: 80 }] };
    expect(coreEndpoint(endpoint({ identity: { id }, networking, ...more, state: 'ready' }))).toEqual({
      name: 'a',
      id,
      networking,
      ...more,
    });
    for (const status of [
      ...[undefined, { networking }, { identity: { id: '1001' }, networking }],
      ...[{ identity: { id } }, { identity: { id }, networking: 'none' }],
    ])
      expect(coreEndpoint(endpoint(status))).toBeUndefined();
  });

  it('are read from the server completely, except for unnamed ones', () => {
    const slice = (endpoints: unknown): KubernetesObject => ({
      metadata: { name: 'ces-1', uid: 'u', resourceVersion: '1' },
      endpoints,
    });
    const [a, b] = [
      { name: 'a', id: 1001, networking },
      { name: 'b', id: 1002, more: 1 },
    ];
    expect(endpointsOf(slice([a, null, 'text', { id: 1 }, { name: 'c' }, { name: 7, id: 1 }, b]))).toEqual(
      new Map<string, unknown>([
        ['a', a],
        ['b', b],
      ]),
    );
    for (const none of [undefined, null, 'text', {}]) expect(endpointsOf(slice(none)).size).toBe(0);
  });
});
