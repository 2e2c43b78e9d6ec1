import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import type { KubernetesObject, ResourceEvent } from '../../../src/k8s/resource.ts';
import type { ObjectWrite, WriteOutcome } from '../../../src/k8s/rest/object-writer.ts';
import {
  CiliumSliceDuty,
  type CiliumSliceDutyOptions,
} from '../../../src/operator/slices/cilium-slice-duty.ts';
import type { SliceMode } from '../../../src/operator/slices/cilium-slices.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { type Choose, explore } from '../support/explore.ts';
import { Fate, type Happening, TinyCluster } from '../support/tiny-cluster.ts';

const CEPS = 'ciliumendpoints';
const CES = 'ciliumendpointslices';
const SLICES = { group: 'cilium.io', version: 'v2alpha1', plural: CES };
const KEY = 'shop/a';
const MOST = 2;

interface Slice extends KubernetesObject {
  readonly endpoints: readonly { readonly name: string; readonly id: number }[];
}
type Kind = CiliumSliceDutyOptions['endpoints'];

/** A kind as a reflector shows it: changes since the last look are events. */
class Shown {
  readonly #cluster: TinyCluster;
  readonly #plural: string;
  readonly #seen = new Map<string, KubernetesObject>();
  readonly #listeners = new Set<(events: readonly ResourceEvent[]) => void>();

  constructor(cluster: TinyCluster, plural: string) {
    this.#cluster = cluster;
    this.#plural = plural;
  }

  see(): void {
    const now = this.#cluster.ofKind(this.#plural);
    const events: ResourceEvent[] = [];
    for (const [key, object] of [...this.#seen])
      if (now.get(key)?.metadata.uid !== object.metadata.uid) {
        this.#seen.delete(key);
        events.push({ type: 'delete', object });
      }
    for (const [key, object] of now)
      if (this.#seen.get(key) !== object) {
        this.#seen.set(key, object);
        events.push({ type: 'put', object });
      }
    if (events.length > 0) for (const listener of this.#listeners) listener(events);
  }

  kind(): Kind {
    return {
      objects: this.#seen,
      notReadyReason: () => undefined,
      follow: () => {},
      listen: (listener, signal) => {
        this.#listeners.add(listener);
        signal.addEventListener('abort', () => this.#listeners.delete(listener), { once: true });
      },
    };
  }
}

/**
 * Endpoints `a` and `b` of one identity in one slice; `a` moves and is deleted and created. The operator can
 * die, and another client interferes.
 */
class World {
  readonly clock = new ManualClock();
  readonly cluster = new TinyCluster();
  readonly endpoints = new Shown(this.cluster, CEPS);
  readonly slices = new Shown(this.cluster, CES);
  readonly fate: Fate;
  readonly gaps: string[] = [];
  crashed = false;
  /** False within a write and at rest. */
  mayHappen = true;
  #isAtRest = false;
  /**
   * True if the first life of `a` is in a slice, from which no other client removed it: readers must not miss
   * it.
   */
  isHeld = true;
  isFirst = true;
  #drawn = 1;

  constructor(choose: Choose, most: number) {
    const { cluster } = this;
    const isThere = (): boolean => cluster.get1(CEPS, KEY) !== undefined;
    const happenings: readonly Happening[] = [
      {
        name: 'a is another',
        can: isThere,
        happen: () => this.put('a', this.idOf('a') === 1001 ? 1002 : 1001),
      },
      {
        name: 'a gone',
        can: isThere,
        happen: () => {
          cluster.drop(CEPS, KEY);
          this.isHeld = false;
          this.isFirst = false;
        },
      },
      { name: 'a made', can: () => !isThere(), happen: () => this.put('a', 1001) },
      {
        name: 'slices emptied',
        can: () => this.all().some((slice) => slice.endpoints.length > 0),
        happen: () => {
          for (const { metadata } of this.all()) cluster.put(CES, `/${metadata.name}`, { endpoints: [] });
          this.isHeld = false;
        },
      },
      {
        name: 'operator crashed',
        can: () => !this.crashed,
        happen: () => {
          this.crashed = true;
        },
      },
      { name: 'endpoints seen', can: () => true, happen: () => this.endpoints.see() },
      { name: 'slices seen', can: () => true, happen: () => this.slices.see() },
    ];
    this.fate = new Fate(choose, happenings, most);
    cluster.before = () => {
      if (this.mayHappen) this.fate.turn();
    };
  }

  /** Ends all events. */
  rest(): void {
    this.#isAtRest = true;
    this.mayHappen = false;
  }

  random(): number {
    this.#drawn = (this.#drawn * 16_807 + 7) % 2_147_483_647;
    return this.#drawn / 2_147_483_647;
  }

  idOf(name: string): number | undefined {
    const cep = this.cluster.get1(CEPS, `shop/${name}`);
    return (cep?.['status'] as { identity: { id: number } } | undefined)?.identity.id;
  }

  put(name: string, id: number): void {
    const status = { identity: { id }, networking: { addressing: [] } };
    this.cluster.put(CEPS, `shop/${name}`, { status });
  }

  all(): readonly Slice[] {
    return [...this.cluster.ofKind(CES).values()] as unknown as readonly Slice[];
  }

  holds(name: string): number {
    return this.all().flatMap(({ endpoints }) => endpoints.filter((one) => one.name === name)).length;
  }

  /** A dead process writes nothing more. */
  async write(write: ObjectWrite): Promise<WriteOutcome> {
    this.cluster.before();
    if (this.crashed) return new Promise(() => {});
    this.mayHappen = false;
    const answer = await this.cluster.write(write);
    this.mayHappen = !this.#isAtRest;
    if (this.holds('a') > 0) this.isHeld = this.isFirst;
    else if (this.isHeld) this.gaps.push(this.fate.log.join(', '));
    return answer;
  }

  /** Returns the errors when everything has been seen and written. */
  faults(mode: SliceMode): readonly string[] {
    const at = this.fate.log.join(', ');
    const faults = this.gaps.map((gap) => `a was in none: ${gap}`);
    for (const name of ['a', 'b']) {
      const wanted = this.idOf(name) === undefined ? 0 : 1;
      if (this.holds(name) !== wanted) faults.push(`${name} is in ${this.holds(name)}: ${at}`);
    }
    for (const { endpoints } of this.all()) {
      if (endpoints.length === 0) faults.push(`one is empty: ${at}`);
      for (const { name, id } of endpoints)
        if (id !== this.idOf(name)) faults.push(`${name} is ${id}: ${at}`);
      const ids = new Set(endpoints.map(({ id }) => id));
      if (mode === 'identity' && ids.size > 1) faults.push(`two identities: ${at}`);
    }
    return faults;
  }
}

/** Begins a life of the program. Returns functions that run it for half a second, and that end it. */
type Begin = (world: World, mode: SliceMode) => { work(): Promise<void>; end(): void };

const ours: Begin = (world, mode) => {
  const { clock, cluster } = world;
  const ended = new AbortController();
  const duty = new CiliumSliceDuty({
    mode,
    maxEndpoints: MOST,
    clock,
    random: () => world.random(),
    endpoints: world.endpoints.kind(),
    slices: world.slices.kind(),
    reader: cluster,
    writer: { write: (write) => world.write(write) },
  });
  void duty.run(ended.signal);
  const work = async (): Promise<void> => {
    clock.advance(500);
    await settle(1);
  };
  return { work, end: () => ended.abort() };
};

/**
 * 1.17: an endpoint with a new identity is removed from its slice by one write; then it is put into another.
 */
const upstream: Begin = (world) => {
  let isEnded = false;
  const work = async (): Promise<void> => {
    world.endpoints.see();
    const ceps = [...world.cluster.ofKind(CEPS).values()];
    const of = (id: number): object[] =>
      ceps.flatMap(({ metadata: { name } }) => (world.idOf(name) === id ? [{ name, id }] : []));
    for (const id of [1001, 1002]) {
      const name = `ces-${id}`;
      const known = world.cluster.get1(CES, `/${name}`);
      const place = { kind: SLICES, name };
      const object = { metadata: { ...known?.metadata, name }, namespace: 'shop', endpoints: of(id) };
      if (isEnded || (known === undefined && of(id).length === 0)) continue;
      if (known === undefined) await world.write({ verb: 'create', kind: SLICES, object });
      else if (of(id).length === 0) await world.write({ verb: 'delete', place, uid: known.metadata.uid });
      else await world.write({ verb: 'update', place, object: { ...object, metadata: known.metadata } });
    }
  };
  const end = (): void => {
    isEnded = true;
  };
  return { work, end };
};

/** Runs every history with this number of events. Returns the first error. */
async function histories(
  begin: Begin,
  mode: SliceMode,
  most: number,
): Promise<{ ways: number; first: string | undefined }> {
  let first: string | undefined;
  const ways = await explore(async (choose) => {
    const world = new World(choose, most);
    for (const name of ['a', 'b']) world.put(name, 1001);
    const endpoints = ['a', 'b'].map((name) => ({
      name,
      id: 1001,
      networking: { addressing: [] },
      encryption: {},
    }));
    world.cluster.put(CES, '/ces-1001', { namespace: 'shop', endpoints });
    world.endpoints.see();
    world.slices.see();
    let life = begin(world, mode);
    await settle(1);
    world.put('a', 1002);
    world.endpoints.see();
    const buryIfCrashed = async (): Promise<void> => {
      if (!world.crashed) return;
      life.end();
      await settle(1);
      world.crashed = false;
      world.endpoints.see();
      world.slices.see();
      life = begin(world, mode);
      await settle(1);
    };
    for (let half = 1; half <= 2; half++) {
      world.fate.turn();
      // If the process dies during a write, the write was made or never is.
      await Promise.race([life.work(), settle(2)]);
      await buryIfCrashed();
    }
    world.rest();
    await buryIfCrashed();
    for (let half = 1; half <= 6; half++) {
      world.endpoints.see();
      world.slices.see();
      world.clock.advance(100_000);
      await life.work();
    }
    life.end();
    first ??= world.faults(mode)[0];
  });
  return { ways, first };
}

describe('the slices of endpoints, in every small history', () => {
  it.each<SliceMode>(['identity', 'fcfs'])(
    'have each endpoint once, and miss none while it moves (%s)',
    async (mode) => {
      const { ways, first } = await histories(ours, mode, 2);
      expect(first).toBeUndefined();
      expect(ways).toBeGreaterThan(200);
    },
  );

  it('would miss one while it moves by the rule of 1.17, which updates the old slice first', async () => {
    expect((await histories(upstream, 'identity', 0)).first).toMatch(/^a was in none/);
  });
});

it('the slices of a start are taken over in steps, and concurrent changes count', async () => {
  const clock = new ManualClock();
  const cluster = new TinyCluster();
  const [endpoints, slices] = [new Shown(cluster, CEPS), new Shown(cluster, CES)];
  const put = (name: string, id = 1001): void => {
    const networking = { addressing: [] };
    cluster.put(CEPS, `shop/${name}`, { status: { identity: { id }, networking } });
  };
  const names = Array.from({ length: 40 }, (_, i) => `pod-${i}`);
  for (const name of names) {
    put(name);
    const held = [{ name, id: 1001, networking: { addressing: [] }, encryption: {} }];
    cluster.put(CES, `/ces-${name}`, { namespace: 'shop', endpoints: held });
  }
  for (const shown of [endpoints, slices]) shown.see();
  const turns: (() => void)[] = [];
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 1 });
  const ended = new AbortController();
  const duty = new CiliumSliceDuty({
    maxEndpoints: 1,
    clock,
    random: Math.random,
    gate,
    reader: cluster,
    writer: cluster,
    endpoints: endpoints.kind(),
    slices: slices.kind(),
  });
  void duty.run(ended.signal);
  await settle();
  expect(turns).toHaveLength(1); // 16 of 40 slices are taken over
  cluster.drop(CEPS, 'shop/pod-0');
  cluster.drop(CEPS, 'shop/pod-39');
  put('pod-1', 1002);
  put('pod-38', 1002);
  put('pod-37'); // written again: it stays in its slice
  put('new');
  cluster.drop(CES, '/ces-pod-2');
  for (const shown of [endpoints, slices]) shown.see();
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
    turn();
    await settle();
  }
  for (let half = 0; half < 10; half++) {
    clock.advance(500);
    await settle();
    for (const shown of [endpoints, slices]) shown.see();
  }
  const held = [...cluster.ofKind(CES).values()].flatMap((slice) => (slice as unknown as Slice).endpoints);
  const wanted = ['new', ...names.slice(1, 39)].map((name) => ({
    name,
    id: name === 'pod-1' || name === 'pod-38' ? 1002 : 1001,
  }));
  const inOrder = (all: readonly { readonly name: string; readonly id: number }[]): unknown =>
    all.map(({ name, id }) => `${name} ${id}`).sort();
  expect(inOrder(held)).toEqual(inOrder(wanted));
  expect(cluster.ofKind(CES).has('/ces-pod-37')).toBe(true);
  ended.abort();
});
