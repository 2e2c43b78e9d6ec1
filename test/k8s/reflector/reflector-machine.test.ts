import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  beginReflector,
  type ReflectorEffect,
  type ReflectorInput,
  type ReflectorStep,
  stepReflector,
} from '../../../src/k8s/reflector/reflector-machine.ts';
import type { ApiErrorCode } from '../../../src/k8s/rest/api-error.ts';

type Answer = ReflectorInput extends infer I ? (I extends { now: number } ? Omit<I, 'now'> : never) : never;

/** A reflector that receives one answer after the other. */
class Driven {
  now = 1_000_000;
  #step: ReflectorStep = beginReflector();

  constructor(...answers: readonly Answer[]) {
    this.answer(...answers);
  }

  get effect(): ReflectorEffect | undefined {
    return this.#step.effect;
  }

  get shown(): string {
    return this.#step.state.reportedState;
  }

  /** Returns the effect after the last of the answers, which arrive together. */
  answer(...answers: readonly Answer[]): ReflectorEffect | undefined {
    for (const one of answers) this.#step = stepReflector(this.#step.state, { ...one, now: this.now });
    return this.effect;
  }

  /** Returns the effect after an answer that comes `ms` later. */
  later(ms: number, answer: Answer): ReflectorEffect | undefined {
    this.now += ms;
    return this.answer(answer);
  }
}

const failure = (code: ApiErrorCode, retryAfterMs = 0): Answer => ({ type: 'failed', code, retryAfterMs });

const LISTED: Answer = { type: 'listed' };
const OPENED: Answer = { type: 'opened' };
const WAITED: Answer = { type: 'waited' };
const SAME: Answer = { type: 'proven', same: true };
const EXPIRED: Answer = failure('expired');
const BROKEN: Answer = failure('broken');
const UNREACHABLE: Answer = failure('unreachable');
const INTERNAL: Answer = failure('internal');

const QUICK_PROOF: ReflectorEffect = { do: 'prove', isQuick: true };

const WATCHING = [LISTED, OPENED] as const;
const PROVING = [...WATCHING, BROKEN, WAITED] as const;

const CODES = [
  ...(['unreachable', 'broken', 'silent', 'throttled', 'unavailable', 'internal', 'expired'] as const),
  ...(['future-version', 'unauthorized', 'forbidden', 'missing', 'conflict', 'invalid', 'garbled'] as const),
  ...(['rejected', 'credentials'] as const),
];
const LOST_CONNECTION: readonly ApiErrorCode[] = ['unreachable', 'broken', 'silent', 'unavailable'];
const TO_REPEAT: readonly ApiErrorCode[] = ['throttled', 'unauthorized', 'credentials', 'internal'];
const NO_STREAMS: readonly ApiErrorCode[] = [
  ...(['invalid', 'rejected', 'silent', 'forbidden', 'garbled'] as const),
];
const FORGOTTEN: readonly ApiErrorCode[] = ['expired', 'future-version'];
const except = (codes: readonly ApiErrorCode[]): readonly ApiErrorCode[] =>
  CODES.filter((code) => !codes.includes(code));

describe('after a failure waits, at least as long as the server requests (K 3), and then', () => {
  const [viaCache, inPages, asWhole] = [[failure('invalid')], [EXPIRED], [EXPIRED, EXPIRED]];
  const [prove, watch, stream] = [{ do: 'prove' }, { do: 'watch' }, { do: 'list', from: 'stream' }];
  const notForNow = [...LOST_CONNECTION, ...TO_REPEAT];
  const [cache, pages] = [
    { do: 'list', from: 'cache' },
    { do: 'list', from: 'pages' },
  ];
  it.each<[string, readonly Answer[], readonly ApiErrorCode[], object]>([
    ['lets a server prove itself that was lost in a watch', WATCHING, LOST_CONNECTION, prove],
    ['asks for a watch again that was refused for now', WATCHING, TO_REPEAT, watch],
    ['lists where a watch failed in another way', WATCHING, except(notForNow), stream],
    ['asks for a proof again that came to nothing', PROVING, notForNow, prove],
    ['lists where a proof was refused', PROVING, except(notForNow), stream],
    [
      'asks for a stream again that was not refused as such',
      [],
      except([...NO_STREAMS, ...FORGOTTEN]),
      stream,
    ],
    ["asks for a list from the server's memory again", viaCache, except(FORGOTTEN), cache],
    ['asks for a list in pages again', inPages, except(FORGOTTEN), pages],
    ['asks for a list in pages that failed as a whole', asWhole, CODES, pages],
  ])('%s', (_, before, codes, next) => {
    for (const code of codes) {
      const driven = new Driven(...before);
      const { failures } = waitOf(driven.answer(failure(code, 1234)), 1234);
      expect(failures, code).toBe(before === PROVING ? 2 : 1);
      expect(driven.answer(WAITED), code).toEqual(next);
    }
  });
});

/** Returns the effect as a wait of at least this time. */
function waitOf(
  effect: ReflectorEffect | undefined,
  atLeastMs = 0,
): ReflectorEffect & { readonly do: 'wait' } {
  expect(effect).toMatchObject({ do: 'wait', atLeastMs });
  if (effect?.do !== 'wait') throw new Error('does not wait');
  return effect;
}

it('starts with a stream; if the server does not support it, lists immediately, and from then on (K 1)', () => {
  expect(new Driven().effect).toEqual({ do: 'list', from: 'stream' });
  for (const code of NO_STREAMS) {
    const driven = new Driven();
    expect(driven.answer(failure(code)), code).toEqual({ do: 'list', from: 'cache' });
    driven.answer(LISTED, OPENED, EXPIRED);
    const next = code === 'invalid' || code === 'silent' ? 'cache' : 'stream';
    expect(driven.answer(WAITED), code).toEqual({ do: 'list', from: next });
  }
});

it('streams after a right was granted, a CRD was installed, or a server had stopped within a stream (regression: never until the restart)', () => {
  for (const failures of [[failure('missing')], [failure('forbidden'), failure('forbidden')]]) {
    const driven = new Driven(...failures);
    driven.answer(WAITED, LISTED, OPENED, EXPIRED);
    expect(driven.answer(WAITED)).toEqual({ do: 'list', from: 'stream' });
  }
  const missing = new Driven(failure('missing'));
  expect(missing.answer(WAITED), 'the first list').toEqual({ do: 'list', from: 'stream' });
});

it('streams again if the list in place of a silent stream fails, too, because the server was at fault (regression: never until the restart)', () => {
  for (const code of LOST_CONNECTION) {
    const driven = new Driven(failure('silent'));
    expect(driven.answer(failure(code), WAITED)).toEqual({ do: 'list', from: 'cache' });
    driven.answer(LISTED, OPENED, EXPIRED);
    expect(driven.answer(WAITED), code).toEqual({ do: 'list', from: 'stream' });
  }
});

it('requests pages if the server has forgotten, or is behind, and the whole list after a 410 for a page (K 1)', () => {
  for (const code of FORGOTTEN) {
    expect(new Driven().answer(failure(code))).toEqual({ do: 'list', from: 'pages' });
    const driven = new Driven(failure('invalid'));
    expect(driven.answer(failure(code))).toEqual({ do: 'list', from: 'pages' });
    expect(driven.answer(failure(code))).toEqual({ do: 'list', from: 'whole' });
    expect(driven.answer(LISTED)).toEqual({ do: 'watch' });
    driven.answer(OPENED, EXPIRED);
    expect(driven.answer(WAITED), 'the next list').toEqual({ do: 'list', from: 'cache' });
  }
});

it('continues from the last version if the server has proven itself, and lists otherwise', () => {
  expect(new Driven(...PROVING).answer(SAME)).toEqual({ do: 'watch' });
  const other = new Driven(...PROVING);
  expect(other.answer({ type: 'proven', same: false })).toEqual({ do: 'list', from: 'stream' });
});

it('watches again after a regular end, unless the watch was short and empty: that is a failure (K 3)', () => {
  const after = (lastedMs: number, eventful: boolean): readonly unknown[] => {
    const driven = new Driven(...WATCHING);
    const effects = [driven.answer({ type: 'ended', lastedMs, eventful })];
    return effects[0]?.do === 'wait' ? [...effects, driven.answer(WAITED)] : effects;
  };
  expect(after(1000, false)).toEqual([{ do: 'watch' }]);
  expect(after(999, true)).toEqual([{ do: 'watch' }]);
  expect(after(999, false)).toEqual([{ do: 'wait', failures: 1, atLeastMs: 0 }, { do: 'watch' }]);
});

it('waits between short watches, although each has an event (regression: 60 watches a second)', () => {
  const driven = new Driven(...WATCHING);
  const short: Answer = { type: 'ended', lastedMs: 999, eventful: true };
  expect(driven.answer(short)).toEqual({ do: 'watch' });
  for (let again = 0; again < 3; again++) {
    expect(driven.answer(OPENED, short)).toEqual({ do: 'wait', failures: 1, atLeastMs: 0 });
    expect(driven.shown).toBe('watching');
    expect(driven.answer(WAITED)).toEqual({ do: 'watch' });
  }
  expect(driven.answer({ ...short, lastedMs: 1000 })).toEqual({ do: 'watch' });
  expect(driven.answer(short), 'the first again').toEqual({ do: 'watch' });
  expect(driven.answer({ ...short, lastedMs: 1000 })).toEqual({ do: 'watch' });
  expect(driven.answer({ ...short, eventful: false }, WAITED), 'also after an empty one').toEqual({
    do: 'watch',
  });
  expect(driven.answer(short)).toEqual({ do: 'wait', failures: 1, atLeastMs: 0 });
});

it('lists after a server has answered only internal errors for a minute (K 3)', () => {
  const nextOf = (driven: Driven, ms: number, answer = INTERNAL): unknown => {
    waitOf(driven.later(ms, answer));
    return driven.answer(WAITED)?.do;
  };
  const driven = new Driven(...WATCHING);
  expect([0, 30_000, 29_999].map((ms) => nextOf(driven, ms))).toEqual(['watch', 'watch', 'watch']);
  expect(nextOf(driven, 1)).toBe('list');

  for (const code of ['throttled', 'unauthorized', 'credentials'] as const) {
    const interrupted = new Driven(...WATCHING);
    nextOf(interrupted, 0);
    expect(nextOf(interrupted, 60_000, failure(code)), 'another failure').toBe('watch');
    expect(nextOf(interrupted, 1), 'another failure between them').toBe('watch');
  }

  const opened = new Driven(...WATCHING);
  nextOf(opened, 0);
  opened.later(59_000, OPENED);
  expect(nextOf(opened, 1000), 'a watch between them').toBe('watch');
});

it('counts failures in a row, and resets the count two good minutes after the first watch (K 3)', () => {
  const streakAfter = (goodMs: number): number => {
    const driven = new Driven(...WATCHING);
    waitOf(driven.answer(failure('throttled')));
    driven.answer(WAITED);
    expect(waitOf(driven.later(200_000, failure('throttled'))).failures, 'no watch').toBe(2);
    driven.answer(WAITED, OPENED);
    driven.later(goodMs - 1, { type: 'ended', lastedMs: 1000, eventful: true });
    driven.later(0, OPENED);
    return waitOf(driven.later(1, failure('throttled'))).failures;
  };
  expect([streakAfter(119_999), streakAfter(120_000)]).toEqual([3, 1]);
});

it('retries immediately after a reset of an open watch, whatever failed before, and backs off if resets follow (K 3)', () => {
  const driven = new Driven(...WATCHING);
  for (const failures of [1, 2, 3, 4, 5, 6]) {
    expect(waitOf(driven.answer(failure('unreachable'))).failures).toBe(failures);
    driven.answer(WAITED);
  }
  driven.answer(SAME, OPENED);
  // The server has recovered, and a connection is lost within two minutes.
  expect(driven.later(19_999, BROKEN)).toEqual(QUICK_PROOF);
  expect(driven.shown).toBe('waiting');
  expect(driven.answer(SAME)).toEqual({ do: 'watch' });
  // A server that closes every watch receives requests at growing intervals.
  for (const failures of [1, 2, 3]) {
    driven.answer(OPENED);
    expect(waitOf(driven.later(1_000, BROKEN)).failures).toBe(failures);
    expect(driven.answer(WAITED)).toEqual({ do: 'prove' });
    driven.answer(SAME);
  }
  // The same holds if it closes watches as soon as they begin.
  driven.answer(OPENED);
  expect(waitOf(driven.later(999, BROKEN)).failures).toBe(7);
  driven.answer(WAITED, SAME, OPENED);
  // After two good minutes the interval is the first one again.
  expect(driven.later(120_000, BROKEN)).toEqual(QUICK_PROOF);
  expect(waitOf(driven.answer(UNREACHABLE)).failures).toBe(1);
});

it('asks immediately after each reset of a watch that was open for 20 s, as behind a proxy that closes idle connections', () => {
  const driven = new Driven(...WATCHING);
  for (let i = 0; i < 3; i++) {
    expect(driven.later(20_000, BROKEN)).toEqual(QUICK_PROOF);
    driven.answer(SAME, OPENED);
  }
  expect(waitOf(driven.later(19_999, BROKEN)).failures, 'a short watch').toBe(1);
});

it('begins the backoff again if a connection is lost after progress (regression: faults in a row delayed recovery by a minute each)', () => {
  const outage = (driven: Driven, failures: number): number => {
    let last = 0;
    for (let i = 0; i < failures; i++) {
      last = waitOf(driven.later(500, UNREACHABLE)).failures;
      driven.answer(WAITED);
    }
    return last;
  };
  for (const [progress, streaks] of [
    [[{ type: 'progressed' }], [3, 3, 3, 3]],
    [[], [3, 6, 9, 12]],
  ] as const) {
    const driven = new Driven(...WATCHING);
    const cycle = (): number => {
      const last = outage(driven, 3);
      driven.answer(SAME, OPENED, ...progress);
      return last;
    };
    expect([1, 2, 3, 4].map(cycle)).toEqual(streaks);
  }
});

it('asks the server immediately after each reset of a watch that had progressed', () => {
  const driven = new Driven(...WATCHING);
  for (let i = 0; i < 3; i++) {
    expect(driven.later(1000, BROKEN)).toEqual(QUICK_PROOF);
    driven.answer(SAME, OPENED, { type: 'progressed' });
  }
  expect(driven.later(1000, BROKEN)).toEqual(QUICK_PROOF);
  driven.answer(SAME, OPENED);
  expect(waitOf(driven.later(1000, BROKEN)).failures, 'without progress').toBe(1);
});

it('backs off further from a server that repeats another error after each progress', () => {
  for (const code of ['internal', 'throttled', 'garbled'] as const) {
    const driven = new Driven(...WATCHING);
    const failures = [1, 2, 3].map(() => {
      driven.answer({ type: 'progressed' });
      const count = waitOf(driven.later(100, failure(code))).failures;
      driven.answer(WAITED, LISTED, OPENED);
      return count;
    });
    expect(failures, code).toEqual([1, 2, 3]);
  }
});

it('reports its state, except for short steps in between: the proof, and the start of a watch', () => {
  const shown = (...answers: readonly Answer[]): string => new Driven(...answers).shown;
  expect(shown()).toBe('listing');
  expect(shown(LISTED)).toBe('listing');
  expect(shown(...WATCHING)).toBe('watching');
  expect(shown(...WATCHING, { type: 'ended', lastedMs: 5, eventful: false })).toBe('waiting');
  expect(shown(...WATCHING, BROKEN)).toBe('waiting');
  expect(shown(...PROVING)).toBe('waiting');
  expect(shown(...PROVING, SAME)).toBe('waiting');
  expect(shown(...PROVING, SAME, OPENED)).toBe('watching');
  expect(shown(...PROVING, { type: 'proven', same: false })).toBe('listing');
  for (const code of ['missing', 'forbidden'] as const) {
    expect(shown(...WATCHING, failure(code))).toBe(code);
    expect(shown(failure('invalid'), failure(code))).toBe(code);
  }
  expect(shown(BROKEN)).toBe('waiting');
  expect(shown(...WATCHING, { type: 'stop' })).toBe('stopped');
});

const anything: fc.Arbitrary<Answer> = fc.oneof(
  fc.constantFrom(LISTED, OPENED, { type: 'progressed' } as const, WAITED, SAME, {
    type: 'proven',
    same: false,
  } as const),
  fc.record({ type: fc.constant('ended' as const), lastedMs: fc.nat(2000), eventful: fc.boolean() }),
  fc.constantFrom(...CODES).map((code) => failure(code)),
);

it('has an operation in progress after every answer until it is stopped, and none afterwards', () => {
  fc.assert(
    fc.property(fc.array(anything), fc.array(anything), (before, after) => {
      const driven = new Driven();
      for (const one of before) {
        const effect = driven.later(700, one);
        expect(effect === undefined).toBe(one.type === 'opened' || one.type === 'progressed');
      }
      expect(driven.answer({ type: 'stop' })).toBeUndefined();
      for (const one of after) expect(driven.answer(one)).toBeUndefined();
      expect(driven.shown).toBe('stopped');
    }),
  );
});

it.each(['forbidden', 'missing'] as const)(
  'a %s kind is reported as such until a list succeeds (regression: its problem disappeared during each attempt)',
  (code) => {
    const driven = new Driven(failure('invalid'), failure(code));
    const shown = [driven.shown];
    for (const one of [WAITED, failure(code), WAITED, LISTED, OPENED]) {
      driven.answer(one);
      shown.push(driven.shown);
    }
    expect(shown).toEqual([code, code, code, code, 'listing', 'watching']);
  },
);

/** Returns the effect after each of the answers, which arrive at these intervals in milliseconds. */
function effectsOf(
  answers: readonly Answer[],
  everyMs = 1000,
): readonly (ReflectorEffect['do'] | undefined)[] {
  const driven = new Driven();
  return answers.map((answer) => driven.later(everyMs, answer)?.do);
}

it('lists immediately if a server that it has waited for answers 410: a second wait would double the first', () => {
  const untilBack: readonly Answer[] = [LISTED, OPENED, UNREACHABLE, WAITED, SAME];
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

it('waits before it lists again if a server answers 410 to each watch', () => {
  const round: readonly Answer[] = [LISTED, OPENED, EXPIRED];
  const again: readonly Answer[] = [WAITED, ...round];
  const rounds = ['watch', undefined, 'wait', 'list', 'watch', undefined, 'wait'];
  expect(effectsOf([...round, ...again])).toEqual(rounds);
  const back: readonly Answer[] = [UNREACHABLE, WAITED, SAME, OPENED, EXPIRED];
  expect(effectsOf([LISTED, OPENED, ...back, ...round]).slice(-4)).toEqual([
    'list',
    'watch',
    undefined,
    'wait',
  ]);
});

it('waits before it lists if a server that was available for long answers 410, because all its clients get it', () => {
  const back: readonly Answer[] = [UNREACHABLE, WAITED, SAME, OPENED];
  const answers: readonly Answer[] = [LISTED, OPENED, ...back, EXPIRED];
  expect(effectsOf(answers, 60_000).at(-1)).toBe('list');
  expect(effectsOf(answers, 120_000).at(-1)).toBe('wait');
});
