import { expect, it } from 'vitest';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import {
  UnmanagedDnsCollector,
  unmanagedPods,
} from '../../../src/operator/collect/unmanaged-dns-collector.ts';
import { ManualClock, WALL_TIME_AT_0 } from '../../base/support/manual-clock.ts';
import { round, TinyCluster } from '../support/tiny-cluster.ts';

it('restarts pods without an endpoint: one per round, none that is young, terminating, on the host network, or was restarted', async () => {
  const clock = new ManualClock();
  const cluster = new TinyCluster();
  const collector = new UnmanagedDnsCollector({
    pods: cluster.observed('pods'),
    endpoints: cluster.observed('ciliumendpoints'),
    reader: cluster,
    writer: cluster,
    clock,
  });
  const deleted: string[] = [];
  cluster.onDelete = (_object, key) => deleted.push(key.slice('kube-system/'.length));
  const add = (
    name: string,
    spec: object,
    phase = 'Running',
    startTime: string | undefined = time(0),
  ): void => {
    cluster.put('pods', `kube-system/${name}`, { spec, status: { phase, startTime } });
  };
  const time = (ms: number): string => new Date(WALL_TIME_AT_0 + ms).toISOString();
  add('a', {});
  add('b', {});
  add('host', { hostNetwork: true });
  add('pending', {}, 'Pending');
  add('managed', {});
  add('seen-late', {});
  add('young', {}, 'Running', time(15_000));
  cluster.put('pods', 'kube-system/never-started', { spec: {}, status: { phase: 'Running' } });
  cluster.put('pods', 'kube-system/0-going', {
    metadata: { deletionTimestamp: time(0) },
    status: { phase: 'Running', startTime: time(0) },
  });
  cluster.put('ciliumendpoints', 'kube-system/managed');
  cluster.see('pods', 'ciliumendpoints');
  cluster.put('ciliumendpoints', 'kube-system/seen-late');
  let number = 0;
  const next = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await round(collector, ++number);
    cluster.see('pods');
  };
  await next(30_000);
  expect(deleted).toEqual([]);
  await next(1000);
  await next(0);
  await next(0);
  expect(deleted).toEqual(['a', 'b']);
  add('a', {}, 'Running', time(0));
  cluster.see('pods');
  await next(15_000);
  expect(deleted).toEqual(['a', 'b', 'young']);
  await next(284_999);
  expect(deleted).toHaveLength(3);
  await next(1);
  expect(deleted).toEqual(['a', 'b', 'young', 'a']);
});

it('restarts the oldest pod first, by name among those of one age (regression: in the order of the list)', () => {
  const pod = (name: string, startTime: string): KubernetesObject => ({
    metadata: { namespace: 'kube-system', name, uid: name, resourceVersion: '1' },
    spec: {},
    status: { phase: 'Running', startTime },
  });
  const pods = [
    pod('young', '2026-01-01T00:00:03Z'),
    pod('old-b', '2026-01-01T00:00:01Z'),
    pod('old-a', '2026-01-01T00:00:01Z'),
    pod('oldest', '2025-12-31T23:59:59Z'),
  ];
  const found = unmanagedPods(pods, new Map(), new Map(), 0, Date.parse('2026-01-02T00:00:00Z'));
  expect(found.map(({ metadata }) => metadata.name)).toEqual(['oldest', 'old-a', 'old-b', 'young']);
});
