import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Unsubscribe, unsubscribeOnce } from '../../../src/base/subscription.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { NAMESPACES } from '../../../src/k8s/feed/kinds.ts';
import type { ServedAnswer } from '../../../src/k8s/memory/faults.ts';
import { MCS_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { syncedKey } from '../../../src/kvstore/codec/keys.ts';
import type { OperatorDutiesOptions } from '../../../src/operator/duties.ts';
import { McsDuty } from '../../../src/operator/mcs/mcs-duty.ts';
import { McsObjects } from '../../../src/operator/mcs/mcs-objects.ts';
import { derivedName } from '../../../src/operator/mcs/names.ts';
import { RemoteExports } from '../../../src/operator/mcs/remote-exports.ts';
import { RemoteClusters } from '../../../src/operator/remote-clusters.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';
import { TinyCluster } from '../support/tiny-cluster.ts';
import { EXPORTS, IMPORTS, type McsCluster, McsMesh, SERVICES } from './support/mcs-world.ts';

/** Two names whose derived Services have the same name in the namespace `shop`. */
const COLLISION = ['nkqgf6l9pip', 'n29t11hajcd'] as const;

async function newMesh(change: Partial<OperatorDutiesOptions> = {}, count = 2): Promise<McsMesh> {
  const mesh = new McsMesh(count);
  onTestFinished(() => mesh.stop());
  await mesh.start(change);
  return mesh;
}

function answer(status: number, body: string): ServedAnswer {
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield bytesOfText(body);
  }
  return { status, headers: { 'content-type': 'application/json' }, body: chunks(), isStream: false };
}

/** Returns an interceptor that refuses the first new Service because of its `trafficDistribution`. */
function refuseDistributionOnce(): McsCluster['intercept'] {
  const message = 'spec.trafficDistribution: Unsupported value: "PreferSameZone"';
  const details = {
    causes: [{ reason: 'FieldValueNotSupported', message, field: 'spec.trafficDistribution' }],
  };
  const body = JSON.stringify({ kind: 'Status', message, reason: 'Invalid', code: 422, details });
  let refusals = 0;
  return (method, path) =>
    method === 'POST' && path.endsWith('/services') && refusals++ === 0 ? answer(422, body) : undefined;
}

async function clustersOf(cluster: McsCluster, name: string): Promise<readonly string[] | undefined> {
  const found = await cluster.find(IMPORTS, name);
  const status = found?.['status'] as
    | { readonly clusters?: readonly { readonly cluster: string }[] }
    | undefined;
  return found && (status?.clusters ?? []).map(({ cluster: of }) => of);
}

describe('an import', () => {
  it('gets a derived Service without a trafficDistribution for which the API server is too old (regression: the Service was never created)', async () => {
    const mesh = await newMesh({}, 1);
    const a = mesh.cluster('a');
    a.intercept = refuseDistributionOnce();
    await a.export('cart', { trafficDistribution: 'PreferSameZone' });
    await mesh.pass(20_000);
    const derived = await a.derived('cart');
    expect(derived?.['spec']).toMatchObject({ internalTrafficPolicy: 'Cluster' });
    expect(derived?.['spec']).not.toHaveProperty('trafficDistribution');
    expect(a.failures).toEqual([expect.stringContaining('spec.trafficDistribution')]);
    // Regression: it stayed without the field until the duty was started again.
    await mesh.pass(3_600_000);
    expect(await a.derived('cart')).toMatchObject({ spec: { trafficDistribution: 'PreferSameZone' } });
  });

  it('ends the run with the error if the recheck of a trafficDistribution fails (regression: an unhandled rejection)', async () => {
    const { run } = McsDuty.prototype;
    const errors: unknown[] = [];
    vi.spyOn(McsDuty.prototype, 'run').mockImplementation(function (this: McsDuty, signal) {
      return run.call(this, signal).catch((error: unknown) => void errors.push(error));
    });
    const mesh = await newMesh({}, 1);
    const a = mesh.cluster('a');
    a.intercept = refuseDistributionOnce();
    await a.export('cart', { trafficDistribution: 'PreferSameZone' });
    await mesh.pass(20_000);
    const full = new Error('no memory');
    vi.spyOn(RemoteExports.prototype, 'keys').mockImplementationOnce(() => {
      throw full;
    });
    await mesh.pass(4_200_000);
    expect(errors).toEqual([full]);
  });

  it('and its derived Service are deleted with the last export (regression: #36892)', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(1000);
    await b.export('cart');
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) {
      expect(await clustersOf(cluster, 'cart')).toEqual(['a', 'b']);
      expect(await cluster.derived('cart')).toBeDefined();
    }
    await a.unexport('cart');
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) {
      expect(await clustersOf(cluster, 'cart')).toEqual(['b']);
      expect(await cluster.derived('cart')).toBeDefined();
    }
    await b.unexport('cart');
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) {
      expect(await cluster.find(IMPORTS, 'cart')).toBeUndefined();
      expect(await cluster.derived('cart')).toBeUndefined();
      expect(cluster.failures).toEqual([]);
    }
  });

  it.each(['before', 'after'])(
    'gets its derived Service when another import with the same hash is deleted, if the event of the delete arrives %s the answer (regression: it waited until a restart)',
    async (order) => {
      const [first, second] = COLLISION;
      expect(derivedName('shop', first)).toBe(derivedName('shop', second));
      const mesh = await newMesh({}, 1);
      const a = mesh.cluster('a');
      await a.export(first);
      await mesh.pass(5000);
      await a.export(second);
      for (const [at, name] of [second, first].entries()) await a.putSlice(`s${at}`, name, [`10.1.0.${at}`]);
      await mesh.pass(5000);
      expect(await a.conditions(IMPORTS, second)).toEqual(['Ready=False Pending']);
      const copied = async (): Promise<unknown> =>
        (await a.slices())
          .filter(({ metadata }) => !/^s\d$/.test(metadata.name))
          .map(({ endpoints }) => endpoints);
      expect(await copied()).toMatchObject([[{ addresses: ['10.1.0.1'] }]]);
      if (order === 'before') a.onWritten = () => settle();
      else {
        a.api.faults.inject(
          { do: 'hang' },
          { matches: ({ path }) => /\/services\?.*watch/.test(path), times: 3 },
        );
        a.api.endWatches();
        await mesh.pass(100);
      }
      await a.unexport(first);
      await mesh.pass(120_000);
      expect(await a.conditions(IMPORTS, second)).toEqual(['Ready=True Ready']);
      expect(await copied()).toMatchObject([[{ addresses: ['10.1.0.0'] }]]);
    },
  );

  it('has the merged spec, and is named by a derived Service that has the target ports of this cluster', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    const exported = { exportedLabels: { team: 'shop' }, exportedAnnotations: { note: 'x' } };
    await a.export('cart', {}, exported);
    await mesh.pass(5000);
    expect(await b.find(IMPORTS, 'cart')).toMatchObject({
      metadata: {
        labels: { team: 'shop' },
        annotations: {
          note: 'x',
          'clustermesh.cilium.io/supported-ip-families': 'IPv4',
          'multicluster.kubernetes.io/derived-service': derivedName('shop', 'cart'),
        },
      },
      spec: {
        type: 'ClusterSetIP',
        sessionAffinity: 'None',
        ipFamilies: ['IPv4'],
        ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
      },
    });
    const {
      metadata: { uid },
    } = (await b.find(IMPORTS, 'cart')) ?? { metadata: { uid: 'none' } };
    expect(await b.derived('cart')).toMatchObject({
      metadata: {
        name: derivedName('shop', 'cart'),
        labels: { team: 'shop', 'multicluster.kubernetes.io/service-name': 'cart' },
        annotations: { note: 'x', 'service.cilium.io/global': 'true' },
        ownerReferences: [
          {
            apiVersion: 'multicluster.x-k8s.io/v1beta1',
            kind: 'ServiceImport',
            name: 'cart',
            uid,
            controller: true,
          },
        ],
      },
      spec: { type: 'ClusterIP', ports: [{ name: 'http', protocol: 'TCP', port: 80, targetPort: 80 }] },
    });
    expect(await a.derived('cart')).toMatchObject({ spec: { ports: [{ targetPort: 8080 }] } });
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=True Ready']);
    expect(await a.conditions(EXPORTS, 'cart')).toEqual([
      'Valid=True Valid',
      'Ready=True Ready',
      'Conflict=False NoConflicts',
    ]);
  });

  it('of a Service that has the label of another import follows its changes (regression: they were ignored)', async () => {
    const mesh = await newMesh({}, 1);
    const a = mesh.cluster('a');
    const spec = { type: 'ClusterIP', clusterIP: '10.96.0.1', ports: [{ port: 80, protocol: 'TCP' }] };
    const labels = { 'multicluster.kubernetes.io/service-name': 'other' };
    await a.userOf(SERVICES).create('cart', { spec }, { labels });
    await a.userOf(EXPORTS).create('cart', { spec: {} });
    await mesh.pass(5000);
    await a.userOf(SERVICES).patch('cart', { spec: { ports: [{ port: 81, protocol: 'TCP' }] } });
    await mesh.pass(5000);
    expect((await a.find(IMPORTS, 'cart'))?.['spec']).toMatchObject({ ports: [{ port: 81 }] });
  });

  it('is written once: an operator that finds it as it should be writes nothing', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(30_000);
    expect(b.writes).toEqual([
      'POST serviceimports',
      'POST services',
      'PATCH serviceimports/cart',
      'PATCH serviceimports/cart/status',
    ]);
    await b.stop();
    b.start();
    await mesh.pass(30_000);
    expect(b.writes.length).toBe(4);
    expect(b.duties.mcs?.counts()).toMatchObject({
      imports: 1,
      remoteExports: { a: 1 },
      waitingImports: 0,
      version: 'v1beta1',
    });
  });

  it('is written once, also if its derived Service has the label of another proxy (regression: created every 10 s)', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart', {}, { exportedLabels: { 'service.kubernetes.io/service-proxy-name': 'x' } });
    await mesh.pass(60_000);
    expect(b.writes.filter((write) => write === 'POST services')).toHaveLength(1);
    await a.unexport('cart');
    await mesh.pass(5000);
    expect(await b.derived('cart')).toBeUndefined();
  });

  it('stays while a cluster of it is unreachable, also for an operator that starts meanwhile', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(5000);
    await b.stop();
    const before = b.writes.length;
    const connect = (): never => {
      throw new Error('unreachable');
    };
    b.remotes.write('a', { kind: 'config', hash: 'other', connect });
    await a.unexport('cart');
    b.start();
    await mesh.pass(200_000);
    expect(b.writes.length).toBe(before);
    expect(b.duties.mcs?.counts().waitingImports).toBe(1);
    expect(b.duties.mcs?.status().published?.synced).toBe(false);
    mesh.connect(b, a);
    await mesh.pass(60_000);
    expect(await b.find(IMPORTS, 'cart')).toBeUndefined();
    expect(b.duties.mcs?.counts().waitingImports).toBe(0);
  });

  it('loses the exports of a cluster after the service TTL, also if it was never reached, and gets them back', async () => {
    const mesh = await newMesh({ serviceTTLMs: 60_000 });
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await a.export('shared');
    await b.export('shared');
    await mesh.pass(5000);
    const imports = async (): Promise<unknown> => [
      await clustersOf(b, 'cart'),
      await clustersOf(b, 'shared'),
    ];
    const [before, after] = [
      [['a'], ['a', 'b']],
      [undefined, ['b']],
    ];
    for (const isRestarted of [false, true]) {
      expect(await imports()).toEqual(before);
      if (isRestarted) await b.stop();
      mesh.cut(b, 'a');
      if (isRestarted) b.start({ serviceTTLMs: 60_000 });
      await mesh.pass(50_000);
      expect(await imports()).toEqual(before);
      await mesh.pass(30_000);
      expect(await imports()).toEqual(after);
      mesh.connect(b, a);
      await mesh.pass(90_000);
    }
    expect(await imports()).toEqual(before);
  });

  it('is deleted when the only cluster that exports it is removed from the configuration', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(5000);
    b.remotes.write('a', undefined);
    await mesh.pass(60_000);
    expect(await b.find(IMPORTS, 'cart')).toBeUndefined();
    expect(await b.derived('cart')).toBeUndefined();
  });

  it('of another program without an export is left alone', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.userOf(IMPORTS).create('foreign', { spec: { type: 'Headless', ports: [] } });
    await mesh.pass(5000);
    expect(await a.find(IMPORTS, 'foreign')).toBeDefined();
    expect(a.writes).toEqual([]);
  });

  it('is corrected if somebody changes it, its derived Service or its status', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(5000);
    await b.userOf(IMPORTS).patch('cart', { spec: { type: 'Headless' }, metadata: { labels: { x: '1' } } });
    await b.userOf(SERVICES).patch(derivedName('shop', 'cart'), { spec: { selector: { app: 'x' } } });
    await mesh.pass(30_000);
    const corrected = await b.find(IMPORTS, 'cart');
    expect(corrected).toMatchObject({ spec: { type: 'ClusterSetIP' } });
    expect(corrected?.metadata['labels']).toEqual({});
    expect((await b.derived('cart'))?.['spec']).not.toHaveProperty('selector');
    await b.userOf(SERVICES).delete(derivedName('shop', 'cart'));
    await mesh.pass(30_000);
    expect(await b.derived('cart')).toBeDefined();
    await b.userOf(IMPORTS).delete('cart');
    await mesh.pass(30_000);
    const { metadata } = (await b.find(IMPORTS, 'cart')) ?? {};
    expect(await b.derived('cart')).toMatchObject({
      metadata: { ownerReferences: [{ uid: metadata?.uid }] },
    });
  });

  it('has a derived Service that is corrected at once if somebody changes it before the answer of a write', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    b.onWritten = async (method, path) => {
      if (method !== 'POST' || !path.endsWith('/services')) return;
      await b.userOf(SERVICES).patch(derivedName('shop', 'cart'), { spec: { selector: { app: 'x' } } });
      await settle();
    };
    await a.export('cart');
    await mesh.pass(3000);
    expect(b.writes).toContain('POST services');
    expect((await b.derived('cart'))?.['spec']).not.toHaveProperty('selector');
  });

  it('is created again if it was deleted before a list, without an event', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    b.api.faults.inject({ do: 'hang' }, { matches: ({ path }) => /imports.*watch/.test(path), times: 3 });
    b.api.endWatches();
    await mesh.pass(100);
    await a.export('cart');
    await mesh.pass(2000);
    expect(b.writes).toContain('POST serviceimports');
    await b.userOf(IMPORTS).delete('cart');
    b.api.compact();
    b.api.endWatches();
    await mesh.pass(120_000);
    expect(await clustersOf(b, 'cart')).toEqual(['a']);
  });

  it('that becomes headless gets a new derived Service', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(5000);
    const before = await b.derived('cart');
    await a.unexport('cart');
    await a.userOf(SERVICES).delete('cart');
    await a.export('cart', { clusterIP: 'None' });
    await mesh.pass(20_000);
    const after = await b.derived('cart');
    expect(after).toMatchObject({ spec: { clusterIP: 'None' } });
    expect(after?.metadata.uid).not.toBe(before?.metadata.uid);
    expect(await b.find(IMPORTS, 'cart')).toMatchObject({ spec: { type: 'Headless' } });
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=True Ready']);
  });

  it('waits for its namespace, and is gone with it', async () => {
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.createNamespace();
    for (const cluster of mesh.clusters) cluster.start();
    await a.export('cart');
    await mesh.pass(10_000);
    expect(b.writes).toEqual([]);
    await b.createNamespace();
    await mesh.pass(5000);
    expect(await clustersOf(b, 'cart')).toEqual(['a']);
  });

  it('is not compared after a change of its Namespace that has no effect (regression: each change compared all names of the Namespace)', async () => {
    const mesh = await newMesh({ globalByDefault: true }, 1);
    const a = mesh.cluster('a');
    await a.export('cart');
    await mesh.pass(5000);
    const compared = vi.spyOn(McsObjects.prototype, 'objects');
    onTestFinished(() => compared.mockRestore());
    const patch = async (annotations: object): Promise<number> => {
      compared.mockClear();
      await a.user(NAMESPACES).patch('shop', { metadata: { annotations } });
      await mesh.pass(2000);
      return compared.mock.calls.filter(([kind]) => kind === 'namespaces').length;
    };
    await patch({ note: '1' });
    expect(await patch({ note: '2' })).toBe(0);
    expect(await patch({ 'clustermesh.cilium.io/global': 'false' })).toBeGreaterThan(0);
    expect(await a.derived('cart')).toBeUndefined();
    expect(await patch({ 'clustermesh.cilium.io/global': 'true' })).toBeGreaterThan(0);
    expect(await a.derived('cart')).toBeDefined();
  });

  it('is made of a local export whose events arrive before that of its namespace (regression: it was never imported)', async () => {
    const mesh = new McsMesh(1);
    onTestFinished(() => mesh.stop());
    const [a] = [mesh.cluster('a')];
    a.start();
    await mesh.pass(5000);
    await a.export('cart');
    await mesh.pass(5000);
    await a.createNamespace();
    await mesh.pass(5000);
    expect(await clustersOf(a, 'cart')).toEqual(['a']);
    expect(await a.conditions(EXPORTS, 'cart')).toEqual([
      'Valid=True Valid',
      'Ready=True Ready',
      'Conflict=False NoConflicts',
    ]);
  });

  it('of a namespace that is not global has no derived Service, and says why', async () => {
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.createNamespace();
    await b.createNamespace({ 'clustermesh.cilium.io/global': 'false' });
    for (const cluster of mesh.clusters) cluster.start();
    await a.export('cart');
    await b.export('mine');
    await mesh.pass(10_000);
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=False NamespaceNotGlobal']);
    expect(await b.derived('cart')).toBeUndefined();
    expect(await b.conditions(EXPORTS, 'mine')).toEqual([
      'Valid=False NamespaceNotGlobal',
      'Ready=False Pending',
    ]);
    expect(await a.find(IMPORTS, 'mine')).toBeUndefined();
    const namespaces = { group: '', version: 'v1', plural: 'namespaces' };
    await b.userOf(namespaces, '').ask({
      path: '/api/v1/namespaces/shop',
      method: 'PATCH',
      contentType: 'application/merge-patch+json',
      body: { metadata: { annotations: { 'clustermesh.cilium.io/global': 'true' } } },
    });
    await mesh.pass(20_000);
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=True Ready']);
    expect(await clustersOf(a, 'mine')).toEqual(['b']);
  });

  it('of families that this cluster does not have is not ready', async () => {
    const mesh = await newMesh({ mcs: { families: ['IPv4'] } });
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart', { ipFamilies: ['IPv6'] });
    await mesh.pass(5000);
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=False IPFamilyNotSupported']);
    expect(await b.derived('cart')).toBeUndefined();
  });

  it('that its exporter changes ten times a second is not written for each change (regression)', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(5000);
    b.writes.length = 0;
    for (let change = 0; change < 50; change++) {
      await a.userOf(SERVICES).patch('cart', { spec: { ports: [{ port: 81 + change, protocol: 'TCP' }] } });
      await mesh.pass(100);
    }
    const imports = b.writes.filter((write) => write === 'PATCH serviceimports/cart');
    expect(imports.length).toBeGreaterThan(0);
    // Two in a second, because a change during the writes of a name is written with them.
    expect(imports.length).toBeLessThanOrEqual(12);
    await mesh.pass(5000);
    expect(await b.find(IMPORTS, 'cart')).toMatchObject({ spec: { ports: [{ port: 130 }] } });
  });

  it('that is rejected is written at most once a second, also if its exporter changes it (regression: for each change)', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    const body = JSON.stringify({ kind: 'Status', message: 'bad', reason: 'Invalid', code: 400 });
    b.intercept = (method, path) =>
      method === 'POST' && path.endsWith('/serviceimports') ? answer(400, body) : undefined;
    await a.export('cart');
    await mesh.pass(1000);
    b.writes.length = 0;
    for (let change = 0; change < 50; change++) {
      await a.userOf(SERVICES).patch('cart', { spec: { ports: [{ port: 81 + change, protocol: 'TCP' }] } });
      await mesh.pass(100);
    }
    expect(b.writes.length).toBeLessThanOrEqual(6);
    b.intercept = () => undefined;
    await mesh.pass(60_000);
    expect(await b.find(IMPORTS, 'cart')).toMatchObject({ spec: { ports: [{ port: 130 }] } });
  });

  it('says that its derived Service is pending if it cannot be created, and retries', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    let isRefused = true;
    const body = JSON.stringify({
      kind: 'Status',
      message: 'exceeded quota',
      reason: 'Forbidden',
      code: 403,
    });
    b.intercept = (method, path) =>
      isRefused && method === 'POST' && path.endsWith('/services') ? answer(403, body) : undefined;
    await a.export('cart');
    await mesh.pass(5000);
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=False Pending']);
    expect(b.duties.mcs?.status().lastFailure?.message).toContain(
      `cannot create services/v1 shop/${derivedName('shop', 'cart')}: exceeded quota`,
    );
    isRefused = false;
    await mesh.pass(60_000);
    expect(await b.conditions(IMPORTS, 'cart')).toEqual(['Ready=True Ready']);
  });
});

describe('an export', () => {
  it.each([
    ['without a Service', undefined, 'NoService'],
    ['of a Service of type ExternalName', { type: 'ExternalName', externalName: 'x' }, 'InvalidServiceType'],
  ])('%s is not valid, and not imported', async (_what, spec, reason) => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    if (spec === undefined) await a.userOf(EXPORTS).create('cart');
    else await a.export('cart', spec);
    await mesh.pass(5000);
    expect(await a.conditions(EXPORTS, 'cart')).toEqual([`Valid=False ${reason}`, 'Ready=False Pending']);
    for (const cluster of mesh.clusters) expect(await cluster.find(IMPORTS, 'cart')).toBeUndefined();
    await b.export('cart');
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) expect(await clustersOf(cluster, 'cart')).toEqual(['b']);
  });

  it('is not reported if an object of it was deleted during a write, which is repeated', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    const body = JSON.stringify({ kind: 'Status', message: 'gone', reason: 'NotFound', code: 404 });
    let refusals = 1;
    a.intercept = (method, path) =>
      method === 'PATCH' && path.includes('serviceexports') && refusals-- > 0 ? answer(404, body) : undefined;
    await a.export('cart');
    await mesh.pass(5000);
    expect(refusals).toBeLessThan(1);
    expect(await a.conditions(EXPORTS, 'cart')).toContain('Valid=True Valid');
    expect(a.failures).toEqual([]);
  });

  it('whose third write in a row conflicts is reported (regression: only the fourth was)', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    const body = JSON.stringify({ kind: 'Status', message: 'changed', reason: 'Conflict', code: 409 });
    let refusals = 3;
    a.intercept = (method, path) =>
      method === 'PATCH' && path.includes('serviceexports') && refusals-- > 0 ? answer(409, body) : undefined;
    await a.export('cart');
    await mesh.pass(20_000);
    expect(await a.conditions(EXPORTS, 'cart')).toContain('Valid=True Valid');
    expect(a.failures).toEqual([expect.stringContaining('changed')]);
  });

  it('is reported, and repeated, if it can be neither written nor read again', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    const body = JSON.stringify({ kind: 'Status', message: 'gone', reason: 'NotFound', code: 404 });
    let refusals = 1;
    a.intercept = (method, path) =>
      method === 'PATCH' && path.includes('serviceexports') && refusals-- > 0 ? answer(404, body) : undefined;
    a.api.deny('get', 'serviceexports');
    await a.export('cart');
    await mesh.pass(20_000);
    a.api.allow('get', 'serviceexports');
    expect(await a.conditions(EXPORTS, 'cart')).toContain('Valid=True Valid');
    expect(a.failures).toEqual([expect.stringContaining('grant the verb "get"')]);
  });

  it('that disagrees with an older one reports the conflict in every cluster', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await mesh.pass(2000);
    await b.export('cart', { clusterIP: 'None' });
    await mesh.pass(5000);
    for (const cluster of mesh.clusters) {
      expect(await cluster.conditions(EXPORTS, 'cart')).toContain('Conflict=True TypeConflict');
      expect(await cluster.find(IMPORTS, 'cart')).toMatchObject({ spec: { type: 'ClusterSetIP' } });
      expect(cluster.duties.mcs?.counts().conflicts).toEqual({ TypeConflict: 1 });
    }
    await a.unexport('cart');
    await mesh.pass(5000);
    expect(await b.conditions(EXPORTS, 'cart')).toContain('Conflict=False NoConflicts');
    expect(await a.find(IMPORTS, 'cart')).toMatchObject({ spec: { type: 'Headless' } });
  });
});

describe('the duty', () => {
  it('says that the API is not served, and the canary is written', async () => {
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const a = mesh.cluster('a');
    for (const type of MCS_TYPES) a.api.stopServing(type);
    await mesh.start();
    await mesh.pass(80_000);
    expect(a.duties.mcs?.counts().version).toBe('none');
    expect(a.duties.mcs?.status()).toMatchObject({
      state: 'waiting',
      lastFailure: { message: expect.stringContaining('serves no version of multicluster.x-k8s.io') },
    });
    const slicesFailure = (): string | undefined =>
      a.duties.all.map((duty) => duty.status()).find(({ name }) => name === 'mcs-slices')?.lastFailure
        ?.message;
    expect(slicesFailure()).toContain('serves no version of multicluster.x-k8s.io');
    const canary = syncedKey('a', 'serviceexports');
    expect([...a.published(canary).keys()]).toEqual([canary]);
    const [config] = a.published('cilium/cluster-config/a').values();
    expect(config && textOfBytes(config)).toContain('"serviceExportsEnabled":true');
    for (const type of MCS_TYPES) a.api.serve(type);
    await a.export('cart');
    await mesh.pass(60_000);
    expect(await clustersOf(mesh.cluster('b'), 'cart')).toEqual(['a']);
    expect(slicesFailure()).toBeUndefined();
  });

  it('uses v1alpha1 if that is the only version', async () => {
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    for (const type of MCS_TYPES) if (type.version === 'v1beta1') b.api.stopServing(type);
    await mesh.start();
    await a.export('cart');
    await mesh.pass(5000);
    const [IMPORTS_1] = [{ ...IMPORTS, version: 'v1alpha1' }];
    expect(await b.find(IMPORTS_1, 'cart')).toMatchObject({ spec: { type: 'ClusterSetIP' } });
    expect(await b.derived('cart')).toMatchObject({
      metadata: { ownerReferences: [{ apiVersion: 'multicluster.x-k8s.io/v1alpha1' }] },
    });
  });

  it('follows the version that the server serves instead, and withdraws nothing meanwhile (regression: it kept the old one)', async () => {
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    const types = (version: string): readonly (typeof MCS_TYPES)[number][] =>
      MCS_TYPES.filter((type) => type.version === version);
    for (const type of types('v1alpha1')) a.api.stopServing(type);
    await mesh.start();
    await a.export('cart');
    await b.export('cart');
    await a.export('till');
    await mesh.pass(5000);
    expect(a.duties.mcs?.counts().version).toBe('v1beta1');
    const key = 'cilium/state/serviceexports/v1/a/shop/cart';
    const till = 'cilium/state/serviceexports/v1/a/shop/till';
    expect([...a.published(till).keys()]).toEqual([till]);
    for (const type of types('v1alpha1')) a.api.serve(type);
    for (const type of types('v1beta1')) a.api.stopServing(type);
    a.api.endWatches();
    await a.userOf({ ...EXPORTS, version: 'v1alpha1' }).delete('till');
    for (let i = 0; i < 60; i++) {
      await mesh.pass(1000);
      expect([...a.published(key).keys()]).toEqual([key]);
      expect(await a.derived('cart')).toBeDefined();
    }
    expect(a.duties.mcs?.counts().version).toBe('v1alpha1');
    expect([...a.published(till).keys()]).toEqual([]);
    await b.unexport('cart');
    await a.userOf({ ...EXPORTS, version: 'v1alpha1' }).delete('cart');
    await mesh.pass(5000);
    expect([...a.published(key).keys()]).toEqual([]);
    expect(await a.derived('cart')).toBeUndefined();
    expect(a.failures).toEqual([]);
  });

  it('prints each write and its reason in a dry run, once, and writes nothing', async () => {
    const lines: string[] = [];
    const mesh = new McsMesh();
    onTestFinished(() => mesh.stop());
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    for (const cluster of mesh.clusters) await cluster.createNamespace();
    a.start();
    b.start({ dryRun: (line) => void lines.push(line) });
    await a.export('cart');
    await mesh.pass(60_000);
    // Regression: each list of the kind printed the creates again.
    b.api.compact();
    b.api.endWatches();
    await mesh.pass(60_000);
    expect(b.writes).toEqual([]);
    const name = derivedName('shop', 'cart');
    const kinds = { imports: 'serviceimports.multicluster.x-k8s.io/v1beta1', services: 'services/v1' };
    expect(lines.filter((line) => !line.startsWith('put'))).toEqual([
      `create ${kinds.imports} shop/cart: 1 cluster exports it: a`,
      `create ${kinds.services} shop/${name}: it is the service of the import cart; 1 cluster exports it: a`,
      `patch ${kinds.imports} shop/cart: metadata.annotations of the merged exports differ`,
      `patch ${kinds.imports}/status shop/cart: Ready, 1 cluster exports it: a`,
    ]);
  });
});

it.each([
  ['the objects of the group', McsObjects.prototype, 'listen'],
  ['the other clusters', RemoteClusters.prototype, 'onChange'],
] as const)(
  'an operator that is not elected any more does not listen to %s',
  async (_, prototype, method) => {
    const methods: Record<string, (listener: unknown) => Unsubscribe> = prototype as never;
    const listen = methods[method];
    const present = new Set<unknown>();
    vi.spyOn(methods, method).mockImplementation(function (this: unknown, listener) {
      const leave = listen?.call(this, listener);
      present.add(listener);
      return unsubscribeOnce(() => {
        present.delete(listener);
        leave?.();
      });
    });
    const mesh = await newMesh();
    expect(present.size).toBeGreaterThan(0);
    await mesh.stop();
    expect(present.size).toBe(0);
  },
);

it('the duty queues all names in steps when it starts (regression: in one turn, or synced before the first)', async () => {
  const clock = new ManualClock();
  const turns: (() => void)[] = [];
  const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn), weightPerTurn: 1 });
  const exports = new Map<string, KubernetesObject>();
  for (let at = 0; at < 1000; at++)
    exports.set(`shop/${at}`, {
      metadata: { namespace: 'shop', name: `${at}`, uid: `${at}`, resourceVersion: '1' },
    });
  const objects: Pick<McsObjects, 'version' | 'objects' | 'notReadyReason' | 'listen'> = {
    version: 'v1beta1',
    objects: (kind) => (kind === 'serviceexports' ? exports : new Map()),
    notReadyReason: () => undefined,
    listen: () => () => {},
  };
  const clusters: Pick<RemoteClusters, 'names' | 'feed' | 'stateOf' | 'onChange'> = {
    names: [],
    feed: () => {},
    stateOf: () => 'gone',
    onChange: () => unsubscribeOnce(() => {}),
  };
  const cluster = new TinyCluster();
  const duty = new McsDuty({
    clusterName: 'a',
    families: ['IPv4'],
    hasSliceSync: false,
    clusters,
    objects: objects as McsObjects, // the part of it that is used
    reader: cluster,
    writer: cluster,
    clock,
    random: () => 0.5,
    gate,
  });
  const ended = new AbortController();
  void gate.pass(1); // this turn has no more room
  const running = duty.run(ended.signal);
  await settle();
  expect(duty.status().published).toMatchObject({ pending: 0, synced: false });
  turns.shift()?.();
  await settle();
  expect(duty.status().published?.pending).toBe(gate.slice); // the next step waits for the next turn
  ended.abort();
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) turn();
  await running;
});
