import { describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { FollowedKind } from '../../../src/k8s/feed/followed-kind.ts';
import { CILIUM_NODES } from '../../../src/k8s/feed/kinds.ts';
import { ObjectFeed } from '../../../src/k8s/feed/object-feed.ts';
import type { FollowOptions, ResourceSource } from '../../../src/k8s/resource.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

describe('a followed kind', () => {
  it('ignores states that its ended reflector reports late', () => {
    const followed: FollowOptions[] = [];
    const source = {
      follow: (_kind: unknown, _sink: unknown, options: FollowOptions) => {
        followed.push(options);
        return { stopped: Promise.resolve(), status: () => undefined };
      },
    } as unknown as ResourceSource;
    const reader = { kind: 'CiliumNode', read: () => undefined, change: () => {} };
    const feed = new ObjectFeed(reader, { rejections: new RejectionLog() });
    const options = { source, clock: new ManualClock(), gate: undefined, onChange: () => {} };
    const kind = new FollowedKind('ciliumnodes', feed, options);
    kind.follow(CILIUM_NODES);
    followed[0]?.onState?.('watching');
    expect(kind.state).toBe('watching');
    kind.rest();
    followed[0]?.onState?.('waiting');
    expect(kind.state).toBe('resting');
  });
});
