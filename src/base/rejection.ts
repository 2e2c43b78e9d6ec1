import { checkArguments, objectWith, TEXT } from './arguments.ts';
import { CallbackGuard } from './guard.ts';
import { cutText, showValue } from './show-value.ts';

/** One rejected input: why, where and what. Plain data for logs and status, of at most some 1,000 characters. */
export interface Rejection {
  /** A short, stable reason for counting, such as `invalid-prefix`. */
  readonly reason: string;
  /** The field that is wrong, by its path in the input: `identity`, `frontends.10.0.0.1`. Cut to 256 characters. */
  readonly field: string;
  /** The offending value as text, cut to 120 characters. */
  readonly value: string;
  /** Where it came from, when that is known: a kvstore key, `file.yaml:12`, a service. Cut to 256 characters. */
  readonly at?: string;
  /** One sentence for a person. */
  readonly message: string;
}

/** What an input says of itself (keys, names of fields, texts) is repeated in a rejection up to this length. */
const QUOTED_LENGTH = 256;
const RECENT = 16;

/**
 * Builds a {@link Rejection}; the message contains field, value and `why`. Texts are cut: an input decides how long they
 * are, and a rejection may be kept, sent and logged.
 */
export function rejection(
  reason: string,
  field: string,
  value: unknown,
  why: string,
  at?: string,
): Rejection {
  const shown = showValue(value);
  const path = cutText(field, QUOTED_LENGTH);
  const place = at === undefined ? undefined : cutText(at, QUOTED_LENGTH);
  const prefix = place === undefined ? '' : `${place}: `;
  const message = `${prefix}${path} ${shown}: ${cutText(why, QUOTED_LENGTH)}`;
  return { reason, field: path, value: shown, ...(place === undefined ? {} : { at: place }), message };
}

/** What a {@link RejectionLog} has counted. */
export interface RejectionStatus {
  readonly total: number;
  /** Count by reason. */
  readonly byReason: Readonly<Record<string, number>>;
  /** The last 16, oldest first. */
  readonly recent: readonly Rejection[];
}

/**
 * Counts rejected input by reason and keeps the last few, so that nothing is dropped silently (I12).
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
    return { total: this.#total, byReason: Object.fromEntries(this.#byReason), recent: this.#recent };
  }
}

checkArguments(RejectionLog, { add: { item: objectWith({ reason: TEXT }) } });
