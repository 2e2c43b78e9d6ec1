import type { Ask } from '../api/api-client.ts';
import type { EntryDocument } from '../api/documents.ts';
import type { WhatIfLine } from '../api/whatif-documents.ts';
import { counted } from '../base/show-value.ts';
import { alignColumns } from '../process/terminal.ts';
import { type Answer, identityCell, withIncomplete } from './answer.ts';

/** Maximum number of prefixes, nodes and services in the text. All are counted, and `-o json` has more. */
const MAX_SHOWN = 20;

/** What an edit does not change, although a user may expect it. */
const NOTES: ReadonlyMap<unknown, string> = new Map([
  ['remove-node', 'Only the node is removed. Its pods and their backends stay: dpcache whatif drain-node'],
  [
    'drain-node',
    'The node stays, and so do backends whose node is unknown (of remote clusters, in services/v1).',
  ],
]);

type LineOf<T extends WhatIfLine['type']> = Extract<WhatIfLine, { type: T }>;

export interface WhatIfText extends Pick<Answer, 'json' | 'lines'> {
  /** True if something would be lost. */
  readonly loses: boolean;
}

/** Sends edits to `/v1/whatif` and returns the answer. */
export async function askWhatIf(ask: Ask, edits: readonly object[]): Promise<WhatIfText> {
  const answer = (await ask('/v1/whatif', { edits })) as readonly WhatIfLine[];
  const linesOfType = <T extends WhatIfLine['type']>(type: T): readonly LineOf<T>[] =>
    answer.filter((line): line is LineOf<T> => line.type === type);
  const [summary] = linesOfType('summary');
  if (summary === undefined) throw new TypeError('the answer has no summary');
  const lines = [
    ...prefixLines(linesOfType('prefix'), summary),
    ...nodeLines(linesOfType('node'), summary),
    ...serviceLines(linesOfType('service'), summary),
    ...(summary.identities.unknown === 0
      ? []
      : [`identities ${numberText(summary.identities.unknown)} no longer known`]),
    ...edits.flatMap((edit) => ('edit' in edit ? (NOTES.get(edit.edit) ?? []) : [])),
  ];
  const json = { changes: answer.slice(0, -1), summary };
  return { ...(await withIncomplete(ask, { json, lines, succeeded: true })), loses: summary.loses };
}

function numberText(number: number): string {
  return number.toLocaleString('en-US');
}

/** Returns counts with their words, without zeros. */
function countsText(counts: readonly (readonly [number, string])[]): string {
  const named = counts
    .filter(([number]) => number > 0)
    .map(([number, word]) => `${numberText(number)} ${word}`);
  return named.length === 0 ? 'no changes' : named.join(', ');
}

function prefixLines(
  prefixes: readonly LineOf<'prefix'>[],
  { prefixes: all }: LineOf<'summary'>,
): readonly string[] {
  const head = countsText([
    [all.gone, 'deleted'],
    [all.changed, 'with another effective claim'],
    [all.revealed, 'become visible'],
    [all.created, 'new'],
  ]);
  // Changed prefixes first, because a list of deleted ones is long and its items are similar.
  const order = ['changed', 'revealed', 'created', 'gone'];
  const sorted = prefixes.toSorted((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
  const rows = sorted.slice(0, MAX_SHOWN).map(({ prefix, old, new: next, coveredBy, kind }) => {
    if (kind !== 'gone') return [`  ${prefix}`, `${entryText(old, next)} → ${entryText(next, old)}`];
    const cover = coveredBy && `${coveredBy.prefix} ${entryText(coveredBy)}`;
    return [
      `  ${prefix}`,
      `${entryText(old)} deleted; ${cover ? `then covered by ${cover}` : 'no other prefix covers it'}`,
    ];
  });
  const total = all.gone + all.changed + all.revealed + all.created;
  return [`prefixes   ${head}`, ...rowLines(rows, total)];
}

/** Returns an entry as text. Its host and encryption key are included only if they differ from those of `other`. */
function entryText(entry: EntryDocument | undefined, other: EntryDocument | undefined = entry): string {
  if (entry === undefined) return 'none';
  const { identity, labels, source, owner, namespace, podName, hostIP, encryptKey } = entry;
  const pod = podName === undefined ? '' : ` ${namespace ?? ''}/${podName}`;
  const host = other === undefined || other.hostIP === hostIP ? '' : ` at ${hostIP ?? 'no host'}`;
  const key = other === undefined || other.encryptKey === encryptKey ? '' : ` key ${encryptKey}`;
  return `${identityCell(identity, labels)} ${source}${owner === undefined ? '' : ` ${owner}`}${pod}${host}${key}`;
}

function nodeLines(changes: readonly LineOf<'node'>[], { nodes }: LineOf<'summary'>): readonly string[] {
  const head = countsText([
    [nodes.gone, 'deleted'],
    [nodes.changed, 'changed'],
  ]);
  const addresses = counted(nodes.addresses, 'address', 'addresses');
  const routes = counted(nodes.podCIDRs, 'pod CIDR');
  const lost = nodes.gone === 0 ? '' : `: ${addresses}, ${routes} (routes of --datapath linux)`;
  const rows = changes
    .slice(0, MAX_SHOWN)
    .map(({ node, oldSource, newSource }) => [
      `  ${node}`,
      newSource === undefined ? 'deleted' : `${oldSource} → ${newSource}`,
    ]);
  return [`nodes      ${head}${lost}`, ...rowLines(rows, nodes.gone + nodes.changed)];
}

function serviceLines(
  services: readonly LineOf<'service'>[],
  { services: all }: LineOf<'summary'>,
): readonly string[] {
  const head = countsText([
    [all.fewer + all.empty, 'lose backends'],
    [all.empty, 'without backends'],
    [all.gone, 'deleted'],
    [all.changed, 'changed'],
    [all.created, 'new'],
  ]);
  const isLost = ({ kind }: LineOf<'service'>): boolean => kind === 'empty' || kind === 'gone';
  const sorted = services.toSorted((a, b) => Number(isLost(b)) - Number(isLost(a)));
  const rows = sorted.slice(0, MAX_SHOWN).map((service) => [`  ${service.service}`, serviceText(service)]);
  const total = all.fewer + all.empty + all.gone + all.changed + all.created;
  return [`services   ${head}`, ...rowLines(rows, total)];
}

function serviceText({ kind, before, after }: LineOf<'service'>): string {
  if (kind === 'gone') return 'deleted';
  if (kind === 'created') return `new, ${counted(after, 'backend')}`;
  return before === after ? 'changed' : `${before} → ${counted(after, 'backend')}`;
}

/**
 * Returns the lines of the shown rows, and the number of the others. Lines are not cut, because many differ at the end.
 */
function rowLines(rows: readonly (readonly string[])[], total: number): readonly string[] {
  const more = total > rows.length ? [`  and ${numberText(total - rows.length)} more`] : [];
  return [...alignColumns(rows), ...more];
}
