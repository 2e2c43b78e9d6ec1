import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type ClusterEffect,
  type ClusterInput,
  type ClusterState,
  NEW_CLUSTER,
  stepCluster,
} from '../../src/clustermesh/cluster-machine.ts';

const config = (id: number): ClusterConfig => ({ id, capabilities: { syncedCanaries: true, cached: false } });
type ClusterConfig = NonNullable<ClusterState['config']>;

type Step = readonly [ClusterInput['type'], Partial<ClusterInput>?];

/** Runs inputs, each an answer to the attempt that is current; gives the state and all that was asked for. */
function play(steps: readonly Step[], from = NEW_CLUSTER): { state: ClusterState; did: readonly string[] } {
  let state = from;
  const did: string[] = [];
  for (const [type, fields] of steps) {
    const input = { type, attempt: state.attempt, ...fields } as ClusterInput;
    const step = stepCluster(state, input);
    state = step.state;
    did.push(...step.effects.map((effect) => effect.do));
  }
  return { state, did };
}

const TO_HANDSHAKE: readonly Step[] = [['connect'], ['left'], ['connected']];
const toWatching = (id: number): readonly Step[] => [
  ...TO_HANDSHAKE,
  ['config', { config: config(id) }],
  ['validated', { objection: undefined }],
];

describe('the state machine of a remote cluster', () => {
  it('connects, reads the configuration, validates it and follows', () => {
    const { state, did } = play(toWatching(1));
    expect(did).toEqual(['leave', 'connect', 'read-config', 'validate', 'follow']);
    expect(state).toMatchObject({ phase: 'watching', id: 1, failures: 0 });
  });

  it('drains before it follows a cluster whose id has changed', () => {
    const { state, did } = play(
      [['outdated'], ['left'], ['config', { config: config(3) }], ['validated'], ['drained']],
      play(toWatching(1)).state,
    );
    expect(did).toEqual(['leave', 'read-config', 'validate', 'withdraw', 'follow']);
    expect(state).toMatchObject({ phase: 'watching', id: 3 });
  });

  it('does not drain a cluster that tells its id for the first time: what does not fit is swept', () => {
    const unknown = play([...TO_HANDSHAKE, ['config', { config: undefined }], ['validated']]).state;
    const { did } = play([['outdated'], ['left'], ['config', { config: config(3) }], ['validated']], unknown);
    expect(did).not.toContain('withdraw');
  });

  it('withdraws what is held of a cluster that may not be of the mesh, frees its id and tries again', () => {
    const { state, did } = play(
      [['outdated'], ['left'], ['config', { config: config(2) }], ['validated', { objection: 'taken' }]],
      play(toWatching(1)).state,
    );
    expect(did).toEqual(['leave', 'read-config', 'validate', 'withdraw', 'leave']);
    expect(state).toMatchObject({ phase: 'leaving', next: 'failed', id: 0, lastFailure: 'taken' });
    expect(play([['left'], ['retry']], state).did).toEqual(['wait', 'read-config']);
  });

  it('keeps what is known when the configuration is gone: the kvstore may be starting anew', () => {
    const { state, did } = play(
      [['outdated'], ['left'], ['config', { config: undefined }]],
      play(toWatching(1)).state,
    );
    expect(did).not.toContain('withdraw');
    expect(state).toMatchObject({ next: 'failed', id: 1 });
    expect(state.lastFailure).toContain('is gone');
  });

  it('connects again after a client could not be made', () => {
    const { did } = play([['connect'], ['left'], ['failed', { message: 'no CA' }], ['left'], ['retry']]);
    expect(did).toEqual(['leave', 'connect', 'leave', 'wait', 'connect']);
  });

  it('waits longer after each failure in a row, and forgets them once it follows', () => {
    const failed = play([...TO_HANDSHAKE, ['failed'], ['left'], ['retry'], ['failed']]).state;
    expect(failed).toMatchObject({ streak: 2, failures: 2 });
    const again = play([['left'], ['retry'], ['config', { config: config(1) }], ['validated']], failed).state;
    expect(again).toMatchObject({ phase: 'watching', streak: 0, failures: 2 });
  });

  it('takes services back after a time out of reach, once, and reads them anew', () => {
    const { state, did } = play([['expired'], ['left'], ['expired']], play(toWatching(1)).state);
    expect(did).toEqual(['leave', 'withdraw-services', 'read-config']);
    expect(state).toMatchObject({ phase: 'handshake', expired: true });
  });

  it('does not heed answers to what was left', () => {
    const { state } = play([...TO_HANDSHAKE, ['connect']]);
    expect(
      stepCluster(state, { type: 'config', attempt: state.attempt - 1, config: config(1) }).effects,
    ).toEqual([]);
  });
});

const attempt = fc.constantFrom(0, 1);
const anyInput = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom('connected', 'drained', 'outdated', 'left', 'retry', 'expired') },
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
    message: fc.constant('failed'),
  }),
  { maxLength: 60, size: 'max' },
);

/** Effects that begin something which reads, and so have to be left before anything else is begun. */
const BEGINS: readonly ClusterEffect['do'][] = ['connect', 'read-config', 'follow', 'wait'];

describe('whatever happens, the state machine', () => {
  it('takes nothing back while anything follows, and takes everything back before it is removed', () => {
    fc.assert(
      fc.property(inputs, (script) => {
        let state = NEW_CLUSTER;
        let following = false;
        for (const { behind, ...fields } of script) {
          const input = { ...fields, attempt: state.attempt - behind } as ClusterInput;
          const heeded = input.type === 'left' && behind === 0 && state.phase === 'leaving';
          if (heeded) following = false;
          const step = stepCluster(state, input);
          for (const effect of step.effects) {
            if (effect.do === 'withdraw' || effect.do === 'withdraw-services') expect(following).toBe(false);
            if (BEGINS.includes(effect.do)) expect(following).toBe(false);
            following ||= effect.do === 'follow';
          }
          if (step.state.phase === 'removed' && state.phase !== 'removed') {
            expect(step.effects).toEqual([{ do: 'withdraw' }]);
          }
          if (state.phase === 'removed') expect(step.state.phase).toBe('removed');
          if (state.phase === 'stopped')
            expect(step.effects.map((effect) => effect.do)).not.toContain('follow');
          state = step.state;
        }
      }),
    );
  });
});
