import { describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { FollowedKind, MISSING_LIMIT_MS } from '../../../src/k8s/feed/followed-kind.ts';
import { CILIUM_NODES } from '../../../src/k8s/feed/kinds.ts';
import { ObjectFeed } from '../../../src/k8s/feed/object-feed.ts';
import type {
  FollowOptions,
  ResourceEvent,
  ResourceSink,
  ResourceSource,
  ResourceState,
} from '../../../src/k8s/resource.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

interface Followed {
  readonly sink: ResourceSink;
  readonly options: FollowOptions;
}

const NODE: ResourceEvent = {
  type: 'put',
  object: { metadata: { name: 'n2', uid: 'u', resourceVersion: '1' } },
};

/** A kind whose reflectors the test plays. */
function playedKind() {
  const followed: Followed[] = [];
  const forgotten: number[] = [];
  const clock = new ManualClock();
  const source = {
    follow: (_kind: unknown, sink: ResourceSink, options: FollowOptions) => {
      followed.push({ sink, options });
      const lastFailure = { message: 'refused' };
      return { stopped: Promise.resolve(), status: () => ({ failures: 7, lastFailure }) };
    },
  } as unknown as ResourceSource;
  const reader = { kind: 'CiliumNode', read: () => 'a value', change: () => {} };
  const feed = new ObjectFeed(reader, { rejections: new RejectionLog() });
  const onForget = (objects: number): void => void forgotten.push(objects);
  const options = { source, clock, gate: undefined, onChange: () => {}, onForget };
  const kind = new FollowedKind('ciliumnodes', feed, options);
  const report = (state: ResourceState): void => followed.at(-1)?.options.onState?.(state);
  const list = (): void => {
    followed.at(-1)?.sink.apply([NODE]);
    followed.at(-1)?.sink.onListed();
    report('watching');
  };
  return { kind, clock, followed, forgotten, report, list };
}

describe('a followed kind', () => {
  it('ignores states that its ended reflector reports late', () => {
    const { kind, followed, report } = playedKind();
    kind.follow(CILIUM_NODES);
    report('watching');
    expect(kind.state).toBe('watching');
    kind.rest();
    followed[0]?.options.onState?.('waiting');
    expect(kind.state).toBe('resting');
  });

  it('reports the failures of its attempts only until the next start, and those of a reflector only while it follows', () => {
    const { kind } = playedKind();
    const failures = (): unknown => [kind.failures, kind.lastFailure];
    kind.expect();
    kind.recordDiscoveryFailure('no route');
    kind.recordDiscoveryFailure('no answer');
    expect(failures()).toEqual([2, 'no answer']);
    kind.follow(CILIUM_NODES);
    expect(failures()).toEqual([7, 'refused']);
    kind.rest();
    expect(failures()).toEqual([2, 'no answer']);
    kind.expect();
    expect(failures()).toEqual([0, undefined]);
  });

  it('forgets nothing while it rests, although its kind was missing before', () => {
    const { kind, clock, forgotten, report, list, followed } = playedKind();
    kind.follow(CILIUM_NODES);
    list();
    report('missing');
    kind.rest();
    expect(clock.pending).toBe(0);
    clock.advance(MISSING_LIMIT_MS);
    expect([forgotten, kind.size, kind.state, followed.length]).toEqual([[], 1, 'resting', 1]);
  });

  it('forgets its objects the second time that its kind is missing for the whole limit', () => {
    const { kind, clock, forgotten, report, list } = playedKind();
    kind.follow(CILIUM_NODES);
    list();
    report('missing');
    clock.advance(MISSING_LIMIT_MS - 1);
    report('watching');
    report('missing');
    clock.advance(MISSING_LIMIT_MS - 1);
    expect(forgotten).toEqual([]);
    clock.advance(1);
    expect([forgotten, kind.size]).toEqual([[1], 0]);
  });

  it.each(['withdraw', 'list'] as const)(
    'reports a value that cannot be deleted to the gate: %s (regression: unhandled rejection)',
    async (deletes) => {
      const faults: unknown[] = [];
      const clock = new ManualClock();
      const onFault = (error: unknown): void => void faults.push(error);
      const gate = new TurnGate({ clock, nextTurn: queueMicrotask, onFault });
      const change = (current: string | undefined): void => {
        if (current === undefined) throw new Error('broken');
      };
      const reader = { kind: 'CiliumNode', read: () => 'a value', change };
      const feed = new ObjectFeed(reader, { rejections: new RejectionLog(), gate });
      feed.start().apply([NODE]);
      if (deletes === 'list') feed.start().onListed();
      else {
        const options = { source: {} as ResourceSource, clock, gate, onChange: () => {} };
        await new Promise<void>((resolve) =>
          new FollowedKind('ciliumnodes', feed, options).withdraw(resolve),
        );
      }
      for (let i = 0; i < 20; i++) await Promise.resolve();
      expect(faults).toEqual([new Error('broken')]);
    },
  );

  it('ends a step of a withdrawal after 2 ms (freeze: 256 objects of any duration)', () => {
    const clock = new ManualClock();
    const deleted: number[] = [];
    const feed = new ObjectFeed(
      {
        kind: 'CiliumNode',
        read: () => 'a value',
        change: (current) => {
          if (current !== undefined) return;
          deleted.push((deleted.pop() ?? 0) + 1);
          clock.advance(0.25);
        },
        batch: (changes) => {
          deleted.push(0);
          changes();
        },
      },
      { rejections: new RejectionLog(), gate: new TurnGate({ clock, nextTurn: queueMicrotask }) },
    );
    const named = (at: number): ResourceEvent => ({
      ...NODE,
      object: { ...NODE.object, metadata: { ...NODE.object.metadata, name: `n-${at}` } },
    });
    feed.start().apply(Array.from({ length: 100 }, (_, at) => named(at)));
    deleted.length = 0;
    for (const _ of feed.withdrawSteps()) expect(deleted.at(-1)).toBeLessThanOrEqual(8);
    expect(feed.size).toBe(0);
  });
});
