import type { History } from '../history/history.ts';
import type { Held, HistoryRecord, Moment, PastClaim, When } from '../history/types.ts';
import type { HeldClaim } from '../ipcache/row-reader.ts';
import { type ClaimDocument, type ExplanationDocument, entryDocument } from './documents.ts';
import type { HeldDocument, PastDocument } from './past-document.ts';
import { ProblemError } from './problem.ts';
import type { ReadModel } from './read-model.ts';
import { parseWhen, WHEN_FORMS } from './when.ts';

/** One record of the history. Fields that do not apply are absent. */
export interface HistoryRecordDocument {
  readonly sequence: number;
  /** ISO 8601, with milliseconds. */
  readonly at: string;
  readonly kind: HistoryRecord['kind'];
  /** The prefix key, `namespace/name` of a service, `cluster/name` of a node. */
  readonly key?: string | undefined;
  /** Source of the claim, or the cluster of a part of a service. */
  readonly source?: string | undefined;
  readonly owner?: string | undefined;
  /** The claim or part before and after the change; absent: none. */
  readonly before?: unknown;
  readonly after?: unknown;
  /** The visible identity of the prefix before and after the change; absent if the list is not of one prefix. */
  readonly effective?: { readonly before: number | null; readonly after: number | null } | undefined;
  readonly cause?: { readonly store: string; readonly revision: string } | undefined;
  readonly mark?: string | undefined;
  readonly subject?: string | undefined;
  readonly detail?: string | undefined;
}

/** A part of the history, newest first. */
export interface HistoryDocument {
  readonly items: readonly HistoryRecordDocument[];
  readonly held: HeldDocument;
  /** True if there are older records; `after` with the last sequence number continues. */
  readonly more: boolean;
  /** Number of changes that are held, of all keys. */
  readonly changes: number;
}

function iso(at: number): string {
  return new Date(at).toISOString();
}

export function heldDocument({ from, to }: Held): HeldDocument {
  return { from: iso(from), to: iso(to) };
}

/** Returns the document of a moment. */
export function pastDocument(moment: Moment): PastDocument {
  const { at, certain, reason, held, effectiveSince, effectiveUntil } = moment;
  return {
    at: iso(at),
    certain,
    ...(reason !== undefined && { reason }),
    held: heldDocument(held),
    ...(effectiveSince !== undefined && { effectiveSince: iso(effectiveSince) }),
    ...(effectiveUntil !== undefined && { effectiveUntil: iso(effectiveUntil) }),
  };
}

function pastClaimDocument(claim: PastClaim, first: PastClaim | undefined, model: ReadModel): ClaimDocument {
  const { since, until, effective, ...held } = claim;
  const shadowed = claim.key !== first?.key;
  return {
    ...entryDocument({ ...held, shadowed }, model),
    ...{ key: claim.key, effective: effective && !shadowed, shadowed },
    ...(since !== undefined && { since: iso(since) }),
    ...(until !== undefined && { until: iso(until) }),
  };
}

/** Returns the claims of a moment; undefined if there were none. */
export function pastExplanation(moment: Moment, model: ReadModel): ExplanationDocument | undefined {
  const { prefix, claims, decidedBy } = moment;
  if (decidedBy === undefined) return undefined;
  return {
    ...{ prefix, decidedBy },
    claims: claims.map((claim) => pastClaimDocument(claim, claims[0], model)),
    past: pastDocument(moment),
  };
}

/** Returns the document of a record. */
export function recordDocument(record: HistoryRecord): HistoryRecordDocument {
  const { sequence, kind } = record;
  const head = { sequence, at: iso(record.at), kind };
  if (record.kind === 'mark') {
    const { mark, subject, detail } = record;
    return { ...head, mark, ...(subject && { subject }), ...(detail && { detail }) };
  }
  const { key, cause, before, after } = record;
  const of = { key, ...(cause !== undefined && { cause }) };
  if (record.kind !== 'prefix')
    return {
      ...{ ...head, ...of, source: record.writer },
      ...(before !== undefined && { before }),
      ...(after !== undefined && { after }),
    };
  const { writer, effective } = record;
  return {
    ...{ ...head, ...of, source: writer.source },
    ...(writer.owner && { owner: writer.owner }),
    ...(record.before !== undefined && { before: claimFields(record.before) }),
    ...(record.after !== undefined && { after: claimFields(record.after) }),
    ...(effective !== undefined && {
      effective: {
        before: effective.before?.identity ?? null,
        after: effective.after?.identity ?? null,
      },
    }),
  };
}

/** Returns the attributes of a claim without empty fields. */
function claimFields({ identity, hostIP, encryptKey, k8s }: HeldClaim): object {
  return {
    identity,
    ...(hostIP !== undefined && { hostIP }),
    ...(encryptKey !== 0 && { encryptKey }),
    ...(k8s !== undefined && { namespace: k8s.namespace, podName: k8s.podName }),
    ...(k8s?.serviceAccount && { serviceAccount: k8s.serviceAccount }),
  };
}

/** Returns the history of an agent. Throws `ProblemError` if it records none. */
export function historyOf({ history }: ReadModel): History {
  if (history !== undefined) return history;
  throw new ProblemError('not-found', 'The agent records no history: --history-memory is off.');
}

/** Parses a moment. Throws `ProblemError` if it is invalid. */
export function whenParameter(field: string, text: string, now: number): When {
  const when = parseWhen(text, now);
  if (when !== undefined) return when;
  throw new ProblemError('invalid-time', `${field} is not a time.`, {
    field,
    value: text.slice(0, 120),
    allowed: WHEN_FORMS,
  });
}

/** Returns the problem of a moment that is not held. */
export function notHeld(held: Held): ProblemError {
  const { from, to } = heldDocument(held);
  return new ProblemError('not-held', `Changes are held from ${from} on.`, { held: { from, to } });
}
