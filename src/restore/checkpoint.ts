import { checkArgument, FUNCTION, ITERABLE, NUMBER, objectWith, TEXT } from '../base/arguments.ts';
import type { Rejection } from '../base/rejection.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { ClusterIdentity } from '../model/identity-cache.ts';
import { type Label, sortLabels } from '../model/labels.ts';
import { MAX_IDENTITY } from '../model/numeric-identity.ts';
import { ByteBuffer } from '../net/byte-buffer.ts';
import { type Decoded, decodeWith, Fields, parseJson, rejectInput } from '../net/fields.ts';
import { MAX_CLUSTER_ID } from '../net/prefix.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { CheckpointError, SECTION, type Section, type SectionKind } from './checkpoint-file.ts';
import { writeEntry } from './entry-codec.ts';
import { NumberedTexts } from './numbered-texts.ts';
import { servicePartRecords } from './service-codec.ts';

/** The engines saved and restored by a checkpoint. */
export interface CheckpointEngines {
  readonly ipcache: IPCache;
  readonly nodes: NodeManager;
  readonly services: ServiceCache;
}

/** Cluster and time of a checkpoint. */
export interface CheckpointHeader {
  /** The local cluster. */
  readonly cluster: string;
  /** The id of the local cluster; 0 or undefined if it is unknown. */
  readonly clusterID?: number | undefined;
  /** Wall time, milliseconds since the epoch. */
  readonly writtenAt: number;
  /**
   * For each cluster with restored state that no source had confirmed when the checkpoint was written: the wall time of
   * this state.
   */
  readonly knownAt: ReadonlyMap<string, number>;
}

/** Entries per section: about 0.5 ms to write, 1 ms to read. */
const ENTRIES_PER_SECTION = 256;
/** Initial size of the buffer of a section of entries. */
const INITIAL_BYTES = 32_768;
/** Size after which a section of entries ends, because some entries have a thousand named ports. */
const BYTES_PER_SECTION = 65_536;
/** Records per JSON section. A record is a node, an identity or at most a few hundred backends. */
const RECORDS_PER_SECTION = 64;
/** Number of characters after which a JSON section ends. */
const CHARACTERS_PER_SECTION = 32_768;

/**
 * Yields the sections of a checkpoint of the current state. Each step is short; its cost is linear in its section.
 * Entries are read from a snapshot; nodes and services are read when their section is written. A payload is valid until
 * the next step.
 *
 * @param identities the identities whose labels are restored, such as those of `IdentityResolver.entries`
 */
export function* checkpointSections(
  engines: CheckpointEngines,
  identities: Iterable<ClusterIdentity>,
  header: CheckpointHeader,
): Generator<Section, void, void> {
  checkArgument('checkpointSections: engines', engines, ENGINES);
  checkArgument('checkpointSections: identities', identities, ITERABLE);
  checkArgument('checkpointSections: header', header, HEADER);
  const { ipcache, nodes, services } = engines;
  yield jsonSection(SECTION.header, { ...header, knownAt: [...header.knownAt] });
  const counts = { entries: 0, nodes: 0, services: 0, identities: 0 };
  const out = new ByteBuffer(new Uint8Array(INITIAL_BYTES), Number.POSITIVE_INFINITY);
  const texts = new NumberedTexts();
  let sectionEntries = 0;
  for (const entry of ipcache.snapshot().entries({ includeShadowed: true })) {
    // A claim of a node is skipped, because restoring the node restores the claim. Those of the local node have source
    // `local`, and are not restored.
    const node = entry.owner.includes('/') ? nodes.get(entry.owner) : undefined;
    if (node !== undefined && (entry.source === node.source || entry.source === 'local')) continue;
    writeEntry(out, texts, entry);
    counts.entries++;
    sectionEntries++;
    if (sectionEntries < ENTRIES_PER_SECTION && out.length < BYTES_PER_SECTION) continue;
    yield { kind: SECTION.entries, payload: out.bytesFrom(0) };
    out.clear();
    sectionEntries = 0;
  }
  if (sectionEntries > 0) yield { kind: SECTION.entries, payload: out.bytesFrom(0) };
  counts.nodes = yield* jsonSections(SECTION.nodes, nodes.restorable());
  counts.services = yield* jsonSections(SECTION.services, serviceRecords(services));
  counts.identities = yield* jsonSections(SECTION.identities, identityRecords(identities));
  yield jsonSection(SECTION.end, counts);
}

function jsonSection(kind: SectionKind, value: unknown): Section {
  return { kind, payload: Buffer.from(JSON.stringify(value)) };
}

/** Yields sections with all records. Returns the number of records. */
function* jsonSections(kind: SectionKind, records: Iterable<unknown>): Generator<Section, number, void> {
  let count = 0;
  let texts: string[] = []; // of the section
  let size = 0;
  const toSection = (): Section => ({ kind, payload: Buffer.from(`[${texts.join(',')}]`) });
  for (const record of records) {
    const text = JSON.stringify(record);
    texts.push(text);
    size += text.length;
    count++;
    if (texts.length < RECORDS_PER_SECTION && size < CHARACTERS_PER_SECTION) continue;
    yield toSection();
    texts = [];
    size = 0;
  }
  if (texts.length > 0) yield toSection();
  return count;
}

function* serviceRecords(services: ServiceCache): Generator<object, void, void> {
  for (const part of services.parts()) yield* servicePartRecords(part);
}

function* identityRecords(identities: Iterable<ClusterIdentity>): Generator<unknown, void, void> {
  for (const { cluster, identity, labels } of identities) {
    yield [cluster, identity, labels.map(({ source, key, value }) => [source, key, value])];
  }
}

/** Returns an identity of a checkpoint. If the record is invalid, passes it to `onReject` and returns undefined. */
export function readIdentity(
  record: unknown,
  onReject: (rejection: Rejection) => void,
): ClusterIdentity | undefined {
  const decoded = decodeWith('checkpoint, identity', (): ClusterIdentity => {
    const fields = Fields.ofList(record, rejectInput, 'record');
    return {
      cluster: fields.text(0),
      identity: fields.integer(1, 0, MAX_IDENTITY) ?? fields.reject(1, 'missing-field', 'is missing'),
      labels: sortLabels(fields.list(2).items(readLabel)),
    };
  });
  if (decoded.ok) return decoded.value;
  onReject(decoded.rejection);
  return undefined;
}

function readLabel(list: Fields<never>, index: number): Label {
  const fields = list.list(index);
  return { source: fields.text(0), key: fields.text(1), value: fields.string(2) ?? '' };
}

/** The latest time of a `Date` in milliseconds since the epoch; a later time cannot be displayed. */
const MAX_TIME = 8.64e15;

/** Returns a header, or the reason if it is invalid. */
export function readCheckpointHeader(payload: Uint8Array): Decoded<CheckpointHeader> {
  return decodeWith('checkpoint', (): CheckpointHeader => {
    const fields = Fields.of(parseJson(new TextDecoder().decode(payload)), rejectInput, 'header');
    const time = (of: Fields<never>, name: string | number): number =>
      of.number(name, 0, MAX_TIME) ?? of.reject(name, 'missing-field', 'is missing');
    const knownAt = fields.list('knownAt').items((list, index): [string, number] => {
      const pair = list.list(index);
      return [pair.text(0), time(pair, 1)];
    });
    return {
      cluster: fields.text('cluster'),
      clusterID: fields.integer('clusterID', 0, MAX_CLUSTER_ID) ?? 0,
      writtenAt: time(fields, 'writtenAt'),
      knownAt: new Map(knownAt),
    };
  });
}

/** Returns the records of a JSON section. Throws {@link CheckpointError} if it is not a list. */
export function readRecords(payload: Uint8Array): readonly unknown[] {
  const value = parseJson(new TextDecoder().decode(payload));
  if (!Array.isArray(value)) throw new CheckpointError('torn', 'a section is not a list');
  return value;
}

const ENGINES = objectWith({
  ipcache: objectWith({ snapshot: FUNCTION }),
  nodes: objectWith({ restorable: FUNCTION }),
  services: objectWith({ parts: FUNCTION }),
});
const HEADER = objectWith({ cluster: TEXT, writtenAt: NUMBER, knownAt: ITERABLE });
