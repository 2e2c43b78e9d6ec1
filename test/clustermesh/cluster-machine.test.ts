import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { stepCluster } from '../../src/clustermesh/cluster-machine.ts';
import {
  type ClusterEffect,
  type ClusterFollow,
  type ClusterInput,
  type ClusterState,
  NEW_CLUSTER,
} from '../../src/clustermesh/cluster-state.ts';

type ClusterConfig = NonNullable<ClusterState['config']>;
const config = (id: number, syncedCanaries = true): ClusterConfig => ({
  id,
  capabilities: { syncedCanaries, cached: false },
});

type Step = readonly [ClusterInput['type'], Readonly<Record<string, unknown>>?];

const NOTHING_ELSE = {
  replaced: false,
  others: [],
  diverged: false,
  reason: { code: 'unavailable', message: 'failed' },
};

interface Played {
  readonly state: ClusterState;
  readonly effects: readonly ClusterEffect[];
  readonly did: readonly string[];
}

/** Applies inputs, each as an answer to the current attempt. Returns the state and all effects. */
function play(steps: readonly Step[], from = NEW_CLUSTER): Played {
  let state = from;
  const effects: ClusterEffect[] = [];
  for (const [type, fields] of steps) {
    const input = { ...NOTHING_ELSE, type, attempt: state.attempt, ...fields } as ClusterInput;
    const step = stepCluster(state, input);
    state = step.state;
    effects.push(...step.effects);
  }
  return { state, effects, did: effects.map((effect) => effect.do) };
}

/** Returns the last `follow` effect of a play. */
function followed({ effects }: Played): ClusterFollow | undefined {
  return effects.findLast((effect) => effect.do === 'follow');
}

const TO_HANDSHAKE: readonly Step[] = [['connect'], ['left'], ['connected']];
const AGAIN: readonly Step[] = [['outdated'], ['left']];
const read = (read: ClusterConfig | undefined, fields: object = {}): Step => [
  'config',
  { config: read, ...fields },
];
const toWatching = (id: number): readonly Step[] => [...TO_HANDSHAKE, read(config(id)), ['validated']];
const WATCHING = play(toWatching(1)).state;

describe('the state machine of a remote cluster', () => {
  it('connects, reads the configuration, validates it and follows', () => {
    const { state, did } = play(toWatching(1));
    expect(did).toEqual(['leave', 'connect', 'read-config', 'validate', 'follow']);
    expect(state).toMatchObject({ phase: 'watching', id: 1, failures: 0 });
  });

  it('drains before it follows a cluster whose id has changed', () => {
    const { state, did } = play([...AGAIN, read(config(3)), ['validated'], ['drained']], WATCHING);
    expect(did).toEqual(['leave', 'read-config', 'validate', 'withdraw', 'follow']);
    expect(state).toMatchObject({
      phase: 'watching',
      id: 3,
      pendingWithdrawal: 'nothing',
      config: config(3),
    });
  });

  it('does not drain a cluster that reports an id for the first time: values that do not match are swept', () => {
    const unknown = play([...TO_HANDSHAKE, read(undefined), ['validated']]).state;
    expect(play([...AGAIN, read(config(3)), ['validated']], unknown).did).not.toContain('withdraw');
    const without = play(toWatching(0)).state;
    expect(play([...AGAIN, read(config(3)), ['validated']], without).did).not.toContain('withdraw');
    expect(play([...AGAIN, read(config(0)), ['validated']], WATCHING).did).not.toContain('withdraw');
  });

  it('withdraws the state of a rejected cluster, then frees its id, and retries', () => {
    const rejected = play([...AGAIN, read(config(2)), ['validated', { objection: 'taken' }]], WATCHING);
    expect(rejected.state).toMatchObject({
      phase: 'leaving',
      id: 1,
      lastFailure: { code: 'invalid', message: 'taken' },
    });
    const { state, did } = play([['left'], ['drained'], ['retry']], rejected.state);
    expect(did).toEqual(['withdraw', 'wait', 'read-config']);
    expect(state).toMatchObject({
      phase: 'handshake',
      id: 0,
      config: undefined,
      pendingWithdrawal: 'nothing',
    });
  });

  it('reconnects if a client could not be created', () => {
    const { did } = play([
      ['connect'],
      ['left'],
      ['failed', { reason: { code: 'ENOENT', message: 'no CA' } }],
      ['left'],
      ['retry'],
    ]);
    expect(did).toEqual(['leave', 'connect', 'leave', 'wait', 'connect']);
  });

  it('waits longer after each failure in a row, and resets the backoff once it is complete', () => {
    const failed = play([...TO_HANDSHAKE, ['failed'], ['left'], ['retry'], ['failed']]).state;
    expect(failed).toMatchObject({ streak: 2, failures: 2 });
    expect(play([['left']], failed).effects).toEqual([{ do: 'wait', streak: 2 }]);
    const again = play([['left'], ['retry'], read(config(1)), ['validated']], failed).state;
    expect(again).toMatchObject({ phase: 'watching', streak: 2, failures: 2 });
    expect(play([['complete']], again).state.streak).toBe(0);
    // Regression: a watch that was rejected immediately was opened again after the shortest delay, each time.
    expect(play([['failed']], again).state.streak).toBe(3);
    expect(play([['connect']], failed).state.streak).toBe(0);
  });

  it('closes the client if a new one replaces it or none is needed; a retry keeps it', () => {
    const hangsUp = (type: 'connect' | 'stop' | 'remove' | 'failed' | 'outdated'): unknown =>
      play([[type]], WATCHING).effects;
    for (const type of ['connect', 'stop', 'remove'] as const)
      expect(hangsUp(type)).toEqual([{ do: 'leave', closeClient: true }]);
    for (const type of ['failed', 'outdated'] as const)
      expect(hangsUp(type)).toEqual([{ do: 'leave', closeClient: false }]);
    expect(play([['failed'], ['left'], ['retry']], WATCHING).did.at(-1)).toBe('read-config');
    expect(play([['connect'], ['left'], ['failed'], ['left'], ['retry']], WATCHING).did.at(-1)).toBe(
      'connect',
    );
  });

  it('ignores answers to earlier attempts', () => {
    const { state } = play([...TO_HANDSHAKE, ['connect']]);
    const late = { type: 'config', attempt: state.attempt - 1, config: config(1), replaced: false } as const;
    expect(stepCluster(state, { ...late, others: [] })).toEqual({ state, effects: [] });
  });

  it('stays stopped or removed; removed takes precedence', () => {
    const stopped = play([['stop'], ['left']], WATCHING).state;
    expect(play([['connect'], ['stop'], ['retry'], ['expired']], stopped)).toMatchObject({
      state: stopped,
      did: [],
    });
    const removed = play([['remove'], ['left'], ['drained']], stopped);
    expect(removed.did).toEqual(['leave', 'withdraw']);
    expect(removed.state).toMatchObject({ phase: 'removed', id: 0, config: undefined });
    expect(play([['remove'], ['stop'], ['connect']], removed.state).did).toEqual([]);
    const removing = play([['remove']], WATCHING).state;
    expect(play([['stop'], ['remove'], ['connect'], ['left']], removing).did).toEqual(['withdraw']);
  });

  it('completes a withdrawal that was interrupted', () => {
    const draining = play([...AGAIN, read(config(3)), ['validated']], WATCHING).state;
    const { state, did } = play([['connect'], ['left'], ['drained']], draining);
    expect(did).toEqual(['leave', 'withdraw', 'connect']);
    expect(state).toMatchObject({ phase: 'connecting', id: 0, config: undefined });
  });
});

describe('a remote cluster without configuration', () => {
  it('that had one is neither followed nor withdrawn until it is back (freeze: considered complete, and swept)', () => {
    const gone = play([...AGAIN, read(undefined)], WATCHING);
    expect(gone.did).toEqual(['leave', 'read-config', 'await-config']);
    expect(gone.state).toMatchObject({
      phase: 'unconfigured',
      found: 'gone',
      id: 1,
      config: config(1),
      failures: 1,
    });
    expect(gone.state.lastFailure?.message).toContain('does not contain its configuration any more');
    const back = play([...AGAIN, read(config(1)), ['validated']], gone.state);
    expect(back.did).toEqual(['leave', 'read-config', 'validate', 'follow']);
    expect(back.state).toMatchObject({ phase: 'watching', found: 'read' });
  });

  it('that had one still requires it with every later client (an empty kvstore with a new file)', () => {
    const again = play([['connect'], ['left'], ['connected'], read(undefined, { replaced: true })], WATCHING);
    expect(again.did).toEqual(['leave', 'connect', 'read-config', 'await-config']);
    expect(again.state).toMatchObject({ phase: 'unconfigured', id: 1, config: config(1) });
  });

  it('that was complete is followed, and nothing is removed (regression: not followed for the minutes until it was back)', () => {
    const complete = play([['complete']], WATCHING).state;
    const gone = play([...AGAIN, read(undefined)], complete);
    expect(gone.did).toEqual(['leave', 'read-config', 'follow']);
    expect(followed(gone)).toMatchObject({ config: config(1), deletes: 'none', needsCanaries: false });
    expect(gone.state).toMatchObject({ phase: 'watching', found: 'gone', id: 1, failures: 1 });
    const back = play([...AGAIN, read(config(1)), ['validated']], gone.state);
    expect(followed(back)).toMatchObject({ deletes: 'proven', needsCanaries: true });
    expect(back.state).toMatchObject({ phase: 'watching', found: 'read' });
  });

  it.each<readonly [string, readonly Step[], object]>([
    ['has no id', toWatching(0), {}],
    ['is in the kvstore of another cluster', toWatching(1), { others: ['b'] }],
  ])(
    'that was complete is not followed if it %s, because its values could belong to another cluster',
    (_, steps, fields) => {
      const complete = play([...steps, ['complete']]).state;
      const gone = play([...AGAIN, read(undefined, fields)], complete);
      expect([gone.did.at(-1), gone.state.phase]).toEqual(['await-config', 'unconfigured']);
    },
  );

  it('that was complete is followed in a copy with other clusters, because its keys contain its name', () => {
    const cached = { ...config(1), capabilities: { syncedCanaries: true, cached: true } };
    const complete = play([...TO_HANDSHAKE, read(cached), ['validated'], ['complete']]).state;
    expect(play([...AGAIN, read(undefined, { others: ['b'] })], complete).state.phase).toBe('watching');
    const mirrored = { ...complete, needsConfig: true };
    expect(play([...AGAIN, read(undefined)], mirrored).state.phase).toBe('unconfigured');
  });

  it('is not followed after all its state was withdrawn, until it has been complete again', () => {
    const other = play([['complete'], ...AGAIN, read(config(3)), ['validated'], ['drained']], WATCHING);
    const gone = play([...AGAIN, read(undefined)], other.state);
    expect(gone.state.phase).toBe('unconfigured');
  });

  it('whose services have expired is followed, and they stay expired until the configuration is back', () => {
    const gone = play([['complete'], ...AGAIN, read(undefined)], WATCHING).state;
    const expired = play([['expired'], ['left'], ['drained'], read(undefined)], gone);
    expect(expired.did).toEqual(['leave', 'withdraw', 'read-config', 'follow']);
    expect(expired.state).toMatchObject({ phase: 'watching', expired: true });
    expect(followed(expired)?.followsServices).toBe(false);
    const back = play([...AGAIN, read(config(1)), ['validated']], expired.state);
    expect([back.state.expired, followed(back)?.followsServices]).toEqual([false, true]);
  });

  it('whose kvstore has those of many others names some of them (regression: all, without limit, as they are written)', () => {
    const others = [
      'b',
      'c\u001b[2J\nerror',
      'x'.repeat(100_000),
      ...Array.from({ length: 254 }, (_, i) => `d${i}`),
    ];
    const { lastFailure } = play([...TO_HANDSHAKE, read(undefined, { others })]).state;
    expect(lastFailure?.message).toBe(
      `its kvstore does not contain its configuration, only that of b, "c\\u001b[2J\\nerror", "${'x'.repeat(118)}…, d0, d1, d2, d3, d4 and 249 more: check the name`,
    );
  });

  it('whose kvstore has only that of others is not followed, because the name is wrong', () => {
    const { state, did } = play([...TO_HANDSHAKE, read(undefined, { others: ['b', 'c'] })]);
    expect(did.at(-1)).toBe('await-config');
    expect(state).toMatchObject({ phase: 'unconfigured', found: 'others', failures: 1 });
    expect(state.lastFailure?.message).toBe(
      'its kvstore does not contain its configuration, only that of b, c: check the name',
    );
  });

  it('whose user may not read other configurations is not followed before it has one, and is followed if it is gone', () => {
    const { state, did } = play([...TO_HANDSHAKE, read(undefined, { others: undefined })]);
    expect(did.at(-1)).toBe('await-config');
    expect(state.lastFailure?.message).toBe('its kvstore does not contain its configuration');
    const complete = play([['complete']], WATCHING).state;
    expect(play([...AGAIN, read(undefined, { others: undefined })], complete).state.phase).toBe('watching');
  });

  it('that never had one is older than 1.13: followed without canaries, and all its deletes are trusted', () => {
    const old = play([...TO_HANDSHAKE, read(undefined), ['validated']]);
    expect(followed(old)).toMatchObject({ needsCanaries: false, deletes: 'all', isRefilling: false });
    const restarted = play(
      [['outdated', { diverged: true }], ['left'], read(undefined), ['validated']],
      old.state,
    );
    expect(followed(restarted)).toMatchObject({ needsCanaries: false, deletes: 'all', isRefilling: false });
  });

  it('that never had one is withdrawn when its kvstore gets that of another cluster, whose keys it may have read (regression: they stayed)', () => {
    const old = play([...TO_HANDSHAKE, read(undefined), ['validated'], ['complete']]);
    expect(followed(old)?.endsAtOthers).toBe(true);
    const wrong = play([...AGAIN, read(undefined, { others: ['b'] })], old.state);
    expect(wrong.effects.at(-1)).toEqual({ do: 'withdraw', scope: 'everything' });
    const { state, did } = play([['drained']], wrong.state);
    expect([did, state.phase, state.found, state.failures]).toEqual([
      ['await-config'],
      'unconfigured',
      'others',
      1,
    ]);
    // Once is enough.
    expect(play([...AGAIN, read(undefined, { others: ['b'] })], state).did).not.toContain('withdraw');
  });

  it.each<readonly [string, Partial<ClusterState>, object]>([
    [
      'its kvstore was replaced, so that the keys are from another one',
      {},
      { others: ['b'], replaced: true },
    ],
    ['the configurations may not be read any more', {}, { others: undefined }],
    ['it was never followed without one', { needsConfig: true }, { others: ['b'] }],
    ['it is the local cluster', { local: true }, { others: ['b'] }],
  ])('that never had one is not withdrawn if %s', (_, initial, fields) => {
    const old = play([...TO_HANDSHAKE, read(undefined), ['validated']], { ...NEW_CLUSTER, ...initial });
    expect(play([...AGAIN, read(undefined, fields)], old.state).did).not.toContain('withdraw');
  });

  it('ends at the configuration of another cluster only if it has none and is not the local one', () => {
    expect(followed(play(toWatching(1)))?.endsAtOthers).toBe(false);
    const local = play([...TO_HANDSHAKE, read(undefined)], { ...NEW_CLUSTER, local: true });
    expect(followed(local)?.endsAtOthers).toBe(false);
  });

  it('is retried if waiting for it fails', () => {
    const { did } = play([...AGAIN, read(undefined), ['failed'], ['left'], ['retry']], WATCHING);
    expect(did.slice(-3)).toEqual(['leave', 'wait', 'read-config']);
  });
});

describe('how a remote cluster is followed', () => {
  it('with canaries if its configuration promises them; its deletes must be proven', () => {
    expect(followed(play(toWatching(1)))).toMatchObject({
      config: config(1),
      needsCanaries: true,
      deletes: 'proven',
      isRefilling: false,
    });
    const without = play([...TO_HANDSHAKE, read(config(1, false)), ['validated']]);
    expect(followed(without)).toMatchObject({ needsCanaries: false, deletes: 'proven', isRefilling: false });
  });
});

describe('services of a cluster that is unreachable for too long', () => {
  it('are withdrawn once, after their watches have ended, and then read again', () => {
    const { state, effects } = play([['expired'], ['left'], ['drained'], ['expired']], WATCHING);
    expect(effects).toEqual([
      { do: 'leave', closeClient: false },
      { do: 'withdraw', scope: 'services' },
      { do: 'read-config' },
    ]);
    expect(state).toMatchObject({ phase: 'handshake', expired: true, id: 1, config: config(1) });
    expect(play([read(config(1)), ['validated']], state).state.expired).toBe(false);
  });

  it.each([
    ['connecting', [['connect'], ['left']], 'connect'],
    ['handshake', AGAIN, 'read-config'],
    ['unconfigured', [...AGAIN, read(undefined)], 'await-config'],
    ['failed', [['failed'], ['left']], 'wait'],
  ] as const)('are withdrawn while %s, which is taken up again', (phase, steps, effect) => {
    const before = play(steps, WATCHING).state;
    expect(before.phase).toBe(phase);
    const { state, did } = play([['expired'], ['left'], ['drained']], before);
    expect(did).toEqual(['leave', 'withdraw', effect]);
    expect(state).toMatchObject({ phase, expired: true, failures: before.failures, streak: before.streak });
  });

  it('are withdrawn after the previous watches have ended (an expiry during that time was lost)', () => {
    const { did } = play([['failed'], ['expired'], ['left'], ['drained']], WATCHING);
    expect(did).toEqual(['leave', 'withdraw', 'wait']);
  });

  it('are withdrawn with everything else if that is withdrawn anyway', () => {
    const rejected = play([...AGAIN, read(config(2)), ['validated', { objection: 'taken' }]], WATCHING).state;
    expect(play([['expired'], ['left']], rejected).effects).toEqual([
      { do: 'withdraw', scope: 'everything' },
    ]);
  });
});

const OWN: ClusterState = { ...NEW_CLUSTER, local: true };
const OWN_WATCHING = play(toWatching(9), OWN).state;

describe('the local cluster', () => {
  it('is followed without canaries, and claims no id', () => {
    const { state } = play(toWatching(9), OWN);
    expect(followed(play(toWatching(9), OWN))).toMatchObject({
      needsCanaries: false,
      deletes: 'proven',
      isRefilling: false,
    });
    expect(state).toMatchObject({ phase: 'watching', id: 0 });
  });

  it('is followed without its configuration, but its deletes are not trusted until it is back and complete', () => {
    const gone = play([...AGAIN, read(undefined)], OWN_WATCHING);
    expect(gone.did).toEqual(['leave', 'read-config', 'follow']);
    expect(followed(gone)).toMatchObject({ deletes: 'none', needsCanaries: false, isRefilling: false });
    expect(gone.state).toMatchObject({ found: 'gone', failures: 1 });
    expect(gone.state.lastFailure?.message).toContain('does not contain its configuration any more');
    // The failure is counted once, however often the configuration is read.
    expect(play([...AGAIN, read(undefined)], gone.state).state.failures).toBe(1);
    const back = play([...AGAIN, read(config(9)), ['validated']], gone.state);
    expect(followed(back)).toMatchObject({ deletes: 'proven', needsCanaries: true });
    const complete = play([['complete'], ...AGAIN, read(config(9)), ['validated']], back.state);
    expect(followed(complete)).toMatchObject({ deletes: 'proven', needsCanaries: false });
  });

  it.each([
    ['while it was followed', [['outdated', { diverged: true }], ['left'], read(config(9)), ['validated']]],
    ['while it was not', [...AGAIN, read(config(9), { replaced: true }), ['validated']]],
  ] as const)('has to prove that it is complete once its kvstore was replaced %s', (_when, steps) => {
    const replaced = play(steps, OWN_WATCHING);
    expect(followed(replaced)).toMatchObject({ needsCanaries: true });
    // Also if it is read again before the answer.
    expect(followed(play([...AGAIN, read(config(9)), ['validated']], replaced.state))?.needsCanaries).toBe(
      true,
    );
  });

  it('without any configuration is trusted some time after its kvstore was replaced', () => {
    const old = play([...TO_HANDSHAKE, read(undefined)], OWN);
    expect(followed(old)).toMatchObject({ deletes: 'all', needsCanaries: false, isRefilling: false });
    const replaced = play([['outdated', { diverged: true }], ['left'], read(undefined)], old.state);
    expect(followed(replaced)).toMatchObject({ deletes: 'all', needsCanaries: false, isRefilling: true });
    const listed = play([['complete'], ...AGAIN, read(undefined)], replaced.state);
    expect(followed(listed)?.isRefilling).toBe(true);
    const refilled = play([['refilled'], ['left'], read(undefined)], listed.state);
    expect(refilled.did).toEqual(['leave', 'read-config', 'follow']);
    expect(followed(refilled)?.isRefilling).toBe(false);
  });

  it('whose kvstore has only the configuration of others is followed, and the problem is reported', () => {
    const { state, did } = play([...TO_HANDSHAKE, read(undefined, { others: ['atlantic'] })], OWN);
    expect(did.at(-1)).toBe('follow');
    expect(state.lastFailure?.message).toContain('only that of atlantic: check the name');
  });

  it('without fail-static is trusted whatever it contains', () => {
    const watching = play(toWatching(9), { ...OWN, failStatic: false });
    const how = { deletes: 'all', needsCanaries: false, isRefilling: false };
    expect(followed(watching)).toMatchObject(how);
    const gone = play([['outdated', { diverged: true }], ['left'], read(undefined)], watching.state);
    expect(followed(gone)).toMatchObject(how);
    expect(gone.state).toMatchObject({ found: 'none', failures: 0 });
  });
});

const attempt = fc.constantFrom(0, 1);
const anyInput = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.constantFrom('connected', 'drained', 'outdated', 'left', 'retry', 'expired', 'refilled'),
  },
  { weight: 2, arbitrary: fc.constant('config') },
  { weight: 2, arbitrary: fc.constant('validated') },
  { weight: 2, arbitrary: fc.constant('failed') },
  { weight: 1, arbitrary: fc.constantFrom('connect', 'stop', 'remove') },
);
const inputs = fc.array(
  fc.record({
    type: anyInput,
    behind: attempt,
    config: fc.option(fc.integer({ min: 0, max: 3 }).map(config), { nil: undefined }),
    objection: fc.option(fc.constant('no'), { nil: undefined }),
    reason: fc.constant({ code: 'unavailable', message: 'failed' }),
    replaced: fc.boolean(),
    diverged: fc.boolean(),
    others: fc.constantFrom([], ['other']),
  }),
  { maxLength: 60, size: 'max' },
);

/** Effects that must end before another one begins. */
const BEGINS: readonly ClusterEffect['do'][] = [
  ...(['connect', 'read-config', 'follow', 'await-config', 'withdraw', 'wait'] as const),
];

describe('after any inputs, the state machine', () => {
  it.each([
    ['remote', NEW_CLUSTER],
    ['own', OWN],
  ])(
    'of a %s cluster never has two operations at a time, and withdraws everything before it is removed',
    (_whose, first) => {
      fc.assert(
        fc.property(inputs, (script) => {
          let state = first;
          let following = false;
          let drained = false;
          for (const { behind, ...fields } of script) {
            const input = { ...fields, attempt: state.attempt - behind } as ClusterInput;
            const isAnswer = behind === 0;
            if (isAnswer && input.type === 'left' && state.phase === 'leaving') following = false;
            drained = isAnswer && input.type === 'drained' && state.pendingWithdrawal === 'everything';
            const step = stepCluster(state, input);
            for (const effect of step.effects) {
              if (BEGINS.includes(effect.do)) expect(following).toBe(false);
              following ||= effect.do === 'follow' || effect.do === 'await-config';
            }
            if (step.state.phase === 'removed' && state.phase !== 'removed') expect(drained).toBe(true);
            if (state.phase === 'removed') expect(step.state.phase).toBe('removed');
            if (state.phase === 'stopped') expect(['stopped', 'leaving']).toContain(step.state.phase);
            if (state.phase === 'stopped' && step.state.phase === 'leaving')
              expect(step.state.next).toBe('removed');
            if (step.state.phase === 'watching') expect(step.state.pendingWithdrawal).toBe('nothing');
            expect(step.state.next !== undefined).toBe(['leaving', 'draining'].includes(step.state.phase));
            state = step.state;
          }
        }),
      );
    },
  );

  it('trusts deletes of a remote cluster that ever had a configuration only if they are proven', () => {
    fc.assert(
      fc.property(inputs, (script) => {
        let state = NEW_CLUSTER;
        let configured = false;
        for (const { behind, ...fields } of script) {
          const step = stepCluster(state, { ...fields, attempt: state.attempt - behind } as ClusterInput);
          configured = step.state.config !== undefined || (configured && step.state.id !== 0);
          for (const effect of step.effects) {
            if (effect.do === 'follow' && configured) expect(effect.deletes).toBe('proven');
          }
          state = step.state;
        }
      }),
    );
  });
});
