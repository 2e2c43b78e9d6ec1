import { describe, expect, it } from 'vitest';
import type { KubernetesObject, ResourceEvent } from '../../src/k8s/resource.ts';
import { LatestObjects } from '../../src/operator/latest-objects.ts';

const object = (resourceVersion: string, uid = 'u1'): KubernetesObject => ({
  metadata: { namespace: 'shop', name: 'cart', uid, resourceVersion },
});
const KEY = 'shop/cart';
const [old, written] = [object('1'), object('2')];

/** Returns objects of which the watch has delivered the old version last. */
function observedOld(): LatestObjects {
  return new LatestObjects(() => new Map([[KEY, old]]));
}

/** Returns the objects after a request with the answer `result`. */
function afterWrite(result: KubernetesObject | undefined): LatestObjects {
  const latest = observedOld();
  latest.beginRequest(KEY);
  expect(latest.endRequest(result)).toBe(true);
  return latest;
}

function isKnown(latest: LatestObjects, event: ResourceEvent): boolean {
  return latest.changedBy([event]).length === 0;
}

describe('the result of a write', () => {
  it('is the latest state until its event arrives, and not until those of replaced versions do', () => {
    const latest = afterWrite(written);
    expect(isKnown(latest, { type: 'put', object: old })).toBe(true);
    const { metadata } = written;
    expect(isKnown(latest, { type: 'put', object: { metadata: { ...metadata, name: 'other' } } })).toBe(
      false,
    );
    expect(isKnown(latest, { type: 'delete', object: object('1', 'u0') })).toBe(true);
    expect(latest.get(KEY)).toBe(written);
    expect(isKnown(latest, { type: 'put', object: written })).toBe(true);
    expect(latest.get(KEY)).toBe(old);
  });

  it('of several writes in a row is the latest state until the event of the last one arrives', () => {
    const latest = afterWrite(written);
    latest.beginRequest(KEY);
    expect(isKnown(latest, { type: 'put', object: old })).toBe(true);
    expect(latest.endRequest(object('3'))).toBe(true);
    for (const one of [old, written]) expect(isKnown(latest, { type: 'put', object: one })).toBe(true);
    expect(latest.get(KEY)?.metadata.resourceVersion).toBe('3');
    expect(isKnown(latest, { type: 'put', object: object('3') })).toBe(true);
    expect(latest.get(KEY)).toBe(old);
  });

  it('that is a delete is the latest state until the object with its uid is deleted', () => {
    const latest = afterWrite(undefined);
    expect(isKnown(latest, { type: 'put', object: old })).toBe(true);
    expect(latest.get(KEY)).toBeUndefined();
    expect(isKnown(latest, { type: 'delete', object: old })).toBe(true);
    expect(latest.get(KEY)).toBe(old);
  });

  it.each([
    ['a change', { type: 'put', object: object('3') }],
    ['a change after another create', { type: 'put', object: object('3', 'u2') }],
    ['a delete', { type: 'delete', object: written }],
  ] as const)('is not the latest state after the event of %s by another client', (_, event) => {
    const latest = afterWrite(written);
    expect(isKnown(latest, event)).toBe(false);
    expect(latest.get(KEY)).toBe(old);
  });

  it.each([
    ['itself', { type: 'put', object: written }],
    ['a later state', { type: 'put', object: object('3') }],
    ['a delete', { type: 'delete', object: old }],
  ] as const)('is not recorded if the watch delivers %s before the answer', (_, event) => {
    const latest = observedOld();
    latest.beginRequest(KEY);
    expect(isKnown(latest, event)).toBe(false);
    expect(latest.endRequest(written)).toBe(false);
    expect(latest.get(KEY)).toBe(old);
  });

  it('is recorded if the watch delivers the replaced version before the answer', () => {
    const latest = afterWrite(written);
    latest.beginRequest(KEY);
    expect(isKnown(latest, { type: 'put', object: written })).toBe(true);
    expect(latest.endRequest(object('3'))).toBe(true);
    expect(latest.get(KEY)?.metadata.resourceVersion).toBe('3');
  });

  it('and the version that it replaced are not known any more after later events (regression: a write that a restore of etcd undid was not repeated)', () => {
    const latest = afterWrite(written);
    expect(isKnown(latest, { type: 'put', object: written })).toBe(true);
    expect(isKnown(latest, { type: 'put', object: old })).toBe(false);
    latest.beginRequest(KEY);
    expect(isKnown(latest, { type: 'put', object: object('3') })).toBe(false);
    expect(isKnown(latest, { type: 'put', object: old })).toBe(false);
  });

  it('of an earlier run is neither used nor recorded', () => {
    const latest = afterWrite(written);
    latest.beginRequest(KEY);
    latest.clear();
    expect(latest.endRequest(object('3'))).toBe(false);
    expect(latest.get(KEY)).toBe(old);
  });
});
