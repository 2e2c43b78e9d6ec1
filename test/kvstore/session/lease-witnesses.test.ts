import { expect, it, onTestFinished } from 'vitest';
import { Supervisor } from '../../../src/base/supervisor.ts';
import { LEASE_WITNESSES_PREFIX } from '../../../src/kvstore/codec/keys.ts';
import type { Watch } from '../../../src/kvstore/session/backend.ts';
import { KvstoreError, type KvstoreErrorCode } from '../../../src/kvstore/session/errors.ts';
import { LeaseWitnesses } from '../../../src/kvstore/session/lease-witnesses.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../support/settle.ts';

type Events = readonly { readonly type: string; readonly key: string }[];

const KEYS = { '10': `${LEASE_WITNESSES_PREFIX}a`, '11': `${LEASE_WITNESSES_PREFIX}b` } as const;

/** Witnesses of a server whose answers the test defines. */
class World {
  readonly clock = new ManualClock();
  readonly puts: string[] = [];
  readonly ended: string[] = [];
  readonly watched: string[] = [];
  readonly stop = new AbortController();
  /** The error of the next put; undefined: it succeeds. */
  error: KvstoreErrorCode | undefined;
  /** Pending puts are answered by calling these. */
  readonly pending: (() => void)[] = [];
  isSlow = false;
  #deliver: (events: Events) => void = () => {};
  readonly witnesses = new LeaseWitnesses({
    supervisor: new Supervisor({ clock: this.clock, random: () => 0.5 }),
    put: async (key, lease) => {
      this.puts.push(`${key} ${lease}`);
      const { error } = this;
      if (this.isSlow) await new Promise<void>((resolve) => this.pending.push(resolve));
      if (error !== undefined) throw new KvstoreError(error, 'failed');
    },
    watch: (prefix, signal) => {
      this.watched.push(prefix);
      return this.#events(signal) as unknown as Watch;
    },
    onLeaseEnded: (lease) => void this.ended.push(lease),
  });

  async *#events(signal: AbortSignal): AsyncGenerator<Events, void, void> {
    while (!signal.aborted)
      yield await new Promise<Events>((resolve) => {
        this.#deliver = resolve;
        signal.addEventListener('abort', () => resolve([]), { once: true });
      });
  }

  async start(...leases: readonly string[]): Promise<void> {
    onTestFinished(() => this.stop.abort());
    for (const lease of leases) this.witnesses.start(lease, this.stop.signal);
    await settle();
  }

  /** Delivers an event of the watch. Returns the puts that follow it. */
  async event(type: 'put' | 'delete', key: string): Promise<readonly string[]> {
    this.puts.length = 0;
    this.#deliver([{ type, key }]);
    await settle();
    return this.puts;
  }
}

it('each lease has a witness, and one watch follows all witnesses', async () => {
  const world = new World();
  await world.start('10', '11');
  expect(world.puts).toEqual([`${KEYS['10']} 10`, `${KEYS['11']} 11`]);
  expect(world.watched).toEqual([LEASE_WITNESSES_PREFIX]);
});

it('a deleted witness of a held lease is put again, and no other', async () => {
  const world = new World();
  await world.start('10');
  expect([...(await world.event('put', KEYS['10']))]).toEqual([]);
  expect([...(await world.event('delete', KEYS['11']))]).toEqual([]);
  expect([...(await world.event('delete', KEYS['10']))]).toEqual([`${KEYS['10']} 10`]);
  world.witnesses.stop('10');
  world.witnesses.stop('11');
  expect([...(await world.event('delete', KEYS['10']))]).toEqual([]);
  expect(world.ended).toEqual([]);
});

it.each<readonly [KvstoreErrorCode | undefined, isEnded: boolean, isRetried: boolean]>([
  [undefined, false, false],
  ['forbidden', false, false],
  ['lease-not-found', true, false],
  ['unavailable', false, true],
  ['deadline', false, true],
  ['internal', false, true],
])(
  'a put with the result %s: the lease has ended %s, it is repeated %s',
  async (error, isEnded, isRetried) => {
    const world = new World();
    world.error = error;
    await world.start('10');
    expect(world.ended).toEqual(isEnded ? ['10'] : []);
    world.error = undefined;
    world.puts.length = 0;
    await advance(world.clock, 60_000);
    expect(world.puts).toEqual(isRetried ? [`${KEYS['10']} 10`] : []);
    // An ended lease has no witness any more; others keep theirs.
    expect([...(await world.event('delete', KEYS['10']))]).toEqual(isEnded ? [] : [`${KEYS['10']} 10`]);
  },
);

it('the end of a lease is reported once, and not after the lease was given up', async () => {
  for (const isStopped of [false, true]) {
    const world = new World();
    await world.start('10');
    world.isSlow = true;
    world.error = 'lease-not-found';
    await world.event('delete', KEYS['10']);
    await world.event('delete', KEYS['10']);
    if (isStopped) world.witnesses.stop('10');
    for (const answer of world.pending) answer();
    await settle();
    expect(world.ended).toEqual(isStopped ? [] : ['10']);
  }
});

it('a witness is not put again after its lease was given up', async () => {
  const world = new World();
  world.error = 'unavailable';
  await world.start('10');
  world.witnesses.stop('10');
  world.puts.length = 0;
  await advance(world.clock, 60_000);
  expect(world.puts).toEqual([]);
});
