import type { CompleteClaim } from '../ipcache/row-reader.ts';
import type { PrefixDifferenceKind, ServiceDifferenceKind } from '../whatif/differences.ts';
import type { WhatIfAnswer, WhatIfSummary } from '../whatif/what-if.ts';
import { type EntryDocument, entryDocument } from './documents.ts';
import type { ReadModel } from './read-model.ts';

/** One line of the answer of `/v1/whatif`. */
export type WhatIfLine =
  | {
      readonly type: 'prefix';
      readonly kind: PrefixDifferenceKind;
      readonly prefix: string;
      readonly old?: EntryDocument | undefined;
      readonly new?: EntryDocument | undefined;
      /** If the prefix would be removed: the entry of the longest prefix that would contain it. */
      readonly coveredBy?: EntryDocument | undefined;
    }
  | {
      readonly type: 'node';
      readonly kind: 'gone' | 'changed';
      readonly node: string;
      /** The source of the effective claim before the edits. */
      readonly oldSource: string;
      readonly newSource?: string | undefined;
      readonly addresses: number;
      readonly podCIDRs: number;
    }
  | {
      readonly type: 'service';
      readonly kind: ServiceDifferenceKind;
      readonly service: string;
      /** Numbers of backends before and after the edits, and of those that only existed before. */
      readonly before: number;
      readonly after: number;
      readonly lost: number;
    }
  | ({ readonly type: 'summary' } & WhatIfSummary);

/** Yields the lines of an answer: prefixes, nodes, services, and the summary. */
export function* whatIfLines(answer: WhatIfAnswer, model: ReadModel): Generator<WhatIfLine, void, void> {
  const entry = (prefix: string, claim: CompleteClaim | undefined): EntryDocument | undefined =>
    claim && entryDocument({ key: prefix, shadowed: false, ...claim }, model);
  for (const { kind, prefix, old, new: next, coveredBy } of answer.prefixes)
    yield {
      type: 'prefix',
      kind,
      prefix,
      old: entry(prefix, old),
      new: entry(prefix, next),
      coveredBy: coveredBy && entry(coveredBy.prefix, coveredBy.claim),
    };
  for (const { kind, node, old, new: next, addresses, podCIDRs } of answer.nodes)
    yield { type: 'node', kind, node, oldSource: old.source, newSource: next?.source, addresses, podCIDRs };
  for (const { kind, service, before, after, lost } of answer.services)
    yield { type: 'service', kind, service, before, after, lost };
  yield { type: 'summary', ...answer.summary };
}
