import { it } from 'vitest';
import { MeshChecks, OUTAGE } from './support/checks.ts';
import { exampleWorld } from './support/example-world.ts';
import { RECOVERY_MS, RunningMesh } from './support/running-mesh.ts';
import type { Cluster } from './support/world.ts';

/** A step of the walk-through, and the lines of logs that it explains. */
interface Step {
  readonly title: string;
  readonly run: (mesh: RunningMesh, atlantic: Cluster, baltic: Cluster) => void | Promise<void>;
  readonly logs?: readonly RegExp[];
}

const STEPS: readonly Step[] = [
  {
    title: 'a pod becomes ready, another one gets its endpoint, and a third one terminates',
    run: (_, { pods }) => {
      pods['shop/cart-1'] = { node: 'n4', app: 'cart', ip: '4.10' };
      pods['shop/cart-2'] = { node: 'n3', app: 'cart', ip: '3.11', phase: 'starting' };
      pods['shop/web-1'] = { node: 'n2', app: 'web', ip: '2.10', phase: 'terminating' };
    },
  },
  {
    title: 'a rolling update replaces the pods',
    run: async (mesh, { pods }) => {
      pods['shop/web-2'] = { node: 'n3', app: 'web', ip: '3.20', phase: 'creating' };
      await mesh.settle(2000);
      delete pods['shop/web-1'];
      pods['shop/web-2'] = { node: 'n3', app: 'web', ip: '3.20' };
      pods['shop/web-3'] = { node: 'n4', app: 'web', ip: '4.20' };
      await mesh.settle(500);
      delete pods['shop/web-0'];
    },
  },
  {
    title: 'another node gets the address of a deleted pod',
    run: (_, { pods }) => {
      delete pods['shop/web-2'];
      pods['shop/web-4'] = { node: 'n1', app: 'web', ip: '3.20' };
    },
  },
  {
    title: 'a node is replaced by one with the same addresses',
    run: (_, { nodes, pods }) => {
      delete nodes['n4'];
      for (const [name, { node }] of Object.entries(pods)) if (node === 'n4') delete pods[name];
      nodes['n4-new'] = { number: 4 };
      pods['shop/cart-3'] = { node: 'n4-new', app: 'cart', ip: '4.10' };
    },
  },
  {
    title: 'a worker becomes a control-plane node',
    run: (_, __, { nodes }) => {
      nodes['n2'] = { number: 2, isControlPlane: true };
      nodes['n1'] = { number: 1 };
    },
  },
  {
    title: 'the labels of a namespace change the identities of its pods',
    run: (_, { namespaces }) => {
      namespaces['shop'] = { labels: { team: 'retail', stage: 'production' } };
    },
  },
  {
    title: 'a namespace is not published any more, and another one is',
    run: (_, { namespaces }, baltic) => {
      namespaces['lab'] = { labels: {} };
      baltic.namespaces['shop'] = { labels: { team: 'retail' }, isGlobal: false };
    },
  },
  {
    title: 'a namespace is published again',
    run: (_, __, { namespaces }) => {
      namespaces['shop'] = { labels: { team: 'retail' } };
    },
  },
  {
    title: 'services change their annotations',
    run: (_, { services }, baltic) => {
      services['shop/web'] = { app: 'web', ip: '10', isGlobal: true, affinity: 'remote', nodePort: 30_080 };
      services['shop/cart'] = { app: 'cart', ip: '11', isGlobal: false };
      baltic.services['shop/cart'] = { app: 'cart', ip: '11', isGlobal: true, isShared: false };
    },
  },
  {
    title: 'a service is exported by both clusters, and another one by one',
    run: (_, atlantic, baltic) => {
      baltic.exports.add('shop/web');
      baltic.exports.add('shop/cart');
      atlantic.services['shop/cart'] = { app: 'cart', ip: '11', isGlobal: true };
    },
  },
  {
    title: 'a service and its export are deleted, and groups change',
    run: (_, atlantic, { services, groups }) => {
      atlantic.exports.clear();
      delete services['shop/cart'];
      groups['partners'] = ['203.0.113.0/25', '198.51.100.0/24'];
      groups['others'] = ['192.0.2.0/24'];
    },
  },
  {
    title: 'the API server of a cluster is away for a while',
    logs: OUTAGE,
    run: async (mesh, { pods, services }) => {
      mesh.cluster('atlantic').api.server.down();
      delete pods['shop/cart-0'];
      pods['shop/web-5'] = { node: 'n2', app: 'web', ip: '2.11' };
      services['shop/new'] = { app: 'new', ip: '13' };
      await mesh.settle(120_000);
      mesh.cluster('atlantic').api.server.up();
    },
  },
  {
    title: 'the etcd of a cluster is away for a while',
    logs: OUTAGE,
    run: async (mesh, { pods }, baltic) => {
      mesh.cluster('baltic').etcd.away();
      delete baltic.pods['shop/web-0'];
      pods['shop/web-6'] = { node: 'n2', app: 'web', ip: '2.12' };
      await mesh.settle(45_000);
      mesh.cluster('baltic').etcd.back();
    },
  },
  {
    title: 'all watches break, and the history of both servers is compacted',
    logs: OUTAGE,
    run: async (mesh, { pods }, baltic) => {
      const { api, etcd } = mesh.cluster('atlantic');
      api.server.down();
      etcd.away();
      delete pods['shop/web-6'];
      baltic.pods['shop/web-0'] = { node: 'n1', app: 'web', ip: '1.10' };
      await mesh.settle(1000);
      api.server.compact();
      etcd.server.compact();
      etcd.back();
      api.server.up();
    },
  },
  ...[['operator'], ['kvstoremesh', 'n1'], ['n2', 'n3', 'n4-new']].map(
    (names): Step => ({
      title: `${names.join(', ')} restarted, without some changes`,
      run: async (mesh, { pods }, baltic) => {
        for (const name of names) await mesh.stop('atlantic', name);
        delete pods['shop/web-5'];
        pods[`shop/missed-by-${names[0]}`] = { node: 'n2', app: 'cart', ip: `2.2${names.length}` };
        delete baltic.pods['shop/web-0'];
        await mesh.settle(10_000);
        for (const name of names) mesh.start('atlantic', name);
      },
    }),
  ),
  {
    title: 'a cluster leaves the mesh',
    run: async (mesh, { remotes }) => {
      remotes.clear();
      await mesh.settle(180_000); // kvstoremesh deletes the copy after this time
    },
  },
  {
    title: 'a cluster joins the mesh again',
    run: (_, { remotes }) => void remotes.add('baltic'),
  },
];

it('all agents of a mesh answer what exists', async () => {
  const mesh = await RunningMesh.start(exampleWorld());
  const [atlantic, baltic] = ['atlantic', 'baltic'].map((name) => mesh.cluster(name).cluster);
  if (atlantic === undefined || baltic === undefined) return;
  const checks = new MeshChecks(mesh);
  await checks.expectEqual('the start');
  for (const { title, run, logs } of STEPS) {
    await run(mesh, atlantic, baltic);
    await mesh.settle(logs === undefined ? undefined : RECOVERY_MS);
    await checks.expectEqual(title, logs);
  }
});
