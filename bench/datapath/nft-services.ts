import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { NftServices } from '../../src/datapath/linux/nftables/nft-services.ts';
import type { ServiceItem } from '../../src/datapath/linux/services/desired-services.ts';
import { Kernel } from '../../src/datapath/linux/syscall/kernel.ts';
import { threadMs } from '../thread-clock.ts';
import { BenchNamespace } from './bench-namespace.ts';
import { BenchTable } from './bench-table.ts';
import { type DatapathRow, STILL } from './row.ts';

const BACKENDS = 10;
const CHANGES = 200;
const RANGES = 100;

/** Services in nftables, also with source ranges. */
export async function benchNftServices(n: number): Promise<readonly DatapathRow[]> {
  return [...(await benchBackends(n)), await benchRanges(Math.max(1, Math.floor(n / 2)))];
}

/**
 * Services in nftables, kept by the reconciler, compared with `nft -f` of a chain for each service, as in kube-proxy.
 */
async function benchBackends(n: number): Promise<readonly DatapathRow[]> {
  using namespace = new BenchNamespace();
  using kernel = new Kernel();
  using table = new NftServices(kernel, namespace.path);
  using bench = new BenchTable<ServiceItem>(table);
  await bench.adopt();
  const filled = await bench.change(
    Array.from({ length: n }, (_, at) => [`${frontend(at)}:80/TCP`, service(at, 0)]),
  );
  const begunCPU = threadMs();
  const begun = performance.now();
  for (let at = 0; at < CHANGES; at++)
    table.apply([{ key: `${frontend((at * 37) % n)}:80/TCP`, item: service(at, 1) }]);
  const [ms, cpuMs] = [(performance.now() - begun) / CHANGES, (threadMs() - begunCPU) / CHANGES];

  const file = join(tmpdir(), `dpcache-bench-${process.pid}.nft`);
  const load = (lines: readonly string[]): number => namespace.runOn('nft', ['-f'], file, lines);
  const peerMs = load([...CHAINS, ...Array.from({ length: n }, (_, at) => chain(at))]);
  const peerChange = load([`flush chain ip peer service-1`, rule(1)]);
  return [
    { operation: 'nftables: services of 10', items: n, ...filled, peer: 'a chain each', peerMs },
    {
      operation: 'nftables: one change',
      items: 1,
      ms,
      cpuMs,
      delay: STILL,
      peer: 'nft -f',
      peerMs: peerChange,
    },
  ];
}

/** Services with source ranges, compared with `nft -f` of an interval set for each service, as in kube-proxy. */
async function benchRanges(n: number): Promise<DatapathRow> {
  using namespace = new BenchNamespace();
  using kernel = new Kernel();
  using table = new NftServices(kernel, namespace.path);
  using bench = new BenchTable<ServiceItem>(table);
  await bench.adopt();
  const filled = await bench.change(
    Array.from({ length: n }, (_, at) => [
      `${frontend(at)}:80/TCP`,
      { backends: [], affinitySeconds: 0, sources: { policy: 'allow', ranges: ranges(at) } },
    ]),
  );
  const file = join(tmpdir(), `dpcache-bench-${process.pid}.nft`);
  const sets = Array.from({ length: n }, (_, at) =>
    [
      `add set ip peer from-${at} { type ipv4_addr; flags interval; }`,
      `add element ip peer from-${at} { ${ranges(at).join(', ')} }`,
      `add chain ip peer service-${at}`,
      `add rule ip peer service-${at} ip saddr != @from-${at} drop`,
      `add element ip peer services { ${frontend(at)} . tcp . 80 : goto service-${at} }`,
    ].join('\n'),
  );
  const peerMs = namespace.runOn('nft', ['-f'], file, [...CHAINS, ...sets]);
  const operation = `nftables: services of ${RANGES} source ranges`;
  return { operation, items: n, ...filled, peer: 'a set each', peerMs };
}

function ranges(at: number): readonly string[] {
  return Array.from({ length: RANGES }, (_, range) =>
    range % 2 === 0 ? `11.${range}.${at >> 8}.${at & 255}/32` : `11.${range}.${at >> 8}.${at & 254}/31`,
  );
}

const CHAINS: readonly string[] = [
  'add table ip peer',
  'add map ip peer services { type ipv4_addr . inet_proto . inet_service : verdict; }',
  'add chain ip peer output { type nat hook output priority -100; }',
  'add rule ip peer output ip daddr . meta l4proto . th dport vmap @services',
];

function frontend(at: number): string {
  return `10.96.${at >> 8}.${at & 255}`;
}

function backend(at: number, slot: number): string {
  return `10.${slot}.${at >> 8}.${at & 255}`;
}

/** A service whose first backend differs in each version. */
function service(at: number, version: number): ServiceItem {
  const slots = Array.from({ length: BACKENDS }, (_, slot) => (slot === 0 ? BACKENDS + version : slot));
  return { backends: slots.map((slot) => `${backend(at, slot)}:8080/TCP`), affinitySeconds: 0 };
}

function rule(at: number): string {
  const picks = Array.from({ length: BACKENDS }, (_, slot) => `${slot} : ${backend(at, slot)} . 8080`);
  return `add rule ip peer service-${at} meta l4proto tcp dnat ip to numgen random mod ${BACKENDS} map { ${picks.join(', ')} }`;
}

function chain(at: number): string {
  const element = `add element ip peer services { ${frontend(at)} . tcp . 80 : goto service-${at} }`;
  return [`add chain ip peer service-${at}`, rule(at), element].join('\n');
}
