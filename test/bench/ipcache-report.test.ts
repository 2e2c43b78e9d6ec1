import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { IPCacheReport } from '../../bench/ipcache/report.ts';
import { renderIPCache } from '../../bench/ipcache/table.ts';
import { benchIPCache } from '../../bench/ipcache.ts';

describe('the bench of the ipcache', () => {
  let report: IPCacheReport;

  beforeAll(async () => {
    vi.stubGlobal('gc', () => {}); // figures need `--expose-gc`, their form does not
    // The bench itself checks the hits and misses of lookups and the changes of listeners.
    const folder = mkdtempSync(join(tmpdir(), 'bench-'));
    const peer = join(folder, 'peer.json');
    writeFileSync(
      peer,
      '{"n": 2000, "program": "other", "fresh": 1e9, "freshSorted": 1e9, "bytesPerEntry": 1e9}',
    );
    report = await benchIPCache({ n: 2000, rounds: 2, peers: true, peer, json: true });
    rmSync(folder, { recursive: true });
  });

  it('contains time and ratio of every operation of the budget table', () => {
    const operations = ['fresh', 'unchanged', 'identityChange', 'delete', 'exact'];
    const matches = [
      'lpmHitExact',
      'lpmHit',
      'lpmMiss',
      'lpmIdentityExact',
      'lpmIdentityHit',
      'lpmIdentityMiss',
    ];
    const all = [...operations, ...matches];
    const names = all.flatMap((name) => [name, `${name}Sorted`, `shadowed.${name}`, `ipv6.${name}`]);
    const lean = ['identityOf', 'lookupMany', 'identityOfSorted', 'lookupManySorted'];
    const churn = ['churn', 'churnSorted'];
    for (const name of [...names, ...lean, ...churn, 'ipv6.freshSorted', 'batch256', 'mapSet', 'mapGet']) {
      expect(report.rows[name], name).toMatchObject({ ns: expect.any(Number), ratio: expect.any(Number) });
      expect(report.rows[name]?.ns, name).toBeGreaterThan(0);
    }
    for (const name of ['mapSet', 'mapGet', 'lpmMapGet']) {
      expect(report.rows[name]?.ratio).toBe(1);
      expect(report.rows[`${name}Sorted`]?.ratio).toBe(1);
    }
  });

  it('contains memory, stalls and peers', () => {
    expect(report.n).toBe(2000);
    for (const bytes of ['bytesPerEntry', 'bytesPerEntrySparse', 'bytesPerPrefix'] as const) {
      expect(report[bytes], bytes).toEqual(expect.any(Number));
    }
    expect(Object.keys(report.stalls)).toEqual(['fresh', 'unchanged', 'identityChange', 'delete', 'mapSet']);
    for (const { maxMs, workMs } of Object.values(report.stalls)) {
      expect(workMs).toBeGreaterThanOrEqual(0);
      expect(workMs).toBeLessThanOrEqual(maxMs);
    }
    expect(Object.keys(report.peers)).toEqual(['five maps', 'immutable.Map', 'longest-prefix-match']);
    const { 'five maps': fiveMaps, 'longest-prefix-match': trie } = report.peers;
    expect(Object.keys(fiveMaps?.rows ?? {})).toEqual(expect.arrayContaining(['fresh', 'delete', 'lpmMiss']));
    expect(Object.keys(trie?.rows ?? {})).toEqual(
      expect.arrayContaining(['lpmHitExact', 'lpmHit', 'lpmMiss']),
    );
  });

  it('contains how long snapshots and withdrawals block the event loop', () => {
    const turns = ['firstSnapshot', 'firstResync', 'writesAfterSnapshot', 'withdrawal'];
    expect(Object.keys(report.turns)).toEqual(turns);
    for (const name of turns) {
      const delay = { p50: expect.any(Number), p99: expect.any(Number), max: expect.any(Number) };
      expect(report.turns[name], name).toEqual({ ms: expect.any(Number), delay });
    }
  });

  it('contains the speed relative to another program for operations that the other has measured', () => {
    const { n, timesFaster } = report.otherProgram ?? expect.fail();
    expect([n, Object.keys(timesFaster)]).toEqual([2000, ['fresh', 'freshSorted', 'bytesPerEntry']]);
    expect(timesFaster['fresh']).toBeCloseTo(1e9 / (report.rows['fresh']?.wallNs ?? 0));
    expect(timesFaster['bytesPerEntry']).toBeCloseTo(1e9 / report.bytesPerEntry);
    expect(renderIPCache(report)).toContain('| beside the other program, 2,000 entries ');
  });

  it('survives JSON, and prints as a table', () => {
    expect(JSON.parse(JSON.stringify(report))).toMatchObject({ n: 2000, rows: { fresh: {} } });
    expect(renderIPCache(report)).toContain('| upsert fresh ');
    expect(renderIPCache(report)).toContain('| withdrawal of half the entries, in steps ');
  });
});
