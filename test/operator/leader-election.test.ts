import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MemoryApiServer } from '../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../src/k8s/memory/memory-api-transport.ts';
import { electionIdentity } from '../../src/operator/leader-election.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { ApiUser } from '../k8s/support/api-user.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { Candidate, type CandidateOptions } from './support/candidates.ts';

const LEASES = { group: 'coordination.k8s.io', version: 'v1', plural: 'leases' };
const LEASE = 'cilium-operator-resource-lock';

class World {
  readonly clock = new ManualClock();
  readonly api = new MemoryApiServer({ clock: this.clock });
  readonly leases = new ApiUser(new MemoryApiTransport(this.api), LEASES, 'default');
  readonly candidates: Candidate[] = [];

  add(name: string, options: CandidateOptions = {}): Candidate {
    const candidate = new Candidate(name, this.api, this.clock, options);
    this.candidates.push(candidate);
    return candidate;
  }

  async spec(): Promise<unknown> {
    const { body } = await this.leases.ask({ path: this.leases.path(LEASE) });
    return (body as { spec?: unknown }).spec;
  }

  /** Those who would delete now. */
  get deleting(): readonly Candidate[] {
    return this.candidates.filter(({ election }) => election.mayDelete());
  }

  async end(): Promise<void> {
    for (const { pause, transport } of this.candidates) {
      await pause.go();
      transport.loses = 'nothing';
    }
    const ended = this.candidates.map((candidate) => candidate.end());
    await advance(this.clock, 60_000);
    await Promise.all(ended);
  }
}

describe('a leader election', () => {
  it('makes the lease of the original, renews it, and gives it back at a clean end', async () => {
    const world = new World();
    const one = world.add('one');
    one.start();
    await advance(world.clock, 10_500);
    expect(one.election.mayDelete()).toBe(true);
    expect(await world.spec()).toEqual({
      holderIdentity: 'one',
      leaseDurationSeconds: 15,
      acquireTime: '2023-11-14T22:13:20.000000Z',
      renewTime: '2023-11-14T22:13:30.000000Z',
      leaseTransitions: 0,
    });
    expect(one.election.status()).toMatchObject({ state: 'leader', holder: 'one', failures: 0 });
    const ended = one.end();
    await settle();
    await ended;
    expect(one.working).toBe(false);
    expect(one.election.mayDelete()).toBe(false);
    expect(await world.spec()).toMatchObject({ holderIdentity: '', leaseDurationSeconds: 1 });
    const two = world.add('two');
    two.start();
    await settle();
    expect(two.working).toBe(true);
    expect(await world.spec()).toMatchObject({ holderIdentity: 'two', leaseTransitions: 1 });
    await world.end();
  });

  it('takes over from one that is gone when the lease has run out by its own watch, whatever times are written', async () => {
    const world = new World();
    world.add('one', { wallOffset: 3_600_000 }).start();
    await advance(world.clock, 100);
    const two = world.add('two', { wallOffset: -3_600_000 });
    two.start();
    await advance(world.clock, 30_000);
    expect(two.working).toBe(false);
    const [one] = world.candidates;
    if (one !== undefined) one.transport.loses = 'requests';
    await advance(world.clock, 14_000);
    expect([one?.working, two.working]).toEqual([false, false]);
    await advance(world.clock, 8000);
    expect([one?.working, two.working]).toEqual([false, true]);
    await world.end();
  });

  it('lets no delete of a process pass that was stopped for long and wakes up, where client-go thinks it leads', async () => {
    const world = new World();
    const one = world.add('one');
    const two = world.add('two');
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 3000);
    const lastSeen = (await world.spec()) as { readonly holderIdentity: string };
    one.pause.stop();
    await advance(world.clock, 30_000);
    expect(two.election.mayDelete()).toBe(true);
    // What IsLeader of client-go looks at is the record that was seen last.
    const isLeader = (seen: { readonly holderIdentity: string }, identity: string): boolean =>
      seen.holderIdentity === identity;
    expect(isLeader(lastSeen, 'one')).toBe(true);
    expect([one.working, one.election.mayDelete()]).toEqual([true, false]);
    await one.pause.go();
    await settle();
    expect(one.working).toBe(false);
    await world.end();
  });

  it('lets no delete pass on a machine that was suspended, where monotonic time stood still (regression)', async () => {
    const world = new World();
    const one = world.add('one');
    one.start();
    await settle();
    expect(one.election.mayDelete()).toBe(true);
    one.clock.wallOffset += 60_000;
    expect(one.election.mayDelete()).toBe(false);
    await advance(world.clock, 3000);
    expect([one.working, one.election.mayDelete()]).toEqual([true, true]);
    one.clock.wallOffset -= 120_000;
    expect(one.election.mayDelete()).toBe(true);
    await advance(world.clock, 9000);
    expect([one.working, one.election.mayDelete()]).toEqual([true, true]);
    await world.end();
  });

  it('counts its lease from before it asked for it, however late the answer comes, on clocks that disagree', async () => {
    const world = new World();
    const [one, two] = [world.add('one', { rate: 0.83 }), world.add('two', { rate: 1.2 })];
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 4000);
    one.transport.delayMs = [0, 4900];
    await advance(world.clock, 8000);
    expect(one.election.mayDelete()).toBe(true);
    one.pause.stop();
    while (!two.election.mayDelete()) await advance(world.clock, 100);
    expect(one.election.mayDelete()).toBe(false);
    await world.end();
  });

  it('waits for the lease of a leader whose Lease was deleted under it', async () => {
    const world = new World();
    const [one, two] = [world.add('one'), world.add('two')];
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 5000);
    one.transport.loses = 'requests';
    await world.leases.delete(LEASE);
    await advance(world.clock, 5000);
    expect([one.election.mayDelete(), two.election.mayDelete()]).toEqual([true, false]);
    await advance(world.clock, 15_000);
    expect([one.election.mayDelete(), two.election.mayDelete()]).toEqual([false, true]);
    await world.end();
  });

  it('says which right is missing, and goes on asking', async () => {
    const world = new World();
    world.api.deny('create', 'leases');
    const one = world.add('one');
    one.start();
    await advance(world.clock, 10_000);
    expect(one.election.status()).toMatchObject({
      state: 'candidate',
      failures: 4,
      lastFailure: {
        message: expect.stringMatching(
          /^grant the verb "create" on the resource "leases" of the API group "coordination.k8s.io": /,
        ),
      },
    });
    world.api.allow('create', 'leases');
    await advance(world.clock, 5000);
    expect(one.working).toBe(true);
    await world.end();
  });

  it('gives back a lease that it took while it was ended: the next one need not wait (regression)', async () => {
    const world = new World();
    const one = world.add('one');
    one.transport.delayMs = [0, 2000];
    one.start();
    await advance(world.clock, 3000); // it has looked, and the answer to its first write is on its way
    expect(await world.spec()).toMatchObject({ holderIdentity: 'one' });
    expect(one.working).toBe(false);
    const ended = one.end();
    await advance(world.clock, 5000);
    await ended;
    expect(await world.spec()).toMatchObject({ holderIdentity: '' });
    const two = world.add('two');
    two.start();
    await settle();
    expect(two.working).toBe(true);
    await world.end();
  });

  it('ends what it leads when its lease is lost, though the listener of failures throws (regression)', async () => {
    const world = new World();
    const one = world.add('one', {
      onFailure: () => {
        throw new Error('a fault of the listener');
      },
    });
    one.start();
    await settle();
    expect(one.working).toBe(true);
    one.transport.loses = 'requests';
    await advance(world.clock, 11_000);
    expect([one.working, one.election.mayDelete()]).toEqual([false, false]);
    one.transport.loses = 'nothing';
    await advance(world.clock, 20_000);
    expect(one.working).toBe(true);
    await world.end();
  });

  it('has an identity of host and letters', () => {
    expect(electionIdentity('node-7', () => 0.999)).toBe('node-7-zzzzzzzzzz');
  });

  const LEADER = -1;
  type Deed =
    | { readonly do: 'wait'; readonly ms: number }
    | { readonly do: 'delay'; readonly who: number; readonly ms: readonly [number, number] }
    | { readonly do: 'lose'; readonly who: number; readonly what: 'nothing' | 'requests' | 'answers' }
    | { readonly do: 'pause' | 'go' | 'end' | 'start'; readonly who: number }
    | { readonly do: 'wall'; readonly who: number; readonly ms: number };
  // Mostly the one who leads: what happens to the others matters little.
  const who = fc.oneof({ weight: 2, arbitrary: fc.constant(LEADER) }, fc.nat(2));
  const ms = (max: number): fc.Arbitrary<number> => fc.integer({ min: 0, max });
  const deed: fc.Arbitrary<Deed> = fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: ms(12_000) }) },
    fc.record({ do: fc.constant('delay' as const), who, ms: fc.tuple(ms(4000), ms(4000)) }),
    fc.record({
      ...{ do: fc.constant('lose' as const), who },
      what: fc.constantFrom('nothing' as const, 'requests' as const, 'answers' as const),
    }),
    fc.record({ do: fc.constantFrom('pause' as const, 'go' as const), who }),
    fc.record({ do: fc.constantFrom('end' as const, 'start' as const), who }),
    fc.record({ do: fc.constant('wall' as const), who, ms: fc.integer({ min: -99_999, max: 99_999 }) }),
  );
  const skew = fc.record({ rate: fc.constantFrom(0.83, 1, 1.2), wallOffset: ms(100_000) });

  it('never lets two delete, whatever delays, losses, pauses, ends and clocks there are; and one leads in the end', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(skew, { minLength: 2, maxLength: 3 }),
        fc.array(deed, { maxLength: 24 }),
        async (skews, deeds) => {
          const world = new World();
          const running = new Set<Candidate>();
          for (const [i, one] of skews.entries()) running.add(world.add(`c${i}`, one));
          for (const candidate of running) candidate.start();
          const check = (): void => {
            const names = world.deleting.map(({ election }) => election.status().identity);
            if (names.length > 1) throw new Error(`two may delete: ${names.join(', ')}`);
          };
          const pass = async (time: number): Promise<void> => {
            for (let left = time; left > 0; ) {
              const next = Math.max(1, Math.min(left, (world.clock.nextAt ?? left) - world.clock.now()));
              check();
              await advance(world.clock, next);
              check();
              left -= next;
            }
          };
          for (const what of deeds) {
            const at = 'who' in what ? what.who : 0;
            const one = at === LEADER ? world.deleting[0] : world.candidates[at];
            if (what.do === 'wait') await pass(what.ms);
            if (what.do === 'wait' || one === undefined) continue;
            if (what.do === 'delay') one.transport.delayMs = what.ms;
            if (what.do === 'lose') one.transport.loses = what.what;
            if (what.do === 'wall') one.clock.wallOffset += what.ms;
            if (what.do === 'pause') one.pause.stop();
            if (what.do === 'go') await one.pause.go();
            if (what.do === 'end' && running.delete(one)) void one.end();
            if (what.do === 'start' && !running.has(one) && one.election.status().state === 'idle') {
              one.start();
              running.add(one);
            }
            check();
          }
          for (const { transport, pause } of world.candidates) {
            transport.loses = 'nothing';
            transport.delayMs = [0, 0];
            await pause.go();
          }
          await pass(60_000);
          expect(world.deleting.length).toBe(running.size > 0 ? 1 : 0);
          expect(world.candidates.filter(({ working }) => working)).toEqual(world.deleting);
          await world.end();
        },
      ),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 120) },
    );
  }, 120_000);
});
