import { getEventListeners } from 'node:events';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { messageOf } from '../../../src/base/failure.ts';
import { deferred } from '../../../src/base/sleep.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { electionFault, electionIdentity, SOLE_LEADER } from '../../../src/operator/elect/leader-election.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { Candidate, type CandidateOptions } from '../support/candidates.ts';

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

  /** The candidates that would delete now. */
  get deleting(): readonly Candidate[] {
    return this.candidates.filter(({ election }) => election.mayWrite());
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
  it('creates the same Lease as the original, renews it, and releases it at a clean end', async () => {
    const world = new World();
    const one = world.add('one');
    one.start();
    await advance(world.clock, 10_500);
    expect(one.election.mayWrite()).toBe(true);
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
    expect(one.election.mayWrite()).toBe(false);
    expect(one.election.status().holder).toBeUndefined();
    expect(await world.spec()).toEqual({
      holderIdentity: '',
      leaseDurationSeconds: 1,
      leaseTransitions: 0,
      acquireTime: '2023-11-14T22:13:30.500000Z',
      renewTime: '2023-11-14T22:13:30.500000Z',
    });
    const two = world.add('two');
    two.start();
    await settle();
    expect(two.working).toBe(true);
    expect(await world.spec()).toMatchObject({ holderIdentity: 'two', leaseTransitions: 1 });
    await world.end();
  });

  it('takes over from a dead leader when the lease has expired by its own clock, whatever times are written', async () => {
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

  it('admits no delete of a process that was stopped for long and wakes up, while client-go considers it the leader', async () => {
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
    expect(two.election.mayWrite()).toBe(true);
    // IsLeader of client-go checks the last seen record.
    const isLeader = (seen: { readonly holderIdentity: string }, identity: string): boolean =>
      seen.holderIdentity === identity;
    expect(isLeader(lastSeen, 'one')).toBe(true);
    one.clock.wallOffset -= 3_600_000;
    expect([one.working, one.election.mayWrite()]).toEqual([true, false]);
    await one.pause.go();
    await settle();
    expect(one.working).toBe(false);
    await world.end();
  });

  it('admits no delete on a machine that was suspended, and whose monotonic clock stood still (regression)', async () => {
    const world = new World();
    const one = world.add('one');
    one.start();
    await settle();
    expect(one.election.mayWrite()).toBe(true);
    one.clock.wallOffset += 60_000;
    expect(one.election.mayWrite()).toBe(false);
    await advance(world.clock, 3000);
    expect([one.working, one.election.mayWrite()]).toEqual([true, true]);
    one.clock.wallOffset -= 120_000;
    expect(one.election.mayWrite()).toBe(true);
    await advance(world.clock, 9000);
    expect([one.working, one.election.mayWrite()]).toEqual([true, true]);
    await world.end();
  });

  it('counts its lease from before its request, however late the answer arrives, with clocks that differ', async () => {
    const world = new World();
    const [one, two] = [world.add('one', { rate: 0.83 }), world.add('two', { rate: 1.2 })];
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 4000);
    one.transport.delayMs = [0, 4900];
    await advance(world.clock, 8000);
    expect(one.election.mayWrite()).toBe(true);
    one.pause.stop();
    while (!two.election.mayWrite()) await advance(world.clock, 100);
    expect(one.election.mayWrite()).toBe(false);
    await world.end();
  });

  it('waits for the lease of a leader whose Lease object was deleted', async () => {
    const world = new World();
    const [one, two] = [world.add('one'), world.add('two')];
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 5000);
    one.transport.loses = 'requests';
    await world.leases.delete(LEASE);
    await advance(world.clock, 5000);
    expect([one.election.mayWrite(), two.election.mayWrite()]).toEqual([true, false]);
    await advance(world.clock, 15_000);
    expect([one.election.mayWrite(), two.election.mayWrite()]).toEqual([false, true]);
    await world.end();
  });

  it('names the missing right, and keeps trying', async () => {
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
          /.: grant the verb "create" on the resource "leases" of the API group "coordination.k8s.io"$/,
        ),
      },
    });
    world.api.allow('create', 'leases');
    await advance(world.clock, 5000);
    expect(one.working).toBe(true);
    await world.end();
  });

  it('releases a lease that it acquired while it was stopped: the next candidate does not wait (regression)', async () => {
    const world = new World();
    const one = world.add('one');
    one.transport.delayMs = [0, 2000];
    one.start();
    await advance(world.clock, 3000); // it has read the lease, and the answer to its first write is on its way
    expect(await world.spec()).toMatchObject({ holderIdentity: 'one' });
    expect(one.working).toBe(false);
    const ended = one.end();
    await advance(world.clock, 5000);
    await ended;
    expect(await world.spec()).toMatchObject({ holderIdentity: '' });
    expect(one.election.status()).toMatchObject({ state: 'idle', failures: 0 }); // ending is not a problem
    const two = world.add('two');
    two.start();
    await settle();
    expect(two.working).toBe(true);
    await world.end();
  });

  it('stops its work when its lease is lost, even if the listener of failures throws (regression)', async () => {
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
    expect([one.working, one.election.mayWrite()]).toEqual([false, false]);
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
  // Mostly the leader: events of the others matter little.
  const who = fc.oneof({ weight: 2, arbitrary: fc.constant(LEADER) }, fc.nat(2));
  const ms = (max: number): fc.Arbitrary<number> => fc.integer({ min: 0, max });
  const action: fc.Arbitrary<Deed> = fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: ms(12_000) }) },
    fc.record({ do: fc.constant('delay' as const), who, ms: fc.tuple(ms(4000), ms(4000)) }),
    fc.record({
      do: fc.constant('lose' as const),
      who,
      what: fc.constantFrom('nothing' as const, 'requests' as const, 'answers' as const),
    }),
    fc.record({ do: fc.constantFrom('pause' as const, 'go' as const), who }),
    fc.record({ do: fc.constantFrom('end' as const, 'start' as const), who }),
    fc.record({ do: fc.constant('wall' as const), who, ms: fc.integer({ min: -99_999, max: 99_999 }) }),
  );
  const skew = fc.record({ rate: fc.constantFrom(0.83, 1, 1.2), wallOffset: ms(100_000) });

  it('never allows deletes of two leaders, for any delays, losses, pauses, ends and clocks; and one leads in the end', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(skew, { minLength: 2, maxLength: 3 }),
        fc.array(action, { maxLength: 24 }),
        async (skews, actions) => {
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
          for (const what of actions) {
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
  });
});

describe('the Lease of an election', () => {
  const spec = (holderIdentity: unknown, more: object = {}): object => ({
    spec: { holderIdentity, leaseDurationSeconds: 15, leaseTransitions: 4, acquireTime: 'then', ...more },
  });

  it('accepts only times with the deadline before its end, and time for a retry before that', () => {
    expect(electionFault({ leaseMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2000 })).toBeUndefined();
    for (const [leaseMs, renewDeadlineMs, retryMs] of [
      ...[
        [10_000, 10_000, 2000],
        [15_000, 2400, 2000],
        [15_000, 10_000, 0],
        [9000, 10_000, 2000],
      ],
    ] as const)
      expect(electionFault({ leaseMs, renewDeadlineMs, retryMs })).toBe(
        `the lease duration (${leaseMs} ms) must be greater than the renew deadline (${renewDeadlineMs} ms), and the deadline greater than 1.2 times the retry period (${retryMs} ms), which must not be 0`,
      );
    expect(electionFault({ leaseMs: 15_000, renewDeadlineMs: 2401, retryMs: 2000 })).toBeUndefined();
  });

  it('counts for its deadline and no longer', async () => {
    const world = new World();
    const one = world.add('one');
    expect([one.election.mayWrite(), one.election.writeMs]).toEqual([false, 5000]);
    expect(one.election.status()).toEqual({
      identity: 'one',
      state: 'idle',
      holder: undefined,
      renewedMs: undefined,
      failures: 0,
      lastFailure: undefined,
    });
    one.start();
    await settle();
    one.transport.loses = 'requests';
    await advance(world.clock, 9999);
    expect([one.election.mayWrite(), one.election.status().renewedMs, one.working]).toEqual([
      true,
      9999,
      true,
    ]);
    await advance(world.clock, 1);
    expect([one.election.mayWrite(), one.working]).toEqual([false, false]);
    await world.end();
  });

  it.each([
    ['nobody', ''],
    ['nobody, in other words', undefined],
    ['no name', 7],
  ])('that %s holds is acquired immediately, and counted as a transition', async (_what, holder) => {
    const world = new World();
    await world.leases.create(LEASE, spec(holder));
    const one = world.add('one');
    one.start();
    await settle();
    expect(one.working).toBe(true);
    expect(await world.spec()).toMatchObject({
      holderIdentity: 'one',
      leaseTransitions: 5,
      acquireTime: '2023-11-14T22:13:20.000000Z',
    });
    await world.end();
  });

  it('without a specification is acquired immediately', async () => {
    const world = new World();
    await world.leases.create(LEASE, {});
    const one = world.add('one');
    one.start();
    await settle();
    expect(await world.spec()).toMatchObject({ holderIdentity: 'one', leaseTransitions: 1 });
    await world.end();
  });

  it('that it held before is its own: it continues with it, with the earlier acquire time', async () => {
    const world = new World();
    await world.leases.create(LEASE, spec('one'));
    const one = world.add('one');
    one.start();
    await settle();
    expect(one.working).toBe(true);
    expect(await world.spec()).toMatchObject({ acquireTime: 'then', leaseTransitions: 4 });
    await advance(world.clock, 5000);
    expect(await world.spec()).toMatchObject({
      holderIdentity: 'one',
      acquireTime: 'then',
      leaseTransitions: 4,
      renewTime: '2023-11-14T22:13:24.000000Z',
    });
    await world.end();
  });

  it('of another holder is awaited for as long as its duration, at least for the local one', async () => {
    for (const [seconds, waits] of [
      [60, 60_000],
      [1, 15_000],
      ['x', 15_000],
    ] as const) {
      const world = new World();
      await world.leases.create(LEASE, spec('gone', { leaseDurationSeconds: seconds }));
      const one = world.add('one');
      one.start();
      await settle();
      expect(one.election.status()).toMatchObject({
        state: 'candidate',
        holder: 'gone',
        renewedMs: undefined,
      });
      expect(one.election.status().freeInMs).toBe(waits);
      await advance(world.clock, waits - 1);
      expect([one.working, one.election.status().freeInMs]).toEqual([false, 1]);
      await advance(world.clock, 501); // half of its jitter of a second
      expect([one.working, one.election.status().freeInMs]).toEqual([true, undefined]);
      expect(await world.spec()).toMatchObject({ leaseTransitions: 5, leaseDurationSeconds: 15 });
      await world.end();
    }
  });

  it('of a killed holder is acquired within two seconds after it has expired', async () => {
    const world = new World();
    const [one, two] = [world.add('one'), world.add('two')];
    one.start();
    await settle();
    two.start();
    await advance(world.clock, 7_000);
    one.transport.loses = 'requests'; // its last renewal was at 6 s
    while (world.clock.now() < 9_000) await advance(world.clock, 100);
    let left = two.election.status().freeInMs ?? 0;
    expect(left).toBeGreaterThan(10_000);
    for (; two.election.status().freeInMs !== 0 && left > -2_000; left -= 100) {
      if (two.working) break;
      await advance(world.clock, 100);
    }
    await advance(world.clock, 1_000);
    expect(two.working).toBe(true);
    await world.end();
  });

  it('is left to others while a candidate may not run, which knows its holder nevertheless', async () => {
    const world = new World();
    let mayStand = false;
    const one = world.add('one', { mayStand: () => mayStand });
    one.start();
    await advance(world.clock, 20_000);
    expect([one.working, await world.spec()]).toEqual([false, undefined]);
    expect(one.election.status()).toMatchObject({ state: 'candidate', failures: 0, freeInMs: 0 });
    const two = world.add('two');
    two.start();
    await advance(world.clock, 5_000);
    expect(one.election.status().holder).toBe('two');
    const ended = two.end();
    await settle();
    await ended;
    mayStand = true;
    await advance(world.clock, 5_000);
    expect(one.working).toBe(true);
    mayStand = false; // of a candidate only
    await advance(world.clock, 20_000);
    expect(one.election.mayWrite()).toBe(true);
    await world.end();
  });

  it('that another holder has acquired is given up immediately, and not released', async () => {
    const world = new World();
    const one = world.add('one');
    one.start();
    await settle();
    const lease = await world.leases.ask({ path: world.leases.path(LEASE) });
    const body = { ...(lease.body as object), ...spec('thief') };
    await world.leases.ask({ method: 'PUT', path: world.leases.path(LEASE), body });
    await advance(world.clock, 5000); // at its next renewal, which is a conflict, and the read after that
    expect([one.working, one.election.status().holder]).toEqual([false, 'thief']);
    expect(await world.spec()).toMatchObject({ holderIdentity: 'thief' });
    await world.end();
    expect(await world.spec()).toMatchObject({ holderIdentity: 'thief' });
  });

  it('is released if the work fails, and the error of the work is thrown', async () => {
    const world = new World();
    const { election } = world.add('one');
    const fault = new Error('a fault');
    const running = election.run(() => Promise.reject(fault), new AbortController().signal);
    await expect(election.run(() => Promise.resolve(), new AbortController().signal)).rejects.toThrow(
      'the election is not running',
    );
    await expect(running).rejects.toBe(fault);
    expect([election.status().state, election.mayWrite()]).toEqual(['idle', false]);
    expect(await world.spec()).toMatchObject({ holderIdentity: '', leaseTransitions: 0 });
    const ended = new AbortController();
    const next = election.run(() => Promise.resolve(), ended.signal);
    await settle();
    ended.abort();
    expect(await next).toBe('ended');
    expect(await world.spec()).toMatchObject({ holderIdentity: '', leaseTransitions: 1 });
  });

  it('is neither requested nor released after the signal fires', async () => {
    const world = new World();
    const { election, transport } = world.add('one');
    transport.onArrival = () => expect.fail();
    expect(await election.run(() => expect.fail(), AbortSignal.abort())).toBe('ended');
    expect(world.clock.pending).toBe(0);
  });

  it('returns lost if it was lost', async () => {
    const world = new World();
    const { election, transport } = world.add('one');
    const running = election.run(
      (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve())),
      new AbortController().signal,
    );
    await settle();
    transport.loses = 'requests';
    await advance(world.clock, 30_000);
    expect(await running).toBe('lost');
    expect(world.clock.pending).toBe(0);
  });

  it('is read every few seconds, at random times, and requested by one only at a time, which is not a failure', async () => {
    const world = new World();
    const [one, two] = [world.add('one'), world.add('two')];
    one.transport.delayMs = [10, 10];
    two.transport.delayMs = [10, 10];
    const asked: string[] = [];
    two.transport.onArrival = ({ method = 'GET' }) => {
      asked.push(method);
      return () => {};
    };
    one.start();
    two.start();
    await advance(world.clock, 100);
    const [leader, other] = one.working ? [one, two] : [two, one];
    expect([leader.working, other.working]).toEqual([true, false]);
    await advance(world.clock, 31_900);
    expect([one, two].map(({ election }) => election.status().failures)).toEqual([0, 0]);
    // Once at first, with a write that was too late, and then every 3.2 s plus the time of the link.
    if (other === two) expect(asked).toEqual(['GET', 'POST', ...new Array(9).fill('GET')]);
    const before = asked.length;
    if (other === two) void two.end();
    await settle(10);
    await advance(world.clock, 60_000);
    if (other === two) expect(asked.length - before).toBeLessThanOrEqual(2); // the requested write may have been made
    await world.end();
  });

  it('is requested as a Lease of its version, created and renewed', async () => {
    const world = new World();
    const one = world.add('one');
    const sent: unknown[] = [];
    one.transport.onArrival = ({ method, path, body }) => {
      if (body !== undefined)
        sent.push([
          `${method} ${path}`,
          (body as { apiVersion: string }).apiVersion,
          (body as { kind: string }).kind,
        ]);
      return () => {};
    };
    one.start();
    await advance(world.clock, 3000);
    const version = ['coordination.k8s.io/v1', 'Lease'];
    const path = '/apis/coordination.k8s.io/v1/namespaces/default/leases';
    expect(sent).toEqual([
      [`POST ${path}`, ...version],
      [`PUT ${path}/${LEASE}`, ...version],
    ]);
    await world.end();
  });

  it('without an answer is requested again before the deadline has passed', async () => {
    for (const hanging of ['GET', 'POST']) {
      const world = new World();
      world.api.faults.inject({ do: 'hang' }, { matches: ({ method }) => method === hanging });
      const one = world.add('one');
      one.start();
      await advance(world.clock, 4999);
      expect(one.election.status().failures).toBe(0);
      await advance(world.clock, 1);
      expect([one.election.status().failures, one.working]).toEqual([1, false]);
      await advance(world.clock, 3201);
      expect(one.working).toBe(true);
      await world.end();
    }
  });

  it.each(['POST', 'PUT'])('is not lost by a Retry-After of its %s (regression)', async (method) => {
    const world = new World();
    const headers = { 'retry-after': '3600' };
    const throttled = { do: 'answer', status: 429, body: 'slow down', headers } as const;
    world.api.faults.inject(throttled, { matches: (request) => request.method === method });
    const one = world.add('one');
    let terms = 0;
    one.lead = (signal) => {
      terms++;
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    };
    one.start();
    await advance(world.clock, 120_000);
    expect([terms, one.working, one.election.status().failures]).toEqual([1, true, 1]);
    await world.end();
  });

  it('that the server refuses or cannot return is a failure with its reason', async () => {
    const world = new World();
    const reports: unknown[] = [];
    const one = world.add('one', {
      onFailure: (error) => void reports.push(messageOf(error)),
      onRecovered: () => void reports.push('recovered'),
    });
    world.api.down();
    one.start();
    await advance(world.clock, 600_000);
    expect(one.election.status().failures).toBeGreaterThan(100);
    // Regression: each attempt was reported, about 30,000 a day.
    expect(reports.splice(0)).toEqual(['the server is not running']);
    world.api.up();
    world.api.deny('get', 'leases');
    await advance(world.clock, 10_000);
    expect(reports.splice(0)).toEqual([expect.stringMatching(/: grant the verb "get"/)]);
    // Regression: reasons that alternate were reported at each attempt.
    world.api.down();
    await advance(world.clock, 10_000);
    world.api.up();
    await advance(world.clock, 10_000);
    expect(reports).toEqual([]);
    world.api.allow('get', 'leases');
    await advance(world.clock, 10_000);
    expect(one.working).toBe(true);
    expect(reports.splice(0)).toEqual(['recovered']);
    const { failures } = one.election.status();
    world.api.deny('update', 'leases');
    await advance(world.clock, 2000);
    expect(one.election.status().failures).toBe(failures + 1);
    expect(one.election.status().lastFailure?.message).toMatch(/.: grant the verb "update"/);
    world.api.allow('update', 'leases');
    await world.end();
  });

  it('is released when its work is done, and leaves nothing on the signal', async () => {
    const world = new World();
    const { election } = world.add('one');
    const { signal } = new AbortController();
    const done = deferred();
    const running = election.run(() => done.promise, signal);
    await settle();
    expect(getEventListeners(signal, 'abort').length).toBeGreaterThan(0);
    done.resolve();
    await settle();
    expect(await running).toBe('ended');
    expect(await world.spec()).toMatchObject({ holderIdentity: '' });
    expect([getEventListeners(signal, 'abort'), world.clock.pending]).toEqual([[], 0]);
  });

  it('is released with one request when its work is done, and only then the run ends', async () => {
    const world = new World();
    const { election, transport } = world.add('one');
    const ended = new AbortController();
    let isDone = false;
    const running = election
      .run(
        (signal) => new Promise((resolve) => signal.addEventListener('abort', () => resolve())),
        ended.signal,
      )
      .finally(() => {
        isDone = true;
      });
    await settle();
    const requests: (string | undefined)[] = [];
    transport.onArrival = ({ method }) => {
      requests.push(method);
      return () => {};
    };
    transport.delayMs = [100, 100];
    ended.abort();
    await advance(world.clock, 150);
    expect(await world.spec()).toMatchObject({ holderIdentity: '' });
    expect([isDone, election.status().state, election.mayWrite()]).toEqual([false, 'idle', false]);
    await advance(world.clock, 50);
    expect([isDone, requests]).toEqual([true, ['PUT']]);
    expect(await running).toBe('ended');
    await election.run(() => expect.fail(), AbortSignal.abort());
    expect(requests).toEqual(['PUT']); // released once
  });

  it('that was released is read first by the next run, because another holder may have acquired it', async () => {
    const world = new World();
    const [one, two] = [world.add('one'), world.add('two')];
    one.start();
    await settle();
    await one.end();
    two.start();
    await settle();
    one.start();
    await settle();
    expect([two.working, one.election.status().holder]).toEqual([true, 'two']);
    await world.end();
  });

  it('is irrelevant if there is no other operator', () => {
    expect(SOLE_LEADER.mayWrite()).toBe(true);
  });
});
