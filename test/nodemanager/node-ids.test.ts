import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type NodeIDPair, NodeIDs } from '../../src/nodemanager/node-ids.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

const at = (...ips: string[]) => ({ addresses: addresses(...ips.map((ip) => `InternalIP:${ip}`)) });
const gone = (name: string) => ({ cluster: 'east', name, source: 'kvstore' }) as const;

describe('node ids', () => {
  it('are small, one for each address, and known before other handlers ask', () => {
    const { manager } = fresh();
    const ids = new NodeIDs();
    const seen: unknown[] = [];
    manager.subscribe(ids);
    manager.subscribe({
      nodeAdd: (added) => {
        seen.push(...added.addresses.map(({ ip }) => ids.idOf(ip)));
      },
      nodeUpdate: () => {},
      nodeDelete: (deleted) => {
        seen.push(...deleted.addresses.map(({ ip }) => ids.idOf(ip)));
      },
    });
    manager.nodeUpdated(node('a', at('10.0.0.1', 'fd00::1')));
    manager.nodeUpdated(node('b', at('10.0.0.2')));
    manager.nodeDeleted(gone('a'));
    expect(seen, 'an id outlives its node').toEqual([1, 2, 3, 1, 2]);
    expect(ids.ipOf(3)).toBe('10.0.0.2');
    expect(ids.idOf('10.0.0.9')).toBeUndefined();
  });

  it('are the same when an address comes back, or moves to another node', () => {
    const { manager } = fresh();
    const ids = new NodeIDs();
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('a', at('10.0.0.2')));
    manager.nodeUpdated(node('b', at('10.0.0.1', '10.0.0.2')));
    manager.nodeDeleted(gone('a'));
    expect([ids.idOf('10.0.0.1'), ids.idOf('10.0.0.2')]).toEqual([1, 2]);
  });

  it('are given to others only when all have been used, the one unused for longest first', () => {
    const { manager } = fresh();
    const ids = new NodeIDs(3);
    manager.subscribe(ids);
    for (const n of [1, 2, 3]) manager.nodeUpdated(node(`n${n}`, at(`10.0.0.${n}`)));
    manager.nodeDeleted(gone('n2'));
    manager.nodeDeleted(gone('n1'));
    manager.nodeUpdated(node('n4', at('10.0.0.4')));
    expect(ids.idOf('10.0.0.4')).toBe(2);
    expect(ids.idOf('10.0.0.2')).toBeUndefined();
    expect(ids.idOf('10.0.0.1')).toBe(1);
  });

  it('that are all in use are a fault of the handler, which is tried again', () => {
    const { manager, clock } = fresh();
    const ids = new NodeIDs(1);
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('b', at('10.0.0.2')));
    expect(manager.status().handlers[0]?.failing[0]?.error.code).toBe('node-ids-exhausted');
    manager.nodeDeleted(gone('a'));
    clock.advance(60_000);
    expect(ids.idOf('10.0.0.2')).toBe(1);
    expect(manager.status().handlers[0]?.failing).toEqual([]);
  });

  it('of an earlier run are taken over; what is wrong is rejected', () => {
    const { manager } = fresh();
    const ids = new NodeIDs();
    const rejected = ids.restore([
      { ip: '10.0.0.2', id: 1 },
      { ip: '10.0.0.3', id: 1 },
      { ip: '10.0.0.2', id: 2 },
      { ip: '10.0.0.4', id: 0 },
      { ip: '010.0.0.5', id: 5 },
    ]);
    expect(rejected.map(({ reason }) => reason)).toEqual([
      'duplicate-node-id',
      'duplicate-node-id',
      'invalid-node-id',
      'invalid-address',
    ]);
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('b', at('10.0.0.2')));
    expect([ids.idOf('10.0.0.1'), ids.idOf('10.0.0.2')]).toEqual([2, 1]);
    expect(ids.pairs()).toEqual([
      { ip: '10.0.0.1', id: 2 },
      { ip: '10.0.0.2', id: 1 },
    ]);
  });

  it('are unique, and stay while a node has the address, whatever comes and goes', () => {
    const ips = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'];
    const step = fc.record({
      name: fc.constantFrom('a', 'b', 'c'),
      has: fc.option(fc.subarray(ips, { maxLength: 2 })),
      restart: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const { manager } = fresh();
        let ids = new NodeIDs(6);
        let unsubscribe = manager.subscribe(ids);
        let known = new Map<string, number>();
        for (const { name, has, restart } of steps) {
          if (has === null) manager.nodeDeleted(gone(name));
          else manager.nodeUpdated(node(name, at(...has)));
          if (restart) {
            unsubscribe();
            const saved = JSON.parse(JSON.stringify(ids.pairs())) as NodeIDPair[];
            ids = new NodeIDs(6);
            expect(ids.restore(saved)).toEqual([]);
            unsubscribe = manager.subscribe(ids);
          }
          const inUse = new Set(
            Array.from(manager.nodes()).flatMap((n) => n.addresses.map(({ ip }) => ip).toArray()),
          );
          const now = new Map(Array.from(inUse, (ip) => [ip, ids.idOf(ip) ?? 0]));
          expect(new Set(now.values()).size).toBe(inUse.size);
          for (const [ip, id] of now) {
            expect(ids.ipOf(id)).toBe(ip);
            expect(known.get(ip) ?? id).toBe(id);
          }
          known = now;
        }
      }),
    );
  });
});
