import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import type { AppliedOutcome } from '../../../src/nodemanager/handler-feeds.ts';
import type { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { FoldingHandler } from './folding-handler.ts';
import { apply, history, type Operation } from './operations.ts';
import type { Rig } from './properties.ts';
import { type Mood, ScheduledHandler } from './scheduled-handler.ts';

/** A rig whose manager can be waited for and ended. */
export type RacingRig = Rig & {
  readonly manager: Pick<NodeManager, 'whenApplied' | 'startValidation' | 'close' | 'status'>;
};

const mood: fc.Arbitrary<Mood> = fc.constantFrom('works', 'works', 'fails', 'works-but-fails');

/** Steps of a race: operations, passing time, ending calls. */
type Move = Operation | { readonly op: 'wait'; readonly ms: number } | { readonly op: 'end-a-call' };

const moves: fc.Arbitrary<readonly Move[]> = fc
  .tuple(
    history,
    fc.array(
      fc.oneof(
        fc.record({ op: fc.constant('wait' as const), ms: fc.constantFrom(50, 1000, 60_000) }),
        fc.constant({ op: 'end-a-call' as const }),
        fc.constant({ op: 'end-a-call' as const }),
      ),
      { maxLength: 40 },
    ),
    fc.infiniteStream(fc.nat(2)),
  )
  .map(([operations, others, dice]) => {
    const [left, right]: [Move[], Move[]] = [[...operations], [...others]];
    const mixed: Move[] = [];
    while (left.length + right.length > 0) {
      const move = (dice.next().value === 0 ? left.shift() : right.shift()) ?? left.shift() ?? right.shift();
      if (move !== undefined) mixed.push(move);
    }
    return mixed;
  });

/** Ends calls and backoffs until nothing is left to do. */
async function quiesce(scheduler: fc.Scheduler, clock: ManualClock): Promise<void> {
  for (let i = 0; i < 200; i++) {
    while (scheduler.count() > 0) await scheduler.waitOne();
    await scheduler.waitIdle();
    if (scheduler.count() === 0 && clock.pending === 0) return;
    clock.advance(60_000);
  }
  throw new Error('it never comes to rest');
}

/**
 * I1 under races: whatever the order in which calls end or fail, the datapath at rest has exactly the nodes
 * of a new handler, each in one version.
 */
export function I1_asynchronousHandlersCatchUp(make: () => RacingRig): fc.IAsyncPropertyWithHooks<unknown> {
  return fc.asyncProperty(
    fc.scheduler(),
    moves,
    fc.array(mood, { minLength: 30, maxLength: 60 }),
    fc.integer({ min: 1, max: 3 }),
    async (scheduler, race, moods, concurrency) => {
      const rig = make();
      const { manager, clock } = rig;
      const left = [...moods];
      const handler = new ScheduledHandler(scheduler, concurrency, () => left.shift() ?? 'works');
      manager.subscribe(handler, { concurrency });
      const stopValidating = manager.startValidation(10_000);
      for (const move of race) await play(rig, scheduler, move);
      stopValidating();
      let applied: AppliedOutcome | undefined;
      void manager.whenApplied().then((outcome) => (applied = outcome));
      await quiesce(scheduler, clock);
      const fresh = new FoldingHandler();
      manager.subscribe(fresh)();
      const view = handler.view();
      const problems = [...handler.complaints];
      for (const name of new Set([...view.keys(), ...fresh.view.keys()])) {
        const [has, should] = [view.get(name), fresh.view.get(name)];
        if (has === undefined || should === undefined || !has.equals(should)) {
          problems.push(`${name}: has ${JSON.stringify(has)} but should have ${JSON.stringify(should)}`);
        }
      }
      if (!isDeepStrictEqual(handler.configuration, manager.configuration))
        problems.push('the handler has another configuration');
      if (applied !== 'applied') problems.push('whenApplied never resolves');
      if (problems.length > 0) throw new Error(problems.join('\n'));
    },
  );
}

/**
 * The end under races, at any time, by closing the manager or by unsubscribing the handler. Afterwards
 * nothing is called, running calls are aborted, no timer is left, and all waiters are resolved.
 */
export function stoppingEndsEverything(make: () => RacingRig): fc.IAsyncPropertyWithHooks<unknown> {
  return fc.asyncProperty(
    fc.scheduler(),
    moves,
    fc.array(mood, { minLength: 30, maxLength: 60 }),
    fc.integer({ min: 1, max: 3 }),
    fc.nat(50),
    fc.constantFrom('close' as const, 'leave' as const),
    async (scheduler, race, moods, concurrency, length, how) => {
      const rig = make();
      const { manager, clock } = rig;
      const left = [...moods];
      const handler = new ScheduledHandler(scheduler, concurrency, () => left.shift() ?? 'works');
      const leave = manager.subscribe(handler, { concurrency });
      const stopValidating = manager.startValidation(10_000);
      let waiting = 0;
      const wait = (): void => {
        waiting++;
        void manager.whenApplied().then(() => waiting--);
      };
      for (const move of race.slice(0, length)) {
        await play(rig, scheduler, move);
        wait();
      }
      if (how === 'close') manager.close();
      else leave();
      handler.ended = true;
      const problems = handler.allAborted ? [] : ['a call that runs was not told to give up'];
      for (const move of race.slice(length)) await play(rig, scheduler, move);
      wait();
      stopValidating();
      if (clock.pending > 0) problems.push(`${clock.pending} timers are left`);
      await quiesce(scheduler, clock);
      if (waiting > 0) problems.push(`${waiting} are kept waiting`);
      if (manager.status().handlers.length > 0) problems.push('the handler is still there');
      problems.push(...handler.complaints);
      if (problems.length > 0) throw new Error(problems.join('\n'));
    },
  );
}

async function play(
  { manager, ipcache, clock }: RacingRig,
  scheduler: fc.Scheduler,
  move: Move,
): Promise<void> {
  if (move.op === 'wait') clock.advance(move.ms);
  else if (move.op !== 'end-a-call') apply({ manager, ipcache }, move);
  else if (scheduler.count() > 0) await scheduler.waitOne();
}
