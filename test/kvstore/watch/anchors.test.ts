import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { type Anchor, Anchors } from '../../../src/kvstore/watch/anchors.ts';

const put = (key: string, value: Uint8Array, modRevision: number): Anchor => ({ key, value, modRevision });

/** Puts `k<revision>` for each revision of each batch. */
function putIn(anchors: Anchors, ...batches: readonly (readonly number[])[]): void {
  for (const batch of batches) {
    for (const revision of batch) anchors.put(put(`k${revision}`, bytesOfText(`v${revision}`), revision));
    anchors.copyValues();
  }
}

const revisions = ({ newestFirst }: Anchors): readonly number[] =>
  newestFirst.map(({ modRevision }) => modRevision);

describe('the anchors of a watch', () => {
  it('are the last three puts, of one batch and over batches', () => {
    const anchors = new Anchors();
    putIn(anchors, [1, 2, 3, 4, 5]);
    expect(revisions(anchors).slice(0, 3)).toEqual([5, 4, 3]);
    putIn(anchors, [6]);
    expect(anchors.latest.map(({ modRevision }) => modRevision)).toEqual([6, 5, 4]);
    putIn(anchors, [7, 8], [9]);
    expect(anchors.latest.map(({ key, value }) => [key, textOfBytes(value)])).toEqual([
      ['k9', 'v9'],
      ['k8', 'v8'],
      ['k7', 'v7'],
    ]);
  });

  it('are known before the batch is complete, without those that were replaced or deleted since', () => {
    const anchors = new Anchors();
    putIn(anchors, [1], [2], [3]);
    anchors.put(put('k4', bytesOfText('v4'), 4));
    anchors.drop({ key: 'k2' }, 2);
    anchors.put(put('k2', bytesOfText('again'), 5));
    expect([anchors.newest, revisions(anchors)]).toEqual([5, [5, 4, 3, 1]]);
    anchors.drop({ key: 'k2' });
    expect(anchors.newest).toBe(4);
    anchors.drop({ key: 'k4' });
    expect([anchors.newest, revisions(anchors)]).toEqual([3, [3, 1]]);
    for (const key of ['k3', 'k1']) anchors.drop({ key });
    expect([anchors.newest, anchors.newestFirst]).toEqual([0, []]);
  });

  it('include no put that is older than one of them, because a list returns keys in another order', () => {
    const anchors = new Anchors();
    putIn(anchors, [5, 3, 9, 7], [8]);
    expect(revisions(anchors)).toEqual([9, 5]);
  });

  it('are at most eleven, the sparser the older they are', () => {
    const anchors = new Anchors();
    for (let revision = 1; revision <= 1000; revision++) putIn(anchors, [revision]);
    const kept = revisions(anchors);
    const ages = kept.map((revision) => 1001 - revision);
    expect(ages).toEqual([1, 2, 3, 4, 6, 8, 16, 32, 64, 96, 224]);
  });

  it('copy their values, so that no message is pinned', () => {
    const anchors = new Anchors();
    const message = bytesOfText('value of a message');
    anchors.put(put('k', message.subarray(0, 5), 1));
    anchors.copyValues();
    expect(anchors.newestFirst[0]?.value.buffer.byteLength).toBe(5);
  });

  it('are none after they were cleared', () => {
    const anchors = new Anchors();
    putIn(anchors, [1], [2], [3], [4], [5]);
    anchors.put(put('k', bytesOfText('v'), 9));
    anchors.clear();
    expect([anchors.newest, anchors.newestFirst]).toEqual([0, []]);
  });
});
