import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { PathItem } from '../../src/datapath/linux/paths/path-item.ts';
import { PathTable } from '../../src/datapath/linux/paths/path-table.ts';
import { Kernel } from '../../src/datapath/linux/syscall/kernel.ts';
import { expect } from '../expect.ts';
import { threadMs } from '../thread-clock.ts';
import { BenchNamespace } from './bench-namespace.ts';
import { BenchTable } from './bench-table.ts';
import { type DatapathRow, STILL } from './row.ts';

/**
 * Routes to pod CIDRs, kept by the reconciler, compared with one run of `ip -batch` (of `ip route show` for the dump).
 */
export async function benchRoutes(n: number): Promise<readonly DatapathRow[]> {
  using namespace = new BenchNamespace();
  using kernel = new Kernel();
  using table = new PathTable(kernel, namespace.path);
  using bench = new BenchTable<PathItem>(table);
  await bench.adopt();
  const index = table.reach('192.168.0.2');
  if (index.kind !== 'link') throw new Error(index.reason);
  const cidrs = Array.from({ length: n }, (_, at) => `10.${at >> 8}.${at & 255}.0/24`);
  const over = (gateway: string): readonly (readonly [string, PathItem])[] =>
    cidrs.map((cidr) => [`route ${cidr}`, { kind: 'route', gateway, interface: index.interface }]);

  const added = await bench.change(over('192.168.0.2'));
  const begunCPU = threadMs();
  const begun = performance.now();
  const there = [...table.dump()].filter((entry) => entry !== undefined).length;
  const dumped = { ms: performance.now() - begun, cpuMs: threadMs() - begunCPU, delay: STILL };
  expect('routes', there, n);
  const replaced = await bench.change(over('192.168.0.3'));
  const deleted = await bench.change(cidrs.map((cidr) => [`route ${cidr}`, undefined]));

  const file = join(tmpdir(), `dpcache-bench-${process.pid}.routes`);
  const batch = (verb: string, rest: string): number =>
    namespace.runOn(
      'ip',
      ['-batch'],
      file,
      cidrs.map((cidr) => `route ${verb} ${cidr} ${rest}`),
    );
  const peers = {
    add: batch('add', 'via 192.168.0.2'),
    dump: namespace.run('ip', ['route', 'show']),
    replace: batch('replace', 'via 192.168.0.3'),
    delete: batch('delete', ''),
  };
  return [
    { operation: 'routes: add', items: n, ...added, peer: 'ip -batch', peerMs: peers.add },
    { operation: 'routes: dump, at once', items: n, ...dumped, peer: 'ip route', peerMs: peers.dump },
    { operation: 'routes: replace', items: n, ...replaced, peer: 'ip -batch', peerMs: peers.replace },
    { operation: 'routes: delete', items: n, ...deleted, peer: 'ip -batch', peerMs: peers.delete },
  ];
}
