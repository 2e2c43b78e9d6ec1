import { checkArgument, LIST, listOf, OBJECT, optional, TEXT } from '../base/arguments.ts';
import type { Label } from './labels.ts';

/**
 * A rule of a filter. It matches labels of a source (empty: any source) whose key starts with a match of the expression
 * (KUBERNETES 28).
 */
interface LabelRule {
  readonly source: string;
  readonly expression: RegExp;
  readonly ignore: boolean;
}

/** An entry of `valid-prefixes` in Cilium's label prefix file. */
export interface LabelPrefix {
  /** The regular expression. */
  readonly prefix: string;
  readonly source?: string | undefined;
  /** If true, matching labels are ignored. */
  readonly invert?: boolean | undefined;
}

/** Configuration of a {@link LabelFilter} (KUBERNETES 28). */
export interface LabelFilterOptions {
  /** Replaces the built-in rules. A rule should include the labels of the source `reserved`. */
  readonly file?: readonly LabelPrefix[] | undefined;
  /** Rules appended to the built-in rules or to the file: `[source:][!]regex` or `[!][source:]regex`. */
  readonly rules?: readonly string[] | undefined;
}

/** An invalid rule. */
export class LabelRuleError extends Error {
  override readonly name = 'LabelRuleError';
  readonly code = 'invalid-label-rule';
}

/** The defaults of 1.20 (pkg/labelsfilter, `defaultLabelPrefixCfg`; KUBERNETES 29). */
const BUILT_IN = [
  'reserved:.*',
  String.raw`io\.kubernetes\.pod\.namespace`,
  String.raw`io\.cilium\.k8s\.namespace\.labels`,
  String.raw`app\.kubernetes\.io`,
  String.raw`io\.cilium\.k8s\.policy\.cluster`,
  String.raw`io\.cilium\.k8s\.policy\.serviceaccount`,
  String.raw`!io\.kubernetes`,
  String.raw`!kubernetes\.io`,
  String.raw`!statefulset\.kubernetes\.io/pod-name`,
  String.raw`!apps\.kubernetes\.io/pod-index`,
  String.raw`!batch\.kubernetes\.io/job-completion-index`,
  String.raw`!batch\.kubernetes\.io/controller-uid`,
  String.raw`!.*beta\.kubernetes\.io`,
  String.raw`!topology\.kubernetes\.io`, // Kubernetes 1.35 copies these labels from the node to its pods (#43725)
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
    return { source, expression: new RegExp(text, 'y'), ignore }; // sticky: matches at `lastIndex` only
  } catch (cause) {
    throw new LabelRuleError(`label rule ${JSON.stringify(text)} is not a regular expression`, { cause });
  }
}

/** Cilium writes the `!` after the source (pkg/labelsfilter/filter.go, `parseLabelPrefix`). */
function parseRule(text: string): LabelRule {
  const rule = text.startsWith('!') ? text.slice(1) : text;
  const colon = rule.indexOf(':');
  const rest = rule.slice(colon + 1);
  const expression = rest.startsWith('!') ? rest.slice(1) : rest;
  if (expression === '') throw new LabelRuleError(`label rule ${JSON.stringify(text)} has no expression`);
  return ruleOf(rule.slice(0, Math.max(0, colon)), expression, rule !== text || expression !== rest);
}

/** Returns the length of the rule's match at the start of the label's key; `undefined` if it does not match. */
function matchLength({ source, expression }: LabelRule, label: Label): number | undefined {
  if (source !== '' && source !== label.source) return undefined;
  expression.lastIndex = 0;
  return expression.exec(label.key)?.[0].length;
}

/**
 * Selects the labels of an identity (KUBERNETES 28, 29). The expressions are trusted to terminate quickly, because they
 * come from the configuration.
 */
export class LabelFilter {
  readonly #rules: readonly LabelRule[];
  /** True if the configuration has include rules. Labels that match no rule are then dropped. */
  readonly #keepsOnlyIncluded: boolean;

  /** Throws {@link LabelRuleError} if a rule is not a valid regular expression. */
  constructor(options: LabelFilterOptions = {}) {
    checkArgument('new LabelFilter: options', options, OBJECT);
    const { file, rules = [] } = options;
    checkArgument('new LabelFilter: options.file', file, optional(LIST));
    checkArgument('new LabelFilter: options.rules', rules, listOf(TEXT));
    const configured = [
      ...(file ?? []).map(({ prefix, source = '', invert = false }) => ruleOf(source, prefix, invert)),
      ...rules.map(parseRule),
    ];
    this.#rules = [...(file === undefined ? BUILT_IN.map(parseRule) : []), ...configured];
    this.#keepsOnlyIncluded = configured.some(({ ignore }) => !ignore);
  }

  /**
   * Returns true if the label's longest include match is longer than its shortest ignore match. If the configuration
   * has no include rule, also returns true if no rule ignores the label.
   */
  keeps(label: Label): boolean {
    let longestInclude = 0;
    let shortestIgnore: number | undefined;
    for (const rule of this.#rules) {
      const length = matchLength(rule, label);
      if (length === undefined) continue;
      if (rule.ignore) shortestIgnore = Math.min(shortestIgnore ?? length, length);
      else longestInclude = Math.max(longestInclude, length);
    }
    if (shortestIgnore === undefined && !this.#keepsOnlyIncluded) return true;
    return longestInclude > (shortestIgnore ?? 0);
  }
}
