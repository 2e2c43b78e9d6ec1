import { AgentError, type Ask } from '../api/api-client.ts';
import type { EntryDocument } from '../api/documents.ts';
import { isUnknownPath } from '../api/problem.ts';
import type { RestoredDocument } from '../api/read-model.ts';
import type { ClusterDocument } from '../api/status-document.ts';
import { cutText, durationText } from '../base/show-value.ts';
import { labelName } from '../model/label-name.ts';
import { isObject } from '../net/fields.ts';
import { InputError } from '../process/input-error.ts';
import { alignColumns, printable } from '../process/terminal.ts';
import { identityText } from './change-text.ts';
import { incompleteTexts } from './cluster-text.ts';

/** An answer, as data and as lines of text. */
export interface Answer {
  /** Plain JSON data. */
  readonly json: unknown;
  readonly lines: readonly string[];
  /** True if the requested object exists or the check has found no problem. Determines the exit status. */
  readonly succeeded: boolean;
  /** True if the requested object does not exist. The lines are then an error message. */
  readonly isMissing?: boolean;
  /** Keys for the output format `name`. */
  readonly names?: readonly string[];
}

/** How an answer is shown. */
export interface View {
  /** Shows all columns at full width. */
  readonly wide: boolean;
  /** Maximum number of characters of a line; default: unlimited. */
  readonly width?: number | undefined;
}

/** Asks an agent, which runs already or is started for this answer only. */
export type Question = (ask: Ask, view: View) => Promise<Answer>;

/** Columns are not made narrower than this number of characters. */
const MIN_CELL_WIDTH = 12;

/**
 * Returns the lines of a table. Control characters are escaped. Unless the view is wide, lines have at most its width:
 * the widest columns except the first are cut as far as necessary; if that does not suffice, the lines are cut instead.
 * `widths`: see {@link alignColumns}.
 */
export function table(
  rows: readonly (readonly string[])[],
  { wide, width = Number.POSITIVE_INFINITY }: View,
  widths: number[] = [],
): readonly string[] {
  if (wide || !Number.isFinite(width)) return alignColumns(rows, widths);
  const limit = cellLimit(rows, width, widths);
  const cells = rows.map((row) => row.map((cell, column) => (column === 0 ? cell : cutText(cell, limit))));
  return alignColumns(cells, widths).map((line) => cutText(line, width));
}

/**
 * Returns the largest maximum width of the columns after the first with which the lines fit into `width`. Returns
 * infinity if they fit without a maximum, or do not fit with {@link MIN_CELL_WIDTH} either.
 */
function cellLimit(rows: readonly (readonly string[])[], width: number, minimum: readonly number[]): number {
  const widths = [...minimum];
  for (const row of rows)
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, printable(cell).length);
    });
  const [first = 0, ...others] = widths;
  const widthOf = (limit: number): number =>
    others.reduce((sum, column) => sum + 2 + Math.min(column, limit), first);
  if (widthOf(Number.POSITIVE_INFINITY) <= width) return Number.POSITIVE_INFINITY;
  for (let limit = width; limit >= MIN_CELL_WIDTH; limit--) if (widthOf(limit) <= width) return limit;
  return Number.POSITIVE_INFINITY;
}

/** A column of a table of documents. A wide column is shown in wide views only. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (document: T) => string;
  readonly wide?: true;
}

/** Returns the lines of a table of documents, the header first. */
export function documentTable<T>(
  columns: readonly Column<T>[],
  documents: readonly T[],
  view: View,
  widths: number[] = [],
): readonly string[] {
  const shown = columns.filter(({ wide }) => view.wide || wide === undefined);
  const rows = documents.map((document) => shown.map(({ cell }) => cell(document)));
  return table([shown.map(({ title }) => title), ...rows], view, widths);
}

/**
 * Returns the lines of one object, or of its claims: a table, or a block of `TITLE value` lines for each document if
 * the table does not fit into the view. Nothing is cut, because an object has few lines.
 */
export function objectLines<T>(
  columns: readonly Column<T>[],
  documents: readonly T[],
  view: View,
): readonly string[] {
  const lines = documentTable(columns, documents, { wide: view.wide });
  const { width = Number.POSITIVE_INFINITY } = view;
  if (view.wide || lines.every(({ length }) => length <= width)) return lines;
  const narrow = columns.filter(({ wide }) => wide === undefined);
  const titled = narrow.filter(({ title }) => title !== '');
  // A column without a title marks documents: its cell is put before the first line.
  const mark = narrow.find(({ title }) => title === '');
  const widths: number[] = [];
  return documents.flatMap((document, index) => {
    const rows = titled.map(({ title, cell }, row) => [
      ...(mark === undefined ? [] : [row === 0 ? mark.cell(document) : '']),
      title,
      cell(document),
    ]);
    return [...(index === 0 ? [] : ['']), ...alignColumns(rows, widths)];
  });
}

/** Returns the lines of a table, or the hint if it has no rows. */
export function linesOrHint(lines: readonly string[], hint: string): readonly string[] {
  return lines.length > 1 ? lines : [hint];
}

/**
 * Returns the document at a path; `undefined` if the object certainly does not exist (404 without
 * `reason`).
 */
export async function findDocument<T>(ask: Ask, path: string): Promise<T | undefined> {
  try {
    return (await ask(path)) as T;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

function isNotFound(error: unknown): error is AgentError {
  if (!(error instanceof AgentError) || error.problem?.status !== 404) return false;
  return error.problem.reason === undefined && !isUnknownPath(error.problem);
}

/** Returns the answer for an unknown object. `meant`: a similar name of a known object. */
export function notFoundAnswer(what: string, meant?: string): Answer {
  const hint = meant === undefined ? '' : `; did you mean ${meant}?`;
  return { json: null, lines: [printable(`${what}: not found${hint}`)], succeeded: false, isMissing: true };
}

/**
 * Returns an answer with one sentence for each cluster that is not ready and for which `isMeant` is true (default:
 * all), below the lines and as `incomplete` in the JSON.
 */
export async function withIncomplete(
  ask: Ask,
  answer: Answer,
  isMeant?: (cluster: ClusterDocument) => boolean,
): Promise<Answer> {
  const incomplete = await incompleteTexts(ask, isMeant);
  if (incomplete.length === 0) return answer;
  const { json, lines } = answer;
  return {
    ...answer,
    json: isObject(json) ? { ...json, incomplete } : json,
    lines: [...lines, ...incomplete.map(printable)],
  };
}

/** A service or node, and the moment for which it is requested; default: now. */
export interface NamedRequest {
  readonly path: string;
  readonly name: string;
  readonly at: string | undefined;
}

/**
 * Returns the answer of `show` for a service or node; {@link notFoundAnswer} if it certainly does not exist. An answer
 * for now also has a sentence for each cluster that is not ready and for which `dependsOn` is true.
 */
export async function namedAnswer<T>(
  ask: Ask,
  { path, name, at }: NamedRequest,
  show: (document: T) => Answer,
  dependsOn: (document: T, cluster: ClusterDocument) => boolean,
): Promise<Answer> {
  let document: T;
  try {
    document = (await ask(path)) as T;
  } catch (error) {
    if (!isNotFound(error)) throw error;
    const answer = notFoundAnswer(name, error.problem?.nearest);
    return at === undefined ? withIncomplete(ask, answer) : answer;
  }
  const answer = show(document);
  return at === undefined ? withIncomplete(ask, answer, (cluster) => dependsOn(document, cluster)) : answer;
}

/** Returns an identity with its name: `66536 (app=checkout)`, `health`. */
export function identityCell(identity: number, labels: readonly string[] | undefined): string {
  return identityText(identity, () => labels && labelName(labels.map(labelOfText)));
}

function labelOfText(text: string): { source: string; key: string; value: string } {
  const [, source = '', key = '', value = ''] = /^([^:]*):([^=]*)=?(.*)$/s.exec(text) ?? [];
  return { source, key, value };
}

/** Returns the pod of an entry: `shop/checkout-1`, or `-` if it has none. */
export function podCell({ namespace, podName }: Pick<EntryDocument, 'namespace' | 'podName'>): string {
  return namespace === undefined && podName === undefined ? '-' : `${namespace ?? ''}/${podName ?? ''}`;
}

/** Returns the age of a restored entry (`5 min old`), `''` if it is not restored. */
export function ageText(restored: RestoredDocument | undefined): string {
  return restored === undefined ? '' : `${durationText(restored.ageSeconds * 1_000)} old`;
}

/** Returns `restored, 5 min old`, or `''` if the entry is not restored. */
export function restoredText(restored: RestoredDocument | undefined): string {
  return restored === undefined ? '' : `restored, ${ageText(restored)}`;
}

/** Returns ports by name: `http:8080/TCP`. */
export function portsCell(
  ports: Readonly<Record<string, string>>,
  nodePorts: Readonly<Record<string, number>> = {},
): string {
  const named = Object.entries(ports).map(([name, port]) => {
    const nodePort = Object.hasOwn(nodePorts, name) ? `,node:${nodePorts[name]}` : '';
    return `${name === '' ? port : `${name}:${port}`}${nodePort}`;
  });
  return named.join(' ') || '-';
}

/**
 * Returns a status if it has a field that only the expected kind of process has. Throws `InputError` if the socket
 * belongs to another kind of process.
 */
export function checkedStatus<T extends object>(
  status: unknown,
  field: keyof T & string,
  process: string,
): T {
  const isExpected = isObject(status) && (Array.isArray(status[field]) || isObject(status[field]));
  if (isExpected) return status as T;
  throw new InputError(`the socket does not belong to ${process}: set another one with --socket`);
}
