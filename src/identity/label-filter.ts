import type { Label } from './labels.ts';

/** One rule of a filter: labels of that source (`''`: of any) whose key begins with a match of the expression (K 28). */
interface LabelRule {
  readonly source: string;
  readonly expression: RegExp;
  readonly ignore: boolean;
}

/** What a filter's file says: `valid-prefixes` of it, in Cilium's words. */
export interface LabelPrefix {
  /** The regular expression. */
  readonly prefix: string;
  readonly source?: string | undefined;
  /** What it matches is left out. */
  readonly invert?: boolean | undefined;
}

/** How a {@link LabelFilter} is configured (K 28). */
export interface LabelFilterOptions {
  /** Instead of the built-in rules. It should name `reserved:.*`. */
  readonly file?: readonly LabelPrefix[] | undefined;
  /** Appended: `[!][source:]regex`. */
  readonly rules?: readonly string[] | undefined;
}

/** A rule that cannot be used. */
export class LabelRuleError extends Error {
  readonly code = 'invalid-label-rule';
}

/** 1.17's (pkg/labelsfilter, `defaultLabelPrefixCfg`; K 29). */
const BUILT_IN = [
  'reserved:.*',
  String.raw`io\.kubernetes\.pod\.namespace`,
  String.raw`io\.cilium\.k8s\.namespace\.labels`,
  String.raw`app\.kubernetes\.io`,
  String.raw`io\.cilium\.k8s\.policy\.cluster`,
  String.raw`!io\.kubernetes`,
  String.raw`!kubernetes\.io`,
  String.raw`!statefulset\.kubernetes\.io/pod-name`,
  String.raw`!apps\.kubernetes\.io/pod-index`,
  String.raw`!batch\.kubernetes\.io/job-completion-index`,
  String.raw`!batch\.kubernetes\.io/controller-uid`,
  String.raw`!.*beta\.kubernetes\.io`,
  String.raw`!k8s\.io`,
  '!pod-template-generation',
  '!pod-template-hash',
  '!controller-revision-hash',
  '!controller-uid',
  '!annotation.*',
  '!etcd_node',
] as const;

function ruleOf(source: string, text: string, ignore: boolean): LabelRule {
  try {
    return { source, expression: new RegExp(text, 'y'), ignore }; // sticky: matches where `lastIndex` is, and nowhere else
  } catch (cause) {
    throw new LabelRuleError(`label rule ${JSON.stringify(text)} is not a regular expression`, { cause });
  }
}

function parseRule(text: string): LabelRule {
  const ignore = text.startsWith('!');
  const rule = ignore ? text.slice(1) : text;
  const colon = rule.indexOf(':');
  if (rule === '') throw new LabelRuleError('a label rule is empty');
  return ruleOf(rule.slice(0, Math.max(0, colon)), rule.slice(colon + 1), ignore);
}

/** The length of what the rule matches at the start of the label's key; `undefined` when it does not match. */
function matchLength({ source, expression }: LabelRule, label: Label): number | undefined {
  if (source !== '' && source !== label.source) return undefined;
  expression.lastIndex = 0;
  return expression.exec(label.key)?.[0].length;
}

/** Which labels make an identity (K 28, 29). Expressions are the operator's own: they are trusted to end soon. */
export class LabelFilter {
  readonly #rules: readonly LabelRule[];
  /** Only what is included counts: somebody has said what is. */
  readonly #onlyIncluded: boolean;

  /** Throws {@link LabelRuleError} for what is no regular expression. */
  constructor({ file, rules = [] }: LabelFilterOptions = {}) {
    const said = [
      ...(file ?? []).map(({ prefix, source = '', invert = false }) => ruleOf(source, prefix, invert)),
      ...rules.map(parseRule),
    ];
    this.#rules = [...(file === undefined ? BUILT_IN.map(parseRule) : []), ...said];
    this.#onlyIncluded = said.some(({ ignore }) => !ignore);
  }

  /** Whether the label is kept: its longest include is longer than its shortest ignore; or nothing ignores it. */
  keeps(label: Label): boolean {
    let included = 0;
    let ignored: number | undefined;
    for (const rule of this.#rules) {
      const length = matchLength(rule, label);
      if (length === undefined) continue;
      if (!rule.ignore) included = Math.max(included, length);
      else if (ignored === undefined || length < ignored) ignored = length;
    }
    if (ignored === undefined && !this.#onlyIncluded) return true;
    return included > (ignored ?? 0);
  }
}
