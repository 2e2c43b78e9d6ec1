import { z } from '@hono/zod-openapi';
import { MAX_SUBJECTS, UNCERTAINTIES } from '../../history/types.ts';
import type { CausesDocument, HistoryDocument, HistoryRecordDocument } from '../history-documents.ts';
import type { PastDocument, RetainedDocument } from '../past-document.ts';

export const RETAINED: z.ZodType<RetainedDocument> = z
  .object({ from: z.string(), to: z.string() })
  .openapi('RetainedInterval');

const PAST: z.ZodType<PastDocument> = z
  .object({
    at: z.string(),
    certain: z.boolean(),
    reason: z.enum(UNCERTAINTIES).optional().describe('Why the answer is not certain'),
    subjects: z
      .array(z.string())
      .readonly()
      .optional()
      .describe(
        `The clusters or kinds of Kubernetes objects of the reason, or the keys of lost objects; at most ${MAX_SUBJECTS}`,
      ),
    claimsComplete: z
      .literal(false)
      .optional()
      .describe(
        'Present if more claims than these may have existed: the moment is in the life of an earlier process',
      ),
    retained: RETAINED,
    effectiveSince: z.string().optional(),
    effectiveUntil: z.string().optional(),
  })
  .openapi('Past');

/** The moment of an answer with `at`. */
export const PAST_FIELD: { readonly past: z.ZodOptional<z.ZodType<PastDocument>> } = {
  past: PAST.optional().describe('Present with `at`'),
};

const HISTORY_RECORD: z.ZodType<HistoryRecordDocument> = z
  .object({
    sequence: z.int(),
    at: z.string(),
    kind: z.enum(['prefix', 'service', 'node', 'mark']),
    key: z.string().optional(),
    source: z.string().optional(),
    owner: z.string().optional(),
    before: z.unknown().optional().describe('The claim before the change; absent: none'),
    after: z.unknown().optional().describe('The claim after the change; absent: none'),
    effective: z
      .object({ before: z.int().nullable(), after: z.int().nullable() })
      .optional()
      .describe('Visible identity of the prefix before and after'),
    cause: z
      .object({
        store: z.string(),
        revision: z.string(),
        kind: z.string().optional(),
        withdrawal: z.boolean().optional(),
      })
      .optional()
      .describe('`kind` of a Kubernetes object; `withdrawal`: all state of the store was withdrawn'),
    mark: z.string().optional(),
    subject: z.string().optional(),
    detail: z.string().optional(),
  })
  .openapi('HistoryRecord');

export const HISTORY: z.ZodType<HistoryDocument> = z
  .object({
    items: z.array(HISTORY_RECORD),
    retained: RETAINED,
    more: z.boolean(),
    changesInMemory: z.int().describe('Number of changes of all keys in memory, without those on the disk'),
  })
  .openapi('History');

export const CAUSES: z.ZodType<CausesDocument> = z
  .object({
    at: z.string(),
    groups: z.array(
      z.object({
        at: z.string(),
        until: z.string(),
        store: z.string(),
        revisions: z.object({ first: z.string(), last: z.string() }).optional(),
        host: z.string().optional(),
        node: z.string().optional(),
        added: z.int(),
        changed: z.int(),
        deleted: z.int(),
        kinds: z.record(z.string(), z.int()),
        emptied: z.array(z.string()).describe('Services that lost their last backend'),
        samples: z.array(z.string()),
        mark: z.object({ subject: z.string(), detail: z.string() }).optional(),
        withdrawal: z.literal(true).optional().describe('Present if the state of the store was withdrawn'),
      }),
    ),
    retained: RETAINED,
  })
  .openapi('Causes');
