import { expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { bothFeeds } from '../../../src/k8s/feed/both-feeds.ts';
import { type KindReader, ObjectFeed } from '../../../src/k8s/feed/object-feed.ts';
import type { ResourceEvent } from '../../../src/k8s/resource.ts';

it('two feeds of one reflector have its objects, their fields and their rejections, and are complete together', () => {
  const changes: string[] = [];
  const feedOf = (name: string, fields: readonly string[] | undefined, rejects: number) => {
    const reader: KindReader<string> = {
      kind: 'Pod',
      ...(fields === undefined ? {} : { fields }),
      read: () => name,
      change: (current) => void changes.push(`${name} ${current ?? 'gone'}`),
    };
    const feed = new ObjectFeed(reader, { rejections: new RejectionLog() });
    Object.defineProperty(feed, 'rejected', { get: () => rejects });
    return feed;
  };
  const [first, second] = [feedOf('first', ['metadata.labels'], 2), feedOf('second', ['status'], 3)];
  const both = bothFeeds(first, second);
  const put = (name: string): ResourceEvent => ({
    type: 'put',
    object: { metadata: { namespace: 'shop', name, uid: name, resourceVersion: '1' } },
  });
  expect(both.fields).toEqual(['metadata.labels', 'status']);
  expect(bothFeeds(first, feedOf('all', undefined, 0)).fields).toBeUndefined();
  expect(both.rejected).toBe(5);
  let completions = 0;
  const sink = both.start(() => completions++);
  sink.apply([put('a'), put('b')]);
  expect([both.size, both.complete]).toEqual([2, false]);
  sink.onListed();
  expect([both.complete, completions]).toEqual([true, 2]);
  second.start();
  expect([first.complete, both.complete]).toEqual([true, second.complete]);
  for (const _ of first.withdrawSteps());
  expect([first.size, second.size, both.size]).toEqual([0, 2, 2]);
  for (const _ of both.withdrawSteps());
  expect(both.size).toBe(0);
  expect(changes.filter((line) => line.endsWith('gone')).sort()).toEqual([
    ...['first gone', 'first gone', 'second gone', 'second gone'],
  ]);
});
