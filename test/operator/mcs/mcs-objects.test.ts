import { expect, it } from 'vitest';
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
