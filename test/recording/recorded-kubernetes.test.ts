import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { Rejection } from '../../src/base/rejection.ts';
import { textOf } from '../../src/k8s/rest/api-transport.ts';
import { RecordedKubernetes } from '../../src/recording/recorded-kubernetes.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

/** Returns an object that contains itself a number of times. */
function nested(depth: number): object {
  let object = {};
  for (let i = 0; i < depth; i++) object = { a: object };
  return object;
}

it.each([
  1_001, // regression: the result depended on the version of Node.js; 26 threw a RangeError
  200_000, // regression: the process crashed
])('rejects an object of %i levels, and stores the others', async (depth) => {
  const recorded = new RecordedKubernetes(new ManualClock());
  const rejected: Rejection[] = [];
  const service = (name: string, spec: object): object => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop' },
    spec,
  });
  const objects = async function* (): AsyncGenerator<{ object: Record<string, unknown>; at: string }> {
    yield { object: { ...service('deep', nested(depth)) }, at: 'tape services/shop/deep' };
    yield { object: { ...service('cart', {}) }, at: 'tape services/shop/cart' };
  };
  let stored = 0;
  await recorded.store(
    objects(),
    (one) => rejected.push(one),
    () => stored++,
  );
  expect(rejected.map(({ message }) => message)).toEqual([expect.stringContaining('is nested too deeply')]);
  expect(stored).toBe(2);
});

it.each([
  ['a name with a lone surrogate', { kind: 'Service', metadata: { name: 'a\ud800' } }, /not valid Unicode/],
  [
    'a namespace with one',
    { kind: 'Service', metadata: { name: 'a', namespace: '\udfff' } },
    /not valid Unicode/,
  ],
  [
    'a kind that is an object with toString',
    { kind: { toString: 1 } },
    /^v1 \{"toString":1\} is not supported$/,
  ],
])('%s is a reason, not a crash', async (_, object, reason) => {
  const recorded = new RecordedKubernetes(new ManualClock());
  expect(await recorded.apply({ apiVersion: 'v1', ...object })).toMatch(reason);
});

/** Returns the status code of a path of the API server, and the object there. */
async function read(recorded: RecordedKubernetes, path: string): Promise<readonly [number, unknown]> {
  const { status, body } = await recorded.transport.send({ path, signal: new AbortController().signal });
  return [status, JSON.parse(await textOf(body))];
}

it('an object is created, replaced with its status, and deleted; its namespace is added', async () => {
  const recorded = new RecordedKubernetes(new ManualClock());
  const service = (type: string): Record<string, unknown> => ({
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'cart', namespace: 'shop' } },
    ...{
      spec: { type },
      status: { loadBalancer: { ingress: [{ ip: type === 'ClusterIP' ? '' : '10.0.0.1' }] } },
    },
  });
  const path = '/api/v1/namespaces/shop/services/cart';
  for (const type of ['ClusterIP', 'LoadBalancer']) {
    expect(await recorded.apply(service(type))).toBeUndefined();
    expect(await read(recorded, path)).toMatchObject([
      200,
      { spec: { type }, status: service(type)['status'] },
    ]);
  }
  await recorded.addNamespaces();
  expect(await read(recorded, '/api/v1/namespaces/shop')).toMatchObject([
    200,
    { metadata: { name: 'shop' } },
  ]);
  expect(await recorded.delete(service(''))).toBeUndefined();
  expect((await read(recorded, path))[0]).toBe(404);
  expect(await recorded.delete(service(''))).toBe('the API server returned status 404');
});

it('a CIDR group is stored in each version of its API (regression: v2, which Cilium serves since 1.18, was rejected)', async () => {
  const recorded = new RecordedKubernetes(new ManualClock());
  for (const [name, version] of Object.entries({ old: 'v2alpha1', office: 'v2' })) {
    const object = { apiVersion: `cilium.io/${version}`, kind: 'CiliumCIDRGroup', metadata: { name } };
    expect(await recorded.apply({ ...object, spec: { externalCIDRs: ['10.0.0.0/8'] } })).toBeUndefined();
    expect((await read(recorded, `/apis/cilium.io/v2/ciliumcidrgroups/${name}`))[0]).toBe(200);
  }
});

it('an object of an unknown kind or without a name is neither applied nor deleted', async () => {
  const recorded = new RecordedKubernetes(new ManualClock());
  for (const [object, reason] of [
    [{ apiVersion: 'v2', kind: 'Service', metadata: { name: 'a' } }, 'v2 Service is not supported'],
    [{ apiVersion: 'v1', kind: 'Service' }, 'the object has no name'],
  ] as const)
    expect([await recorded.apply(object), await recorded.delete(object)]).toEqual([reason, reason]);
});

it('a rejected object of a file is reported with its place, and the others are stored', async () => {
  const recorded = new RecordedKubernetes(new ManualClock());
  const text =
    'apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n---\napiVersion: v1\nkind: Namespace\n';
  const path = join(temporaryFolder({ 'all.yaml': text }), 'all.yaml');
  const rejected: Rejection[] = [];
  let progress = 0;
  await recorded.load(
    path,
    (one) => rejected.push(one),
    () => progress++,
  );
  expect(rejected.map(({ message }) => message)).toEqual([
    expect.stringMatching(/all\.yaml:5.*the object has no name/),
  ]);
  expect(progress).toBe(2);
  expect((await read(recorded, '/api/v1/namespaces/a'))[0]).toBe(200);
});
