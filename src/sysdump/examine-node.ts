import type { Rejection } from '../base/rejection.ts';
import { listText } from '../base/show-value.ts';
import { isoTime } from '../base/system-clock.ts';
import { compareNodes } from '../ciliumdump/compare-nodes.ts';
import { compareServices } from '../ciliumdump/compare-services.ts';
import {
  type Difference,
  isNodeIdentity,
  TableComparison,
  type TableOwner,
  type Verdict,
} from '../ciliumdump/compare-table.ts';
import { readEndpointList } from '../ciliumdump/endpoint-list.ts';
import { readIdentityList } from '../ciliumdump/identity-list.ts';
import { readIPList, readMapList, type TableReader } from '../ciliumdump/ipcache-tables.ts';
import { type MapEvent, readMapEvents } from '../ciliumdump/map-events.ts';
import { type ListedNode, readNodeList } from '../ciliumdump/node-list.ts';
import type { OutputContext } from '../ciliumdump/output-json.ts';
import { readServiceList } from '../ciliumdump/service-list.ts';
import type { PrefixValue, SourceState } from '../ciliumdump/source-state.ts';
import type { TableEntry } from '../ciliumdump/table-entry.ts';
import { labelText } from '../model/labels.ts';
import { MINIMAL_ALLOCATED_IDENTITY, reservedIdentityName } from '../model/numeric-identity.ts';
import type { Disagreements } from './disagreements.ts';
import type { FindingKind, Findings, LastEvent, TableCounts, TableName } from './findings.ts';
import type { NodeDump } from './node-dump.ts';

/** The sources to compare all nodes of an archive with, and the receivers of the results. */
export interface Examination {
  readonly sources: SourceState;
  /** Name of the node of each agent, by the name of the agent's pod. */
  readonly agents: ReadonlyMap<string, string>;
  /** Returns the creation time of the object with an address; 0 if unknown. */
  readonly createdAt: (prefix: string) => number;
  /** The sources have all changes up to this wall time; undefined if unknown. */
  readonly completeUntil: number | undefined;
  readonly findings: Findings;
  readonly disagreements: Disagreements;
  readonly onReject: (rejection: Rejection) => void;
  /** Receives the nodes of other clusters that an agent knows. */
  readonly onRemoteNode: (node: ListedNode) => void;
}

/** The result of one node, without its findings. */
export interface NodeResult {
  readonly name: string;
  /** Path of the node's bug report in the archive. */
  readonly report: string;
  readonly tables: Readonly<Partial<Record<TableName, TableCounts>>>;
  /** Number of compared frontends of services. */
  readonly services: number;
  /**
   * Number of nodes and frontends that cannot be compared, because they may be in a part of the sources that cannot be
   * read.
   */
  readonly undecidable: number;
  readonly failures: number;
}

/** Maximum number of labels of an identity, and of backends of a service, in a text. */
const MAX_SHOWN = 3;

/** Compares the outputs of one node with the sources. */
export function examineNode(dump: NodeDump, examination: Examination): NodeResult {
  return new NodeExamination(dump, examination).run();
}

class NodeExamination {
  readonly #dump: NodeDump;
  readonly #examination: Examination;
  readonly #nodes: readonly ListedNode[] | undefined;
  readonly #name: string;
  readonly #owner: TableOwner;
  #events: ReadonlyMap<string, MapEvent> | undefined;
  #undecidable = 0;

  constructor(dump: NodeDump, examination: Examination) {
    const { sources } = examination;
    this.#dump = dump;
    this.#examination = examination;
    const nodes = dump.outputs.get('node-list');
    this.#nodes = nodes === undefined ? undefined : readNodeList(nodes, this.#context('node list'));
    const localNode = this.#nodes?.find(({ source }) => source === 'local');
    this.#name = localNode?.name ?? this.#guessName();
    const known = sources.nodes.get(`${sources.clusterName}/${this.#name}`);
    const endpoints = dump.outputs.get('endpoint-list');
    this.#owner = {
      name: known?.name,
      addresses: new Set([...(known?.addresses ?? []), ...(localNode?.addresses ?? [])]),
      endpoints:
        endpoints === undefined ? new Set() : readEndpointList(endpoints, this.#context('endpoint list')),
      knowsOtherClusters: this.#nodes !== undefined,
      otherClusterAddresses: new Set(
        (this.#nodes ?? []).flatMap((node) => (this.#isOfOtherCluster(node) ? node.addresses : [])),
      ),
    };
  }

  run(): NodeResult {
    const { outputs, path, failures } = this.#dump;
    const { sources, onRemoteNode } = this.#examination;
    for (const { command, error } of failures) this.#add('failed-command', command, error);
    for (const node of this.#nodes ?? []) if (this.#isOfOtherCluster(node)) onRemoteNode(node);
    const agent = this.#compareTable('agent', outputs.get('ip-list'), readIPList);
    const map = this.#compareTable('map', outputs.get('bpf-ipcache'), readMapList, agent === undefined);
    if (agent === undefined && map === undefined && failures.length === 0)
      this.#add(
        'unreadable',
        'ip list',
        'the report has neither the output of ip list nor of bpf ipcache list',
      );
    if (this.#nodes !== undefined && sources.kinds.nodes) this.#compareNodes(this.#nodes);
    this.#compareIdentities();
    const services = sources.kinds.services ? this.#compareServices() : 0;
    const tables = { ...(agent === undefined ? {} : { agent }), ...(map === undefined ? {} : { map }) };
    const undecidable = this.#undecidable;
    return { name: this.#name, report: path, tables, services, undecidable, failures: failures.length };
  }

  #context(output: string): OutputContext {
    const at = this.#dump.path === '' ? output : `${this.#dump.path} ${output}`;
    return { at, onReject: this.#examination.onReject };
  }

  /** Returns the name of a node whose list does not name it: by the agent's pod, the host name, or the path. */
  #guessName(): string {
    const { pod, outputs, path } = this.#dump;
    const { sources, agents } = this.#examination;
    const byPod = pod === undefined ? undefined : agents.get(pod);
    const host = outputs.get('hostname')?.trim() ?? '';
    const known = sources.nodes.has(`${sources.clusterName}/${host}`) ? host : undefined;
    const byPath = path.slice(path.lastIndexOf('/') + 1) || 'the node';
    return byPod ?? known ?? pod ?? (host || byPath);
  }

  #isOfOtherCluster({ cluster }: ListedNode): boolean {
    const { sources } = this.#examination;
    return cluster !== '' && cluster !== sources.clusterName;
  }

  /**
   * Compares a table of the node. Returns undefined if it is missing or cannot be read.
   *
   * @param comparesNodes true if the table is also compared with those of other nodes; one table of each node is enough
   */
  #compareTable(
    table: TableName,
    output: string | undefined,
    read: (text: string, reader: TableReader) => boolean,
    comparesNodes = true,
  ): TableCounts | undefined {
    if (output === undefined) return undefined;
    const { sources } = this.#examination;
    const disagreements = comparesNodes ? this.#examination.disagreements : undefined;
    const command = table === 'agent' ? 'ip list' : 'bpf ipcache list';
    const counts: Partial<Record<Difference['kind'] | 'younger', number>> = {};
    const comparison = new TableComparison(sources, this.#owner, (difference) => {
      const isYounger = this.#isYoungerThanSources(difference.prefix);
      const kind = isYounger ? 'younger' : difference.kind;
      counts[kind] = (counts[kind] ?? 0) + 1;
      if (!isYounger) this.#addDifference(table, difference);
    });
    disagreements?.beginNode(this.#name);
    const onEntry = (entry: TableEntry): void => {
      const verdict = comparison.add(entry);
      if (comparesNodes) this.#addForDisagreements(table, entry, verdict);
    };
    if (!read(output, { ...this.#context(command), onEntry })) {
      disagreements?.cancelNode();
      this.#add('unreadable', command, 'the output is not in a known format');
      return undefined;
    }
    const { entries, equal, expected } = comparison.finish();
    const { younger, ...differences } = counts;
    return { entries, equal, differences, expected: { ...expected, ...(younger && { younger }) } };
  }

  /** Adds an entry that the sources cannot confirm, so that only other nodes can contradict it. */
  #addForDisagreements(table: TableName, { prefix, identity, hostIP }: TableEntry, verdict: Verdict): void {
    const { sources, disagreements } = this.#examination;
    const isOtherCluster = verdict === 'other-cluster';
    const isUnknownEndpoint = verdict === 'own-endpoint' && !sources.kinds.endpoints;
    if (!isOtherCluster && !isUnknownEndpoint && verdict !== 'unfinished') return;
    // The map has no host for some prefixes.
    const host = isOtherCluster && table === 'agent' && hostIP !== undefined ? ` at host ${hostIP}` : '';
    disagreements.add(prefix, isNodeIdentity(identity) ? 'a node' : `identity ${identity}${host}`);
  }

  /** Returns the last writes of the map. They are read only if there is a difference. */
  get #mapEvents(): ReadonlyMap<string, MapEvent> {
    const output = this.#dump.outputs.get('map-events') ?? '';
    this.#events ??= readMapEvents(output, this.#context('map events'));
    return this.#events;
  }

  #isYoungerThanSources(prefix: string): boolean {
    const { completeUntil, createdAt } = this.#examination;
    if (completeUntil === undefined) return false;
    const { time = '' } = this.#mapEvents.get(prefix) ?? {};
    return Date.parse(time) >= completeUntil || createdAt(prefix) >= completeUntil;
  }

  #lastEvent(prefix: string): LastEvent | undefined {
    const event = this.#mapEvents.get(prefix);
    if (event === undefined) return undefined;
    const { time, action, value, error } = event;
    const at = Date.parse(time);
    return {
      node: this.#name,
      at: Number.isNaN(at) ? undefined : isoTime(at),
      action,
      identity: value?.identity,
      error: error === '' ? undefined : error,
    };
  }

  #addDifference(table: TableName, { kind, prefix, actual, known }: Difference): void {
    const { findings } = this.#examination;
    const actualText = actual === undefined ? '' : this.#valueText(actual);
    const source =
      known === undefined ? '' : `${this.#valueText(known)}${known.name === '' ? '' : ` of ${known.name}`}`;
    const texts: Readonly<Record<Difference['kind'], string>> = {
      identity: `${actualText}; the sources have ${source}`,
      stale: `${actualText}; no source has it`,
      missing: `the sources have ${source}`,
      host: `host ${actual?.hostIP ?? 'none'}; the sources have ${known?.hostIP ?? 'none'} of ${known?.name ?? ''}`,
      duplicate: `twice; one has ${actualText}`,
    };
    // Only the text of `host` contains a host, because the map has no host for some prefixes. All other differences
    // have the same text in both tables.
    findings.add({
      kind,
      subject: prefix,
      text: texts[kind],
      node: this.#name,
      table,
      last: this.#lastEvent(prefix),
    });
  }

  #valueText({ identity }: PrefixValue): string {
    const { sources } = this.#examination;
    const reserved = reservedIdentityName(identity);
    if (reserved !== undefined) return `identity ${identity} (${reserved})`;
    if (identity < MINIMAL_ALLOCATED_IDENTITY) return `identity ${identity}`;
    const labels = (sources.labelsOf(identity) ?? [])
      .map(labelText)
      .filter((label) => !label.includes(':io.'));
    const shown = labels.slice(0, MAX_SHOWN).join(' ');
    return shown === '' ? `identity ${identity}` : `identity ${identity} (${shown})`;
  }

  #compareNodes(nodes: readonly ListedNode[]): void {
    for (const { kind, node, actual, known } of compareNodes(this.#examination.sources, nodes)) {
      if (kind === 'undecidable') {
        this.#undecidable++;
        continue;
      }
      const texts = {
        missing: `the agent does not know it; the sources have ${known.join(' ')}`,
        stale: `${actual.join(' ')}; no source has it`,
        address: `${actual.join(' ')}; the sources have ${known.join(' ')}`,
      };
      this.#add(`node-${kind}`, node, texts[kind]);
    }
  }

  #compareIdentities(): void {
    const output = this.#dump.outputs.get('identity-list');
    if (output === undefined) return;
    const { sources } = this.#examination;
    for (const [identity, labels] of readIdentityList(output, this.#context('identity list'))) {
      const known = identity < MINIMAL_ALLOCATED_IDENTITY ? undefined : sources.labelsOf(identity);
      if (known === undefined || labels.length === 0) continue;
      const expected = known.map(labelText);
      const surplus = labels.filter((label) => !expected.includes(label)).sort();
      const lacking = expected.filter((label) => !labels.includes(label)).sort();
      const parts = [
        surplus.length === 0 ? '' : `only on the node: ${surplus.join(' ')}`,
        lacking.length === 0 ? '' : `only in the sources: ${lacking.join(' ')}`,
      ].filter((part) => part !== '');
      if (parts.length > 0) this.#add('identity-labels', String(identity), parts.join('; '));
    }
  }

  #compareServices(): number {
    const output = this.#dump.outputs.get('service-list');
    const { sources } = this.#examination;
    const listed = output === undefined ? undefined : readServiceList(output, this.#context('service list'));
    if (listed === undefined) return 0;
    for (const { kind, frontend, service, lacking, surplus } of compareServices(sources, listed)) {
      if (kind === 'undecidable') {
        this.#undecidable++;
        continue;
      }
      const parts = [
        lacking.length === 0 ? '' : `lacks ${shortList(lacking)}`,
        surplus.length === 0 ? '' : `has also ${shortList(surplus)}`,
      ];
      // A missing frontend lacks no backends if its service has none.
      const differences = parts.filter((part) => part !== '').join('; ') || 'the service has no backends';
      const text = kind === 'stale' ? 'no source has it' : differences;
      this.#add(
        kind === 'no-backends' ? kind : `service-${kind}`,
        service === '' ? frontend : `${service} ${frontend}`,
        text,
      );
    }
    return listed.length;
  }

  #add(kind: FindingKind, subject: string, text: string): void {
    this.#examination.findings.add({ kind, subject, text, node: this.#name });
  }
}

function shortList(texts: readonly string[]): string {
  return listText(texts, MAX_SHOWN, ' ');
}
