import type { Rejection } from '../base/rejection.ts';
import { type Label, type Labels, sortLabels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import { type Decoded, decodeWith, Fields, rejectInput } from '../net/fields.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { ByteWriter } from './byte-writer.ts';
import { CheckpointError, SECTION, type Section, type SectionKind } from './checkpoint-file.ts';
import { writeEntry } from './entry-codec.ts';
import { servicePartRecords } from './service-codec.ts';

/** An identity that a cluster has allocated, as a checkpoint has it. */
export interface CheckpointIdentity {
  readonly cluster: string;
  readonly identity: number;
  readonly labels: Labels;
}

/** What a checkpoint is made of, and what takes it back. */
export interface CheckpointEngines {
  readonly ipcache: IPCache;
  readonly nodes: NodeManager;
  readonly services: ServiceCache;
}

/** Whose checkpoint it is, and of when. */
export interface CheckpointHeader {
  /** The own cluster. */
  readonly cluster: string;
  /** Wall time, milliseconds since the epoch. */
  readonly writtenAt: number;
  /** Clusters of which something was only restored when it was written: when that was known, as `writtenAt`. */
  readonly knownAt: ReadonlyMap<string, number>;
}

/** Entries of one section: half a ms of work to write, a whole one to read. */
const ENTRIES_PER_SECTION = 256;
/** A section of entries ends soon after so many bytes: some have a thousand named ports. */
const BYTES_PER_SECTION = 65_536;
/** Records of one section of JSON, each of a node, an identity or at most some hundred backends. */
const RECORDS_PER_SECTION = 64;
/** A section of JSON ends soon after so many characters. */
const CHARACTERS_PER_SECTION = 32_768;

/**
 * The sections of a checkpoint of what is known now. Each step is short, and costs what its section holds; entries are those
 * of a snapshot, nodes and services each as they are when their turn comes. A payload holds until the next step.
 */
export function* checkpointSections(
  { ipcache, nodes, services }: CheckpointEngines,
  identities: Iterable<CheckpointIdentity>,
  header: CheckpointHeader,
): Generator<Section, void, void> {
  yield jsonSection(SECTION.header, { ...header, knownAt: [...header.knownAt] });
  const counts = { entries: 0, nodes: 0, services: 0, identities: 0 };
  const out = new ByteWriter();
  let written = 0;
  for (const entry of ipcache.snapshot().entries({ includeShadowed: true })) {
    // What a node claims comes back with the node.
    if (entry.owner.includes('/') && nodes.get(entry.owner)?.source === entry.source) continue;
    writeEntry(out, entry);
    counts.entries++;
    if (++written < ENTRIES_PER_SECTION && out.length < BYTES_PER_SECTION) continue;
    yield { kind: SECTION.entries, payload: out.bytes };
    out.clear();
    written = 0;
  }
  if (written > 0) yield { kind: SECTION.entries, payload: out.bytes };
  counts.nodes = yield* jsonSections(SECTION.nodes, nodes.restorable());
  counts.services = yield* jsonSections(SECTION.services, serviceRecords(services));
  counts.identities = yield* jsonSections(SECTION.identities, identityRecords(identities));
  yield jsonSection(SECTION.end, counts);
}

function jsonSection(kind: SectionKind, value: unknown): Section {
  return { kind, payload: Buffer.from(JSON.stringify(value)) };
}

function* jsonSections(kind: SectionKind, records: Iterable<unknown>): Generator<Section, number, void> {
  let count = 0;
  let texts: string[] = [];
  let size = 0;
  const section = (): Section => ({ kind, payload: Buffer.from(`[${texts.join(',')}]`) });
  for (const record of records) {
    const text = JSON.stringify(record);
    texts.push(text);
    size += text.length;
    count++;
    if (texts.length < RECORDS_PER_SECTION && size < CHARACTERS_PER_SECTION) continue;
    yield section();
    texts = [];
    size = 0;
  }
  if (texts.length > 0) yield section();
  return count;
}

function* serviceRecords(services: ServiceCache): Generator<object, void, void> {
  for (const part of services.parts()) yield* servicePartRecords(part);
}

function* identityRecords(identities: Iterable<CheckpointIdentity>): Generator<unknown, void, void> {
  for (const { cluster, identity, labels } of identities) {
    yield [cluster, identity, labels.map(({ source, key, value }) => [source, key, value])];
  }
}

/** Reads an identity of a checkpoint; what is none goes to `onReject`. */
export function readIdentity(
  record: unknown,
  onReject: (rejection: Rejection) => void,
): CheckpointIdentity | undefined {
  const decoded = decodeWith('checkpoint, identity', (): CheckpointIdentity => {
    const fields = Fields.ofList(record, rejectInput, 'record');
    return {
      cluster: fields.text(0),
      identity: fields.integer(1, 0, 2 ** 32 - 1) ?? fields.reject(1, 'missing-field', 'is missing'),
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

/** The last moment that a `Date` can be: a later one cannot be shown. */
const LATEST = 8.64e15;

/** Reads a header, or says why it is none. */
export function readHeader(payload: Uint8Array): Decoded<CheckpointHeader> {
  return decodeWith('checkpoint', (): CheckpointHeader => {
    const fields = Fields.of(parseJson(payload), rejectInput, 'header');
    const time = (of: Fields<never>, name: string | number): number =>
      of.number(name, 0, LATEST) ?? of.reject(name, 'missing-field', 'is missing');
    const knownAt = fields.list('knownAt').items((list, index): [string, number] => {
      const pair = list.list(index);
      return [pair.text(0), time(pair, 1)];
    });
    return {
      cluster: fields.text('cluster'),
      writtenAt: time(fields, 'writtenAt'),
      knownAt: new Map(knownAt),
    };
  });
}

/** The records of a section of JSON. Throws {@link CheckpointError} when it is no list. */
export function readRecords(payload: Uint8Array): readonly unknown[] {
  const value = parseJson(payload);
  if (!Array.isArray(value)) throw new CheckpointError('torn', 'a section is no list');
  return value;
}

/** JSON that a checksum vouches for, or nothing. */
function parseJson(payload: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(payload));
  } catch {
    return undefined;
  }
}
