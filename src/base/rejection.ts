import { CallbackGuard } from './guard.ts';

/** One refused input: which part refused it, why, and what it said. Plain data, fit for logs and status. */
export interface Rejection {
  /** A short, stable reason for counting, such as `invalid-prefix`. */
  readonly reason: string;
  /** The field that is wrong, as the writer would know it: `identity`, `frontends.10.0.0.1`. */
  readonly field: string;
  /** The offending value as text, cut to 120 characters. */
  readonly value: string;
  /** Where it came from, when there is something to say: a kvstore key, `file.yaml:12`, a service. */
  readonly at?: string;
  /** One sentence for a person. */
  readonly message: string;
}

const VALUE_LENGTH = 120;
const RECENT = 16;

function describe(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return `[${typeof value}]`; // cyclic, a bigint, a hostile toJSON: asking it more may throw again
  }
}

/** Shows any value as short text; never throws, whatever it is given. */
export function showValue(value: unknown): string {
  const text = describe(value);
  return text.length > VALUE_LENGTH ? `${text.slice(0, VALUE_LENGTH - 1)}…` : text;
}

/** Builds a {@link Rejection}; the message is made from field, value and `why` so that no field is ever unnamed. */
export function rejection(
  reason: string,
  field: string,
  value: unknown,
  why: string,
  at?: string,
): Rejection {
  const shown = showValue(value);
  const message = `${at === undefined ? '' : `${at}: `}${field} ${shown}: ${why}`;
  return at === undefined
    ? { reason, field, value: shown, message }
    : { reason, field, value: shown, at, message };
}

/** What a {@link RejectionLog} has seen. */
export interface RejectionStatus {
  readonly total: number;
  /** Count by reason. */
  readonly byReason: ReadonlyMap<string, number>;
  /** The last 16, oldest first. */
  readonly recent: readonly Rejection[];
}

/**
 * Counts refused input by reason and remembers the last few, so that nothing is dropped in silence (I12).
 * Bounded: reasons are a small fixed vocabulary of the code, and 16 rejections are kept.
 */
export class RejectionLog {
  readonly #byReason = new Map<string, number>();
  readonly #onReject: ((rejection: Rejection) => void) | undefined;
  readonly #guard: CallbackGuard;
  #recent: readonly Rejection[] = [];
  #total = 0;

  /** `onReject` receives each rejection, under `guard`: a fault in it does not reach the caller of `add`. */
  constructor(onReject?: (rejection: Rejection) => void, guard: CallbackGuard = new CallbackGuard()) {
    this.#onReject = onReject;
    this.#guard = guard;
  }

  add(item: Rejection): void {
    this.#total++;
    this.#byReason.set(item.reason, (this.#byReason.get(item.reason) ?? 0) + 1);
    this.#recent = [...this.#recent.slice(1 - RECENT), item];
    this.#guard.call(this.#onReject, item);
  }

  status(): RejectionStatus {
    return { total: this.#total, byReason: new Map(this.#byReason), recent: this.#recent };
  }
}
