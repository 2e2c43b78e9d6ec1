import { checkArgument, checkArguments, objectWith, optional, TEXT } from './arguments.ts';
import { CallbackGuard } from './guard.ts';
import { cutText, showValue } from './show-value.ts';

/** A rejected input: reason, field and value. Plain data for logs and status, at most about 1,600 characters. */
export interface Rejection {
  /** A short, stable reason for counting, such as `invalid-prefix`. */
  readonly reason: string;
  /** The path of the invalid field in the input: `identity`, `frontends.10.0.0.1`. Cut to 256 characters. */
  readonly field: string;
  /** The invalid value as text, cut to 120 characters. */
  readonly value: string;
  /** The source of the input if it is known: a kvstore key, `file.yaml:12`, a service. Cut to 256 characters. */
  readonly at?: string;
  /** One sentence for the user. */
  readonly message: string;
}

/** Maximum length of a text from the input (a key, a field name, a message) in a rejection. */
const QUOTED_LENGTH = 256;
const RECENT = 16;

/** Returns the message about an invalid field. `why` is a requirement (`must be …`), or a predicate (`is …`). */
export function invalidText(field: string, value: unknown, why: string): string {
  const subject = value === undefined && why === 'is missing' ? field : `${field} ${showValue(value)}`;
  return `${subject}${why.startsWith('is ') ? '' : ':'} ${why}`;
}

/**
 * Returns a {@link Rejection}; its message contains field, value and `why`. Texts are cut, because the input determines
 * their length and a rejection may be stored, sent and logged.
 */
export function rejection(
  reason: string,
  field: string,
  value: unknown,
  why: string,
  at?: string,
): Rejection {
  checkArgument('rejection: field', field, TEXT);
  checkArgument('rejection: why', why, TEXT);
  checkArgument('rejection: at', at, optional(TEXT));
  const shown = showValue(value);
  const path = cutText(field, QUOTED_LENGTH);
  const place = at === undefined ? undefined : cutText(at, QUOTED_LENGTH);
  const prefix = place === undefined ? '' : `${place}: `;
  const message = `${prefix}${invalidText(path, value, cutText(why, QUOTED_LENGTH))}`;
  return { reason, field: path, value: shown, ...(place === undefined ? {} : { at: place }), message };
}

/** Counts of rejected inputs, and the last ones. */
export interface RejectionStatus {
  readonly total: number;
  /** Counts by reason. */
  readonly byReason: Readonly<Record<string, number>>;
  /** The last 16 rejections, oldest first. */
  readonly recent: readonly Rejection[];
}

/**
 * Counts rejected inputs by reason and keeps the last 16, so that no input is dropped silently (I12). Its size is
 * limited, because the code defines a small set of reasons.
 */
export class RejectionLog {
  readonly #byReason = new Map<string, number>();
  readonly #onReject: ((rejection: Rejection) => void) | undefined;
  readonly #guard: CallbackGuard;
  #recent: readonly Rejection[] = [];
  #total = 0;

  /** `onReject` receives each rejection under `guard`. If it throws, the caller of `add` does not receive the error. */
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
