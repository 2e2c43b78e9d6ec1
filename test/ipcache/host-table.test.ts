import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HostTable, NO_HOST } from '../../src/ipcache/host-table.ts';
import { MapPrefixTable } from '../net/support/map-prefix-table.ts';

const address = fc.constantFrom(
  '10.0.0.1',
  '10.0.0.2',
  '::ffff:10.0.0.2',
  'fd00::1',
  'FD00:0::1',
  '10.0.0.3',
);
const step = fc.oneof(
  fc.record({ op: fc.constant('resolve' as const), text: address }),
  fc.record({ op: fc.constant('retain' as const), text: address }),
  fc.record({ op: fc.constant('release' as const), nth: fc.nat() }),
);
const CANONICAL: Readonly<Record<string, string>> = { '::ffff:10.0.0.2': '10.0.0.2', 'FD00:0::1': 'fd00::1' };

describe('the table of host IPs', () => {
  it('keeps one number for each address while it is referenced, and no longer', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const table = new MapPrefixTable();
        const hosts = new HostTable(table);
        const held: { id: number; text: string }[] = [];
        for (const each of steps) {
          if (each.op === 'release') {
            const [gone] = held.splice(each.nth % Math.max(held.length, 1), 1);
            if (gone !== undefined) hosts.release(gone.id);
            continue;
          }
          const text = CANONICAL[each.text] ?? each.text;
          const id = hosts.resolve(each.text);
          expect(hosts.text(id)).toBe(text);
          for (const other of held) expect(other.id === id).toBe(other.text === text);
          if (each.op === 'resolve') continue;
          hosts.retain(id);
          held.push({ id, text });
        }
        for (const { id, text } of held) expect(hosts.text(id)).toBe(text);
        hosts.resolve('not an address');
        expect(table.size).toBe(new Set(held.map(({ text }) => text)).size);
      }),
    );
  });

  it('has a number for no host, and none for an invalid address', () => {
    const hosts = new HostTable(new MapPrefixTable());
    expect([hosts.resolve(undefined), hosts.text(NO_HOST)]).toEqual([NO_HOST, undefined]);
    for (const text of ['', '10.0.0.0/8', '10.0.0.01', 'fd00::1%eth0']) expect(hosts.resolve(text)).toBe(-1);
  });

  it('forgets a host that was released before another is resolved only once', () => {
    const hosts = new HostTable(new MapPrefixTable());
    const first = hosts.resolve('10.0.0.1');
    hosts.retain(first);
    hosts.release(first);
    const second = hosts.resolve('10.0.0.2');
    hosts.retain(second);
    expect([hosts.resolve('10.0.0.1') === second, hosts.text(second)]).toEqual([false, '10.0.0.2']);
  });
});
