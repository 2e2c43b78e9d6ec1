import { describe, expect, it } from 'vitest';
import type { KubernetesObject } from '../../src/k8s/resource.ts';
import { OwnWrites } from '../../src/operator/own-writes.ts';

const object = (resourceVersion: string, uid = 'u1'): KubernetesObject => ({
  metadata: { namespace: 'shop', name: 'cart', uid, resourceVersion },
});
const KEY = 'shop/cart';
const [old, written] = [object('1'), object('2')];

/** Returns the results after a request for `known` with the answer `result`. */
function afterWrite(result: KubernetesObject | undefined, known: KubernetesObject | undefined): OwnWrites {
  const own = new OwnWrites();
  own.beginRequest(KEY, known);
  expect(own.endRequest(result)).toBe(true);
  return own;
}

describe('the result of a write', () => {
  it('is the latest state until its event arrives, and not until those of replaced versions do', () => {
    const own = afterWrite(written, old);
    expect(own.observe(KEY, { type: 'put', object: old })).toBe(true);
    own.observe('shop/other', { type: 'put', object: written });
    expect(own.observe(KEY, { type: 'delete', object: object('1', 'u0') })).toBe(true);
    expect(own.latest(KEY, old)).toBe(written);
    expect(own.observe(KEY, { type: 'put', object: written })).toBe(true);
    expect(own.latest(KEY, old)).toBe(old);
  });

  it('of several writes in a row is the latest state until the event of the last one arrives', () => {
    const own = afterWrite(written, old);
    own.beginRequest(KEY, written);
    expect(own.observe(KEY, { type: 'put', object: old })).toBe(true);
    expect(own.endRequest(object('3'))).toBe(true);
    for (const one of [old, written]) expect(own.observe(KEY, { type: 'put', object: one })).toBe(true);
    expect(own.latest(KEY, old)?.metadata.resourceVersion).toBe('3');
    expect(own.observe(KEY, { type: 'put', object: object('3') })).toBe(true);
    expect(own.latest(KEY, old)).toBe(old);
  });

  it('that is a delete is the latest state until the object with its uid is deleted', () => {
    const own = afterWrite(undefined, old);
    expect(own.observe(KEY, { type: 'put', object: old })).toBe(true);
    expect(own.latest(KEY, old)).toBeUndefined();
    expect(own.observe(KEY, { type: 'delete', object: old })).toBe(true);
    expect(own.latest(KEY, old)).toBe(old);
  });

  it.each([
    ['a change', { type: 'put', object: object('3') }],
    ['a change after another create', { type: 'put', object: object('3', 'u2') }],
    ['a delete', { type: 'delete', object: written }],
  ] as const)('is not the latest state after the event of %s by another client', (_, event) => {
    const own = afterWrite(written, old);
    expect(own.observe(KEY, event)).toBe(false);
    expect(own.latest(KEY, old)).toBe(old);
  });

  it.each([
    ['itself', { type: 'put', object: written }],
    ['a later state', { type: 'put', object: object('3') }],
    ['a delete', { type: 'delete', object: old }],
  ] as const)('is not recorded if the watch delivers %s before the answer', (_, event) => {
    const own = new OwnWrites();
    own.beginRequest(KEY, old);
    expect(own.observe(KEY, event)).toBe(false);
    expect(own.endRequest(written)).toBe(false);
    expect(own.latest(KEY, old)).toBe(old);
  });

  it('is recorded if the watch delivers the replaced version before the answer', () => {
    const own = afterWrite(written, old);
    own.beginRequest(KEY, written);
    expect(own.observe(KEY, { type: 'put', object: written })).toBe(true);
    expect(own.endRequest(object('3'))).toBe(true);
    expect(own.latest(KEY, written)?.metadata.resourceVersion).toBe('3');
  });

  it('and the version that it replaced are not known any more after later events (regression: a write that a restore of etcd undid was not repeated)', () => {
    const own = afterWrite(written, old);
    expect(own.observe(KEY, { type: 'put', object: written })).toBe(true);
    expect(own.observe(KEY, { type: 'put', object: old })).toBe(false);
    own.beginRequest(KEY, old);
    expect(own.observe(KEY, { type: 'put', object: object('3') })).toBe(false);
    expect(own.observe(KEY, { type: 'put', object: old })).toBe(false);
  });

  it('of an earlier run is neither used nor recorded', () => {
    const own = afterWrite(written, old);
    own.beginRequest(KEY, written);
    own.clear();
    expect(own.endRequest(object('3'))).toBe(false);
    expect(own.latest(KEY, old)).toBe(old);
  });
});
