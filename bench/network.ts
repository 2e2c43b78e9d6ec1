import { benchNftServices } from './datapath/nft-services.ts';
import { benchRoutes } from './datapath/routes.ts';
import type { DatapathRow } from './datapath/row.ts';
import { short, textTable } from './text-table.ts';

/** Parameters of the bench. */
export interface NetworkBenchOptions {
  /** Routes; default 20,000, and a tenth as many services. */
  readonly n?: number | undefined;
  /** If true, prints nothing: the caller prints the result. */
  readonly json?: boolean | undefined;
}

/**
 * Measures routes and services by netlink, in a separate network namespace, compared with `ip` and `nft`. Requires
 * root.
 */
export async function benchNetwork({
  n = 20_000,
  json = false,
}: NetworkBenchOptions): Promise<readonly DatapathRow[]> {
  const rows = [...(await benchRoutes(n)), ...(await benchNftServices(Math.max(1, Math.floor(n / 10))))];
  if (!json) process.stdout.write(textTable(HEAD, rows.map(cells)));
  return rows;
}

const HEAD = [
  '',
  'items',
  'ms',
  'CPU ms',
  'thousand/s',
  'stall p99 ms',
  'longest ms',
  'beside',
  'ms',
  'ratio',
];

function cells(row: DatapathRow): readonly string[] {
  const { operation, items, ms, cpuMs, delay, peer, peerMs } = row;
  const all = [items, ms, cpuMs, items / ms, delay.p99, delay.max].map(short);
  return [operation, ...all, peer, short(peerMs), short(peerMs / ms)];
}
