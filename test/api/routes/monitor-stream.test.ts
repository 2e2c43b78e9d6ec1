import { expect, it } from 'vitest';
import { ALL_TYPES } from '../../../src/api/change-types.ts';
import { MonitorParts } from '../../../src/api/routes/monitor-stream.ts';
import { testApp } from '../support/test-app.ts';

it('the part after one with a long text continues after its last change', () => {
  const { model, feed } = testApp();
  const parts = new MonitorParts({ model, feed, instance: 'abc' });
  const begin = feed.revision;
  const keys = Array.from({ length: 5 }, (_, at) => `10.9.0.${at}`);
  for (const key of keys)
    model.ipcache.upsert(key, {
      identity: 7,
      source: 'kvstore',
      k8s: { namespace: 'shop', podName: 'x'.repeat(40_000) },
    });
  const sent: string[] = [];
  let count = 0;
  for (let revision = begin; revision < feed.revision; count++) {
    const part = parts.after(revision, ALL_TYPES);
    for (const [, key = ''] of new TextDecoder().decode(part.bytes).matchAll(/"key":"([\d.]+)\/32"/g))
      sent.push(key);
    ({ revision } = part);
  }
  expect([sent, count]).toEqual([keys, 3]);
});

it('the last parts of monitors are shared, however many were written before', () => {
  const { model, feed } = testApp();
  const parts = new MonitorParts({ model, feed, instance: 'abc' });
  let written = 0;
  for (let change = 1; written < 5 << 20; change++) {
    model.ipcache.upsert('10.9.0.1', {
      identity: change,
      source: 'kvstore',
      k8s: { namespace: 'shop', podName: 'x'.repeat(60_000) },
    });
    const part = parts.after(feed.revision - 1, ALL_TYPES);
    written += part.bytes.length;
    expect(parts.after(feed.revision - 1, ALL_TYPES)).toBe(part);
  }
});
