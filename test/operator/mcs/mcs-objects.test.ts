import { expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import type {
  FollowedResource,
  ResourceKind,
  ResourceSource,
  ResourceState,
  ResourceStatus,
} from '../../../src/k8s/resource.ts';
import { McsObjects } from '../../../src/operator/mcs/mcs-objects.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';

it('keep their version if they are stopped before the lists of another version are complete (regression: took the other version)', async () => {
  const clock = new ManualClock();
  let served = 'v1beta1';
  const stateOf = ({ version }: ResourceKind): ResourceState => {
    if (version === 'v1alpha1') return 'listing';
    return version === 'v1beta1' && served !== version ? 'missing' : 'watching';
  };
  const source: ResourceSource = {
    follow: (kind) => {
      const status = () => ({ state: stateOf(kind), listed: stateOf(kind) !== 'listing' }) as ResourceStatus;
      return { status } as FollowedResource;
    },
    firstServed: async (kinds) => kinds.find(({ version }) => version === served),
  };
  const objects = new McsObjects({ source, clock, random: () => 0.5 });
  const ended = new AbortController();
  const running = objects.run(ended.signal);
  await settle();
  expect(objects.version).toBe('v1beta1');
  served = 'v1alpha1';
  await advance(clock, 60_000);
  const notices: string[] = [];
  objects.listen((kind) => notices.push(kind));
  ended.abort();
  await running;
  expect([objects.version, notices]).toEqual(['v1beta1', []]);
});

it('are passed on in steps when the version changes (regression: all in one turn of the event loop)', async () => {
  const clock = new ManualClock();
  let served = 'v1beta1';
  const source: ResourceSource = {
    follow: ({ plural, version }, { apply }) => {
      // The last 400 exports of the first version are deleted while the second is listed.
      const [from, to] = version === 'v1beta1' ? [400, 1400] : [0, 1000];
      for (let at = from; at < to && plural === 'serviceexports'; at++)
        apply([
          {
            type: 'put',
            object: { metadata: { namespace: 'shop', name: `${at}`, uid: `${at}`, resourceVersion: '1' } },
          },
        ]);
      const status = () =>
        ({
          state: version === 'v1beta1' && served !== version ? 'missing' : 'watching',
          listed: true,
        }) as ResourceStatus;
      return { status } as FollowedResource;
    },
    firstServed: async (kinds) => kinds.find(({ version }) => version === served),
  };
  const turns: (() => void)[] = [];
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
  const objects = new McsObjects({ source, clock, random: () => 0.5, gate });
  const ended = new AbortController();
  const running = objects.run(ended.signal);
  await settle();
  served = 'v1alpha1';
  const sizes: number[] = [];
  const counts = { put: 0, delete: 0 };
  objects.listen((kind, events) => {
    if (kind !== 'serviceexports') return;
    sizes.push(events.length);
    for (const { type } of events) counts[type]++;
  });
  await advance(clock, 60_000);
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
    turn();
    await settle();
  }
  expect([Math.max(...sizes), counts]).toEqual([gate.slice, { put: 1000, delete: 400 }]);
  ended.abort();
  await running;
});
