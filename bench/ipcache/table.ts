import { delayCells } from '../loop-delay.ts';
import { short, textTable } from '../text-table.ts';
import type { IPCacheReport, PeerReport, Row } from './report.ts';
import { SORTED } from './rows.ts';

interface Line {
  readonly name: string;
  readonly what: string;
  /** The budget, as a multiple of the yardstick, or of the plain row if stated so. */
  readonly budget?: number;
  /** The budget for work in the order of texts. */
  readonly sorted?: number;
  readonly of?: 'yardstick' | 'plain row';
  /** The cost in the Go original, 1.8.11 / 1.17-dev, one core of the same kind of machine, 1,000,000 entries. */
  readonly go?: string;
}

const WRITES: readonly Line[] = [
  { name: 'fresh', what: 'upsert fresh', budget: 1.3, sorted: 0.7, go: '3852 / 5781' },
  { name: 'unchanged', what: 'upsert unchanged', budget: 0.9, sorted: 0.35, go: '680 / 1069' },
  { name: 'identityChange', what: 'identity change', budget: 1.1, sorted: 0.45, go: '1593 / 3327' },
  { name: 'delete', what: 'delete', budget: 0.8, sorted: 0.5, go: '2834 / 3647' },
];

const READS: readonly Line[] = [
  { name: 'exact', what: 'exact lookup', budget: 0.6, sorted: 0.3, go: '304 / 524' },
  { name: 'identityOf', what: 'identity only', budget: 0.4, sorted: 0.15 },
  { name: 'lookupMany', what: '`lookupMany`', budget: 0.3, sorted: 0.12 },
  { name: 'lpmHitExact', what: 'LPM hit on exact', go: '– / 763' },
  { name: 'lpmHit', what: 'LPM hit in a CIDR', go: '– / 2657' },
  { name: 'lpmMiss', what: 'LPM miss', go: '– / 7109' },
  { name: 'lpmIdentityExact', what: 'LPM identity, on exact', budget: 0.4, sorted: 0.2 },
  { name: 'lpmIdentityHit', what: 'LPM identity, in a CIDR', budget: 0.9, sorted: 0.5 },
  { name: 'lpmIdentityMiss', what: 'LPM identity, miss', budget: 0.8, sorted: 0.5 },
];

const EXACT: readonly Line[] = READS.slice(0, 3);
const MATCHES: readonly Line[] = READS.slice(3);

const CHURN: readonly Line[] = [{ name: 'churn', what: '10 % churn: delete and fresh' }];

/** Lines for the same work in the order of texts. */
function inTextOrder(lines: readonly Line[]): readonly Line[] {
  return lines.map(({ name, what, sorted }) => ({
    name: name + SORTED,
    what: `${what}, by text`,
    ...(sorted !== undefined && { budget: sorted }),
  }));
}

/**
 * Returns the rows of another workload, whose budget is `factor` times that of the plain ones; without `factor`, they
 * have none.
 */
function variant(prefix: string, suffix: string, factor?: number): readonly Line[] {
  return [...WRITES, ...READS, ...inTextOrder([...WRITES, ...READS])].map(({ name, what, budget }) => ({
    name: `${prefix}.${name}`,
    what: `${what}, ${suffix}`,
    ...(factor !== undefined && budget !== undefined && { budget: Number((factor * budget).toFixed(2)) }),
  }));
}

const LINES: readonly Line[] = [
  { name: 'mapSet', what: '`Map.set`' },
  ...WRITES,
  ...CHURN,
  { name: 'batch256', what: 'fresh, batches of 256', budget: 1.1, of: 'plain row' },
  { name: 'mapGet', what: '`Map.get`' },
  ...EXACT,
  { name: 'lpmMapGet', what: '`Map.get`, table for LPM' },
  { name: 'lpmMapGetMiss', what: '`Map.get` of what is not there' },
  ...MATCHES,
  ...inTextOrder([{ name: 'mapSet', what: '`Map.set`' }, ...WRITES, ...CHURN]),
  ...inTextOrder([{ name: 'mapGet', what: '`Map.get`' }, ...EXACT]),
  ...inTextOrder([{ name: 'lpmMapGet', what: '`Map.get`, table for LPM' }, ...MATCHES]),
  ...variant('shadowed', '10 % shadowed', 1.3),
  ...variant('ipv6', 'IPv6', 1.6),
  ...variant('reordered', 'another order'),
];

const BYTES_BUDGET = 56;

/** The budget of a single operation, without pauses of the garbage collector and of the machine. */
const WORK_BUDGET_MS = 2;

function verdict(row: Row, { budget, of = 'yardstick' }: Line): readonly string[] {
  if (budget === undefined) return ['', ''];
  const value = of === 'plain row' ? row.factor : row.ratio;
  const text = of === 'plain row' ? `${budget} × plain` : `${budget}`;
  return [text, (value ?? Number.NaN) <= budget ? 'ok' : `over (${short(value ?? Number.NaN)})`];
}

function engineTable(report: IPCacheReport): string {
  const rows = LINES.flatMap((line) => {
    const row = report.rows[line.name];
    if (row === undefined) return [];
    const { ns, ratio, wallNs, wallRatio, gcNs, helperNs } = row;
    const figures = [ns, ratio, wallNs, wallRatio, gcNs, helperNs].map(short);
    return [[line.what, ...figures, ...verdict(row, line), line.go ?? '']];
  });
  const head = [
    'operation',
    'ns',
    'ratio',
    'wall ns',
    'wall ratio',
    'GC ns',
    'helpers ns',
    'budget',
    '',
    'Go ns',
  ];
  return textTable(head, rows);
}

function stallTable(report: IPCacheReport): string {
  const rows = Object.entries(report.stalls).map(([name, { p9999Ms, maxMs, gcMs, workMs }]) => [
    name === 'mapSet' ? '`Map.set`' : name,
    ...[p9999Ms, maxMs, gcMs, workMs].map((ms) => ms.toFixed(3)),
    workMs < WORK_BUDGET_MS ? 'ok' : 'over',
  ]);
  const head = ['longest single operation', '99.99 % ms', 'max ms', 'of it GC', 'longest work ms'];
  return textTable([...head, `work < ${WORK_BUDGET_MS}`], rows);
}

const TURNS: Readonly<Record<string, string>> = {
  firstSnapshot: 'first snapshot',
  firstResync: '`changes()`: first resync, read in slices',
  writesAfterSnapshot: 'every entry written while a snapshot is held',
  withdrawal: 'withdrawal of half the entries, in steps',
};

function turnTable({ turns }: IPCacheReport): string {
  const rows = Object.entries(turns).map(([name, turn]) => [TURNS[name] ?? name, ...delayCells(turn)]);
  const head = [
    'in the turns of an event loop',
    'figure',
    'p50 ms',
    'p99 ms',
    'max ms',
    'p99 < 20, max < 50',
  ];
  return textTable(head, rows);
}

function peerTable(report: IPCacheReport): string {
  const peers = Object.entries(report.peers);
  if (peers.length === 0) return '';
  const cell = (row: Row | undefined): string =>
    row === undefined ? '–' : `${short(row.ns)} (${short(row.ratio)} ×)`;
  const rows = [...WRITES, ...READS].map(({ name, what }) => [
    what,
    cell(report.rows[name]),
    ...peers.map(([, peer]) => cell(peer.rows[name])),
  ]);
  const bytes = (peer: PeerReport): string =>
    peer.bytesPerEntry === undefined ? '–' : short(peer.bytesPerEntry);
  rows.push(['bytes per entry', short(report.bytesPerEntry), ...peers.map(([, peer]) => bytes(peer))]);
  const heads = peers.map(([name, { n }]) => `${name}, ${n.toLocaleString('en')}`);
  return `\nPeers: ns, and the ratio to the \`Map\` that was measured in the same run.\n\n${textTable(['operation', 'IPCache', ...heads], rows)}`;
}

function otherProgramTable({ otherProgram }: IPCacheReport): string {
  if (otherProgram === undefined) return '';
  const rows = Object.entries(otherProgram.timesFaster).map(([name, times]) => [name, short(times)]);
  const head = [`beside the other program, ${otherProgram.n.toLocaleString('en')} entries`, 'times faster'];
  return `\n${textTable(head, rows)}`;
}

/** Returns the report in Markdown. */
export function renderIPCache(report: IPCacheReport): string {
  const { n, rounds, bytesPerEntry, bytesPerEntryIPv6, mapBytesPerEntry, timerNs } = report;
  const memory = bytesPerEntry <= BYTES_BUDGET ? 'ok' : 'over';
  return [
    `IPCache, ${n.toLocaleString('en')} entries, medians of ${rounds} rounds. \`ns\`: CPU time of the thread per operation. \`helpers\`: CPU time of the threads that collect garbage and compile.`,
    'Ratios compare with `Map.set` (writes) or `Map.get` (reads) of the same new strings in the same run.\n',
    engineTable(report),
    `Bytes per entry beyond the metadata handed in: ${short(bytesPerEntry)} (budget ${BYTES_BUDGET}: ${memory}; Go 380 / 434); IPv6 ${short(bytesPerEntryIPv6)}; sparse ${short(report.bytesPerEntrySparse)} (budget 80); the table for LPM ${short(report.bytesPerPrefix)} (budget 64); a \`Map\` with its keys and claims ${short(mapBytesPerEntry)}.\n`,
    stallTable(report),
    `In one more round, every operation is timed alone; the clock has steps of ${short(timerNs)} ns. \`max\` is wall time. \`99.99 %\` and \`work\` exclude time without CPU; \`work\` also excludes garbage collections.`,
    turnTable(report),
    peerTable(report),
    otherProgramTable(report),
  ].join('\n');
}
