import { InvalidArgumentError, Option } from 'commander';
import { parseWhen, WHEN_FORMS, whenText } from '../../api/when.ts';
import { systemClock } from '../../base/system-clock.ts';
import { Prefix } from '../../net/prefix.ts';
import { numberParser } from '../option-table.ts';

/** Parses a numeric identity. Like all parsers of this file, throws `InvalidArgumentError` for other text. */
export const parseIdentity: (text: string) => number = numberParser(0, 4_294_967_295);

/** Parses a maximum number of items. */
export const parseLimit: (text: string) => number = numberParser(1, 999_999_999);

/**
 * Checks an IP or CIDR and returns the text unchanged, so that an invalid one is rejected before the command follows a
 * mesh.
 */
export function parseIP(text: string): string {
  if (Prefix.parseAnnotated(text) !== undefined) return text;
  throw new InvalidArgumentError('It must be an IP address or a CIDR.');
}

/** Checks a key of the history and returns the text unchanged. */
export function parseHistoryKey(text: string): string {
  if (Prefix.parse(text) !== undefined || /^[^/]+\/[^/]+$/.test(text)) return text;
  throw new InvalidArgumentError('It must be an IP address, a CIDR, or a name with one /.');
}

/** Returns a parser of two names with a slash between them. `form`: their form, for messages. */
export function parseTwoNames(form: 'cluster/name' | 'namespace/name'): (text: string) => string {
  return (text) => {
    if (/^[^/]+\/[^/]+$/.test(text)) return text;
    throw new InvalidArgumentError(`It must be ${form}.`);
  };
}

/** Parses a moment. Returns it as text that the API accepts. A relative moment counts from now. */
export function parseMoment(text: string): string {
  return parseMomentAt(systemClock.wallTime(), text);
}

/** Like {@link parseMoment}, but a relative moment counts from `now`. */
export function parseMomentAt(now: number, text: string): string {
  const when = parseWhen(text, now);
  if (when !== undefined) return whenText(when);
  throw new InvalidArgumentError(`It must be a time: ${WHEN_FORMS}.`);
}

export function atOption(): Option {
  return new Option('--at <time>', `print the state at this time: ${WHEN_FORMS}`).argParser(parseMoment);
}

/**
 * Returns true if a moment is later than another one of the same form: both are times, or both are sequence numbers.
 */
export function isLaterMoment(moment: string, other: string): boolean {
  const isSequence = moment.startsWith('#');
  if (isSequence !== other.startsWith('#')) return false;
  if (isSequence) return Number(moment.slice(1)) > Number(other.slice(1));
  return Date.parse(moment) > Date.parse(other);
}
