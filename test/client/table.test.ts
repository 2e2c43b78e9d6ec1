import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Column, objectLines, table } from '../../src/client/answer.ts';

const ROWS = [
  ['NODE', 'ADDRESSES', 'PODS', 'KEY'],
  ['far/a-node-with-a-long-name', 'InternalIP=192.168.10.1 ExternalIP=203.0.113.1', '10.10.0.0/24', '3'],
];

describe('a table', () => {
  it('of a narrow view has the widest column cut, so that the last ones stay (regression: they were cut off)', () => {
    expect(table(ROWS, { wide: false, width: 70 })).toEqual([
      'NODE                         ADDRESSES               PODS          KEY',
      'far/a-node-with-a-long-name  InternalIP=192.168.10…  10.10.0.0/24  3',
    ]);
  });

  it('has cut lines if no column would be readable', () => {
    expect(table(ROWS, { wide: false, width: 50 })[1]).toBe(
      'far/a-node-with-a-long-name  InternalIP=192.168.1…',
    );
  });

  it('is not cut if the view is wide, or has no width', () => {
    const lines = table(ROWS, { wide: true, width: 20 });
    expect(lines[1]).toBe(
      'far/a-node-with-a-long-name  InternalIP=192.168.10.1 ExternalIP=203.0.113.1  10.10.0.0/24  3',
    );
    expect(table(ROWS, { wide: false })).toEqual(lines);
  });

  it('has no line that is wider than the view, and the same lines as without a width if they fit', () => {
    const cell = fc.string({ unit: 'grapheme-ascii', maxLength: 40 });
    const rows = fc.array(fc.tuple(cell, cell, cell), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(rows, fc.integer({ min: 1, max: 130 }), (shown, width) => {
        const lines = table(shown, { wide: false, width });
        const full = table(shown, { wide: false });
        expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(width);
        if (full.every(({ length }) => length <= width)) expect(lines).toEqual(full);
      }),
    );
  });
});

describe('an object', () => {
  interface Claim {
    readonly key: string;
    readonly origin: string;
  }
  const columns: readonly Column<Claim>[] = [
    { title: '', cell: ({ key }) => (key === '10.0.0.1' ? '*' : '') },
    { title: 'KEY', cell: ({ key }) => key },
    { title: 'ORIGIN', cell: ({ origin }) => origin },
    { title: 'LABELS', cell: () => 'a=b', wide: true },
  ];
  const claims = [
    { key: '10.0.0.1', origin: 'etcd of far, cilium/state/ip/v1/default/10.0.0.1' },
    { key: '10.0.0.1/32', origin: 'k8s' },
  ];

  it('is a table if it fits into the view', () => {
    const [header] = objectLines(columns, claims, { wide: false, width: 70 });
    expect(header).toBe('   KEY          ORIGIN');
    expect(objectLines(columns, claims, { wide: true, width: 10 })[0]).toMatch(/KEY +ORIGIN +LABELS$/);
  });

  it('has a line for each field if it does not fit (regression: explain and history were cut at 80 columns)', () => {
    expect(objectLines(columns, claims, { wide: false, width: 60 })).toEqual([
      '*  KEY     10.0.0.1',
      '   ORIGIN  etcd of far, cilium/state/ip/v1/default/10.0.0.1',
      '',
      '   KEY     10.0.0.1/32',
      '   ORIGIN  k8s',
    ]);
  });
});
