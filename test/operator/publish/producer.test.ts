import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { type InputContext, Producer } from '../../../src/operator/publish/producer.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

const PREFIX = 'cilium/state/identities/v1/id/';

describe('a producer', () => {
  const clock = new ManualClock();
  const runtime = { clock, random: () => 0.5 };
  let backend: MemoryBackend;
  let contexts: InputContext[];
  let isComplete: boolean;
  let stops: number;
  /** Resolves when the inputs have stopped. */
  let stopped: ReturnType<typeof deferred>;
  let producer: Producer;
  let ended: AbortController;
  let running: Promise<void>;

  const start = (): void => {
    ended = new AbortController();
    running = producer.run(ended.signal);
  };
  const keys = async (prefix: string): Promise<readonly string[]> =>
    (await backend.listPrefix(prefix)).map(({ key }) => key);

  beforeEach(() => {
    backend = new MemoryBackend(runtime);
    contexts = [];
    isComplete = true;
    stops = 0;
    stopped = deferred();
    const follow = (context: InputContext) => {
      contexts.push(context);
      return {
        get complete() {
          return isComplete;
        },
        kinds: [],
        stop: () => {
          stops++;
          return stopped.promise;
        },
      };
    };
    const options = { ...runtime, source: undefined as never, backend, clusterName: 'a', clusterID: 1 };
    producer = new Producer({ name: 'test sync', resource: 'identities', follow }, options);
  });
  afterEach(async () => {
    stopped.resolve();
    ended.abort();
    await running;
    await backend.close();
  });

  it('writes its canary if its inputs are complete from the beginning', async () => {
    start();
    await producer.synced();
    expect(await keys('cilium/synced/')).toEqual(['cilium/synced/a/cilium/state/identities/v1']);
    expect(producer).toMatchObject({ name: 'test sync', resource: 'identities' });
    expect(producer.status()).toMatchObject({ name: 'test sync', state: 'running' });
  });

  it('resolves a wait that began in a run whose inputs never became complete', async () => {
    isComplete = false;
    start();
    let isResolved = false;
    const first = producer.synced().then(() => {
      isResolved = true;
    });
    stopped.resolve();
    ended.abort();
    await running;
    await settle();
    expect(isResolved).toBe(false);
    isComplete = true;
    start();
    await first;
    expect(await keys('cilium/synced/')).toEqual(['cilium/synced/a/cilium/state/identities/v1']);
  });

  it('waits until its inputs are complete, and is synced again when later keys are written', async () => {
    isComplete = false;
    start();
    contexts[0]?.onChange();
    await advance(clock, 1000);
    expect([producer.status().state, await keys('cilium/synced/')]).toEqual(['waiting', []]);
    isComplete = true;
    contexts[0]?.onChange();
    await producer.synced();
    contexts[0]?.keys.upsert('300', bytesOfText('k8s:a=;'));
    await producer.synced();
    expect(await keys(PREFIX)).toEqual([`${PREFIX}300`]);
  });

  it('stops its inputs immediately when its signal fires, and ends when they have stopped', async () => {
    start();
    await producer.synced();
    ended.abort();
    expect(stops).toBeGreaterThan(0);
    await settle(8);
    expect(producer.status().state).toBe('running');
    stopped.resolve();
    await running;
    expect(producer.status().state).toBe('ended');
    start();
    await producer.synced();
    expect([contexts.length, contexts[0]?.keys === contexts[1]?.keys]).toEqual([2, false]);
  });
});
