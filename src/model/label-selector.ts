/** A condition on one label. `exists`, `absent`: no values; `greater`, `less`: one integer. */
interface Requirement {
  readonly key: string;
  readonly operator: 'in' | 'not-in' | 'exists' | 'absent' | 'greater' | 'less';
  readonly values: ReadonlySet<string>;
}

/** A parsed selector. Labels match if they meet all requirements; without requirements everything matches. */
export type LabelSelector = readonly Requirement[];

/** Thrown if a text is not a selector. The message names the fault. */
export class LabelSelectorError extends Error {
  readonly code = 'invalid-selector';
}

const TOKENS = /\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)/gy;
const SYMBOL = /^[=!(),<>]/;
const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const INTEGER = /^[-+]?\d+$/;
const MAX_NAME_LENGTH = 63;
const MAX_PREFIX_LENGTH = 253;
/** One more than the largest integer of 64 bits. */
const INT64_END = 1n << 63n;

const NO_VALUES: ReadonlySet<string> = new Set();
const OPERATORS: ReadonlyMap<string, Requirement['operator']> = new Map([
  ['=', 'in'],
  ['==', 'in'],
  ['in', 'in'],
  ['!=', 'not-in'],
  ['notin', 'not-in'],
  ['>', 'greater'],
  ['<', 'less'],
]);

/** Returns true if the text is a non-empty label value. The name in a label key has the same rule. */
export function isLabelValue(text: string): boolean {
  return text.length <= MAX_NAME_LENGTH && NAME.test(text);
}

/** Returns true for a qualified name: the key of a label, with or without a prefix. */
export function isLabelKey(text: string): boolean {
  const slash = text.indexOf('/');
  if (slash < 0) return isLabelValue(text);
  const prefix = text.slice(0, slash);
  return isLabelValue(text.slice(slash + 1)) && prefix.length <= MAX_PREFIX_LENGTH && SUBDOMAIN.test(prefix);
}

/** Returns the value as an integer of 64 bits; undefined if it is not such an integer. */
function integerOf(text: string): bigint | undefined {
  if (!INTEGER.test(text)) return undefined;
  const value = BigInt(text.replace('+', ''));
  return value >= -INT64_END && value < INT64_END ? value : undefined;
}

/** Reads a selector from left to right. After the last token, the next token is `''`. */
class SelectorReader {
  readonly #tokens: readonly string[];
  #at = 0;

  constructor(text: string) {
    this.#tokens = Array.from(text.trim().matchAll(TOKENS), ([, token = '']) => token);
  }

  get #next(): string {
    return this.#tokens[this.#at] ?? '';
  }

  #take(): string {
    const token = this.#next;
    this.#at++;
    return token;
  }

  #expected(what: string, found: string): never {
    throw new LabelSelectorError(
      `expected ${what} instead of ${found === '' ? 'the end' : JSON.stringify(found)}`,
    );
  }

  *requirements(): Generator<Requirement> {
    if (this.#next === '') return;
    for (;;) {
      yield this.#requirement();
      const token = this.#take();
      if (token === '') return;
      if (token !== ',') this.#expected('a comma', token);
    }
  }

  #requirement(): Requirement {
    const isNegated = this.#next === '!';
    if (isNegated) this.#at++;
    const key = this.#take();
    if (!isLabelKey(key) || key === 'in' || key === 'notin') this.#expected('the key of a label', key);
    if (isNegated) return { key, operator: 'absent', values: NO_VALUES };
    if (this.#next === '' || this.#next === ',') return { key, operator: 'exists', values: NO_VALUES };
    const token = this.#take();
    const operator = OPERATORS.get(token) ?? this.#expected('an operator', token);
    const values = token === 'in' || token === 'notin' ? this.#set() : new Set([this.#value()]);
    const isComparison = operator === 'greater' || operator === 'less';
    for (const value of values)
      if (isComparison && integerOf(value) === undefined) this.#expected('an integer', value);
    return { key, operator, values };
  }

  /** Reads a value. Before a comma, a closing parenthesis and the end, the value is empty. */
  #value(): string {
    if (this.#next === '' || this.#next === ',' || this.#next === ')') return '';
    const value = this.#take();
    if (SYMBOL.test(value) || !isLabelValue(value)) this.#expected('the value of a label', value);
    return value;
  }

  /** Reads the values in parentheses after `in` and `notin`. */
  #set(): ReadonlySet<string> {
    const values = new Set<string>();
    const open = this.#take();
    if (open !== '(') this.#expected('(', open);
    if (this.#next === ')') this.#expected('a value', ')');
    for (;;) {
      values.add(this.#value());
      const token = this.#take();
      if (token === ')') return values;
      if (token !== ',') this.#expected('a comma or )', token);
    }
  }
}

/**
 * Returns the selector of a text in the grammar of Kubernetes: `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`,
 * `a`, `!a`, `a>1` and `a<1`, separated by commas. The empty text selects everything.
 *
 * @throws {@link LabelSelectorError}
 */
export function parseLabelSelector(text: string): LabelSelector {
  return [...new SelectorReader(text).requirements()];
}

/** Returns true if a label meets a requirement. `label` is its value; undefined if the label is absent. */
function meets(label: string | undefined, { operator, values }: Requirement): boolean {
  if (operator === 'absent') return label === undefined;
  if (operator === 'not-in') return label === undefined || !values.has(label);
  if (label === undefined) return false;
  if (operator === 'exists') return true;
  if (operator === 'in') return values.has(label);
  const number = integerOf(label);
  const [limit = ''] = values;
  const bound = integerOf(limit);
  if (number === undefined || bound === undefined) return false;
  return operator === 'greater' ? number > bound : number < bound;
}

/** Returns true if labels, by key, meet all requirements of a selector. */
export function matchesLabels(
  selector: LabelSelector,
  labels: { get(key: string): string | undefined },
): boolean {
  return selector.every((requirement) => meets(labels.get(requirement.key), requirement));
}
