import { expect, it } from 'vitest';
import type { Route } from '../../../../src/datapath/linux/netlink/route.ts';
import { ROUTE_PROTOCOL } from '../../../../src/datapath/linux/paths/path-item.ts';
import { RouteLedger } from '../../../../src/datapath/linux/paths/route-ledger.ts';

const TO = '10.7.0.0/24';

const route = (change: Partial<Route> = {}): Route => ({
  destination: TO,
  table: 254,
  protocol: 4,
  gateway: '192.168.0.1',
  interface: 3,
  onlink: false,
  metric: 0,
  isUnicast: true,
  ...change,
});

it('routes that differ only in their metric are different routes, foreign and ours', () => {
  const ledger = new RouteLedger();
  for (const metric of [0, 77]) ledger.add(route({ metric }));
  expect([ledger.foreignRoute(TO, 0)?.metric, ledger.foreignRoute(TO, 77)?.metric]).toEqual([0, 77]);
  ledger.delete(route({ metric: 0 }));
  expect([ledger.foreignRoute(TO, 0), ledger.foreignRoute(TO, 77)?.metric]).toEqual([undefined, 77]);
  for (const metric of [0, 77]) ledger.add(route({ metric, protocol: ROUTE_PROTOCOL }));
  expect(ledger.ourRoutes(TO).map(({ metric }) => metric)).toEqual([0, 77]);
});
