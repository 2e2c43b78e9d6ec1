import { rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { type OutputContext, parseOutputJson, parseOutputList } from './output-json.ts';
import { hostOf, identityOf, parseMapValue, type TableEntry, tablePrefix } from './table-entry.ts';

/** Receives the entries and the unreadable parts of a table. `onEntry` is called in the order of the table. */
export interface TableReader extends OutputContext {
  readonly onEntry: (entry: TableEntry) => void;
}

/**
 * Reads `ip list -n -o json`, or the answer of `GET /v1/ip`: a list of `{cidr, identity, hostIP, metadata}`. Returns
 * false if the text is no such list. An unreadable element is rejected without affecting the others. Unknown fields are
 * ignored. Linear in the text.
 */
export function readIPList(text: string, reader: TableReader): boolean {
  const list = parseOutputList(text, 'ip list', reader);
  for (const [index, item] of list?.entries() ?? []) readIPItem(item, index, reader);
  return list !== undefined;
}

function readIPItem(item: unknown, index: number, { at, onEntry, onReject }: TableReader): void {
  const { cidr, identity, hostIP, metadata }: Readonly<Record<string, unknown>> = isObject(item) ? item : {};
  const prefix = typeof cidr === 'string' ? tablePrefix(cidr) : undefined;
  const number = identityOf(identity);
  if (prefix === undefined) {
    onReject(rejection('invalid-prefix', `[${index}].cidr`, cidr, 'must be a prefix', at));
    return;
  }
  if (number === undefined) {
    onReject(rejection('invalid-identity', `[${index}].identity`, identity, 'must be a number', at));
    return;
  }
  const { source, namespace, name }: Readonly<Record<string, unknown>> = isObject(metadata) ? metadata : {};
  const isPod = typeof namespace === 'string' && typeof name === 'string' && name !== '';
  onEntry({
    prefix,
    identity: number,
    hostIP: typeof hostIP === 'string' ? hostOf(hostIP) : undefined,
    skipTunnel: false,
    source: typeof source === 'string' ? source : undefined,
    pod: isPod ? `${namespace}/${name}` : undefined,
  });
}

const TITLE = 'IP PREFIX/ADDRESS';
const NO_ENTRIES = 'No entries found.';

/**
 * Reads `bpf ipcache list`, as a table or with `-o json`, in the forms of 1.8 and 1.17. Returns false if the text is
 * neither. An unreadable line is rejected without affecting the others. A prefix with several values is passed once for
 * each. Linear in the text.
 */
export function readMapList(text: string, reader: TableReader): boolean {
  if (/^\{/m.test(text)) return readMapJson(text, reader);
  const title = text.indexOf(TITLE);
  if (title < 0)
    return text.trim() === '' || text.includes(NO_ENTRIES) || rejectText(text, 'has no title', reader);
  let prefix = '';
  for (let from = lineAfter(text, title); from < text.length; from = lineAfter(text, from)) {
    const end = text.indexOf('\n', from);
    const line = text.slice(from, end < 0 ? undefined : end);
    if (line.trim() === '') continue;
    const blank = line.search(/\s/);
    const key = blank < 0 ? line : line.slice(0, blank);
    // A line without a key is a further value of the prefix above.
    if (key !== '') prefix = key;
    readMapItem(prefix, line.slice(key.length).trim(), reader);
  }
  return true;
}

/** Returns the offset after the line with the character at `from`. */
function lineAfter(text: string, from: number): number {
  const end = text.indexOf('\n', from);
  return end < 0 ? text.length : end + 1;
}

function rejectText(text: string, why: string, { at, onReject }: TableReader): false {
  onReject(rejection('invalid-table', 'bpf ipcache list', text.slice(0, 64), why, at));
  return false;
}

function readMapJson(text: string, reader: TableReader): boolean {
  const json = parseOutputJson(text);
  if ('problem' in json) return rejectText(text, json.problem, reader);
  if (!isObject(json.value)) return rejectText(text, 'must be an object', reader);
  for (const [prefix, values] of Object.entries(json.value))
    for (const value of Array.isArray(values) ? values : [values]) readMapItem(prefix, value, reader);
  return true;
}

function readMapItem(key: string, text: unknown, { at, onEntry, onReject }: TableReader): void {
  const prefix = tablePrefix(key);
  const value = typeof text === 'string' ? parseMapValue(text) : undefined;
  if (prefix === undefined) onReject(rejection('invalid-prefix', 'prefix', key, 'must be a prefix', at));
  else if (value === undefined) onReject(rejection('invalid-value', key, text, 'must have an identity', at));
  else {
    const { identity, hostIP, skipTunnel } = value;
    onEntry({ prefix, identity, hostIP, skipTunnel, source: undefined, pod: undefined });
  }
}
