import { textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import type { WatchEvent } from '../../../../src/kvstore/session/backend.ts';
import type { Past, PastWrite } from './past.ts';

/** What a watch has told of a key, and in which past that happened. */
interface Told extends PastWrite {
  readonly past: Past;
}

/** A write as a text: `revision: value`. */
const shown = ({ revision, value = 'deleted' }: PastWrite): string => `${revision}: ${value}`;

/** What a watch holds that the store does not, and the reverse. */
export interface Difference {
  /** Keys that the store has, and the watch has not, or not as they are. */
  readonly lost: readonly string[];
  /** Keys that the watch has, and the store has not. */
  readonly phantom: readonly string[];
}

/**
 * Checks what a watch tells against the history of its store, revision by revision. Legal is, key by key:
 *
 * - a put that happened, at its revision, with its value, and that is no older than what was told before;
 * - a delete, while the key is held and only if it was deleted since it was last told: at the revision told the
 *   key's last write is that delete;
 * - `create` for what is not held, `modify` for what is; `list-done` once.
 *
 * Versions may be left out, because a watch does not promise all of them: that is why a load writes most keys
 * once only. After a restore events may be of the next past, and then never of an earlier one again.
 */
export class SequenceChecker {
  readonly breaches: string[] = [];
  readonly #pasts: readonly Past[];
  readonly #told = new Map<string, Told>();
  #past = 0;
  #events = 0;
  #repeats = 0;
  #listDone = false;

  /** @param pasts may grow, and so may the last of them; an event is checked when all of its past is known */
  constructor(pasts: readonly Past[]) {
    this.#pasts = pasts;
  }

  /** Events that were checked. */
  get events(): number {
    return this.#events;
  }

  /** Puts that were told again as they were. Legal, but only after a fault. */
  get repeats(): number {
    return this.#repeats;
  }

  check({ type, key, value, modRevision: revision }: WatchEvent): void {
    this.#events++;
    if (type === 'list-done') {
      if (this.#listDone) this.breaches.push('list-done twice');
      this.#listDone = true;
      return;
    }
    const event = { revision, value: type === 'delete' ? undefined : (textOfBytes(value) ?? 'no text') };
    const held = this.#told.get(key)?.value !== undefined;
    if (held === (type === 'create')) this.#breach(key, `${type} while ${held ? '' : 'not '}held`, event);
    const told = this.#told.get(key);
    const past = this.#pasts.find((each, i) => i >= this.#past && isLegal(each, key, event, told));
    if (past === undefined) {
      this.#breach(key, 'nothing that could be told now', event);
      return;
    }
    this.#past = this.#pasts.indexOf(past);
    if (type === 'modify' && told?.revision === revision) this.#repeats++;
    this.#told.set(key, { ...event, past });
  }

  /** What was told, against the end of the last past. */
  difference(): Difference {
    const content = this.#pasts.at(-1)?.content() ?? new Map<string, PastWrite>();
    const isTold = ([key, write]: [string, PastWrite]): boolean => {
      const told = this.#told.get(key);
      return told?.revision === write.revision && told.value === write.value;
    };
    const lost = [...content].filter((entry) => !isTold(entry)).map(([key]) => key);
    const phantom = [...this.#told].filter(([key, { value }]) => value !== undefined && !content.has(key));
    return { lost, phantom: phantom.map(([key]) => key) };
  }

  #breach(key: string, what: string, event: PastWrite): void {
    const told = this.#told.get(key);
    this.breaches.push(`${key}: ${what} (${shown(event)}; before ${told ? shown(told) : 'nothing'})`);
  }
}

/** Whether `event` may follow what was `told` of its key, for a watch that follows this past. */
function isLegal(past: Past, key: string, event: PastWrite, told: Told | undefined): boolean {
  if (event.value === undefined) return isLegalDelete(past, key, event, told);
  return past.has(key, event) && event.revision >= (told === undefined ? 0 : firstLegal(past, key, told));
}

/** What was held is gone as of the revision told: deleted since, or never there in this past. */
function isLegalDelete(past: Past, key: string, event: PastWrite, told: Told | undefined): boolean {
  const last = past.at(key, event.revision);
  if (last?.value !== undefined) return false;
  if (told === undefined || !past.shares(told.past, told.revision)) return true;
  return last !== undefined && last.revision > told.revision;
}

/**
 * The first put that may follow what was told. What was told and is not of this past was told in an earlier one;
 * then this past was listed at its fork or later.
 */
function firstLegal(past: Past, key: string, told: Told): number {
  if (!past.shares(told.past, told.revision)) return past.at(key, past.fork)?.revision ?? 0;
  return told.value === undefined ? told.revision + 1 : told.revision;
}
