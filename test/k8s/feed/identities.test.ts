import { describe, expect, it } from 'vitest';
import type { LabelledPod } from '../../../src/k8s/feed/endpoint-labels.ts';
import type { KubernetesFeedOptions } from '../../../src/k8s/feed/kubernetes-feed.ts';
import { formatLabels, type Labels } from '../../../src/model/labels.ts';
import { FeedWorld } from './support/feed-world.ts';
import { at, pod } from './support/objects.ts';

const APP: Labels = [{ source: 'k8s', key: 'app', value: 'web' }];

describe('CiliumIdentities', () => {
  const identity = (name: string, labels: object, createdAt = 0, annotations = {}): object => ({
    metadata: { name, creationTimestamp: at(createdAt), annotations },
    'security-labels': labels,
  });
  const put = (world: FeedWorld, ...said: Parameters<typeof identity>): void =>
    world.cluster.put('ciliumidentities', identity(...said) as Parameters<typeof world.cluster.put>[1]);

  it('are labels by number, and are counted (K 44)', async () => {
    const world = await new FeedWorld().started();
    put(world, '1001', { 'k8s:app': 'web', 'k8s:io.kubernetes.pod.namespace': 'shop' });
    expect(formatLabels(world.feed.identities.lookupByID(1001) ?? [])).toBe(
      'k8s:app=web;k8s:io.kubernetes.pod.namespace=shop;',
    );
    put(world, '1001', { 'k8s:app': 'web' }); // an update arrives (K 47)
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1001);
    world.cluster.delete('ciliumidentities', '1001');
    expect(world.feed.identities.lookupByID(1001)).toBeUndefined();
    expect(world.feed.identities.size).toBe(0);
  });

  it('with the same labels: the oldest is returned, then the lower number; each has its labels (K 45)', async () => {
    const world = await new FeedWorld().started();
    const labels = { 'k8s:app': 'web' };
    put(world, '1003', labels, 5);
    put(world, '1002', labels, 5);
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1002);
    put(world, '1009', labels, 1);
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1009);
    expect(world.feed.identities.lookupByID(1003)).toEqual(APP);
    put(world, '1009', labels, 9); // created again, with the same labels
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1002);
    put(world, '1009', labels, 1);
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1009);
    world.cluster.delete('ciliumidentities', '1009');
    expect(world.feed.identities.lookupByLabels(APP)).toBe(1002);
  });

  it('that are not numbers, or have no labels, are ignored and counted (K 44)', async () => {
    const world = await new FeedWorld().started();
    put(world, 'x1', { 'k8s:app': 'web' });
    put(world, '4294967296', { 'k8s:app': 'web' });
    put(world, '1001', {});
    put(world, '1002', { ':app': 'web', 'k8s:b': 7 });
    expect(world.feed.identities.size).toBe(0);
    expect(world.rejected.map(({ field }) => field)).toEqual([
      ...['metadata.name', 'metadata.name', 'security-labels'],
      ...['security-labels.:app', 'security-labels.k8s:b'],
    ]);
  });

  it('marked for deletion are reported as such (K 46)', async () => {
    const world = await new FeedWorld().started();
    put(world, '1001', { 'k8s:app': 'web' }, 0, { 'io.cilium.heartbeat': 'x' });
    expect(world.feed.isIdentityMarked(1001)).toBe(true);
    const received: string[] = [];
    using _ = world.feed.identities.subscribe({
      onIdentity: (id) => received.push(`+${id}`),
      onIdentityGone: (id) => received.push(`-${id}`),
    });
    put(world, '1001', { 'k8s:app': 'web' });
    expect([world.feed.isIdentityMarked(1001), received]).toEqual([false, ['+1001']]); // the labels are the same
    put(world, '1001', { 'k8s:app': 'web' }, 0, { 'io.cilium.heartbeat': 'x' });
    world.cluster.delete('ciliumidentities', '1001');
    expect(world.feed.isIdentityMarked(1001)).toBe(false);
    expect(world.feed.isIdentityMarked(1002)).toBe(false);
  });
});

/** A world that records the labels applied to pods, `uid labels` by name. */
async function labelWorld(options: Partial<KubernetesFeedOptions> = {}): Promise<{
  readonly world: FeedWorld;
  readonly applied: Map<string, string>;
  readonly calls: string[];
}> {
  const applied = new Map<string, string>();
  const calls: string[] = [];
  const onLabels = ({ name, uid }: LabelledPod, labels: Labels | undefined): void => {
    calls.push(name);
    if (labels === undefined) applied.delete(name);
    else applied.set(name, `${uid} ${formatLabels(labels)}`);
  };
  const world = await new FeedWorld({ onLabels, ...options }).started();
  return { world, applied, calls };
}

function namespace(world: FeedWorld, labels: Readonly<Record<string, string>> = {}): void {
  world.cluster.put('namespaces', { metadata: { name: 'shop', labels } });
}

const FIXED = 'k8s:io.cilium.k8s.policy.cluster=atlantic;';
const OWN = 'k8s:io.kubernetes.pod.namespace=shop;';

describe('identity labels', () => {
  it('are those of the pod, its namespace, its service account and the cluster, filtered (K 25)', async () => {
    const { world, applied } = await labelWorld();
    namespace(world, { team: 'a', 'kubernetes.io/metadata.name': 'shop' });
    world.cluster.put(
      'pods',
      pod('web', { labels: { app: 'web', 'pod-template-hash': 'x' }, serviceAccount: 'sa' }),
    );
    expect(applied.get('web')).toBe(
      'uid-web k8s:app=web;k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;' +
        `k8s:io.cilium.k8s.namespace.labels.team=a;${FIXED}k8s:io.cilium.k8s.policy.serviceaccount=sa;${OWN}`,
    );
  });

  it('of Cilium cannot be set by the pod, because it could claim another namespace (K 26)', async () => {
    const { world, applied } = await labelWorld();
    namespace(world);
    const labels = {
      'io.cilium.k8s.namespace.labels.team': 'root',
      'io.kubernetes.pod.namespace': 'kube-system',
      'io.cilium.k8s.policy.serviceaccount': 'admin',
    };
    world.cluster.put('pods', pod('web', { labels }));
    expect(applied.get('web')).toBe(`uid-web ${FIXED}${OWN}`);
  });

  it('wait for the namespace, and do not treat it as one without labels (K 27, 54)', async () => {
    const { world, applied } = await labelWorld();
    world.cluster.put('pods', pod('web'));
    expect(applied.size).toBe(0);
    namespace(world, { team: 'a' });
    expect(applied.get('web')).toContain('labels.team=a');
    world.cluster.delete('namespaces', 'shop');
    expect(applied.get('web')).toContain('labels.team=a');
  });

  it('are reported again only if they, those of the namespace, or the uid change (K 27)', async () => {
    const { world, applied, calls } = await labelWorld();
    namespace(world);
    world.cluster.put('pods', pod('web'));
    world.cluster.put('pods', pod('web', { ips: ['10.1.0.99'], labels: { 'pod-template-hash': 'y' } }));
    expect(calls).toHaveLength(1);
    world.cluster.put('pods', pod('web', { uid: 'second' }));
    expect(applied.get('web')).toContain('second ');
    namespace(world, { team: 'b' });
    expect(applied.get('web')).toContain('team=b');
    namespace(world, { team: 'b' });
    world.cluster.delete('pods', 'web', 'shop');
    expect(applied.size).toBe(0);
  });

  it('are those of pods of this node only', async () => {
    const { world, applied } = await labelWorld({ endpoints: 'pods' });
    namespace(world);
    world.cluster.put('pods', pod('far', { nodeName: 'n2' }));
    expect(applied.size).toBe(0);
  });

  it('that could not be applied are reported again (K 27)', async () => {
    let failing = true;
    const said: string[] = [];
    const onLabels = ({ name }: LabelledPod, labels: Labels | undefined): void => {
      if (failing) throw new Error('no identity');
      said.push(`${name} ${labels?.length ?? 0}`);
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    world.clock.advance(1_000);
    failing = false;
    world.clock.advance(2_000);
    expect(said).toEqual(['web 2']);
    await world.feed.stop();
    expect(world.clock.pending).toBe(0);
  });

  it.each<[string, Parameters<typeof pod>[1]]>([
    ['the value of a label', { labels: { app: 'db' } }],
    ['one label more', { labels: { app: 'web', tier: 'front' } }],
    ['one label fewer', { labels: {} }],
    ['a label in the place of another', { labels: { name: 'web' } }],
    ['the account', { serviceAccount: 'sa' }],
    ['the uid', { uid: 'second' }],
    ['the node', { nodeName: 'n2' }],
  ])('change if only %s changes (K 27)', async (_, said) => {
    const { world, applied } = await labelWorld({ endpoints: 'pods' });
    namespace(world);
    const before = { labels: { app: 'web' } };
    for (const ips of [['10.1.0.10'], []]) {
      world.cluster.put('pods', pod('web', { ips, ...before }));
      const labels = applied.get('web');
      world.cluster.put('pods', pod('web', { ips, ...before, ...said }));
      expect(applied.get('web')).not.toBe(labels);
    }
  });

  it('are those of a pod by its name and namespace', async () => {
    const calls: string[] = [];
    const onLabels = (to: LabelledPod, labels: Labels | undefined): void =>
      void calls.push(`${to.namespace}/${to.name} ${labels === undefined ? 'gone' : 'labelled'}`);
    const { world } = await labelWorld({ onLabels });
    namespace(world);
    world.cluster.put('namespaces', { metadata: { name: 'bank' } });
    world.cluster.put('pods', pod('web'));
    world.cluster.put('pods', pod('web', { namespace: 'bank', ips: ['10.1.0.11'] }));
    world.cluster.delete('pods', 'web', 'shop');
    expect(calls).toEqual(['shop/web labelled', 'bank/web labelled', 'shop/web gone']);
  });

  it('are reported again after 1 s, then after twice as long, and the delay is reset after a success', async () => {
    const tried: string[] = [];
    let failing = true;
    const onLabels = ({ name }: LabelledPod, labels: Labels | undefined): void => {
      tried.push(`${name} ${labels === undefined ? 'gone' : 'labelled'} at ${world.clock.now()}`);
      if (failing) throw new Error('no identity');
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    world.cluster.put('pods', pod('db', { ips: ['10.1.0.11'] }));
    const first = 1_000;
    expect(world.clock.nextAt).toBe(first);
    expect(tried.splice(0)).toEqual(['web labelled at 0', 'db labelled at 0']);
    expect(world.clock.pending).toBe(1);
    world.clock.advance(first);
    expect(tried.splice(0)).toEqual([`web labelled at ${first}`, `db labelled at ${first}`]);
    expect((world.clock.nextAt ?? 0) - world.clock.now()).toBe(2 * first);
    failing = false;
    world.clock.advance(2 * first);
    expect(tried.splice(0)).toEqual([`web labelled at ${3 * first}`, `db labelled at ${3 * first}`]);
    expect(world.clock.pending).toBe(0);
    failing = true;
    world.cluster.delete('pods', 'db', 'shop');
    expect((world.clock.nextAt ?? 0) - world.clock.now()).toBe(first);
    world.clock.advance(first);
    expect(tried.splice(0)).toEqual([`db gone at ${3 * first}`, `db gone at ${4 * first}`]);
    await world.feed.stop();
    expect(world.clock.pending).toBe(0);
  });

  it('are removed with a pod whose labels were never applied, if those of its earlier instance were (regression: they stayed)', async () => {
    const calls: string[] = [];
    let failing = false;
    const onLabels = ({ uid }: LabelledPod, labels: Labels | undefined): void => {
      if (failing) throw new Error('no identity');
      calls.push(`${uid} ${labels === undefined ? 'gone' : 'labelled'}`);
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    failing = true;
    world.cluster.delete('pods', 'web', 'shop');
    world.cluster.put('pods', pod('web', { uid: 'second' }));
    world.cluster.delete('pods', 'web', 'shop');
    failing = false;
    world.clock.advance(1_000);
    expect(calls).toEqual(['uid-web labelled', 'second gone']);
    expect(world.clock.pending).toBe(0);
  });

  it('are not reported again as removed for a pod that never had any, and is gone before the repetition', async () => {
    const calls: string[] = [];
    const onLabels = ({ name }: LabelledPod, labels: Labels | undefined): void => {
      calls.push(`${name} ${labels === undefined ? 'gone' : 'labelled'}`);
      throw new Error('no identity');
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    world.cluster.delete('pods', 'web', 'shop');
    world.clock.advance(60_000);
    expect(calls).toEqual(['web labelled']);
    expect(world.clock.pending).toBe(0);
  });

  it('that were removed are not removed again when a pod of that name is gone without any', async () => {
    const calls: string[] = [];
    let failing = false;
    const onLabels = ({ uid }: LabelledPod, labels: Labels | undefined): void => {
      if (failing) throw new Error('no identity');
      calls.push(`${uid} ${labels === undefined ? 'gone' : 'labelled'}`);
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    world.cluster.delete('pods', 'web', 'shop');
    failing = true;
    world.cluster.put('pods', pod('web', { uid: 'second' }));
    world.cluster.delete('pods', 'web', 'shop');
    failing = false;
    world.clock.advance(60_000);
    expect(calls).toEqual(['uid-web labelled', 'uid-web gone']);
  });

  it('are applied again to a pod that returns after a failed removal (regression: the removal may have begun)', async () => {
    const calls: string[] = [];
    let failing = false;
    const onLabels = ({ uid }: LabelledPod, labels: Labels | undefined): void => {
      calls.push(`${uid} ${labels === undefined ? 'gone' : 'labelled'}`);
      if (failing) throw new Error('no identity');
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    failing = true;
    world.cluster.delete('pods', 'web', 'shop');
    failing = false;
    world.cluster.put('pods', pod('web'));
    expect(calls).toEqual(['uid-web labelled', 'uid-web gone', 'uid-web labelled']);
    world.clock.advance(60_000);
    expect(calls).toHaveLength(3);
    world.cluster.delete('pods', 'web', 'shop');
    expect(calls.slice(3)).toEqual(['uid-web gone']);
  });

  it('of a new pod wait for a namespace that was deleted to exist again', async () => {
    const { world, applied } = await labelWorld();
    namespace(world, { team: 'a' });
    world.cluster.delete('namespaces', 'shop');
    world.cluster.put('pods', pod('web'));
    expect(applied.size).toBe(0);
    namespace(world, { team: 'b' });
    expect(applied.get('web')).toContain('team=b');
  });

  it('that are again those that were applied end the repetition and its delay', async () => {
    let failing = false;
    const onLabels = (): void => {
      if (failing) throw new Error('no identity');
    };
    const { world } = await labelWorld({ onLabels, random: () => 1 });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    failing = true;
    world.cluster.put('pods', pod('web', { labels: { app: 'db' } }));
    world.cluster.put('pods', pod('web'));
    world.clock.advance(1_000);
    expect(world.clock.pending).toBe(0);
    world.cluster.put('pods', pod('web', { labels: { app: 'db' } }));
    expect((world.clock.nextAt ?? 0) - world.clock.now()).toBe(1_000);
  });

  it('are reserved:init if the filter leaves none (K 25)', async () => {
    const { LabelFilter } = await import('../../../src/model/label-filter.ts');
    const labelFilter = new LabelFilter({ file: [{ prefix: 'nothing' }] });
    const { world, applied } = await labelWorld({ labelFilter });
    namespace(world);
    world.cluster.put('pods', pod('web'));
    expect(applied.get('web')).toBe('uid-web reserved:init=;');
  });
});
