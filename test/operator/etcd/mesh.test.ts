import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import type { Agent } from '../../../src/agent/agent.ts';
import { stateDocument } from '../../../src/client/state-document.ts';
import { CLUSTER_TYPES } from '../../../src/k8s/memory/resource-types.ts';
import { runFolder } from '../../base/support/run-folder.ts';
import { until } from '../../base/support/until.ts';
import { type EtcdProcess, startEtcd } from '../../kvstore/etcd/support/etcd-process.ts';
import {
  FAST_ELECTION,
  FAST_LEASE_MS,
  type Manifest,
  OperatedCluster,
  published,
  type RunningOperator,
  statusOf,
} from './support/operated-cluster.ts';

const NAMES = ['atlantic', 'baltic', 'caspian'] as const;
const SERVICES = ['s0', 's1', 's2'] as const;
const COLLECT = [
  '--kvstore-lease-ttl',
  '6s',
  '--endpoint-gc-interval',
  '0',
  '--identity-gc-interval',
  '0',
  '--nodes-gc-interval',
  '1s',
  '--lock-gc-interval',
  '1s',
  ...FAST_ELECTION,
];

const etcds: EtcdProcess[] = [];
const clusters: OperatedCluster[] = [];
const agents: Agent[] = [];
const running = new Map<string, RunningOperator>();
/** The content of Kubernetes, by cluster. The model is made only from it. */
const objects = new Map<string, Map<string, Manifest>>();
const folder = runFolder('operators-');

function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
}

const any = seeded(20_261_122);

function node(cluster: OperatedCluster, i: number, version: number): readonly Manifest[] {
  const name = `n${i}`;
  const addresses = [{ type: 'InternalIP', ip: `192.168.${cluster.id}.${i * 10 + version}` }];
  return [
    { apiVersion: 'v1', kind: 'Node', metadata: { name } },
    { apiVersion: 'cilium.io/v2', kind: 'CiliumNode', metadata: { name }, spec: { addresses } },
  ];
}

function endpoint(cluster: OperatedCluster, i: number, ip: number): readonly Manifest[] {
  const id = (cluster.id << 16) + 256 + i;
  const name = `pod-${i}`;
  return [
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: String(id) },
      'security-labels': { 'k8s:app': name, 'k8s:io.kubernetes.pod.namespace': 'shop' },
    },
    {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumEndpoint',
      metadata: { name, namespace: 'shop' },
      status: {
        identity: { id, labels: [`k8s:app=${name}`] },
        networking: { addressing: [{ ipv4: `10.${cluster.id}.0.${ip}` }], node: `192.168.${cluster.id}.10` },
        state: 'ready',
      },
    },
  ];
}

function service(
  cluster: OperatedCluster,
  name: string,
  isGlobal: boolean,
  backend: number,
): readonly Manifest[] {
  const annotations = { 'service.cilium.io/global': String(isGlobal) };
  return [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name, namespace: 'shop', annotations },
      spec: { type: 'ClusterIP', clusterIP: `172.16.${cluster.id}.1`, ports: [{ name: 'http', port: 80 }] },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: `${name}-0`, namespace: 'shop', labels: { 'kubernetes.io/service-name': name } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [`10.${cluster.id}.1.${backend}`], conditions: { ready: true } }],
      ports: [{ name: 'http', port: 80, protocol: 'TCP' }],
    },
  ];
}

function keyOf({ kind, metadata: { namespace = '', name } }: Manifest): string {
  return `${kind} ${namespace}/${name}`;
}

async function apply(cluster: OperatedCluster, made: readonly Manifest[]): Promise<void> {
  for (const object of made) {
    objects.get(cluster.name)?.set(keyOf(object), object);
    await cluster.apply(object);
  }
}

async function remove(cluster: OperatedCluster, made: readonly Manifest[]): Promise<void> {
  for (const object of made) {
    if (objects.get(cluster.name)?.delete(keyOf(object)) === true) await cluster.remove(object);
  }
}

function namespace(isGlobal: boolean): readonly Manifest[] {
  const annotations = { 'clustermesh.cilium.io/global': String(isGlobal) };
  return [{ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop', annotations } }];
}

/** Makes one random change of a cluster. */
async function edit(cluster: OperatedCluster): Promise<void> {
  const [i, version] = [any(3), any(5)];
  const name = SERVICES[i] ?? 's0';
  switch (any(7)) {
    case 6:
      return apply(cluster, namespace(any(4) > 0));
    case 0:
      return apply(cluster, node(cluster, i, version));
    case 1:
      return remove(cluster, node(cluster, i, version).slice(0, 1)); // its CiliumNode is deleted by the collector
    case 2:
      return apply(cluster, endpoint(cluster, i, i * 10 + version));
    case 3:
      return remove(cluster, endpoint(cluster, i, 0));
    case 4:
      return apply(cluster, service(cluster, name, any(3) > 0, version + 1));
    default:
      return remove(cluster, service(cluster, name, true, 0));
  }
}

/** Returns the content of an agent of `own` if it has all objects of all clusters: naive on purpose. */
function model(own: string): readonly string[] {
  const lines: string[] = [];
  for (const cluster of clusters) {
    const all = [...(objects.get(cluster.name)?.values() ?? [])];
    for (const object of all) {
      const { name } = object.metadata;
      const has = (kind: string, other = name): Manifest | undefined =>
        all.find((one) => one.kind === kind && one.metadata.name === other);
      const at = JSON.stringify(object);
      const isGlobal = !JSON.stringify(has('Namespace', 'shop')).includes('"false"');
      if (object.kind === 'CiliumNode' && has('Node') !== undefined)
        lines.push(`node ${cluster.name}/${name} ${/"ip":"([^"]+)"/.exec(at)?.[1]}`);
      if (object.kind === 'CiliumEndpoint' && isGlobal)
        lines.push(`ip ${/"ipv4":"([^"]+)"/.exec(at)?.[1]} ${/"id":(\d+)/.exec(at)?.[1]}`);
      if (
        object.kind === 'Service' &&
        isGlobal &&
        at.includes('"service.cilium.io/global":"true"') &&
        cluster.name !== own
      ) {
        const slice = JSON.stringify(has('EndpointSlice', `${name}-0`));
        lines.push(`backend ${name} ${/"addresses":\["([^"]+)"/.exec(slice)?.[1]}`);
      }
    }
  }
  return lines.sort();
}

function held(agent: Agent): readonly string[] {
  const { ipcache, nodes, services } = stateDocument(agent.contents());
  const ips = Object.entries(ipcache)
    .filter(([key]) => /^10\.\d\.0\./.test(key))
    .map(([key, { identity }]) => `ip ${key.replace('/32', '')} ${identity}`);
  const known = nodes.map(
    ({ cluster, name, addresses }) => `node ${cluster}/${name} ${addresses[0]?.replace('InternalIP=', '')}`,
  );
  const backends = Object.entries(services).flatMap(([name, of]) =>
    (JSON.stringify(of).match(/10\.\d\.1\.\d+/g) ?? []).map(
      (address) => `backend ${name.replace('shop/', '')} ${address}`,
    ),
  );
  return [...ips, ...known, ...backends].sort();
}

async function agree(when: string): Promise<void> {
  const wrong = (): readonly unknown[] =>
    agents.flatMap((agent, i) => {
      const [is, should] = [held(agent), model(NAMES[i] ?? '')];
      return JSON.stringify(is) === JSON.stringify(should) ? [] : [{ of: NAMES[i], is, should }];
    });
  await until(`all agents hold what Kubernetes says ${when}`, () => wrong().length === 0).catch(
    (error: unknown) => {
      throw new Error(
        `${String(error)}\n${JSON.stringify(wrong(), null, 1)}\n${clusters.flatMap(({ log }) => log).join('\n')}`,
      );
    },
  );
}

beforeAll(async () => {
  mkdirSync(join(folder, 'mesh'));
  const services = SERVICES.flatMap((name, i) => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'shop', annotations: { 'service.cilium.io/global': 'true' } },
    spec: { type: 'ClusterIP', clusterIP: `172.31.0.${i + 1}`, ports: [{ name: 'http', port: 80 }] },
  }));
  writeFileSync(join(folder, 'services.yaml'), services.map((one) => JSON.stringify(one)).join('\n---\n'));
  for (const [i, name] of NAMES.entries()) {
    const [etcd] = await startEtcd();
    if (etcd === undefined) throw new Error('no etcd');
    etcds.push(etcd);
    writeFileSync(join(folder, 'mesh', name), `endpoints: ["${etcd.url}"]\n`);
    clusters.push(await OperatedCluster.start(name, i + 1, etcd, folder));
    objects.set(name, new Map());
  }
  for (const cluster of clusters) {
    await apply(cluster, namespace(true));
    for (let i = 0; i < 8; i++) await edit(cluster);
    const operator = await cluster.operate(...COLLECT);
    running.set(cluster.name, operator);
    await published(operator);
  }
  for (const cluster of clusters) {
    const agent = cluster.agent(join(folder, 'mesh'), join(folder, 'services.yaml'));
    agents.push(agent);
    await agent.start(new AbortController().signal);
    // On a busy machine, the lease of an operator expires, and its cluster is incomplete until it is published again.
    await until(`the agent of ${cluster.name} is complete`, () => agent.incompleteInputs().length === 0);
  }
});

afterAll(async () => {
  for (const agent of agents) await agent.stop();
  for (const operator of running.values()) await operator.stop();
  for (const cluster of clusters) await cluster.close();
  for (const etcd of etcds) await etcd.dispose();
  rmSync(folder, { recursive: true, force: true });
});

it('three operators build a mesh in which every agent has the state of the objects of all clusters, whatever fails', async () => {
  const [first] = clusters;
  if (first === undefined) throw new Error('no cluster');
  await agree('at first');

  const second = await first.operate(...COLLECT);
  for (const cluster of clusters) for (let i = 0; i < 6; i++) await edit(cluster);
  await agree('after edits');

  // The leader ends, edits continue, and the other operator takes the released lease.
  expect(await running.get(first.name)?.stop()).toBe(0);
  running.set(first.name, second);
  for (let i = 0; i < 6; i++) await edit(first);
  await published(second);
  await agree('after the second operator of a cluster has taken over');

  for (const cluster of clusters) await cluster.loseLeases();
  etcds[1]?.freeze();
  for (const cluster of clusters) for (let i = 0; i < 6; i++) await edit(cluster);
  etcds[1]?.thaw();
  await running.get('caspian')?.stop();
  const third = await clusters[2]?.operate(...COLLECT);
  if (third !== undefined) running.set('caspian', third);
  await agree('after lost leases, a partition and a restart');

  expect(clusters.flatMap((cluster) => cluster.trespasses(FAST_LEASE_MS))).toEqual([]);
});

it('another operator takes over from one that is killed or disconnected from the API server; the two never both delete', async () => {
  const [killed, partitioned, cutOff] = clusters;
  if (killed === undefined || partitioned === undefined || cutOff === undefined)
    throw new Error('no cluster');
  const leaders = new Map(running);
  for (const cluster of [killed, partitioned]) {
    const next = await cluster.operate(...COLLECT);
    await until(`${next.name} stands`, async () => (await statusOf(next))?.election?.state === 'candidate');
    running.set(cluster.name, next);
  }
  // Keys that each leader must delete just when it is lost, and those of the next one.
  const shared = (cluster: OperatedCluster): readonly Manifest[] => service(cluster, 's0', true, 3);
  for (const cluster of clusters)
    await apply(cluster, [...namespace(true), ...shared(cluster), ...node(cluster, 2, 1)]);
  await agree('before the leaders are lost');
  const lost = leaders.get(partitioned.name);
  for (const cluster of clusters) await remove(cluster, shared(cluster));
  leaders.get(killed.name)?.kill();
  if (lost !== undefined) lost.links.api.mode = 'black-hole';
  const stalled = running.get(cutOff.name);
  if (stalled !== undefined) stalled.links.etcd.mode = 'stalled';
  for (const cluster of clusters) for (let i = 0; i < 4; i++) await edit(cluster);
  for (const cluster of clusters)
    await remove(cluster, [...node(cluster, 2, 1).slice(0, 1), ...shared(cluster)]);
  for (const { name } of [killed, partitioned]) await published(running.get(name) as RunningOperator);
  // The leader that is cut off from the API server still sees this key, and would collect it.
  const lock = 'cilium/state/identities/v1/locks/k8s:app=x;/1';
  await partitioned.etcd.ctl(['put', lock], 'held');
  await until('the lock is collected', async () => (await partitioned.etcd.ctl(['get', lock])) === '');
  if (stalled !== undefined) stalled.links.etcd.mode = 'open';
  await agree('after a kill, and partitions from either server');

  expect(await lost?.ended).toBe(1);
  expect(clusters.flatMap((cluster) => cluster.trespasses(FAST_LEASE_MS))).toEqual([]);
  // Operators that delete nothing prove nothing: each leader must have deleted in both stores.
  const who = (store: RegExp): ReadonlySet<string> =>
    new Set(
      clusters.flatMap(({ history }) =>
        history.flatMap((one) => ('deletes' in one && store.test(one.deletes) ? one.by : [])),
      ),
    );
  for (const { name } of running.values()) {
    expect(who(/^cilium\//)).toContain(name);
    expect(who(/^\/apis\//)).toContain(name);
  }
});

// At the same time, because each of them waits seconds for a round.
describe.concurrent('an operator with a problem', () => {
  /** Returns the last error of each duty. */
  async function failures(operator: RunningOperator): Promise<Readonly<Record<string, string>>> {
    const { duties = [] } = (await statusOf(operator)) ?? {};
    return Object.fromEntries(
      duties.flatMap(({ name, lastFailure }) =>
        lastFailure === undefined ? [] : [[name, lastFailure.message]],
      ),
    );
  }

  async function operated(
    cluster: OperatedCluster,
    use: (operator: RunningOperator) => Promise<void>,
    spoil = (): void => {},
  ): Promise<void> {
    objects.set(cluster.name, new Map());
    await apply(cluster, [
      ...namespace(true),
      ...node(cluster, 1, 1),
      ...endpoint(cluster, 1, 1),
      ...service(cluster, 's0', true, 1),
    ]);
    spoil();
    const operator = await cluster.operate();
    try {
      await use(operator);
    } finally {
      await operator.stop();
      await cluster.close();
      objects.delete(cluster.name);
    }
  }

  it('reports the missing right and the missing CRD; everything else continues', async () => {
    const [etcd] = etcds;
    if (etcd === undefined) throw new Error('no etcd');
    const cluster = await OperatedCluster.start('dateline', 4, etcd, folder);
    const look = async (operator: RunningOperator): Promise<void> => {
      const expected = {
        'node sync': /list.*ciliumnodes/,
        'node-gc': /list.*ciliumnodes/,
        'identity-gc-crd': /CRD is not installed/,
      };
      await until('each duty says what is wrong', async () => {
        const found = await failures(operator);
        return Object.entries(expected).every(([name, what]) => what.test(found[name] ?? ''));
      });
      await until('what can be published is', async () => {
        const { duties = [] } = (await statusOf(operator)) ?? {};
        const done = duties.filter(({ published: of }) => of?.synced).map(({ name }) => name);
        return done.includes('IP sync') && done.includes('service sync') && done.includes('heartbeat');
      });
    };
    await operated(cluster, look, () => {
      cluster.api.deny('list', 'ciliumnodes');
      for (const type of CLUSTER_TYPES) if (type.plural === 'ciliumidentities') cluster.api.stopServing(type);
    });
  });

  it('reports the cluster that has its id, too', async () => {
    const [etcd] = etcds;
    if (etcd === undefined) throw new Error('no etcd');
    await operated(await OperatedCluster.start('twin', 1, etcd, folder), async (operator) => {
      await published(operator);
      const said = 'cluster atlantic has id 1, the same as this cluster: agents follow only one of them';
      await until('it says so', async () => (await failures(operator))['cluster configuration'] === said);
    });
  });

  it('ends with status 1 if another operator has its lease, and deletes nothing more', async () => {
    const [etcd] = etcds;
    if (etcd === undefined) throw new Error('no etcd');
    const cluster = await OperatedCluster.start('usurped', 5, etcd, folder);
    await operated(cluster, async (operator) => {
      await published(operator);
      await cluster.usurp();
      expect(await operator.ended).toBe(1);
      expect(cluster.log.join()).toContain('the Lease was lost');
    });
    expect(cluster.trespasses()).toEqual([]);
  });

  it('releases the Lease if its etcd is unreachable for some time; a candidate without etcd is not ready, and does not run', async () => {
    const [etcd] = etcds;
    if (etcd === undefined) throw new Error('no etcd');
    const cluster = await OperatedCluster.start('cut-off', 6, etcd, folder);
    objects.set(cluster.name, new Map());
    await apply(cluster, [...namespace(true), ...service(cluster, 's0', true, 1)]);
    // Longer than an etcd on a busy machine is silent.
    const words = ['--leader-election-kvstore-deadline', '6s'];
    const leader = await cluster.operate(...words);
    await published(leader);
    const [next, blind] = [await cluster.operate(...words), await cluster.operate(...words)];
    try {
      blind.links.etcd.mode = 'refuse';
      await until('one candidate is ready, and the other is not', async () => {
        const [ready, without] = [await statusOf(next), await statusOf(blind)];
        const isSaid = without?.blockers.some((why) => why.startsWith('the kvstore does not answer: '));
        return ready?.election?.state === 'candidate' && ready.blockers.length === 0 && isSaid === true;
      });
      leader.links.etcd.mode = 'refuse';
      expect(await leader.ended).toBe(1);
      expect(cluster.log.join()).toContain(
        'released the Lease, because the kvstore has not answered for 6 s',
      );
      await published(next);
      expect((await statusOf(blind))?.election).toMatchObject({ state: 'candidate' });
    } finally {
      await Promise.all([leader.stop(), next.stop(), blind.stop()]);
      await cluster.close();
      objects.delete(cluster.name);
    }
    expect(cluster.trespasses()).toEqual([]);
  });

  it('reports the missing right on keys of etcd, and a wrong password, while everything else continues; and recovers', async () => {
    const [etcd] = await startEtcd(1, { flags: ['--bcrypt-cost', '4'] });
    if (etcd === undefined) throw new Error('no etcd');
    etcds.push(etcd);
    const grant = (right: string, prefix: string): Promise<string> =>
      etcd.ctl(['role', 'grant-permission', 'operator', right, '--prefix', prefix]);
    await etcd.ctl(['user', 'add', 'root:root']);
    await etcd.ctl(['user', 'grant-role', 'root', 'root']);
    await etcd.ctl(['user', 'add', 'operator:secret']);
    await etcd.ctl(['role', 'add', 'operator']);
    await grant('read', 'cilium/');
    const writes = [
      '.heartbeat',
      '.initlock/',
      'state/nodes/',
      'state/ip/',
      'state/identities/',
      'synced/',
      'state/endpointslices/',
    ];
    for (const below of writes) await grant('readwrite', `cilium/${below}`);
    await etcd.ctl(['user', 'grant-role', 'operator', 'operator']);
    await etcd.ctl(['auth', 'enable']);
    etcd.user = 'root:root';
    const cluster = await OperatedCluster.start('guarded', 9, etcd, folder);
    cluster.etcdUser = { username: 'operator', password: 'secret' };
    await operated(cluster, async (operator) => {
      await until('the duty says so', async () =>
        /.; grant readwrite on cilium\/state\/services\/v1\/guarded\/shop\/s0 to the user$/.test(
          (await failures(operator))['service sync'] ?? '',
        ),
      );
      const synced = async (): Promise<readonly string[]> => {
        const { duties = [] } = (await statusOf(operator)) ?? {};
        return duties.filter(({ published: of }) => of?.synced).map(({ name }) => name);
      };
      await until('the others go on', async () => (await synced()).length === 5);
      expect(await synced()).toEqual(['identity sync', 'node sync', 'IP sync', 'slice sync', 'heartbeat']);
      for (const below of ['state/services/', 'cluster-config/']) await grant('readwrite', `cilium/${below}`);
      await published(operator);

      await etcd.ctl(['user', 'passwd', 'operator', '--interactive=false'], 'changed');
      await apply(cluster, node(cluster, 1, 2));
      await until('the duty says so', async () =>
        /rejects the user or the password/.test((await failures(operator))['node sync'] ?? ''),
      );
      await etcd.ctl(['user', 'passwd', 'operator', '--interactive=false'], 'secret');
      await until('the node is there', async () =>
        (await etcd.ctl(['get', 'cilium/state/nodes/v1/guarded/n1'])).includes('192.168.9.12'),
      );
      await published(operator);
    });
  });

  it('reports that etcd has no space, while its collectors continue; and recovers when there is space', async () => {
    const [full] = await startEtcd(1, { flags: ['--quota-backend-bytes', String(4 * 1024 * 1024)] });
    if (full === undefined) throw new Error('no etcd');
    etcds.push(full);
    const value = 'x'.repeat(1024 * 1024);
    for (let i = 0; i < 6; i++) await full.ctl(['put', `fill/${i}`], value).catch(() => {});
    await operated(await OperatedCluster.start('full', 7, full, folder), async (operator) => {
      await until('the duties say so', async () => {
        const found = await failures(operator);
        return ['service sync', 'node sync', 'heartbeat'].every((name) =>
          /space exceeded/.test(found[name] ?? ''),
        );
      });
      await until('rounds go on', async () => {
        const { duties = [] } = (await statusOf(operator)) ?? {};
        return duties.find(({ name }) => name === 'node-gc')?.rounds?.rounds !== 0;
      });
      await until('it is not ready because of that', async () =>
        /space exceeded/.test((await statusOf(operator))?.blockers.join() ?? ''),
      );
      await full.ctl(['del', 'fill/', '--prefix']);
      const revision = /"revision":(\d+)/.exec(await full.ctl(['get', 'fill/', '-w', 'json']))?.[1] ?? '';
      await full.ctl(['compact', revision, '--physical']);
      await full.ctl(['defrag']);
      await full.ctl(['alarm', 'disarm']);
      await published(operator);
    });
  });
});

it('deploy/base/operator.yaml grants the reads of operators and the writes of their collectors', async () => {
  interface Role {
    readonly kind: string;
    readonly rules?: readonly { apiGroups: string[]; resources: string[]; verbs: string[] }[];
  }
  const text = readFileSync(new URL('../../../deploy/base/operator.yaml', import.meta.url), 'utf8');
  const rightsOf = (rules: NonNullable<Role['rules']>): readonly string[] =>
    rules.flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((plural) => verbs.map((verb) => `${group}/${plural} ${verb}`)),
      ),
    );
  const granted = rightsOf(
    parseAllDocuments(text)
      .map((document): Role => document.toJS())
      .flatMap(({ rules = [] }) => rules),
  );
  const optional = rightsOf(
    parse([...text.matchAll(/^ {2}# (- \{.*)$/gm)].map(([, rule]) => rule).join('\n')),
  );
  // Settings that depend on what can be collected.
  const collecting = [
    ...['ciliumendpoints delete', 'ciliumidentities delete', 'ciliumidentities get'],
    ...['ciliumidentities update', 'ciliumnodes delete', 'ciliumnodes get'],
    ...['ciliumendpointslices list', 'ciliumendpointslices watch'],
  ].map((right) => `cilium.io/${right}`);
  const core = ['nodes get', 'pods get', 'pods list', 'pods watch'].map((right) => `/${right}`);
  const asked = new Set(
    clusters.flatMap((cluster) => [...cluster.asked]).filter((right) => !right.startsWith('/ ')),
  );
  const needed = [...new Set([...asked, ...collecting, ...core])];
  expect([...granted].sort()).toEqual(needed.sort());
  // Additional permissions for servers without slices, the collectors of DNS pods and policies, the slices
  // and the exports.
  expect([...new Set(optional)].sort()).toEqual(
    [
      ...['/endpoints list', '/endpoints watch', '/pods delete', 'cilium.io/ciliumendpoints get'],
      ...['networkpolicies', 'clusterwidenetworkpolicies'].flatMap((plural) => [
        ...[`cilium.io/cilium${plural} list`, `cilium.io/cilium${plural}/status patch`],
      ]),
      ...['create', 'delete', 'get', 'update'].map((verb) => `cilium.io/ciliumendpointslices ${verb}`),
      ...['create', 'delete', 'update'].map((verb) => `discovery.k8s.io/endpointslices ${verb}`),
      ...['create', 'delete', 'get', 'patch'].map((verb) => `/services ${verb}`),
      ...['serviceexports', 'serviceimports'].flatMap((plural) =>
        ['get', 'list', 'watch', 'status patch'].map((right) =>
          `multicluster.x-k8s.io/${plural} ${right}`.replace(' status', '/status'),
        ),
      ),
      ...['create', 'delete', 'patch'].map((verb) => `multicluster.x-k8s.io/serviceimports ${verb}`),
    ].sort(),
  );
});
