import { expect, it } from 'vitest';
import { type Deferred, deferred } from '../../src/base/sleep.ts';
import { ClusterSet } from '../../src/clustermesh/cluster-set.ts';
import type { ConnectKvstore, FollowedCluster } from '../../src/clustermesh/followed-cluster.ts';
import { settle } from '../kvstore/support/settle.ts';

const connect: ConnectKvstore = () => expect.fail();

/** Clusters whose operations end when the test says so. */
class SlowClusters extends ClusterSet {
  readonly begun: string[] = [];
  readonly #running: Deferred[] = [];

  constructor() {
    super({ clusterName: 'local' });
  }

  protected newCluster(name: string): FollowedCluster {
    const operation = (what: string) => (): Promise<void> => {
      this.begun.push(`${what} ${name}`);
      const running = deferred();
      this.#running.push(running);
      return running.promise;
    };
    return {
      connect: operation('connect'),
      remove: operation('remove'),
      stop: operation('stop'),
    } as unknown as FollowedCluster;
  }

  /** Ends the operation that was begun first. */
  async end(): Promise<void> {
    this.#running.shift()?.resolve();
    await settle();
  }
}

it('operations on a cluster run one after the other, and those on other clusters do not wait for them', async () => {
  const clusters = new SlowClusters();
  const outcomes: unknown[] = [];
  const operations = [
    clusters.add('a', connect),
    clusters.remove('a'),
    clusters.add('a', connect),
    clusters.add('a', connect),
    clusters.remove('b'),
  ];
  for (const operation of operations) void operation.then((outcome) => outcomes.push(outcome));
  void clusters.add('c', connect);
  await settle();
  expect([clusters.begun, outcomes]).toEqual([['connect a', 'connect c'], [false]]);
  await clusters.end();
  expect([clusters.begun.slice(2), outcomes.slice(1)]).toEqual([['remove a'], ['added']]);
  await clusters.end(); // of c
  void clusters.remove('a'); // waits for the additions, which wait for the first removal
  await settle();
  expect(clusters.begun.slice(3)).toEqual([]);
  await clusters.end();
  expect([clusters.begun.slice(3), clusters.names]).toEqual([['connect a'], ['a', 'c']]);
  await clusters.end();
  expect([clusters.begun.slice(4), outcomes.slice(2)]).toEqual([['connect a'], [true, 'added']]);
  await clusters.end();
  expect([clusters.begun.slice(5), outcomes.slice(4)]).toEqual([['remove a'], ['reconnected']]);
  await clusters.end();
  expect(clusters.names).toEqual(['c']);
});

it('a stop waits for the running operations, and then for the end of all clusters', async () => {
  const clusters = new SlowClusters();
  void clusters.add('a', connect);
  await settle();
  const waiting = clusters.add('a', connect);
  let isStopped = false;
  const stopped = clusters.stop().then(() => {
    isStopped = true;
  });
  expect(() => clusters.add('b', connect)).toThrow('add must not be called after stop');
  await settle();
  expect([clusters.begun, isStopped]).toEqual([['connect a'], false]);
  await clusters.end();
  expect(await waiting).toBe('stopped');
  expect([clusters.begun, isStopped]).toEqual([['connect a', 'stop a'], false]);
  await clusters.end();
  expect(isStopped).toBe(true);
  await stopped;
});
