import { expect, it } from 'vitest';
import {
  beginReflector,
  type ReflectorEffect,
  type ReflectorInput,
  stepReflector,
} from '../../../src/k8s/reflector/reflector-machine.ts';

type Answer = ReflectorInput extends infer I ? (I extends { now: number } ? Omit<I, 'now'> : never) : never;

/** What is done after each of the answers, which come so many milliseconds after each other. */
function effectsOf(
  answers: readonly Answer[],
  everyMs = 1000,
): readonly (ReflectorEffect['do'] | undefined)[] {
  let { state } = beginReflector();
  return answers.map((answer, at) => {
    const step = stepReflector(state, { ...answer, now: at * everyMs });
    state = step.state;
    return step.effect?.do;
  });
}

const OPENED: Answer = { type: 'opened' };
const EXPIRED: Answer = { type: 'failed', code: 'expired', retryAfterMs: 0 };
const BROKEN: Answer = { type: 'failed', code: 'broken', retryAfterMs: 0 };

it('lists at once where a server that it has waited for says 410: a second wait would double the first', () => {
  const untilBack: readonly Answer[] = [
    { type: 'listed' },
    OPENED,
    BROKEN,
    { type: 'waited' },
    { type: 'proven', same: true },
  ];
  expect(effectsOf([...untilBack, OPENED, EXPIRED])).toEqual([
    'watch',
    undefined,
    'wait',
    'prove',
    'watch',
    undefined,
    'list',
  ]);
});

it('waits before it lists again where a server says 410 to each watch', () => {
  const round: readonly Answer[] = [{ type: 'listed' }, OPENED, EXPIRED];
  const again: readonly Answer[] = [{ type: 'waited' }, ...round];
  const rounds = ['watch', undefined, 'wait', 'list', 'watch', undefined, 'wait'];
  expect(effectsOf([...round, ...again])).toEqual(rounds);
  const back: readonly Answer[] = [
    BROKEN,
    { type: 'waited' },
    { type: 'proven', same: true },
    OPENED,
    EXPIRED,
  ];
  expect(effectsOf([{ type: 'listed' }, OPENED, ...back, ...round]).slice(-4)).toEqual([
    'list',
    'watch',
    undefined,
    'wait',
  ]);
});

it('waits before it lists where a server says 410 that was well for long: so it does to all that follow it', () => {
  const back: readonly Answer[] = [BROKEN, { type: 'waited' }, { type: 'proven', same: true }, OPENED];
  const answers: readonly Answer[] = [{ type: 'listed' }, OPENED, ...back, EXPIRED];
  expect(effectsOf(answers, 60_000).at(-1)).toBe('list');
  expect(effectsOf(answers, 120_000).at(-1)).toBe('wait');
});
