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

it.each(['id', 'source', 'destination', 'ttl', 'tos', 'flags'] as const)(
  'routes that differ only in the %s of their encapsulation, or have none, are different routes',
  (field) => {
    const encap = { id: 6, source: '192.168.0.1', destination: '198.51.100.3', ttl: 0, tos: 0, flags: 1 };
    const changed = { ...encap, [field]: typeof encap[field] === 'string' ? '203.0.113.9' : 7 };
    const ledger = new RouteLedger();
    for (const one of [encap, changed, undefined])
      ledger.add(route({ protocol: ROUTE_PROTOCOL, encap: one && { ...one } }));
    expect(ledger.ourRoutes(TO).map((one) => one.encap)).toEqual([encap, changed, undefined]);
    ledger.delete(route({ protocol: ROUTE_PROTOCOL, encap: { ...encap } }));
    expect(ledger.ourRoutes(TO).map((one) => one.encap)).toEqual([changed, undefined]);
  },
);
