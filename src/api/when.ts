import { isDate, isoTime } from '../base/system-clock.ts';
import type { When } from '../history/types.ts';

const ABSOLUTE_FORMS = 'RFC 3339, 2026-11-23 14:03:05, 14:03:05 of today';

/** The forms of a time, for messages. */
export const TIME_FORMS: string = `${ABSOLUTE_FORMS}, or -10m before now`;

/** The forms of a moment, for messages: a time, or the sequence number of a change. */
export const WHEN_FORMS: string = `${ABSOLUTE_FORMS}, -10m before now, or #SEQUENCE`;

const TIME_OF_DAY = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/;
const AGO = /^-(?=\d)(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?$/;
const LOCAL = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?$/;
const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})$/;

/**
 * Returns the moment of a text: RFC 3339, a time of today in the local time zone (`14:03`, `14:03:05.123`) or of
 * another day (`2026-11-23 14:03:05`), a duration before now (`-10m`, `-1h30m`), `now`, or the sequence number of a
 * change (`#412`). Returns undefined if the text is none of these. `now`: the wall time in milliseconds.
 */
export function parseWhen(text: string, now: number): When | undefined {
  const sequence = /^#(\d{1,15})$/.exec(text)?.[1];
  if (sequence !== undefined) return { sequence: Number(sequence) };
  if (text === 'now') return now;
  // A time without a zone is local, because `dpcache` prints times of other days in this form.
  if (RFC_3339.test(text) || LOCAL.test(text)) {
    const at = Date.parse(text.replace(' ', 'T').toUpperCase());
    return Number.isNaN(at) || !isDate(text.slice(0, 10)) ? undefined : at;
  }
  const ago = AGO.exec(text);
  if (ago !== null) {
    const [days = 0, hours = 0, minutes = 0, seconds = 0] = ago.slice(1).map((part) => Number(part ?? 0));
    return now - (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000;
  }
  return timeOfToday(text, now);
}

/** Returns a moment as text that every agent parses: RFC 3339 or `#SEQUENCE`. */
export function whenText(when: When): string {
  return typeof when === 'number' ? isoTime(when) : `#${when.sequence}`;
}

/** Returns the time of a text such as `14:03` on the current day in the local time zone; undefined if it is no time. */
function timeOfToday(text: string, now: number): number | undefined {
  const parts = TIME_OF_DAY.exec(text);
  if (parts === null) return undefined;
  const [hours = 0, minutes = 0, seconds = 0] = parts.slice(1, 4).map((part) => Number(part ?? 0));
  const ms = Number((parts[4] ?? '').padEnd(3, '0'));
  if (hours > 23 || minutes > 59 || seconds > 59) return undefined;
  const day = new Date(now);
  day.setHours(hours, minutes, seconds, ms);
  return day.getTime();
}
