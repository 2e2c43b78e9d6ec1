import { counted, listText, nounOf } from '../base/show-value.ts';
import type { ExpectedKind } from '../ciliumdump/compare-table.ts';
import { printable } from '../process/terminal.ts';
import type { SysdumpReport } from './examine.ts';
import { FINDING_KINDS, type Finding, type FindingKind, type LastEvent } from './findings.ts';

/** Maximum number of lines of the summary, so that it fits on a page. */
const MAX_LINES = 40;
const MAX_NODES = 3;
const MAX_NOTES = 5;

/** Singular and plural of each kind of finding. */
const TITLES: Readonly<Record<FindingKind, readonly [string, string]>> = {
  identity: ['prefix with another identity', 'prefixes with another identity'],
  stale: ['stale prefix', 'stale prefixes'],
  missing: ['missing prefix', 'missing prefixes'],
  host: ['prefix with another host', 'prefixes with another host'],
  duplicate: ['prefix twice in a table', 'prefixes twice in a table'],
  disagreement: [
    'prefix with different values on different nodes',
    'prefixes with different values on different nodes',
  ],
  'claimed-twice': ['address of two objects', 'addresses of several objects'],
  'overlapping-pod-cidrs': ['overlap of pod CIDRs', 'overlaps of pod CIDRs'],
  'unknown-identity': ['identity without a CiliumIdentity', 'identities without a CiliumIdentity'],
  'identity-labels': ['identity with other labels', 'identities with other labels'],
  'no-backends': ['service without backends on some nodes', 'services without backends on some nodes'],
  'service-backends': ['service with other backends', 'services with other backends'],
  'service-missing': ['missing service', 'missing services'],
  'service-stale': ['stale service', 'stale services'],
  'node-missing': ['missing node', 'missing nodes'],
  'node-stale': ['stale node', 'stale nodes'],
  'node-address': ['node with another address', 'nodes with another address'],
  'failed-command': ['failed command', 'failed commands'],
  unreadable: ['part that cannot be read', 'parts that cannot be read'],
};

/** Name of each kind of expected differences. */
const EXPECTED: Readonly<Record<ExpectedKind, string>> = {
  'local-identity': 'node-local identities',
  reserved: 'reserved entries',
  'own-endpoint': 'own endpoints',
  'other-cluster': 'other clusters',
  'native-routing': 'native routing',
  unfinished: 'endpoints without identity or source',
  younger: 'changed during the dump',
  undecidable: 'not decidable',
};

/** Returns `at node-1, node-2 and 3 more`, or nothing without nodes. */
function nodesText(nodes: readonly string[]): string {
  return nodes.length === 0 ? '' : ` at ${listText(nodes, MAX_NODES)}`;
}

function lastText({ node, at, action, identity, error }: LastEvent): string {
  const write = identity === undefined ? action : `${action} to identity ${identity}`;
  const failed = error === undefined ? '' : `, failed: ${error}`;
  return `; last write on ${node}: ${write}${at === undefined ? '' : ` at ${at}`}${failed}`;
}

/** Returns a finding as one line: subject, nodes, difference, and last write. */
function findingLine({ subject, nodes, text, tables, last }: Finding): string {
  const table = tables.length === 1 ? `, only in the ${tables[0]}` : '';
  return printable(
    `  ${subject}${nodesText(nodes)}: ${text}${table}${last === undefined ? '' : lastText(last)}`,
  );
}

function sum(counts: Iterable<number>): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}

function headLines({
  archive,
  cluster,
  endpoints,
  nodes,
  objects,
  withoutReport,
  notes,
}: SysdumpReport): readonly string[] {
  const tables = nodes.flatMap(({ tables: { agent, map } }) => [agent, map]);
  const entries = sum(tables.map((table) => table?.entries ?? 0));
  const { Service: services = 0, CiliumEndpointSlice: slices = 0 } = objects;
  const endpointText =
    endpoints === 'ciliumendpointslices'
      ? counted(slices, 'CiliumEndpointSlice')
      : counted(objects['CiliumEndpoint'] ?? 0, 'endpoint');
  const without =
    withoutReport.length === 0 ? '' : `; without a report: ${listText(withoutReport, MAX_NODES)}`;
  return [
    `${archive}: cluster ${cluster.name}, ${counted(nodes.length, 'node')}${without}`,
    `${counted(entries, 'entry', 'entries')} compared with ${endpointText} and ${counted(services, 'service')}`,
    ...notes.slice(0, MAX_NOTES),
    ...(notes.length > MAX_NOTES
      ? [`${counted(notes.length - MAX_NOTES, 'further note')}: see -o json`]
      : []),
  ].map((line) => printable(line));
}

function tailLines({ nodes, unread, ignoredFiles }: SysdumpReport): readonly string[] {
  const expected = new Map<ExpectedKind, number>();
  expected.set('undecidable', sum(nodes.map(({ undecidable }) => undecidable)));
  for (const { tables } of nodes)
    for (const table of [tables.agent, tables.map])
      for (const kind of Object.keys(EXPECTED) as ExpectedKind[])
        expected.set(kind, (expected.get(kind) ?? 0) + (table?.expected[kind] ?? 0));
  const parts = [...expected].flatMap(([kind, count]) => (count === 0 ? [] : `${EXPECTED[kind]} ${count}`));
  const [reason = ''] = unread.recent.map(({ message }) => message);
  return [
    ...(parts.length === 0 ? [] : [`expected differences: ${parts.join(', ')}`]),
    ...(unread.total === 0 ? [] : [`${counted(unread.total, 'value')} not read, such as ${reason}`]),
    ...(ignoredFiles === 0 ? [] : [`${counted(ignoredFiles, 'file')} not needed`]),
  ].map((line) => printable(line));
}

/** Returns the report as text: at most 40 lines, worst findings first. */
export function reportLines(report: SysdumpReport): readonly string[] {
  const head = headLines(report);
  const tail = tailLines(report);
  const kinds = FINDING_KINDS.filter((kind) => (report.counts[kind] ?? 0) > 0);
  if (kinds.length === 0) return [...head, 'no faults found', ...tail];
  const findingsOf = (kind: FindingKind): readonly Finding[] =>
    report.findings.filter((finding) => finding.kind === kind);
  // Each kind has a title. The remaining lines are distributed over the kinds in turn, worst first.
  let room = MAX_LINES - head.length - tail.length - kinds.length;
  const shown = new Map<FindingKind, number>(kinds.map((kind) => [kind, 0]));
  for (let isAdded = true; isAdded; ) {
    isAdded = false;
    for (const kind of kinds) {
      const count = shown.get(kind) ?? 0;
      if (room <= 0 || count >= findingsOf(kind).length) continue;
      shown.set(kind, count + 1);
      room--;
      isAdded = true;
    }
  }
  const body = kinds.flatMap((kind) => {
    const total = report.counts[kind] ?? 0;
    const count = shown.get(kind) ?? 0;
    const shownText = count < total ? `, ${count} shown` : '';
    const [singular, plural] = TITLES[kind];
    return [
      `${total} ${nounOf(total, singular, plural)}${shownText}`,
      ...findingsOf(kind).slice(0, count).map(findingLine),
    ];
  });
  return [...head, ...body, ...tail];
}
