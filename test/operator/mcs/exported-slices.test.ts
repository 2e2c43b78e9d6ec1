import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { derivedName } from '../../../src/operator/mcs/names.ts';
import { copiedName, ExportedSlices } from '../../../src/operator/mirrored-slices/exported-slices.ts';
import { leastCpuTime } from '../../base/support/cpu-time.ts';
import { type Fields, type McsCluster, McsMesh, SERVICES, SLICES } from './support/mcs-world.ts';

const CART = derivedName('shop', 'cart');
const HTTP = { name: 'http', port: 8080, protocol: 'TCP' };

async function newMesh(): Promise<McsMesh> {
  const mesh = new McsMesh();
  onTestFinished(() => mesh.stop());
  await mesh.start();
  return mesh;
}

/** Returns the copies of slices in a cluster: name → addresses. */
async function copies(cluster: McsCluster): Promise<Fields> {
  const slices = await cluster.slices();
  return Object.fromEntries(
    slices.flatMap(({ metadata, endpoints }) =>
      metadata.labels['multicluster.kubernetes.io/source-cluster'] === cluster.name
        ? [[metadata.name, endpoints.map(({ addresses }) => addresses.join()).join(' ')]]
        : [],
    ),
  );
}

describe('the slices of an exported service', () => {
  it('are slices of its derived Service, whose backends the mesh gets (regression: a derived Service had no backends)', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1', '10.1.0.2'], {
      endpoints: [
        {
          addresses: ['10.1.0.1'],
          nodeName: 'n1',
          deprecatedTopology: { a: 'b' },
          conditions: { ready: true },
        },
        { addresses: ['10.1.0.2'], targetRef: { kind: 'Pod', name: 'p' }, conditions: { ready: false } },
      ],
    });
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({});
    await a.export('cart', {}, { exportedLabels: { team: 'shop' } });
    await mesh.pass(5000);
    const found = await a.find(SLICES, `${CART}-x1`);
    // Like an API server, but unlike the one in memory.
    const derived = await a
      .userOf(SERVICES)
      .patch(CART, { spec: { clusterIP: '10.96.7.7', clusterIPs: ['10.96.7.7'] } });
    await mesh.pass(20_000);
    expect(found).toMatchObject({
      addressType: 'IPv4',
      endpoints: [
        { addresses: ['10.1.0.1'], nodeName: 'n1', conditions: { ready: true } },
        { addresses: ['10.1.0.2'], targetRef: { kind: 'Pod', name: 'p' }, conditions: { ready: false } },
      ],
      ports: [HTTP],
    });
    expect(found?.metadata).toMatchObject({
      labels: {
        team: 'shop',
        'kubernetes.io/service-name': CART,
        'multicluster.kubernetes.io/service-name': 'cart',
        'multicluster.kubernetes.io/source-cluster': 'a',
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-local-mcsapi-controller.cilium.io',
        'service.cilium.io/local-endpointslice': 'cart-x1',
      },
      annotations: { 'service.cilium.io/local-endpointslice': 'cart-x1' },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: CART, uid: derived.metadata.uid }],
    });
    const [value] = a.published(`cilium/state/services/v1/a/shop/${CART}`).values();
    expect(value && textOfBytes(value)).toContain('"10.1.0.1":{"http":{"Protocol":"TCP","Port":8080}}');
    expect(a.published(`cilium/state/endpointslices/v1/a/shop/${CART}-x1`).size).toBe(1);
    expect(await copies(b)).toEqual({});
    const { length } = a.writes;
    await mesh.pass(60_000);
    expect(a.writes.slice(length)).toEqual([]);

    await a.putSlice('cart-x1', 'cart', ['10.1.0.3']);
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-x1`]: '10.1.0.3' });
    await a.unexport('cart');
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({});
    expect(await a.derived('cart')).toBeUndefined();
    expect(a.failures).toEqual([]);
  });

  it('are not copied while this cluster only imports it', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    await a.export('cart');
    await b.putSlice('cart-x1', 'cart', ['10.2.0.1']);
    await mesh.pass(5000);
    expect(await b.derived('cart')).toBeDefined();
    expect(await copies(b)).toEqual({});
    await b.export('cart');
    await mesh.pass(5000);
    expect(await copies(b)).toEqual({ [`${CART}-x1`]: '10.2.0.1' });
  });

  it('have the port names of the import, and no port that an older export defines otherwise', async () => {
    const mesh = await newMesh();
    const [a, b] = [mesh.cluster('a'), mesh.cluster('b')];
    const port = (name: string, port: number): object => ({ name, port, protocol: 'TCP' });
    await a.export('cart', { ports: [port('http', 80), port('admin', 81)] });
    await mesh.pass(2000);
    await b.export('cart', { ports: [port('web', 80), port('admin', 82)] });
    await b.putSlice('cart-x1', 'cart', ['10.2.0.1'], { ports: [port('web', 8080), port('admin', 8082)] });
    await b.putSlice('cart-x2', 'cart', ['10.2.0.2'], { ports: [port('admin', 8082)] });
    await mesh.pass(5000);
    expect(await copies(b)).toEqual({ [`${CART}-x1`]: '10.2.0.1' });
    expect(await b.find(SLICES, `${CART}-x1`)).toMatchObject({ ports: [port('http', 8080)] });
    await a.unexport('cart');
    await mesh.pass(5000);
    expect(await b.find(SLICES, `${CART}-x1`)).toMatchObject({
      ports: [port('web', 8080), port('admin', 8082)],
    });
    expect(Object.keys(await copies(b))).toEqual([`${CART}-x1`, `${CART}-x2`]);
  });

  it('are 300 copies, each written once, and a change of one is compared alone', async () => {
    const mesh = new McsMesh(1);
    onTestFinished(() => mesh.stop());
    await mesh.start();
    const a = mesh.cluster('a');
    const compared = vi.spyOn(ExportedSlices.prototype, 'wantedSlice');
    for (let i = 0; i < 300; i++) await a.putSlice(`cart-${i}`, 'cart', [`10.1.${i >> 8}.${i & 255}`]);
    await a.export('cart');
    const { length } = a.writes;
    await mesh.pass(50_000);
    const written = a.writes.slice(length).filter((write) => write.includes('endpointslices'));
    expect(written).toEqual(new Array(300).fill('POST endpointslices'));
    expect(Object.keys(await copies(a))).toHaveLength(300);
    expect(compared.mock.calls.length).toBeLessThan(10 * 300);
    compared.mockClear();
    await a.putSlice('cart-7', 'cart', ['10.9.9.9']);
    await mesh.pass(5000);
    expect((await copies(a))[`${CART}-7`]).toBe('10.9.9.9');
    expect(compared.mock.calls.length).toBeLessThan(10);
  });

  it('of a headless service without ports are copied, and kube-proxy ignores them', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart', { clusterIP: 'None', ports: [] });
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1'], { ports: [] });
    await mesh.pass(5000);
    expect((await a.find(SLICES, `${CART}-x1`))?.metadata).toMatchObject({
      labels: { 'service.kubernetes.io/headless': '' },
    });
  });

  it('keep the weight of a copy (regression: the next change of an endpoint ended its maintenance)', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    const weight = { 'service.cilium.io/weight': '0' };
    await a.userOf(SLICES).patch(`${CART}-x1`, { metadata: { annotations: weight } });
    await a.userOf(SLICES).patch('cart-x1', { endpoints: [{ addresses: ['10.1.0.2'] }] });
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-x1`]: '10.1.0.2' });
    expect((await a.find(SLICES, `${CART}-x1`))?.metadata['annotations']).toEqual({
      'service.cilium.io/local-endpointslice': 'cart-x1',
      ...weight,
    });
  });

  it('are copied again for a derived Service that was created again', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    await a.userOf(SERVICES).delete(CART);
    await mesh.pass(5000);
    const derived = await a.derived('cart');
    expect((await a.find(SLICES, `${CART}-x1`))?.metadata).toMatchObject({
      ownerReferences: [{ uid: derived?.metadata.uid }],
    });
  });
});

/* The cases of upstream's `pkg/clustermesh/mcsapi/testdata/endpointslice-mirror-*.txtar`. */
describe('endpointslice-mirror-names.txtar', () => {
  it.each([
    ['full-create', 'derived-9jo8ljlgl7-create'],
    ['full', 'derived-9jo8ljlgl7'],
    ['other', 'derived-9jo8ljlgl7-other'],
    [`full-${'x'.repeat(60)}`, `derived-9jo8ljlgl7-${'x'.repeat(60)}`],
    [`full.-${'x'.repeat(38)}-`, `derived-9jo8ljlgl7-${'x'.repeat(38)}`],
    [`full-${'x'.repeat(234)}`, `derived-9jo8ljlgl7-${'x'.repeat(234)}`],
    ['a'.repeat(235), `derived-9jo8ljlgl7-${'a'.repeat(223)}-2bkdbdh4ft`],
    [`full-${'b'.repeat(235)}`, `derived-9jo8ljlgl7-${'b'.repeat(223)}-5gt6bkmtcd`],
    // Regression: the cut name had a hyphen after the dot, which is invalid.
    [`full-${'c'.repeat(222)}.${'d'.repeat(24)}`, `derived-9jo8ljlgl7-${'c'.repeat(222)}-7k6g9h2c8k`],
  ])('%s', (slice, copy) => {
    const derived = derivedName('default', 'full');
    expect(copiedName(derived, 'full', slice)).toBe(copy);
  });

  it('a name that no label can have is only in the annotation (regression: Cilium 1.21 deleted the copy)', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    const name = `cart-${'x'.repeat(60)}`;
    await a.putSlice(name, 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    const copy = await a.find(SLICES, `${CART}-${'x'.repeat(60)}`);
    expect(copy?.metadata['labels']).not.toHaveProperty(['service.cilium.io/local-endpointslice']);
    expect(copy?.metadata['annotations']).toEqual({ 'service.cilium.io/local-endpointslice': name });
  });

  it('of two slices with one copy the first by name is copied, and the other is reported', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    await a.putSlice('cart.x', 'cart', ['10.1.0.2']);
    await a.putSlice('cart-x', 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-x`]: '10.1.0.1' });
    expect(a.rejected).toEqual([expect.stringContaining('the first one by name is used')]);
    await a.userOf(SLICES).delete('cart-x');
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-x`]: '10.1.0.2' });
  });

  it('two slices with the same long end have two copies', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    const [one, two] = ['a', 'b'].map((start) => `${start}-${'x'.repeat(40)}`);
    await a.putSlice(`cart-${one}`, 'cart', ['10.1.0.1']);
    await a.putSlice(`cart-${two}`, 'cart', ['10.1.0.2']);
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-${one}`]: '10.1.0.1', [`${CART}-${two}`]: '10.1.0.2' });
    expect(a.rejected).toEqual([]);
  });
});

describe('endpointslice-mirror-reconcile.txtar', () => {
  it.each([
    ['endpoints', { endpoints: [{ addresses: ['10.9.9.9'] }] }],
    ['ports', { ports: [{ name: 'http', port: 42, protocol: 'TCP' }] }],
    ['labels', { metadata: { labels: { 'multicluster.kubernetes.io/source-cluster': 'stale', team: 'x' } } }],
    ['the owner reference', { metadata: { ownerReferences: null } }],
    [
      'missing Service linkage labels',
      {
        metadata: {
          labels: { 'kubernetes.io/service-name': null, 'multicluster.kubernetes.io/service-name': null },
        },
      },
    ],
  ])('repairs %s', async (_what, change) => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    const content = ({ metadata, ...rest }: Fields): unknown => {
      const { labels, ownerReferences } = metadata as Fields;
      return { ...rest, labels, ownerReferences };
    };
    const before = content((await a.find(SLICES, `${CART}-x1`)) ?? {});
    await a.userOf(SLICES).patch(`${CART}-x1`, change);
    await mesh.pass(5000);
    expect(content((await a.find(SLICES, `${CART}-x1`)) ?? {})).toEqual(before);
  });
});

describe('endpointslice-mirror-cleanup.txtar', () => {
  it('deletes or avoids copies without source, of another family, without a Service, and duplicates', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    await a.export('cart');
    for (const name of ['gone', 'family', 'unlinked', 'kept'])
      await a.putSlice(`cart-${name}`, 'cart', ['10.1.0.1']);
    await a.putSlice('cart-never', 'cart', ['fd00::1'], { addressType: 'IPv6' });
    await mesh.pass(5000);
    expect(Object.keys(await copies(a))).toEqual(
      ['family', 'gone', 'kept', 'unlinked'].map((name) => `${CART}-${name}`),
    );
    const user = a.userOf(SLICES);
    for (const name of ['gone', 'family']) await user.delete(`cart-${name}`);
    await a.putSlice('cart-family', 'cart', ['fd00::1'], { addressType: 'IPv6' });
    await user.patch('cart-unlinked', { metadata: { labels: { 'kubernetes.io/service-name': null } } });
    const labels = (await a.slices()).find(({ metadata: { name } }) => name === `${CART}-kept`)?.metadata
      .labels;
    await user.create(`${CART}-kept-extra`, { addressType: 'IPv4', endpoints: [] }, { labels });
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-kept`]: '10.1.0.1' });
  });

  it('takes over the copies of Cilium', async () => {
    const mesh = await newMesh();
    const a = mesh.cluster('a');
    const managed = {
      'endpointslice.kubernetes.io/managed-by': 'endpointslice-local-mcsapi-controller.cilium.io',
      'multicluster.kubernetes.io/source-cluster': 'a',
    };
    for (const name of [`${CART}-x1`, `${CART}-x2`])
      await a.userOf(SLICES).create(name, { addressType: 'IPv4', endpoints: [] }, { labels: managed });
    await a.export('cart');
    await a.putSlice('cart-x1', 'cart', ['10.1.0.1']);
    await mesh.pass(5000);
    expect(await copies(a)).toEqual({ [`${CART}-x1`]: '10.1.0.1' });
  });
});

it('the name of a copy takes linear time for hyphens within a name (regression: minutes for a million)', async () => {
  const name = (hyphens: number): string => copiedName('derived', 'full', `full${'-'.repeat(hyphens)}a`);
  expect(name(5)).toBe('derived-a');
  const slice = `x${'-'.repeat(30_000)}a`;
  expect(await leastCpuTime(() => copiedName('derived', 'full', slice), 200)).toBeLessThan(200);
});
