import { expect, it } from 'vitest';
import type { ServiceExport } from '../../../src/model/service-export.ts';
import { RemoteExports } from '../../../src/operator/mcs/remote-exports.ts';

const exported = (cluster: string, name: string): ServiceExport =>
  ({ cluster, namespace: 'shop', name }) as ServiceExport;
const key = (cluster: string, name: string) => ({ cluster, namespace: 'shop', name }) as const;

it('remote exports are counted by cluster, and a cluster or name without exports is forgotten', () => {
  const exports = new RemoteExports();
  const put = (cluster: string, name: string): string =>
    exports.set(key(cluster, name), exported(cluster, name));
  expect(put('b', 'cart')).toBe('shop/cart');
  put('a', 'cart');
  put('a', 'cart'); // a change is not another export
  put('a', 'db');
  expect(exports.counts()).toEqual([
    ['a', 2],
    ['b', 1],
  ]);
  exports.set(key('b', 'cart'), undefined);
  exports.set(key('b', 'cart'), undefined);
  exports.set(key('a', 'db'), undefined);
  expect(exports.counts()).toEqual([['a', 1]]);
  expect([...exports.keys()]).toEqual(['shop/cart']);
  expect([exports.has('shop/cart'), exports.has('shop/db')]).toEqual([true, false]);
  expect(exports.exportsOf('shop/cart')).toEqual([exported('a', 'cart')]);
  expect(exports.exportsOf('shop/db')).toEqual([]);
  exports.clear();
  expect([[...exports.keys()], exports.counts()]).toEqual([[], []]);
});
