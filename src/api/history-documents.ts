import { isoTime } from '../base/system-clock.ts';
import type { CauseGroup } from '../history/causes.ts';
import type { PastFields } from '../history/document-change.ts';
import type { History } from '../history/history.ts';
import type {
  Certainty,
  ChangeCause,
  DocumentMoment,
  HistoryRecord,
  PastClaim,
  PrefixMoment,
  RetainedInterval,
  When,
} from '../history/types.ts';
import type { CompleteClaim } from '../ipcache/row-reader.ts';
import {
  type ClaimDocument,
  type ExplainedNodeDocument,
  type ExplanationDocument,
  entryDocument,
  type NodeDocument,
  podDetails,
  type ServiceDocument,
} from './documents.ts';
import { type PastDocument, type RetainedDocument, uncertaintyText } from './past-document.ts';
import { ProblemError } from './problem.ts';
import type { ReadModel } from './read-model.ts';
import { parseWhen, WHEN_FORMS } from './when.ts';

/** One record of the history. Fields without a value are absent. */
export interface HistoryRecordDocument {
  readonly sequence: number;
  /** ISO 8601, with milliseconds. */
  readonly at: string;
  readonly kind: HistoryRecord['kind'];
  /** The prefix key, `namespace/name` of a service, `cluster/name` of a node. */
  readonly key?: string | undefined;
  /** Source of the claim, or the cluster of the part of a service. */
  readonly source?: string | undefined;
  readonly owner?: string | undefined;
  /** The claim or part of a service before and after the change; absent if there was none. */
  readonly before?: unknown;
  readonly after?: unknown;
  /**
   * The visible identity of the prefix before and after the change. Absent if it is unknown, or if the list is of more
   * than one prefix.
   */
  readonly effective?: { readonly before: number | null; readonly after: number | null } | undefined;
  readonly cause?: ChangeCause | undefined;
  readonly mark?: string | undefined;
  readonly subject?: string | undefined;
  readonly detail?: string | undefined;
}

/** A part of the history, newest first. */
export interface HistoryDocument {
  readonly items: readonly HistoryRecordDocument[];
  readonly retained: RetainedDocument;
  /** True if there are older records. A request with the sequence number of the last item as `after` returns them. */
  readonly more: boolean;
  /** Number of changes of all keys in memory. Earlier ones may be on the disk, where they are not counted. */
  readonly changesInMemory: number;
}

/** A group of changes with a common cause. */
export interface CauseDocument
  extends Pick<CauseGroup, 'store' | 'added' | 'changed' | 'deleted' | 'kinds' | 'emptied' | 'samples'> {
  readonly at: string;
  readonly until: string;
  /** First and last revision; absent if unknown. */
  readonly revisions?: { readonly first: string; readonly last: string } | undefined;
  readonly host?: string | undefined;
  readonly node?: string | undefined;
  readonly mark?: { readonly subject: string; readonly detail: string } | undefined;
  /** Present if the state of the store was withdrawn, because its cluster left or was replaced. */
  readonly withdrawal?: true | undefined;
}

/** The groups of changes around a moment. */
export interface CausesDocument {
  readonly at: string;
  readonly groups: readonly CauseDocument[];
  readonly retained: RetainedDocument;
}

export function causeDocument(group: CauseGroup): CauseDocument {
  const { at, until, revisions, mark, withdrawal, host, node, ...others } = group;
  const [first, last] = revisions;
  return {
    at: isoTime(at),
    until: isoTime(until),
    ...others,
    revisions: first === '' ? undefined : { first, last },
    host,
    node,
    mark,
    withdrawal: withdrawal || undefined,
  };
}

export function retainedDocument({ from, to }: RetainedInterval): RetainedDocument {
  return { from: isoTime(from), to: isoTime(to) };
}

export function pastDocument(
  moment: Certainty &
    Pick<PrefixMoment, 'at' | 'retained' | 'effectiveSince' | 'effectiveUntil'> &
    Partial<Pick<PrefixMoment, 'claimsComplete'>>,
): PastDocument {
  const { at, certain, reason, subjects, retained, effectiveSince, effectiveUntil, claimsComplete } = moment;
  return {
    at: isoTime(at),
    certain,
    reason,
    subjects: subjects.length === 0 ? undefined : subjects,
    claimsComplete: claimsComplete === false ? claimsComplete : undefined,
    retained: retainedDocument(retained),
    effectiveSince: isoTime(effectiveSince),
    effectiveUntil: isoTime(effectiveUntil),
  };
}

function pastClaimDocument(claim: PastClaim, shadowed: boolean, model: ReadModel): ClaimDocument {
  const { since, until, effective, ...entry } = claim;
  return {
    ...entryDocument({ ...entry, shadowed }, model),
    key: claim.key,
    effective: effective && !shadowed,
    shadowed,
    ...(since !== undefined && { since: isoTime(since) }),
    ...(until !== undefined && { until: isoTime(until) }),
  };
}

/** Returns the claims of a moment. */
export function pastExplanation(moment: PrefixMoment, model: ReadModel): ExplanationDocument {
  const { prefix, claims, decidedBy } = moment;
  // An endpoint IP, whose claims are first, shadows the full-length CIDR.
  const isShadowed = ({ key }: PastClaim): boolean => key !== claims[0]?.key;
  return {
    prefix,
    decidedBy,
    claims: claims.map((claim) => pastClaimDocument(claim, isShadowed(claim), model)),
    past: pastDocument(moment),
  };
}

function pastDocumentOfObject(moment: DocumentMoment): PastDocument {
  return pastDocument({ ...moment, effectiveSince: moment.since, effectiveUntil: moment.until });
}

/**
 * Returns the recorded fields of a service or node at the moment `at`. Throws `ProblemError` if the moment is not
 * retained or the object did not exist.
 */
function retainedFields(moment: DocumentMoment, name: string, at: string): PastFields {
  if (moment.reason === 'not-retained') throw notRetainedProblem(at, moment.retained);
  if (moment.document !== undefined) return moment.document;
  throw notFoundProblem('name', name, moment);
}

/** Returns the problem of an object that did not exist at a moment, or may not have existed; it then states why. */
export function notFoundProblem(
  field: string,
  value: string,
  moment: Pick<PrefixMoment, 'at' | 'reason' | 'subjects' | 'retained'>,
): ProblemError {
  const { reason } = moment;
  const at = isoTime(moment.at);
  const detail =
    reason === undefined
      ? `${value} did not exist at ${at}.`
      : `It is not certain whether ${value} existed at ${at}: ${uncertaintyText(reason, moment)}.`;
  return new ProblemError('not-found', detail, { field, value, ...(reason !== undefined && { reason }) });
}

/** Returns a service of an earlier moment. */
export function pastService(
  moment: DocumentMoment,
  name: string,
  at: string,
): ServiceDocument & { readonly past: PastDocument } {
  const fields = retainedFields(moment, name, at) as unknown as ServiceDocument; // recorded as a document
  return { ...fields, past: pastDocumentOfObject(moment) };
}

/**
 * Returns a node of an earlier moment. Its explanation has the effective claim only, because others are not recorded.
 */
export function pastNode(moment: DocumentMoment, name: string, at: string): ExplainedNodeDocument {
  const fields = retainedFields(moment, name, at) as unknown as NodeDocument; // recorded as a document
  const explain = { claims: [fields], heldBack: false, lostAddresses: [] };
  return { ...fields, past: pastDocumentOfObject(moment), explain };
}

export function recordDocument(record: HistoryRecord): HistoryRecordDocument {
  const { sequence, kind } = record;
  const at = isoTime(record.at);
  if (record.kind === 'mark') {
    const { mark, subject, detail } = record;
    return { sequence, at, kind, mark, subject: subject || undefined, detail: detail || undefined };
  }
  const { key, cause, before, after } = record;
  if (record.kind !== 'prefix')
    return { sequence, at, kind, key, cause, source: record.writer, before, after };
  const { writer, effective } = record;
  return {
    sequence,
    at,
    kind,
    key,
    cause,
    source: writer.source,
    owner: writer.owner || undefined,
    before: record.before && claimFields(record.before),
    after: record.after && claimFields(record.after),
    effective: effective && {
      before: effective.before?.identity ?? null,
      after: effective.after?.identity ?? null,
    },
  };
}

/** Returns the attributes of a claim without empty fields. */
function claimFields({ identity, hostIP, encryptKey, k8s }: CompleteClaim): object {
  return {
    identity,
    ...(hostIP !== undefined && { hostIP }),
    ...(encryptKey !== 0 && { encryptKey }),
    ...(k8s !== undefined && { namespace: k8s.namespace, podName: k8s.podName }),
    ...podDetails(k8s),
  };
}

/** Returns the history of an agent. Throws `ProblemError` if it records none. */
export function historyOf({ history }: ReadModel): History {
  if (history !== undefined) return history;
  throw new ProblemError('not-retained', 'The agent records no history: --history-memory is off.');
}

/** Parses a moment. Throws `ProblemError` if it is invalid, or if no change has its sequence number yet. */
export function whenParameter(history: History, field: string, text: string, now: number): When {
  const when = parseWhen(text, now);
  if (when === undefined)
    throw new ProblemError('invalid-time', `${field} is not a time.`, {
      field,
      value: text,
      allowed: WHEN_FORMS,
    });
  const { newestSequence: newest } = history;
  if (typeof when === 'number' || newest === undefined || when.sequence <= newest) return when;
  const detail = `No change has the sequence number #${when.sequence} yet: the newest is #${newest}.`;
  throw new ProblemError('not-retained', detail, {
    field,
    value: text,
    retained: retainedDocument(history.past.retained),
  });
}

/** Returns the problem of a list of an earlier moment that cannot be produced. */
export function notListedProblem(retained: RetainedInterval): ProblemError {
  const detail =
    'The moment is not retained, or is before the start of this agent. Before the start, only single objects can be queried.';
  return new ProblemError('not-retained', detail, { retained: retainedDocument(retained) });
}

/** Returns the problem of a parameter whose moment is not retained. */
export function notRetainedProblem(
  value: string,
  retained: RetainedInterval,
  field: string = 'at',
): ProblemError {
  const document = retainedDocument(retained);
  const detail = `The moment ${value} is not retained: changes are retained from ${document.from} on.`;
  return new ProblemError('not-retained', detail, { field, value, retained: document });
}
