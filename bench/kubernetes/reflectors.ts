import type { FollowedResource, FollowOptions, ResourceKind, ResourceSink } from '../../src/k8s/resource.ts';
import { clientOf } from './access.ts';
import { type Follow, KINDS } from './following.ts';
import { ipOfEndpoint } from './ip-of-endpoint.ts';

/** The fields of a CiliumEndpoint that the follower in Go decodes. */
const ENDPOINT: FollowOptions = {
  fields: ['metadata', 'status.identity', 'status.networking', 'status.encryption', 'status.named-ports'],
};

/** The reflectors alone, which keep all delivered objects. */
export const follow: Follow = (task) => {
  const client = clientOf(task);
  let followed: readonly FollowedResource[] = [];
  return {
    sync: async (onIP) => {
      const sink = (onObject: (object: unknown) => void): ResourceSink => ({
        apply: (events) => {
          for (const { object } of events) onObject(object);
        },
        onListed: () => {},
      });
      const begin = (
        kind: ResourceKind,
        onObject: (object: unknown) => void,
        options?: FollowOptions,
      ): FollowedResource => client.follow(kind, sink(onObject), options);
      followed = [
        begin(KINDS.endpoints, (object) => onIP(ipOfEndpoint(object)), ENDPOINT),
        begin(KINDS.services, () => {}),
        begin(KINDS.slices, () => {}),
      ];
      await Promise.all(followed.map((resource) => resource.waitForListed()));
    },
    counts: () => {
      const [endpoints = 0, services = 0, slices = 0] = followed.map((resource) => resource.status().objects);
      return [endpoints, services, slices];
    },
  };
};
