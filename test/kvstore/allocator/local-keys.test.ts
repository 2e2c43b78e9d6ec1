import { describe, expect, it, vi } from 'vitest';
import type { IdentityKeys } from '../../../src/kvstore/allocator/identity-keys.ts';
import { LocalKeys } from '../../../src/kvstore/allocator/local-keys.ts';
import { formatLabels, type Labels } from '../../../src/model/labels.ts';
import type { NumericIdentity } from '../../../src/model/numeric-identity.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

describe('the local keys of a node', () => {
  it('keep a number that was given to other labels when its former labels are released', async () => {
    const keys = { deleteSlave: () => Promise.resolve() } as unknown as IdentityKeys;
    const options = { keys, clock: new ManualClock(), random: () => 0.5, onReassigned: () => {} };
    const local = new LocalKeys(options);
    const former: Labels = [{ source: 'k8s', key: 'a', value: '1' }];
    const present: Labels = [{ source: 'k8s', key: 'a', value: '2' }];
    const id = 300 as NumericIdentity;
    local.assign(formatLabels(former), id, former);
    local.assign(formatLabels(present), id, present);
    expect([local.size, local.reassigned]).toEqual([2, 1]);
    expect(await local.release(former)).toBe('released');
    expect(local.byID(id)?.labels).toEqual(present);
    expect([local.size, local.reassigned]).toEqual([1, 0]);
  });

  it('report labels whose number this node gets for other labels, and delete their slave key (regression: neither)', async () => {
    const deletes: string[] = [];
    const deleteSlave = async (labels: Labels): Promise<void> => void deletes.push(formatLabels(labels));
    const keys = { deleteSlave } as unknown as IdentityKeys;
    const onReassigned = vi.fn();
    const local = new LocalKeys({ keys, clock: new ManualClock(), random: () => 0.5, onReassigned });
    const stop = new AbortController();
    const running = local.run(stop.signal);
    const former: Labels = [{ source: 'k8s', key: 'a', value: '1' }];
    const present: Labels = [{ source: 'k8s', key: 'a', value: '2' }];
    const id = 300 as NumericIdentity;
    for (const labels of [former, present, present]) local.assign(formatLabels(labels), id, labels);
    await settle();
    expect(onReassigned.mock.calls).toEqual([[{ id, labels: former, references: 1 }]]);
    expect(deletes).toEqual([formatLabels(former)]);
    stop.abort();
    await running;
  });

  it('checked many times during an allocation are checked once after it (regression: a waiter per check)', async () => {
    const putSlave = vi.fn(() => Promise.resolve());
    const keys = { ensureMaster: () => Promise.resolve(true), putSlave } as unknown as IdentityKeys;
    const options = { keys, clock: new ManualClock(), random: () => 0.5, onReassigned: () => {} };
    const local = new LocalKeys(options);
    const labels: Labels = [{ source: 'k8s', key: 'a', value: '1' }];
    const key = formatLabels(labels);
    const stop = new AbortController();
    const running = local.run(stop.signal);
    const waits = vi.spyOn(local, 'untilIdle');
    let endAllocation = (): void => {};
    const allocation = local.block(key, new Promise<void>((resolve) => (endAllocation = resolve)));
    local.announce(key, labels);
    for (let i = 0; i < 10; i++) {
      local.check(key);
      await settle();
    }
    expect(waits.mock.calls.length).toBeLessThanOrEqual(1);
    expect(local.status().pending).toBe(0);
    local.assign(key, 300 as NumericIdentity, labels);
    endAllocation();
    await allocation;
    await settle();
    expect(putSlave).toHaveBeenCalledOnce();
    stop.abort();
    await running;
  });

  it('release labels only after all work for them, also work that begins when the awaited work ends', async () => {
    const deletes: string[] = [];
    const keys = {
      deleteSlave: async (labels: Labels) => void deletes.push(formatLabels(labels)),
    } as unknown as IdentityKeys;
    const options = { keys, clock: new ManualClock(), random: () => 0.5, onReassigned: () => {} };
    const local = new LocalKeys(options);
    const labels: Labels = [{ source: 'k8s', key: 'a', value: '1' }];
    const key = formatLabels(labels);
    local.assign(key, 300 as NumericIdentity, labels);
    const ends: (() => void)[] = [];
    const begin = (): Promise<void> => local.block(key, new Promise((resolve) => ends.push(resolve)));
    void begin();
    void local.untilIdle(key).then(begin);
    const released = local.release(labels);
    ends[0]?.();
    await settle();
    expect([ends.length, local.size, deletes]).toEqual([2, 1, []]);
    ends[1]?.();
    expect([await released, local.size, deletes]).toEqual(['released', 0, [key]]);
  });
});
