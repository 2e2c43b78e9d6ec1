import { textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import type { WatchEvent } from '../../../../src/kvstore/session/backend.ts';
import type { Past, PastWrite } from './past.ts';

/** The last event of a key in a watch, and its past. */
interface Told extends PastWrite {
  readonly past: Past;
}

/** Returns a write as text: `revision: value`. */
const shown = ({ revision, value = 'deleted' }: PastWrite): string => `${revision}: ${value}`;

/** The difference between a watch and its store. */
export interface Difference {
  /** Keys of the store that the watch lacks, or has with another value. */
  readonly lost: readonly string[];
  /** Keys of the watch that the store lacks. */
  readonly phantom: readonly string[];
}

/**
 * Checks the events of a watch against the history of its store. These are legal for each key:
 *
 * - a put that happened, with its revision and value, no older than the previous event;
 * - a delete of an existing key: at its revision, the key's last write must be a delete after the previous event;
 * - `create` for an absent key, `modify` for an existing one; one `list-done`.
 *
 * Versions may be skipped, because a watch does not deliver all of them. Therefore a load writes most keys only
 * once. After a restore events may belong to the next past, and from then on never to an earlier one.
 */
export class SequenceChecker {
  readonly breaches: string[] = [];
  readonly #pasts: readonly Past[];
  readonly #told = new Map<string, Told>();
  #past = 0;
  #events = 0;
  #repeats = 0;
  #listDone = false;

  /** @param pasts the array and its last past may grow. An event is checked when its whole past is known */
  constructor(pasts: readonly Past[]) {
    this.#pasts = pasts;
  }

  /** Number of checked events. */
  get events(): number {
    return this.#events;
  }

  /** Number of repeated puts. Legal, but only after a fault. */
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

  /** Returns the difference between the events and the end of the last past. */
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

/** Returns true if `event` may follow the previous event of its key in a watch of this past. */
function isLegal(past: Past, key: string, event: PastWrite, told: Told | undefined): boolean {
  if (event.value === undefined) return isLegalDelete(past, key, event, told);
  return past.has(key, event) && event.revision >= (told === undefined ? 0 : firstLegal(past, key, told));
}

/**
 * Returns true if an existing key is absent at the event's revision: deleted, or never written in this past.
 */
function isLegalDelete(past: Past, key: string, event: PastWrite, told: Told | undefined): boolean {
  const last = past.at(key, event.revision);
  if (last?.value !== undefined) return false;
  if (told === undefined || !past.shares(told.past, told.revision)) return true;
  return last !== undefined && last.revision > told.revision;
}

/**
 * Returns the revision of the first put that may follow the previous event. If that event belongs to an
 * earlier past, this past was listed at its fork or later.
 */
function firstLegal(past: Past, key: string, told: Told): number {
  if (!past.shares(told.past, told.revision)) return past.at(key, past.fork)?.revision ?? 0;
  return told.value === undefined ? told.revision + 1 : told.revision;
}
