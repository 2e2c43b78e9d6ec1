import { ApiError, type Ask } from '../api/api-client.ts';
import type { RestoredDocument } from '../api/read-model.ts';
import { cutText } from '../base/show-value.ts';
import { identityText } from './change-text.ts';
import { labelName } from './label-name.ts';
import { alignColumns, printable } from './terminal.ts';

/** An answer for machines and for people. */
export interface Answer {
  /** Plain data, fit for JSON. */
  readonly json: unknown;
  readonly lines: readonly string[];
  /** Whether there is what was asked for. */
  readonly found: boolean;
  /** The keys of what there is, of lists and of what is got by its key. */
  readonly names?: readonly string[];
}

/** How an answer is shown to people. */
export interface View {
  /** All columns, at their full width. */
  readonly wide: boolean;
  /** So many characters fit into a line; default: any. */
  readonly width?: number | undefined;
}

/** Something that can be asked of an agent: a running one, or one that ends with the answer. */
export type Question = (ask: Ask, view: View) => Promise<Answer>;

/** Filters of a list by the name of the parameter; what is undefined is left out. */
export type ListFilters = Readonly<Record<string, string | number | undefined>>;

/** A part of a list, as the API gives it. */
interface PageDocument<T> {
  readonly items: readonly T[];
  readonly continue?: string;
}

/** Rows as a table, safe for a terminal and, unless it is wide, no wider than that is. */
export function table(
  rows: readonly (readonly string[])[],
  { wide, width = Number.POSITIVE_INFINITY }: View,
): readonly string[] {
  const lines = alignColumns(rows.map((row) => row.map(printable)));
  return wide ? lines : lines.map((line) => cutText(line, width));
}

/** A table of documents with a column for each of `columns`; those that are wide only in a wide view. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (document: T) => string;
  readonly wide?: true;
}

export function listed<T>(
  columns: readonly Column<T>[],
  documents: readonly T[],
  view: View,
): readonly string[] {
  const shown = columns.filter(({ wide }) => view.wide || wide === undefined);
  const rows = documents.map((document) => shown.map(({ cell }) => cell(document)));
  return table([shown.map(({ title }) => title), ...rows], view);
}

/** What to look at where a list is empty. */
export function hinted(lines: readonly string[], hint: string): readonly string[] {
  return lines.length > 1 ? lines : [hint];
}

function query(filters: ListFilters): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) {
    if (value !== undefined) given.set(name, String(value));
  }
  return given.toString();
}

/** All of a list, page by page. The shape is the API's promise, which its own tests hold it to. */
export async function listAll<T>(ask: Ask, path: string, filters: ListFilters): Promise<readonly T[]> {
  const items: T[] = [];
  let page = (await ask(`${path}?${query({ ...filters, limit: 1000 })}`)) as PageDocument<T>;
  items.push(...page.items);
  while (page.continue !== undefined) {
    page = (await ask(`${path}?${query({ continue: page.continue, limit: 1000 })}`)) as PageDocument<T>;
    items.push(...page.items);
  }
  return items;
}

/** A name of several parts as parts of a path. */
export function pathOf(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}

/** The document at a path; `undefined` when the API says that there is none. */
export async function find<T>(ask: Ask, path: string): Promise<T | undefined> {
  try {
    return (await ask(path)) as T;
  } catch (error) {
    if (error instanceof ApiError && error.problem?.status === 404) return undefined;
    throw error;
  }
}

export function nothing(what: string): Answer {
  return { json: null, lines: [`${printable(what)}: nothing is known of it`], found: false };
}

/** `66536 (app=checkout)`, `health`. */
export function identityCell(identity: number, labels: readonly string[] | undefined): string {
  return identityText(identity, () => labels && labelName(labels.map(labelOfText)));
}

function labelOfText(text: string): { source: string; key: string; value: string } {
  const [, source = '', key = '', value = ''] = /^([^:]*):([^=]*)=?(.*)$/s.exec(text) ?? [];
  return { source, key, value };
}

/** `5 min old`; `''` for what a source has said. */
export function ageText(restored: RestoredDocument | undefined): string {
  if (restored === undefined) return '';
  const { ageSeconds } = restored;
  if (ageSeconds < 120) return `${ageSeconds} s old`;
  return ageSeconds < 7200
    ? `${Math.round(ageSeconds / 60)} min old`
    : `${Math.round(ageSeconds / 3600)} h old`;
}

/** `restored, 5 min old`. */
export function restoredText(restored: RestoredDocument | undefined): string {
  return restored === undefined ? '' : `restored, ${ageText(restored)}`;
}

/** Ports by name: `http:8080/TCP`. */
export function portsCell(ports: Readonly<Record<string, string>>): string {
  const named = Object.entries(ports).map(([name, port]) => (name === '' ? port : `${name}:${port}`));
  return named.join(' ') || '-';
}
