import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { Int32Rows } from '../../src/columns/int32-rows.ts';
import { hashText } from '../../src/columns/mix.ts';
import { PodIndex } from '../../src/ipcache/pod-index.ts';
import type { IPCacheEntry, K8sMetadata } from '../../src/ipcache/types.ts';
import { collidingTexts } from './support/colliding-texts.ts';

const SEED = 0x1234_5678;
const NAMESPACES = ['shop', 'bank', ''];
/** Names with equal hashes in the namespace `shop`, and others. */
const NAMES = [...collidingTexts(hashText('shop', SEED), 3), 'web-1', 'web-2', ''];
const SLOTS = 24;

function entryOf(k8s: K8sMetadata | undefined): IPCacheEntry {
  return { identity: 300, hostIP: undefined, encryptKey: 0, k8s } as IPCacheEntry;
}

/** An index, and the metadata of its slots, which is the naive model. */
class Subject {
  readonly stored = new Map<number, K8sMetadata>();
  reads = 0;
  readonly index: PodIndex;

  constructor(seed: number) {
    this.index = new PodIndex((slot) => {
      this.reads++;
      return this.stored.get(slot);
    }, seed);
  }

  /** Changes the metadata of a slot as `ClaimState` does: it stores a changed one before the index is written. */
  write(slot: number, next: K8sMetadata | undefined): void {
    const old = this.stored.get(slot);
    if (next !== undefined) this.stored.set(slot, next);
    if (old !== undefined) this.index.remove(slot, entryOf(old));
    if (next === undefined) this.stored.delete(slot);
    else this.index.add(slot, entryOf(next));
  }

  slotsOf(namespace: string, podName: string): readonly number[] {
    const slots = Array.from(this.stored, ([slot, k8s]) =>
      k8s.namespace === namespace && k8s.podName === podName ? [slot] : [],
    );
    return slots.flat().sort((a, b) => a - b);
  }

  podsOf(namespace: string): readonly string[] {
    const pods = [...this.stored.values()].filter((k8s) => k8s.namespace === namespace);
    return [...new Set(pods.map(({ podName }) => podName))].sort();
  }
}

const pod = fc.record({ namespace: fc.constantFrom(...NAMESPACES), podName: fc.constantFrom(...NAMES) });
const write = fc.record({ slot: fc.nat(SLOTS), k8s: fc.option(pod, { nil: undefined, freq: 2 }) });
const writes = fc.array(write, { maxLength: 120, size: 'max' });

describe('the index of pods', () => {
  it('returns the slots and the pods that a scan of all slots finds, for names with equal hashes, too', () => {
    fc.assert(
      fc.property(writes, (steps) => {
        const subject = new Subject(SEED);
        for (const { slot, k8s } of steps) subject.write(slot, k8s);
        for (const namespace of NAMESPACES) {
          expect([...subject.index.podsOf(namespace)].sort()).toEqual(subject.podsOf(namespace));
          for (const podName of NAMES) {
            const found = [...subject.index.of(namespace, podName)].sort((a, b) => a - b);
            expect(found).toEqual(subject.slotsOf(namespace, podName));
          }
        }
        const namespaces = [...new Set([...subject.stored.values()].map(({ namespace }) => namespace))];
        expect([...subject.index.namespaces()].sort()).toEqual(namespaces.sort());
      }),
    );
  });

  it('yields a pod that exists all the time once, and a deleted one not at all, if it changes during the iteration', () => {
    fc.assert(
      fc.property(writes, writes, fc.integer({ min: 1, max: 8 }), (before, during, each) => {
        const subject = new Subject(SEED);
        for (const { slot, k8s } of before) subject.write(slot, k8s);
        let always = subject.podsOf('shop');
        const yielded: string[] = [];
        let left = during;
        for (const name of subject.index.podsOf('shop')) {
          expect(subject.podsOf('shop')).toContain(name);
          yielded.push(name);
          for (const { slot, k8s } of left.slice(0, each)) {
            subject.write(slot, k8s);
            const now = subject.podsOf('shop');
            always = always.filter((other) => now.includes(other));
          }
          left = left.slice(each);
        }
        for (const name of always) expect(yielded.filter((other) => other === name)).toEqual([name]);
      }),
    );
  });

  it('visits no more pods of a namespace than the limit (regression: all, in one turn)', () => {
    const subject = new Subject(SEED);
    for (let slot = 0; slot < 10_000; slot++)
      subject.write(slot, { namespace: 'shop', podName: `web-${slot}` });
    const reads = vi.spyOn(Int32Rows.prototype, 'get');
    try {
      expect(new Set(subject.index.podsOf('shop', 5)).size).toBe(5);
      expect(reads.mock.calls.length).toBeLessThan(100);
      expect([...subject.index.podsOf('shop', 0)]).toEqual([]);
    } finally {
      reads.mockRestore();
    }
  });

  it('reads few entries for 65,536 names that have one hash under another seed', () => {
    const names = collidingTexts(hashText('shop', SEED), 16);
    const subject = new Subject(SEED + 1);
    for (const [slot, podName] of names.entries()) subject.write(slot, { namespace: 'shop', podName });
    expect(subject.reads).toBeLessThan(names.length);
    for (const [slot, podName] of names.entries())
      expect([...subject.index.of('shop', podName)]).toEqual([slot]);
    expect(subject.reads).toBeLessThan(2 * names.length);
    for (const slot of names.keys()) subject.write(slot, undefined);
    expect([...subject.index.namespaces()]).toEqual([]);
  });

  it('removes the 65,536 addresses of one pod in any order in constant time each', () => {
    const subject = new Subject(SEED);
    const slots = Array.from({ length: 65_536 }, (_, i) => i);
    for (const slot of slots) subject.write(slot, { namespace: 'shop', podName: 'web-1' });
    subject.reads = 0;
    for (const slot of slots) subject.write(slot, undefined);
    expect([subject.reads, [...subject.index.of('shop', 'web-1')]]).toEqual([0, []]);
  });
});
