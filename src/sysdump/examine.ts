import { atLeast, checkArgument, FUNCTION, objectWith, optional, SIGNAL, TEXT } from '../base/arguments.ts';
import { type Rejection, RejectionLog, type RejectionStatus } from '../base/rejection.ts';
import { counted } from '../base/show-value.ts';
import { outputKind } from '../ciliumdump/command-output.ts';
import type { NodePods } from '../ciliumdump/compare-nodes.ts';
import type { SourceState } from '../ciliumdump/source-state.ts';
import { CLUSTER_TYPES, typeMeta } from '../k8s/memory/resource-types.ts';
import { isObject } from '../net/fields.ts';
import type { Manifest } from '../recording/manifests.ts';
import {
  type Archive,
  type ArchiveEntry,
  ArchiveError,
  type ArchiveErrorCode,
  type ArchiveLimits,
  DEFAULT_LIMITS,
} from './archive/archive.ts';
import { allEntries, openArchive } from './archive/open-archive.ts';
import { readTail, readWholeEntry } from './archive/read-entry.ts';
import { clusterOfEntries, clusterOfSettings, type DumpedCluster } from './cluster-of-dump.ts';
import { Disagreements } from './disagreements.ts';
import { type Examination, examineNode, type NodeResult } from './examine-node.ts';
import { FINDING_KINDS, type Finding, type FindingKind, Findings } from './findings.ts';
import {
  addDisagreements,
  addOverlaps,
  addSharedAddresses,
  addUnknownIdentities,
  noteMissing,
} from './mesh-findings.ts';
import { commandFile, NodeDump } from './node-dump.ts';
import { isConfigFile, kindOfFile, objectsOf } from './object-files.ts';
import { PLURALS, SourceStateBuilder } from './source-state-builder.ts';

/** The result of {@link examineSysdump}, as plain data. */
export interface SysdumpReport {
  readonly archive: string;
  readonly cluster: { readonly name: string; readonly id: number };
  /** The kind of object that has the endpoints. */
  readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
  readonly objects: Readonly<Record<string, number>>;
  readonly nodes: readonly NodeResult[];
  /** Nodes of the sources without a bug report. */
  readonly withoutReport: readonly string[];
  /** Number of different findings by kind, worst first. */
  readonly counts: Readonly<Partial<Record<FindingKind, number>>>;
  /** Worst first; at most 1,000 of each kind. */
  readonly findings: readonly Finding[];
  /** The missing kinds of objects, and the omitted comparisons. */
  readonly notes: readonly string[];
  /** Unreadable parts of files. */
  readonly unread: RejectionStatus;
  /** Unneeded files. */
  readonly ignoredFiles: number;
}

/** Options of {@link examineSysdump}. */
export interface ExamineOptions {
  /** Default: 200,000 files, 256 MiB for each file, 64 GiB for the whole archive. */
  readonly limits?: ArchiveLimits | undefined;
  /** Ends the examination: the promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal | undefined;
  /** Receives a line for each step. */
  readonly onProgress?: ((line: string) => void) | undefined;
}

const LIMIT = atLeast(0);
const OPTIONS = objectWith({
  limits: optional(objectWith({ entries: LIMIT, entryBytes: LIMIT, archiveBytes: LIMIT })),
  signal: optional(SIGNAL),
  onProgress: optional(FUNCTION),
});

/** A change within this time before the objects were listed may be missing in the list but present in a table. */
const YOUNG_MS = 5_000;
/** Size of the part at the end of an output that is searched for the error of the command. */
const TAIL_BYTES = 4096;
/** Maximum size of the outputs of one node, which are held in memory together. */
const MAX_NODE_BYTES: number = 512 << 20;

/**
 * Reads a sysdump or bug report of Cilium (zip, tar, tar.gz or folder), and compares the tables of each node with the
 * Kubernetes objects in it, one node at a time. Nothing is written to disk. Throws {@link ArchiveError} if the
 * archive cannot be read, is truncated, or has neither objects nor reports. Each node is examined in one turn of the
 * event loop, so a server should call it in a worker thread.
 */
export async function examineSysdump(path: string, options: ExamineOptions = {}): Promise<SysdumpReport> {
  checkArgument('examineSysdump: path', path, TEXT);
  checkArgument('examineSysdump: options', options, OPTIONS);
  const limits = options.limits ?? DEFAULT_LIMITS;
  const archive = await openArchive(path, limits);
  try {
    return await new Sysdump(path, archive, limits, options).examine();
  } finally {
    await archive.close();
  }
}

/**
 * Yields the Kubernetes objects of a sysdump with their API version and kind, for an agent that serves them. Throws
 * {@link ArchiveError}. Broken files are omitted.
 */
export async function* sysdumpObjects(path: string): AsyncGenerator<Manifest, void, void> {
  const limits = DEFAULT_LIMITS;
  const archive = await openArchive(path, limits);
  try {
    const onBroken = (): void => {};
    for await (const entry of allEntries(archive.entries(onBroken), { limits, onBroken })) {
      if (commandFile(entry.name) !== undefined || kindOfFile(entry.name) === undefined) continue;
      const text = await textUnlessBroken(readWholeEntry(entry, limits), () => {});
      if (text === undefined) continue;
      for await (const { kind, object } of objectsOf(text, entry.name, () => {})) {
        const type = PLURALS.has(kind) ? CLUSTER_TYPES.find((one) => one.kind === kind) : undefined;
        if (type === undefined) continue;
        const metadata = withoutServerFields(object);
        yield { at: entry.name, object: { ...typeMeta(type), ...object, metadata } };
      }
    }
  } finally {
    await archive.close();
  }
}

/**
 * Returns the metadata of an object without the fields that an API server sets, because a server refuses values that
 * another server set.
 */
function withoutServerFields({ metadata }: Readonly<Record<string, unknown>>): unknown {
  if (!isObject(metadata)) return metadata;
  const { uid: _uid, resourceVersion: _version, ...rest } = metadata;
  return rest;
}

/** Codes of errors that affect only one file or nested archive. The other files are still read. */
const BROKEN: ReadonlySet<ArchiveErrorCode> = new Set(['truncated', 'corrupt', 'unreadable', 'unsupported']);

/**
 * Returns the content of a file as text; undefined if the file is broken, after a call of `onBroken`. Throws if it is
 * too large.
 */
async function textUnlessBroken(
  content: Promise<Buffer>,
  onBroken: (error: ArchiveError) => void,
): Promise<string | undefined> {
  try {
    return (await content).toString('utf8');
  } catch (error) {
    if (!(error instanceof ArchiveError) || !BROKEN.has(error.code)) throw error;
    onBroken(error);
    return undefined;
  }
}

/** Returns a message without the path at its beginning, because the subject of the finding is the path. */
function withoutPath(message: string, path: string): string {
  return message.startsWith(path) ? message.slice(path.length) : message;
}

/** One reading of an archive. */
class Sysdump {
  readonly #path: string;
  readonly #archive: Archive;
  readonly #limits: ArchiveLimits;
  readonly #options: ExamineOptions;
  readonly #rejections = new RejectionLog();
  readonly #findings = new Findings();
  readonly #notes: string[] = [];
  /** By path: the first error of an unreadable file or archive. */
  readonly #broken = new Map<string, ArchiveError>();
  readonly #onReject = (rejection: Rejection): void => this.#rejections.add(rejection);
  #ignoredFiles = 0;

  constructor(path: string, archive: Archive, limits: ArchiveLimits, options: ExamineOptions) {
    this.#path = path;
    this.#archive = archive;
    this.#limits = limits;
    this.#options = options;
  }

  async examine(): Promise<SysdumpReport> {
    const survey = await this.#survey();
    const builder = new SourceStateBuilder({
      ...survey.cluster,
      endpoints: survey.endpoints,
      serviceEndpoints: survey.serviceEndpoints,
      onReject: this.#onReject,
    });
    const listedAt = await this.#readObjects(builder);
    const sources = await builder.finish();
    const report = { findings: this.#findings, notes: this.#notes };
    noteMissing(sources, report);
    addSharedAddresses(builder, report);
    addUnknownIdentities(sources, report);
    const disagreements = new Disagreements();
    const remotePods = new Map<string, NodePods>();
    const nodes = await this.#examineNodes({
      sources,
      agents: builder.agents,
      createdAt: (prefix) => builder.createdAt(prefix),
      completeUntil: listedAt === undefined ? undefined : listedAt - YOUNG_MS,
      findings: this.#findings,
      disagreements,
      onReject: this.#onReject,
      onRemoteNode: ({ cluster, name, podCIDRs }) => {
        for (const podCIDR of podCIDRs)
          remotePods.set(`${cluster}/${name} ${podCIDR}`, { node: `${cluster}/${name}`, podCIDR });
      },
    });
    if (nodes.length === 0 && builder.counts.size === 0) throw this.#nothingRead();
    addDisagreements(disagreements, report);
    addOverlaps(sources, remotePods.values(), report);
    for (const [name, { message }] of this.#broken)
      this.#findings.add({ kind: 'unreadable', subject: name, text: withoutPath(message, `${name}: `) });
    return this.#report(sources, builder, survey.endpoints, nodes);
  }

  #entries(): AsyncGenerator<ArchiveEntry, void, void> {
    const onBroken = (error: ArchiveError): void => this.#noteBroken(error);
    return allEntries(this.#archive.entries(onBroken), { limits: this.#limits, onBroken });
  }

  /** Returns the name and id of the cluster, and the kinds that have the endpoints. */
  async #survey(): Promise<{
    readonly cluster: DumpedCluster;
    readonly endpoints: 'ciliumendpoints' | 'ciliumendpointslices';
    readonly serviceEndpoints: 'endpointslices' | 'endpoints';
  }> {
    let settings: Readonly<Record<string, unknown>> | undefined;
    const kinds = new Set<string | undefined>();
    // For a zip or a folder, this reads only the names of files. Nested archives are opened later.
    const onBroken = (): void => {}; // the reading of objects reports the error
    for await (const entry of allEntries(this.#archive.entries(onBroken), {
      limits: this.#limits,
      onBroken,
      opens: () => false,
    })) {
      this.#options.signal?.throwIfAborted();
      if (commandFile(entry.name) !== undefined) continue;
      kinds.add(kindOfFile(entry.name));
      if (isConfigFile(entry.name)) settings = (await this.#settingsIn(entry)) ?? settings;
    }
    return {
      cluster: settings === undefined ? await this.#clusterOfEntries() : clusterOfSettings(settings),
      endpoints:
        kinds.has('CiliumEndpointSlice') && !kinds.has('CiliumEndpoint')
          ? 'ciliumendpointslices'
          : 'ciliumendpoints',
      serviceEndpoints:
        kinds.has('Endpoints') && !kinds.has('EndpointSlice') ? 'endpoints' : 'endpointslices',
    };
  }

  /** Returns the settings in a file. If it has none, the file becomes a finding. */
  async #settingsIn(entry: ArchiveEntry): Promise<Readonly<Record<string, unknown>> | undefined> {
    const text = await this.#text(readWholeEntry(entry, this.#limits));
    if (text === undefined) return undefined;
    let why = 'has no settings of Cilium';
    let settings: Readonly<Record<string, unknown>> | undefined;
    const onReject = ({ message }: Rejection): void => {
      why = withoutPath(message, `${entry.name}:`);
    };
    for await (const { object } of objectsOf(text, entry.name, onReject))
      if (isObject(object['data'])) settings = object['data'];
    if (settings === undefined) this.#noteBroken(new ArchiveError('corrupt', entry.name, why));
    return settings;
  }

  async #clusterOfEntries(): Promise<DumpedCluster> {
    const { cluster, note } = await clusterOfEntries(this.#entries(), (entry) => {
      this.#options.signal?.throwIfAborted();
      return this.#text(readWholeEntry(entry, this.#limits));
    });
    if (note !== undefined) this.#notes.push(note);
    return cluster;
  }

  /** Reads all objects. Returns the wall time at which the first list was written; undefined if unknown. */
  async #readObjects(builder: SourceStateBuilder): Promise<number | undefined> {
    let listedAt: number | undefined;
    for await (const entry of this.#entries()) {
      this.#options.signal?.throwIfAborted();
      const { name, modifiedAt } = entry;
      const kind = kindOfFile(name);
      if (commandFile(name) !== undefined || kind === undefined || isConfigFile(name)) continue;
      this.#options.onProgress?.(`reading ${name}`);
      const text = await this.#text(readWholeEntry(entry, this.#limits));
      if (text === undefined) {
        builder.markIncomplete(kind);
        continue;
      }
      const onReject = ({ message }: Rejection): void => {
        builder.markIncomplete(kind);
        this.#noteBroken(new ArchiveError('corrupt', name, withoutPath(message, `${name}:`).trimStart()));
      };
      for await (const object of objectsOf(text, name, onReject)) builder.add(object);
      if (modifiedAt !== undefined) listedAt = Math.min(listedAt ?? modifiedAt, modifiedAt);
    }
    return listedAt;
  }

  /** Examines the bug reports, one at a time. */
  async #examineNodes(examination: Examination): Promise<readonly NodeResult[]> {
    const nodes: NodeResult[] = [];
    const reports = new Set<string>();
    for await (const dump of this.#dumps()) {
      this.#ignoredFiles += dump.ignored;
      if (reports.has(dump.path))
        this.#notes.push(`${dump.path}: its files are not together; only the first ones were read`);
      else nodes.push(examineNode(dump, examination));
      reports.add(dump.path);
      this.#options.onProgress?.(`examined ${nodes.at(-1)?.name}, ${counted(nodes.length, 'node')} so far`);
    }
    return nodes;
  }

  /** Yields the bug reports. Files of a report that are not consecutive in the archive are several reports. */
  async *#dumps(): AsyncGenerator<NodeDump, void, void> {
    let current: NodeDump | undefined;
    for await (const entry of this.#entries()) {
      this.#options.signal?.throwIfAborted();
      const command = commandFile(entry.name);
      if (command === undefined) {
        if (kindOfFile(entry.name) === undefined) this.#ignoredFiles++;
        continue;
      }
      if (current !== undefined && current.path !== command.report) {
        yield current;
        current = undefined;
      }
      // Of an output that is not compared, only the end is read, because it contains the error of a failed command.
      const isRead = outputKind(command.file) !== undefined;
      const text = await this.#text(
        isRead ? readWholeEntry(entry, this.#limits) : readTail(entry, TAIL_BYTES),
      );
      if (text === undefined) continue;
      current ??= new NodeDump(command.report);
      current.add(command.file, text);
      if (current.length > MAX_NODE_BYTES)
        throw new ArchiveError(
          'entry-too-large',
          entry.name,
          `the report has more than ${MAX_NODE_BYTES >> 20} MiB of output`,
        );
    }
    if (current !== undefined) yield current;
  }

  /** Like {@link textUnlessBroken}. A broken file becomes a finding. */
  #text(content: Promise<Buffer>): Promise<string | undefined> {
    return textUnlessBroken(content, (error) => this.#noteBroken(error));
  }

  /** Returns the error of an archive without objects and reports. */
  #nothingRead(): ArchiveError {
    const [broken] = this.#broken.values();
    const [rejected] = this.#rejections.status().recent;
    const why = broken?.message ?? rejected?.message;
    if (why !== undefined)
      return new ArchiveError('corrupt', this.#path, `has nothing that can be read; ${why}`);
    return new ArchiveError(
      'not-an-archive',
      this.#path,
      'has no output of cilium-bugtool (a folder cmd) and no Kubernetes objects: name a Cilium sysdump, a bug report, or a folder with one',
    );
  }

  #noteBroken(error: ArchiveError): void {
    const name = error.path;
    // The first error of an archive is the cause of the others.
    if (!this.#broken.has(name)) this.#broken.set(name, error);
  }

  #report(
    sources: SourceState,
    builder: SourceStateBuilder,
    endpoints: SysdumpReport['endpoints'],
    nodes: readonly NodeResult[],
  ): SysdumpReport {
    const reported = new Set(nodes.map(({ name }) => name));
    const { clusterName: name, clusterID: id } = sources;
    const present = FINDING_KINDS.filter((kind) => this.#findings.count(kind) > 0);
    return {
      archive: this.#path,
      cluster: { name, id },
      endpoints,
      objects: Object.fromEntries([...builder.counts].sort()),
      nodes,
      withoutReport: [...sources.nodes.values()]
        .flatMap((node) => (reported.has(node.name) ? [] : node.name))
        .sort(),
      counts: Object.fromEntries(present.map((kind) => [kind, this.#findings.count(kind)])),
      findings: present.flatMap((kind) => this.#findings.of(kind)),
      notes: this.#notes,
      unread: this.#rejections.status(),
      ignoredFiles: this.#ignoredFiles,
    };
  }
}
