import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Node } from '../../src/nodemanager/node.ts';
import { type NodeIDPair, NodeIDs, NodeIDsExhaustedError } from '../../src/nodemanager/node-ids.ts';
import { parseNode } from '../../src/nodemanager/parse-node.ts';
import { addresses, fresh, node } from './support/node-fixtures.ts';

const at = (...ips: string[]) => ({ addresses: addresses(...ips.map((ip) => `InternalIP:${ip}`)) });
const gone = (name: string) => ({ cluster: 'east', name, source: 'kvstore' }) as const;

describe('node ids', () => {
  it('are small, one for each address, and assigned before other handlers are called', () => {
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

  it('are the same if an address returns, or moves to another node', () => {
    const { manager } = fresh();
    const ids = new NodeIDs();
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('a', at('10.0.0.2')));
    manager.nodeUpdated(node('b', at('10.0.0.1', '10.0.0.2')));
    manager.nodeDeleted(gone('a'));
    expect([ids.idOf('10.0.0.1'), ids.idOf('10.0.0.2')]).toEqual([1, 2]);
  });

  it('are reused only when all have been used, the one unused for longest first', () => {
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

  it('that are exhausted are a fault of the handler, which is retried', () => {
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

  it('are free for the new addresses of the node that gives them up (regression: all in use)', () => {
    const { manager } = fresh();
    const ids = new NodeIDs(2);
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1', '10.0.0.2')));
    manager.nodeUpdated(node('a', at('10.0.0.2', '10.0.0.3')));
    expect(manager.status().handlers[0]?.failing).toEqual([]);
    expect([ids.idOf('10.0.0.2'), ids.idOf('10.0.0.3')]).toEqual([2, 1]);
  });

  it('stay with the node that has the address if another one that got none is deleted (regression: assigned to a third)', () => {
    const { manager } = fresh();
    const ids = new NodeIDs(1);
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('b', at('10.0.0.1', '10.0.0.2')));
    manager.nodeDeleted(gone('b'));
    manager.nodeUpdated(node('c', at('10.0.0.3')));
    expect([ids.idOf('10.0.0.1'), ids.idOf('10.0.0.3')]).toEqual([1, undefined]);
  });

  it('are free after a node that could not be updated, whatever its new version (regression: never)', () => {
    const { manager, clock } = fresh();
    const ids = new NodeIDs(2);
    manager.subscribe(ids);
    manager.nodeUpdated(node('a', at('10.0.0.1')));
    manager.nodeUpdated(node('b', at('10.0.0.2')));
    manager.nodeUpdated(node('a', at('10.0.0.3', '10.0.0.6')));
    expect(manager.status().handlers[0]?.failing[0]?.error.code).toBe('node-ids-exhausted');
    manager.nodeUpdated(node('a', at('10.0.0.4')));
    manager.nodeDeleted(gone('b'));
    clock.advance(60_000);
    manager.nodeUpdated(node('c', at('10.0.0.5')));
    expect([ids.idOf('10.0.0.4'), ids.idOf('10.0.0.5')]).toEqual([1, 2]);
  });

  it('of an earlier run are restored; invalid ones are rejected', () => {
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

  it('are unique, and stay while a node has the address, in any sequence of changes', () => {
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

const MAX = 4;

/** The rules over a plain list, oldest unused first. A new id precedes a used one. */
class NaiveIDs {
  readonly given = new Map<string, number>();
  readonly uses = new Map<string, number>();
  unused: readonly string[] = [];

  /** Replaces addresses of a node. Returns false, and changes nothing, if more would be in use than there are ids. */
  replace(gone: readonly string[], added: ReadonlySet<string>): boolean {
    const left = [...this.uses.keys()].filter((ip) => !gone.includes(ip) || (this.uses.get(ip) ?? 0) > 1);
    if (new Set([...left, ...added]).size > MAX) return false;
    for (const ip of gone) this.#release(ip);
    for (const ip of added) this.#acquire(ip);
    return true;
  }

  #acquire(ip: string): void {
    if (!this.given.has(ip)) {
      const fresh = [1, 2, 3, 4].find((id) => ![...this.given.values()].includes(id));
      const [oldest = ''] = this.unused;
      const id = fresh ?? this.given.get(oldest) ?? expect.fail('no id is left');
      if (fresh === undefined) {
        this.given.delete(oldest);
        this.unused = this.unused.slice(1);
      }
      this.given.set(ip, id);
    }
    this.uses.set(ip, (this.uses.get(ip) ?? 0) + 1);
    this.unused = this.unused.filter((each) => each !== ip);
  }

  #release(ip: string): void {
    const left = (this.uses.get(ip) ?? 0) - 1;
    if (left > 0) this.uses.set(ip, left);
    else if (this.uses.delete(ip)) this.unused = [...this.unused, ip];
  }

  restore(ip: string, id: number): boolean {
    if (id < 1 || id > MAX || this.given.has(ip) || [...this.given.values()].includes(id)) return false;
    this.given.set(ip, id);
    this.unused = [...this.unused, ip];
    return true;
  }
}

describe('ids of a small datapath', () => {
  const IPS = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6'];
  const ips = fc.array(fc.constantFrom(...IPS), { maxLength: 3 });
  const named = fc.constantFrom('a', 'b', 'c');
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('set' as const), named, ips }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), named }) },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant('restore' as const),
        ip: fc.constantFrom(...IPS),
        id: fc.integer({ min: 0, max: MAX + 1 }),
      }),
    },
  );
  const made = (name: string, of: readonly string[]): Node =>
    parseNode(node(name, { addresses: of.map((ip) => ({ type: 'InternalIP', ip })) }), () => {}) ??
    expect.fail('no node');

  it('equal those of a plain list after any adds, deletes, restores and failures', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 25, size: 'max' }), (steps) => {
        const [ids, model] = [new NodeIDs(MAX), new NaiveIDs()];
        const nodes = new Map<string, readonly string[]>();
        for (const happens of steps) {
          if (happens.do === 'restore') {
            const rejected = ids.restore([{ ip: happens.ip, id: happens.id }]);
            expect(rejected.length === 0).toBe(model.restore(happens.ip, happens.id));
          } else {
            const old = nodes.get(happens.named) ?? [];
            const next = happens.do === 'set' ? happens.ips : [];
            const added = next.filter((ip) => !old.includes(ip));
            const gone = [...new Set(old)].filter((ip) => !next.includes(ip));
            const change = (): void => {
              if (happens.do === 'delete') ids.nodeDelete(made(happens.named, old));
              else if (nodes.has(happens.named))
                ids.nodeUpdate(made(happens.named, old), made(happens.named, next));
              else ids.nodeAdd(made(happens.named, next));
            };
            if (model.replace(gone, new Set(added))) {
              change();
              nodes.set(happens.named, next);
              if (happens.do === 'delete') nodes.delete(happens.named);
            } else expect(change).toThrow(NodeIDsExhaustedError);
          }
          const pairOf = (ip: string): NodeIDPair => ({ ip, id: model.given.get(ip) ?? 0 });
          expect(ids.pairs()).toEqual([...model.unused, ...model.uses.keys()].map(pairOf));
          for (const ip of IPS) expect(ids.idOf(ip)).toBe(model.given.get(ip));
          for (const [ip, id] of model.given) expect(ids.ipOf(id)).toBe(ip);
        }
      }),
    );
  });

  it.each<[unknown, string]>([
    [7, 'wrong-type pair 7 node ids'],
    [{ ip: 7, id: 1 }, 'invalid-address ip 7 node ids'],
    [{ ip: 'FD00::1', id: 1 }, 'invalid-address ip "FD00::1" node ids'],
    [{ ip: '10.0.0.1', id: 0 }, 'invalid-node-id id 0 node ids: 10.0.0.1'],
    [{ ip: '10.0.0.1', id: 5 }, 'invalid-node-id id 5 node ids: 10.0.0.1'],
    [{ ip: '10.0.0.1', id: 1.5 }, 'invalid-node-id id 1.5 node ids: 10.0.0.1'],
    [{ ip: '10.0.0.9', id: 2 }, 'duplicate-node-id id 2 node ids: 10.0.0.9'],
    [{ ip: '10.0.0.8', id: 3 }, 'duplicate-node-id id 3 node ids: 10.0.0.8'],
  ])('are not restored from %j', (pair, expected) => {
    const ids = new NodeIDs(MAX);
    expect(
      ids.restore([
        { ip: '10.0.0.8', id: 2 },
        { ip: '10.0.0.7', id: MAX },
      ]),
    ).toEqual([]);
    const [rejected, ...more] = ids.restore([pair as NodeIDPair]);
    const { reason, field, value, at } = rejected ?? expect.fail('it was taken');
    expect([`${reason} ${field} ${value} ${at}`, more]).toEqual([expected, []]);
    expect(ids.pairs()).toHaveLength(2);
  });

  it('that are exhausted are an error with a code, of a handler with a name', () => {
    expect(new NodeIDsExhaustedError('full')).toMatchObject({
      name: 'NodeIDsExhaustedError',
      code: 'node-ids-exhausted',
      retryable: true,
    });
    expect(new NodeIDs().name).toBe('node-ids');
  });
});
