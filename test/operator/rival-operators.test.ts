import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RivalWorld } from './support/rival-operators.ts';
import { trespasses } from './support/terms.ts';

const LEADER = -1;
const SERVER = ['transport', 'kvstore'] as const;

type Happening =
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'service' | 'node' | 'lock'; readonly name: string }
  | { readonly do: 'pause' | 'go' | 'kill'; readonly who: number }
  | {
      readonly do: 'delay';
      readonly who: number;
      readonly to: (typeof SERVER)[number];
      readonly ms: readonly [number, number];
    }
  | {
      readonly do: 'lose';
      readonly who: number;
      readonly to: (typeof SERVER)[number];
      readonly what: 'nothing' | 'requests' | 'answers';
    };

const ms = (max: number): fc.Arbitrary<number> => fc.integer({ min: 0, max });
// Mostly the leader: events of the others matter little.
const who = fc.oneof({ weight: 3, arbitrary: fc.constant(LEADER) }, fc.nat(2));
const to = fc.constantFrom(...SERVER);
const name = fc.constantFrom('x', 'y');
const happening: fc.Arbitrary<Happening> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: ms(12_000) }) },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constantFrom('service' as const, 'node' as const, 'lock' as const), name }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('pause' as const, 'go' as const), who }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('kill' as const), who }) },
  fc.record({ do: fc.constant('delay' as const), who, to, ms: fc.tuple(ms(4000), ms(4000)) }),
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('lose' as const),
      who,
      to,
      what: fc.constantFrom('nothing' as const, 'requests' as const, 'answers' as const),
    }),
  },
);

async function happen(world: RivalWorld, what: Happening): Promise<void> {
  if (what.do === 'wait') return world.pass(what.ms);
  if ('name' in what) {
    if (what.do === 'service') await world.turnService(what.name);
    if (what.do === 'node') await world.turnNode(what.name);
    if (what.do === 'lock') world.takeLock(what.name);
    return;
  }
  const one = what.who === LEADER ? world.leader : world.operators[what.who];
  if (one === undefined || one.isKilled) return;
  if (what.do === 'pause') one.pause.stop();
  if (what.do === 'go') await one.pause.go();
  if (what.do === 'delay') one[what.to].delayMs = what.ms;
  if (what.do === 'lose') one[what.to].loses = what.what;
  if (what.do !== 'kill') return;
  one.pause.stop();
  one.isKilled = true;
  world.start();
}

/**
 * A leader is suspended while it has objects to delete, another one leads, and the objects exist again when
 * the first continues.
 */
async function stoppedLeader(world: RivalWorld): Promise<void> {
  const one = world.start();
  await world.pass(1000);
  world.start();
  await world.turnService('x');
  await world.turnNode('x');
  await world.turnNode('y');
  await world.pass(8000);
  expect(world.leader).toBe(one);
  one.pause.stop();
  await world.turnService('x'); // deleted, which the suspended operator has yet to read
  await world.turnNode('x');
  await world.pass(40_000);
  expect(world.leader).toBe(world.operators[1]);
  await world.turnService('x');
  await world.turnNode('x');
  await world.pass(5000);
  await one.pause.go();
  await world.pass(5000);
}

describe('several operators of one cluster', () => {
  it('have terms: a delete beside another leader, after the own term or without any is detected', () => {
    const lease = (at: number, by: string, holder = by) => ({ at, by, holder });
    const gone = (at: number, by: string) => ({ at, by, deletes: 'k' });
    expect(trespasses([lease(0, 'a'), gone(5, 'a'), lease(9, 'a'), gone(23, 'a')], 15)).toEqual([]);
    expect(trespasses([lease(0, 'a'), lease(9, 'a', ''), lease(9, 'b'), gone(9, 'b')], 15)).toEqual([]);
    expect(
      trespasses([gone(0, 'a'), lease(0, 'a'), gone(15, 'a'), lease(16, 'b'), gone(17, 'a')], 15),
    ).toEqual([
      '0: a deleted k while no one held the lease',
      '15: a deleted k 15 ms after its last renewal',
      '17: a deleted k while b held the lease',
    ]);
  });

  it('delete nothing after a pause longer than the lease, whatever they intended before (regression: publishers did)', async () => {
    const world = new RivalWorld();
    await stoppedLeader(world);
    expect(world.trespasses).toEqual([]);
    const { there, said } = world.differences;
    expect(there).toEqual(said);
    await world.end();
  });

  it('are detected to delete in the term of another if the fence is removed', async () => {
    const world = new RivalWorld({ isFenced: false });
    await stoppedLeader(world);
    expect(world.trespasses).toContainEqual(
      expect.stringMatching(/o0 deleted cilium\/state\/services.* while o1 held the lease/),
    );
    await world.end();
  });

  it('never both delete, whichever is killed, stopped or disconnected from either server; and the kvstore has the state of one of them', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(happening, { maxLength: 30, size: 'max' }), async (happenings) => {
        const world = new RivalWorld();
        for (let i = 0; i < 2; i++) world.start();
        for (const what of happenings) await happen(world, what);
        for (const { pause, transport, kvstore, isKilled } of world.operators) {
          for (const link of [transport, kvstore]) [link.loses, link.delayMs] = ['nothing', [0, 0]];
          if (!isKilled) await pause.go();
        }
        await world.pass(90_000);
        expect(world.trespasses).toEqual([]);
        const { there, said } = world.differences;
        expect(there).toEqual(said);
        await world.end();
      }),
      { numRuns: Number(process.env['PROPERTY_RUNS'] ?? 12) },
    );
  });
});
