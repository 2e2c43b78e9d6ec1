import { AgentError, type Ask } from '../api/api-client.ts';
import { askInTime, NoAnswerError } from '../api/ask-in-time.ts';
import type { EntryDocument, NodeDocument, ServiceDocument } from '../api/documents.ts';
import type { StatusDocument } from '../api/status-document.ts';
import { errorCode, messageOf } from '../base/failure.ts';
import { readFileHead } from '../base/files/regular-file.ts';
import { RejectionLog, type RejectionStatus, rejection } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import { commandOutput } from '../ciliumdump/command-output.ts';
import { compareNodes, type ListedNodeDifference } from '../ciliumdump/compare-nodes.ts';
import { compareServices, type ListedServiceDifference } from '../ciliumdump/compare-services.ts';
import {
  type Difference,
  TableComparison,
  type TableComparisonResult,
  type TableOwner,
} from '../ciliumdump/compare-table.ts';
import { readIPList, readMapList } from '../ciliumdump/ipcache-tables.ts';
import { type ListedNode, readNodeList } from '../ciliumdump/node-list.ts';
import { frontendText, hostPort, type ListedService, readServiceList } from '../ciliumdump/service-list.ts';
import type {
  KnownFrontend,
  KnownNode,
  KnownPrefix,
  PrefixValue,
  SourceState,
} from '../ciliumdump/source-state.ts';
import { type TableEntry, tablePrefix } from '../ciliumdump/table-entry.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { printable } from '../process/terminal.ts';

/** A source of tables of Cilium: a running agent (all tables), the map in the kernel, or a file. */
export interface TableOperand {
  readonly kind: 'cilium' | 'bpf' | 'file';
  /** The operand on the command line. */
  readonly text: string;
  /** Path of the socket, of the pin, or of the file. */
  readonly path: string;
}

/** The differences between two operands. */
export interface DiffReport {
  readonly json: unknown;
  /** The differences as text. If there are expected ones, the last line has their number by kind. */
  readonly lines: readonly string[];
  readonly differences: number;
}

interface DifferenceDocument {
  readonly kind: string;
  readonly subject: string;
  readonly agent: string | undefined;
  readonly table: string | undefined;
}

/** {@link DiffReport.json} */
interface DiffDocument {
  readonly operand: string;
  /** Number of compared entries, services and nodes. */
  readonly compared: number;
  readonly counts: Readonly<Record<string, number>>;
  readonly differences: readonly DifferenceDocument[];
  readonly notListed: number;
  readonly expected: TableComparisonResult['expected'];
  readonly unread: RejectionStatus;
}

/** Maximum size of a file. */
const MAX_BYTES: number = 512 << 20;
/** Number of items in one answer of the agent. */
const PAGE_ITEMS = 1_000;
/** Maximum number of differences in the text. */
const MAX_LINES = 100;
/** Maximum number of differences of each kind listed in `-o json`; further ones are counted. */
const MAX_LISTED = 10_000;

/** The tables of an operand; undefined if it does not have one. */
interface Tables {
  readonly entries: readonly TableEntry[] | undefined;
  readonly services: readonly ListedService[] | undefined;
  readonly nodes: readonly ListedNode[] | undefined;
}

/**
 * Compares the state of a dpcache agent with the tables of Cilium that the operand has: prefixes, services, nodes. Only
 * these are compared. Throws `InputError` if a table cannot be read, and `AgentError` if the agent cannot be asked.
 */
export async function compareWithTable(
  ask: Ask,
  operand: TableOperand,
  { signal }: { readonly signal: AbortSignal },
): Promise<DiffReport> {
  const rejections = new RejectionLog();
  const tables = await readTables(operand, signal, rejections);
  const sources = await sourcesOfAgent(ask, tables);
  const differences: DifferenceDocument[] = [];
  const counts: Record<string, number> = {};
  let total = 0;
  const add = (difference: DifferenceDocument): void => {
    const count = (counts[difference.kind] ?? 0) + 1;
    counts[difference.kind] = count;
    total++;
    if (count <= MAX_LISTED) differences.push(difference);
  };
  const { entries, services, nodes } = tables;
  let expected: TableComparisonResult['expected'] = {};
  if (entries !== undefined) {
    const owner = ownerOf(sources, entries, nodes);
    const comparison = new TableComparison(sources, owner, (difference) => add(prefixDocument(difference)));
    for (const entry of entries) comparison.add(entry);
    ({ expected } = comparison.finish());
  }
  if (services !== undefined)
    for (const difference of compareServices(sources, services)) add(serviceDocument(difference));
  if (nodes !== undefined)
    for (const difference of compareNodes(sources, nodes)) add(nodeDocument(difference));
  const json = {
    operand: operand.text,
    compared: [entries, services, nodes].reduce((sum, table) => sum + (table?.length ?? 0), 0),
    counts,
    differences,
    notListed: total - differences.length,
    expected,
    unread: rejections.status(),
  };
  return { json, lines: diffLines(json, total), differences: total };
}

/** Returns texts in one, separated by blanks; undefined if there are none. */
function joined(texts: readonly string[]): string | undefined {
  return texts.length === 0 ? undefined : texts.join(' ');
}

function diffLines(
  { operand, compared, counts, differences, notListed, expected, unread }: DiffDocument,
  total: number,
): readonly string[] {
  const shown = differences
    .slice(0, MAX_LINES)
    .map(
      ({ kind, subject, agent, table }) =>
        `  ${kind} ${subject}   agent: ${agent ?? 'none'}   table: ${table ?? 'none'}`,
    );
  const hidden = total - shown.length;
  const countTexts = (byKind: DiffDocument['counts']): string =>
    Object.entries(byKind)
      .map(([kind, count]) => `${kind} ${count}`)
      .join(', ');
  const expectedText = countTexts(expected);
  return [
    `${operand}: ${counted(compared, 'item')} compared, ${total === 0 ? 'no differences' : counted(total, 'difference')}`,
    ...shown,
    ...(hidden > 0 ? [`… and ${hidden} more: see -o json; by kind: ${countTexts(counts)}`] : []),
    ...(notListed > 0 ? [`Truncated: -o json lists all except ${counted(notListed, 'difference')}.`] : []),
    ...(unread.total === 0 ? [] : [`${counted(unread.total, 'value')} of ${operand} not read: see -o json`]),
    ...(expectedText === '' ? [] : [`expected differences: ${expectedText}`]),
  ].map((line) => printable(line));
}

function valueText({ identity, hostIP }: PrefixValue): string {
  return hostIP === undefined ? `identity ${identity}` : `identity ${identity} at host ${hostIP}`;
}

function prefixDocument({ kind, prefix, actual, known }: Difference): DifferenceDocument {
  const name = known === undefined || known.name === '' ? '' : ` of ${known.name}`;
  return {
    kind,
    subject: prefix,
    agent: known === undefined ? undefined : `${valueText(known)}${name}`,
    table: actual === undefined ? undefined : valueText(actual),
  };
}

function serviceDocument(difference: ListedServiceDifference): DifferenceDocument {
  const { kind, frontend, service, lacking, surplus } = difference;
  const subject = service === '' ? frontend : `${service} ${frontend}`;
  // The table lacks the backends that only the agent has.
  return { kind: `service-${kind}`, subject, agent: joined(lacking), table: joined(surplus) };
}

function nodeDocument({ kind, node, actual, known }: ListedNodeDifference): DifferenceDocument {
  return { kind: `node-${kind}`, subject: node, agent: joined(known), table: joined(actual) };
}

/** Yields the items of a list of the agent, page by page. */
async function* itemsOf<T>(ask: Ask, path: string): AsyncGenerator<T, void, void> {
  for (let query = `limit=${PAGE_ITEMS}`; ; ) {
    const page = (await ask(`${path}?${query}`)) as {
      readonly items: readonly T[];
      readonly continue?: string;
    };
    yield* page.items;
    if (page.continue === undefined) return;
    query = `limit=${PAGE_ITEMS}&continue=${encodeURIComponent(page.continue)}`;
  }
}

/** Returns the state of an agent. Lists not needed for the table are not requested. */
async function sourcesOfAgent(ask: Ask, tables: Tables): Promise<SourceState> {
  const { cluster, clusterID, clusters } = (await ask('/v1/status')) as StatusDocument;
  const nodes = new Map<string, KnownNode>();
  const prefixes = new Map<string, KnownPrefix>();
  const frontends = new Map<string, KnownFrontend>();
  for await (const node of itemsOf<NodeDocument>(ask, '/v1/nodes'))
    nodes.set(`${node.cluster}/${node.name}`, knownNode(node));
  if (tables.entries !== undefined)
    for await (const entry of itemsOf<EntryDocument>(ask, '/v1/ipcache'))
      prefixes.set(entry.prefix, knownPrefix(entry, nodes));
  if (tables.services !== undefined)
    for await (const service of itemsOf<ServiceDocument>(ask, '/v1/services'))
      for (const frontend of knownFrontends(service)) frontends.set(frontend.frontend, frontend);
  return {
    clusterName: cluster,
    clusterID,
    incomplete: new Set(),
    hasAllClusters: clusters.some(({ name }) => name !== cluster),
    kinds: { endpoints: true, nodes: true, services: true, identities: false },
    prefixes,
    nodes,
    frontends,
    labelsOf: () => undefined,
  };
}

function knownNode(node: NodeDocument): KnownNode {
  const { cluster, name, addresses, ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP } = node;
  const extra = [ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP].flatMap((ip) => ip ?? []);
  return { cluster, name, addresses: [...addresses.map(({ ip }) => ip), ...extra], podCIDRs: [] };
}

function knownPrefix(entry: EntryDocument, nodes: ReadonlyMap<string, KnownNode>): KnownPrefix {
  const { identity, hostIP, namespace, podName, owner = '' } = entry;
  if (podName !== undefined) return { identity, hostIP, kind: 'endpoint', name: `${namespace}/${podName}` };
  const isNode = nodes.has(owner);
  return { identity, hostIP, kind: isNode ? 'node' : 'other', name: isNode ? owner : '' };
}

function knownFrontends({
  namespace,
  name,
  clusterIPs,
  ports,
  backends,
  global,
  nodeSelector,
  nodeLabel,
  exposedType = 'ClusterIP',
}: ServiceDocument): readonly KnownFrontend[] {
  if (exposedType !== 'ClusterIP') return [];
  return clusterIPs.flatMap((ip) =>
    Object.entries(ports).map(([portName, text]) => {
      const [port = '', protocol = 'TCP'] = text.split('/');
      const active = backends.flatMap(({ address, state, ports: targets }) => {
        const target = Object.hasOwn(targets, portName) ? targets[portName] : undefined;
        const isSameFamily = address.includes(':') === ip.includes(':');
        if (target === undefined || state !== 'active' || !isSameFamily) return [];
        return [hostPort(address, Number.parseInt(target, 10))]; // `8080/TCP`
      });
      return {
        frontend: frontendText(ip, Number(port), protocol),
        service: `${namespace}/${name}`,
        active: [...new Set(active)].sort(),
        // The API does not return traffic policies and hints.
        perNode: false,
        restricted: nodeSelector !== undefined || nodeLabel !== undefined,
        global,
      };
    }),
  );
}

/** Returns the node that a table is from: its addresses are those that have identity `host` in the table. */
function ownerOf(
  sources: SourceState,
  entries: readonly TableEntry[],
  nodes: readonly ListedNode[] | undefined,
): TableOwner {
  const hostAddresses = entries.flatMap(({ prefix, identity }) =>
    identity === RESERVED_IDENTITIES.host ? [prefix.slice(0, prefix.indexOf('/'))] : [],
  );
  // An agent with remote clusters knows the nodes of all clusters, so none of their addresses is expected to differ.
  const unknownNodes = sources.hasAllClusters
    ? []
    : (nodes ?? []).filter(({ cluster }) => cluster !== '' && cluster !== sources.clusterName);
  return {
    name: undefined,
    addresses: new Set(hostAddresses),
    endpoints: new Set(),
    knowsOtherClusters: nodes !== undefined,
    otherClusterAddresses: new Set(unknownNodes.flatMap(({ addresses }) => addresses)),
  };
}

async function readTables(
  operand: TableOperand,
  signal: AbortSignal,
  rejections: RejectionLog,
): Promise<Tables> {
  if (operand.kind === 'bpf')
    return { entries: await readPinnedMap(operand, rejections), services: undefined, nodes: undefined };
  return operand.kind === 'cilium' ? askCilium(operand, signal, rejections) : readFile(operand, rejections);
}

/** Asks the agent of Cilium over its socket. */
async function askCilium(
  { path, text: at }: TableOperand,
  signal: AbortSignal,
  rejections: RejectionLog,
): Promise<Tables> {
  const ask = askInTime(path, signal);
  const answer = async (route: string): Promise<string> => {
    try {
      return JSON.stringify(await ask(route));
    } catch (cause) {
      if (!(cause instanceof AgentError)) throw cause;
      const why = cause.message.startsWith(`${path}: `)
        ? `cilium:${cause.message}`
        : `${at}: ${cause.message}`;
      const remedy = cause instanceof NoAnswerError ? cause.remedy : 'check the path, and run as root';
      throw new InputError(`${why}; ${remedy}`, { cause });
    }
  };
  const onReject = rejections.add.bind(rejections);
  const entries: TableEntry[] = [];
  readIPList(await answer('/v1/ip'), { at, onReject, onEntry: (entry) => entries.push(entry) });
  return {
    entries,
    services: readServiceList(await answer('/v1/service'), { at, onReject }),
    nodes: readNodeList(await answer('/v1/cluster/nodes'), { at, onReject }),
  };
}

/**
 * Reads the output of a command. It may be enclosed in Markdown, as in a bug report. The kind of output is determined
 * by its content.
 */
async function readFile({ path, text: at }: TableOperand, rejections: RejectionLog): Promise<Tables> {
  const head = await readFileHead(path, MAX_BYTES + 1).catch((cause: unknown) => {
    throw unreadable('diff', path, cause);
  });
  if (head.bytes.length > MAX_BYTES)
    throw new InputError(`${path}: has more than ${MAX_BYTES >> 20} MiB: print fewer entries`);
  const { text, failure } = commandOutput(head.bytes.toString('utf8'));
  if (failure !== undefined)
    throw new InputError(`${path}: the command failed: ${failure.error}: run it again`);
  const context = { at, onReject: rejections.add.bind(rejections) };
  const kind = contentKind(text);
  const entries: TableEntry[] = [];
  const reader = { ...context, onEntry: (entry: TableEntry): unknown => entries.push(entry) };
  const hasEntries =
    (kind === 'map' && readMapList(text, reader)) || (kind === 'ips' && readIPList(text, reader));
  const tables: Tables = {
    entries: hasEntries ? entries : undefined,
    services: kind === 'services' ? readServiceList(text, context) : undefined,
    nodes: kind === 'nodes' ? readNodeList(text, context) : undefined,
  };
  if (Object.values(tables).some((table) => table !== undefined)) return tables;
  const why = rejections.status().recent[0]?.message;
  throw new InputError(
    `${path}: is not the output of cilium ip list -n -o json, bpf ipcache list, service list -o json or node list -o json${why === undefined ? '' : ` (${why})`}: name such a file, or cilium:SOCKET, bpf:PATH or unix:SOCKET`,
  );
}

/** Number of characters at the beginning of an output that determine its kind. */
const HEAD = 64 << 10;

/** Returns the kind of an output; undefined if it is unknown. */
function contentKind(text: string): 'ips' | 'map' | 'services' | 'nodes' | undefined {
  const head = text.slice(0, HEAD);
  if (
    head.includes('IP PREFIX/ADDRESS') ||
    /^\s*\{\s*"[\da-fA-F.:]+\/\d+/.test(head) ||
    head.includes('No entries found.')
  )
    return 'map';
  if (head.includes('"frontend-address"')) return 'services';
  if (head.includes('"primary-address"') || head.includes('"nodes-added"')) return 'nodes';
  return head.includes('"cidr"') || /^\s*\[\s*\]/.test(head) ? 'ips' : undefined;
}

/** Reads the pinned map of the kernel. Nothing is written. */
async function readPinnedMap(
  { path, text }: TableOperand,
  rejections: RejectionLog,
): Promise<readonly TableEntry[]> {
  const { readIPCachePin } = await import('../datapath/linux/read-ipcache-pin.ts');
  try {
    return readIPCachePin(path).flatMap((entry) => {
      // If a key of the map is not a prefix, `entry.prefix` is a text of its bytes.
      const prefix = tablePrefix(entry.prefix);
      if (prefix !== undefined) return { source: undefined, pod: undefined, ...entry, prefix };
      rejections.add(rejection('invalid-prefix', 'key', entry.prefix, 'must be a prefix', text));
      return [];
    });
  } catch (cause) {
    // The kernel returns EACCES also for a file that is no pin.
    if (errorCode(cause) !== 'EACCES') throw unreadable('diff', text, cause);
    const remedy = 'name a pinned map, such as /sys/fs/bpf/tc/globals/cilium_ipcache_v2, and run as root';
    throw new InputError(`diff ${text}: ${messageOf(cause)}: ${remedy}`, { cause });
  }
}
