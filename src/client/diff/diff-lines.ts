import type { DigestClaim } from '../../api/digest-documents.ts';
import { counted, listText } from '../../base/show-value.ts';
import { alignColumns, printable } from '../../process/terminal.ts';
import { portsCell } from '../answer.ts';
import type { AgentDiff, ClaimDifference, DocumentDifference } from './agent-diff.ts';
import type { DiffReason } from './diff-reasons.ts';

/** Maximum number of differences in the text. `-o json` contains more. */
const MAX_SHOWN = 50;

/** Maximum number of items of one field in the text. */
const MAX_SHOWN_ITEMS = 3;

const REASON_TEXTS: Readonly<Record<DiffReason, string>> = {
  setting: 'other settings',
  incomplete: 'source incomplete, unreachable or not followed',
  'other-store': 'another store',
  'revision-behind': 'older revision',
  rejected: 'rejected value',
  'other-source': 'claim of another source',
  recent: 'recent change',
  'none-found': 'no reason found',
  'not-searched': 'reason not searched',
};

/** Returns a claim as text, with the service account and the ports of the pod only if those of `other` differ. */
function claimText(claim: DigestClaim | undefined, other: DigestClaim | undefined): string {
  if (claim === undefined) return 'none';
  const { identity, hostIP, namespace, podName, encryptKey } = claim;
  const pod = podName === undefined ? '' : ` ${namespace ?? ''}/${podName}`;
  const key = encryptKey === 0 ? '' : ` key ${encryptKey}`;
  const [details, others] = [podDetails(claim), podDetails(other ?? claim)];
  const differing = details.filter((detail, index) => detail !== others[index]);
  return `${identity}${pod}${differing.join('')}${hostIP === undefined ? '' : ` at ${hostIP}`}${key}`;
}

function podDetails({ serviceAccount = 'none', namedPorts = {} }: DigestClaim): readonly string[] {
  return [` account ${serviceAccount}`, ` ports ${portsCell(namedPorts)}`];
}

/**
 * Returns the differences of two versions of a service or node, by field. For a field with a list, returns the items
 * that only one agent has.
 */
function fieldDifferences({ a, b }: Pick<DocumentDifference, 'a' | 'b'>): readonly string[] {
  if (a === undefined || b === undefined) return [a === undefined ? 'a: none' : 'b: none'];
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names.flatMap((name) => {
    const [x = '', y = ''] = [a[name], b[name]];
    if (typeof x === 'string' && typeof y === 'string')
      return x === y ? [] : [`${name}: ${x || 'none'} at a, ${y || 'none'} at b`];
    const [inA, inB] = [listOf(x), listOf(y)];
    const [onlyA, onlyB] = [onlyIn(inA, inB), onlyIn(inB, inA)];
    return [
      ...(onlyA.length === 0 ? [] : [`${name}: only at a: ${itemsText(onlyA)}`]),
      ...(onlyB.length === 0 ? [] : [`${name}: only at b: ${itemsText(onlyB)}`]),
    ];
  });
}

function onlyIn(texts: readonly string[], others: readonly string[]): readonly string[] {
  const known = new Set(others);
  return texts.filter((text) => !known.has(text));
}

function listOf(value: string | readonly string[]): readonly string[] {
  return typeof value === 'string' ? [value].filter((text) => text !== '') : value;
}

function itemsText(texts: readonly string[]): string {
  return listText(texts, MAX_SHOWN_ITEMS);
}

/** Returns counts at both agents, such as `3 only at a, 2 only at b`, without zeros. */
function sidesText(word: string, atA: number, atB: number): string {
  const texts = [...(atA > 0 ? [`${atA} ${word} at a`] : []), ...(atB > 0 ? [`${atB} ${word} at b`] : [])];
  return texts.join(', ');
}

/** Returns the number of differences of a group: `services baltic: 2 of 40 differ (1 only at a)`. */
function groupText({ writer, differ, claimsA, claimsB, onlyA, onlyB }: AgentDiff['writers'][number]): string {
  const noun = writer.startsWith('services') || writer.startsWith('nodes') ? '' : ' claims';
  const verb = differ === 1 ? 'differs' : 'differ';
  const only = sidesText('only', onlyA, onlyB);
  return `${writer}: ${differ} of ${Math.max(claimsA, claimsB)}${noun} ${verb}${only && ` (${only})`}`;
}

/** Returns the lines of the first differences, and the number of the others. */
function differenceLines({ differences, documents, notListed }: AgentDiff): readonly string[] {
  const detailText = ({ reason, detail }: Pick<ClaimDifference, 'reason' | 'detail'>): string =>
    reason === 'none-found' ? REASON_TEXTS['none-found'] : detail;
  const claimRows = differences
    .slice(0, MAX_SHOWN)
    .map((claim) => [
      `  ${claim.key}`,
      `a: ${claimText(claim.a, claim.b)}`,
      `b: ${claimText(claim.b, claim.a)}`,
      detailText(claim),
    ]);
  const documentRows = documents
    .slice(0, MAX_SHOWN)
    .map((document) => [
      `  ${document.writer} ${document.key}`,
      fieldDifferences(document).join('; '),
      detailText(document),
    ]);
  const shown = claimRows.length + documentRows.length;
  const more = differences.length + documents.length - shown + notListed;
  return [
    ...alignColumns(claimRows),
    ...alignColumns(documentRows),
    ...(more > 0 ? [`  and ${more} more`] : []),
  ];
}

/**
 * Returns the differences as text: groups, claims, services and nodes with reasons, and the expected ones in the last
 * line.
 */
export function diffLines(diff: AgentDiff): readonly string[] {
  const { clusters, writers, restored, reasons, expected, notListed, notCompared, digestsOnly } = diff;
  const heads = writers.map(groupText);
  const unconfirmed = restored.map(
    ({ writer, claimsA, claimsB }) =>
      `${writer}: ${sidesText('not confirmed', claimsA, claimsB)}: restored from a checkpoint`,
  );
  const reasonTexts = Object.entries(reasons).map(
    ([reason, count]) => `${REASON_TEXTS[reason as DiffReason]} ${count}`, // the keys of an object literal
  );
  const { localNode, localSource } = expected;
  return [
    ...(clusters === undefined
      ? []
      : [
          printable(
            `The agents are of clusters ${clusters.a} and ${clusters.b}: only other clusters are compared.`,
          ),
        ]),
    ...(heads.length + digestsOnly.length === 0 ? ['No differences.'] : heads.map(printable)),
    ...differenceLines(diff),
    ...(reasonTexts.length > 0 ? [`Reasons: ${reasonTexts.join('; ')}`] : []),
    ...unconfirmed.map(printable),
    ...(notListed > 0 ? [`Truncated: -o json lists all except ${counted(notListed, 'difference')}.`] : []),
    ...(notCompared > 0
      ? [
          `${counted(notCompared, 'entry', 'entries')} not compared: together too large for one response of an agent.`,
        ]
      : []),
    ...digestsOnly.map((writer) =>
      printable(
        `${writer}: the digests differ, but no entry does: the group changed during the comparison, or the agents run different versions: repeat the command`,
      ),
    ),
    `Expected differences: ${localNode + localSource} (local nodes and their addresses: ${localNode}, other claims of one node or cluster: ${localSource})`,
  ];
}
