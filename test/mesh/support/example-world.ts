import type { Cluster, World } from './world.ts';

function cluster(name: string, id: number, endpoints: Cluster['endpoints'], remote: string): Cluster {
  return {
    name,
    id,
    endpoints,
    nodes: {
      n1: { number: 1, isControlPlane: true },
      n2: { number: 2 },
      n3: { number: 3 },
      n4: { number: 4 },
    },
    namespaces: { shop: { labels: { team: 'retail' } }, lab: { labels: {}, isGlobal: false } },
    pods: {
      'shop/web-0': { node: 'n1', app: 'web', ip: '1.10' },
      'shop/web-1': { node: 'n2', app: 'web', ip: '2.10' },
      'shop/cart-0': { node: 'n3', app: 'cart', ip: '3.10' },
      'shop/cart-1': { node: 'n4', app: 'cart', ip: '4.10', phase: 'starting' },
      'shop/cart-2': { node: 'n3', app: 'cart', ip: '3.11', phase: 'creating' },
      'lab/test-0': { node: 'n4', app: 'test', ip: '4.12' },
    },
    services: {
      'shop/web': { app: 'web', ip: '10', isGlobal: true },
      'shop/cart': { app: 'cart', ip: '11', isGlobal: true, affinity: id === 1 ? 'local' : 'remote' },
      'lab/test': { app: 'test', ip: '12' },
    },
    exports: new Set(id === 1 ? ['shop/web'] : []),
    groups: { partners: ['203.0.113.0/24', '2001:db8::/32'] },
    remotes: new Set([remote]),
    identities: new Map(),
  };
}

/** Returns two clusters with four nodes each, so that an agent of each mode runs in each of them. */
export function exampleWorld(): World {
  return {
    clusters: {
      atlantic: cluster('atlantic', 1, 'ciliumendpoints', 'baltic'),
      baltic: cluster('baltic', 2, 'ciliumendpointslices', 'atlantic'),
    },
  };
}
