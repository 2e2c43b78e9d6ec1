import { expect, it } from 'vitest';
import { RejectionLog } from '../../src/base/rejection.ts';
import { unsubscribeOnce } from '../../src/base/subscription.ts';
import { IdentityAllocator } from '../../src/kvstore/allocator/identity-allocator.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import type { LeaseLostListener } from '../../src/kvstore/session/backend.ts';
import { SyncStore } from '../../src/kvstore/stores/sync-store.ts';
import { ClusterConfigKeeper } from '../../src/operator/publish/cluster-config.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance } from '../kvstore/support/settle.ts';

/** A kvstore that records who is told about lost leases. */
class ObservedBackend extends MemoryBackend {
  readonly listeners = new Set<LeaseLostListener>();

  override onLeaseLost(listener: LeaseLostListener): ReturnType<MemoryBackend['onLeaseLost']> {
    const unsubscribe = super.onLeaseLost(listener);
    this.listeners.add(listener);
    return unsubscribeOnce(() => {
      this.listeners.delete(listener);
      unsubscribe();
    });
  }
}

interface Options {
  readonly backend: MemoryBackend;
  readonly clock: ManualClock;
  readonly random: () => number;
}

it.each([
  ['a sync store', (options: Options) => new SyncStore({ ...options, prefix: 'own/' })],
  [
    'an allocator of identities',
    (options: Options) => {
      const range = { min: 256, max: 300 };
      return new IdentityAllocator({ ...options, range, nodeSuffix: 'n1', rejections: new RejectionLog() });
    },
  ],
  [
    'the keeper of the configuration',
    (options: Options) => new ClusterConfigKeeper({ ...options, clusterName: 'a', clusterID: 1 }),
  ],
])(
  '%s is told about lost leases only during a run, because each election begins one',
  async (_name, make) => {
    const clock = new ManualClock();
    const random = (): number => 0.5;
    const backend = new ObservedBackend({ clock, random });
    const runner = make({ backend, clock, random });
    for (let run = 0; run < 2; run++) {
      const ended = new AbortController();
      const running = runner.run(ended.signal);
      await advance(clock, 1000);
      expect(backend.listeners.size).toBe(1);
      ended.abort();
      await running;
      expect(backend.listeners.size).toBe(0);
    }
    await backend.close();
  },
);
