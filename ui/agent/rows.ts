import type { EntryDocument } from '../../src/api/documents.ts';
import { MAX_SORTED } from '../../src/api/routes/ip-order.ts';
import { shortPrefix } from '../address.ts';
import { ask, NoAnswer, withQuery } from './ask.ts';
import { agentNow } from './clock.ts';

/** A row of the list of prefixes: the fields shown. */
export interface Row {
  readonly prefix: string;
  readonly identity: number;
  readonly labels?: readonly string[] | undefined;
  readonly pod?: string | undefined;
  readonly host?: string | undefined;
  readonly source: string;
  readonly owner?: string | undefined;
  readonly restored?: string | undefined;
}

/** Number of rows of a page, the maximum of the agent. */
const PAGE_ROWS = 1_000;

/** Number of rows of the first page, which is small so that it is shown quickly. */
const FIRST_PAGE_ROWS = 200;

/**
 * Number of pages that stay unpacked, the last used ones. A million packed rows take about 20 MB, outside of the
 * JavaScript heap.
 */
const MAX_UNPACKED = 16;

/** Returns the number of the page with a row if all pages are full. */
const pageOf = (index: number): number =>
  index < FIRST_PAGE_ROWS ? 0 : 1 + Math.floor((index - FIRST_PAGE_ROWS) / PAGE_ROWS);

/** Returns the index of the first row of a page if all pages are full. */
const firstOf = (page: number): number => (page === 0 ? 0 : FIRST_PAGE_ROWS + (page - 1) * PAGE_ROWS);

interface PageOfRows {
  /** Index of the first row. */
  readonly first: number;
  readonly count: number;
  /** Undefined while the page is packed. */
  rows: readonly Row[] | undefined;
  /** The rows without labels, compressed; undefined until the page is packed for the first time. */
  packed: Uint8Array | undefined;
  /** Number of the last use; the pages with the highest numbers stay unpacked. */
  usedAt: number;
}

async function transformed(
  bytes: Uint8Array,
  stream: CompressionStream | DecompressionStream,
): Promise<Uint8Array> {
  const body = new Response(bytes as BufferSource).body;
  if (body === null) return bytes;
  const piped = body.pipeThrough(
    stream as ReadableWritablePair<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>,
  );
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

function rowOf({
  prefix,
  identity,
  labels,
  namespace,
  podName,
  hostIP,
  source,
  owner,
  restored,
}: EntryDocument): Row {
  return {
    prefix,
    identity,
    ...(labels && { labels }),
    ...(podName !== undefined && { pod: `${namespace}/${podName}` }),
    ...(hostIP !== undefined && { host: hostIP }),
    source,
    ...(owner !== undefined && { owner }),
    ...(restored && { restored: restored.knownAt }),
  };
}

/** The filters and the order of a list. */
export interface RowsQuery {
  readonly filters: Readonly<Record<string, string>>;
  /**
   * The order as a parameter of the API: `identity`, `-identity`; empty for the order of the agent, in which pages can
   * be read at any position.
   */
  readonly sort: string;
}

/**
 * The rows of a list read in pages. Without filters and order, only the shown pages are read, at any position.
 * Otherwise pages are read one after the other. Pages without recent use are packed, so that a million
 * rows fit into a small heap. The labels of an identity are stored once.
 */
export class Rows {
  /** True if all rows are loaded. */
  isComplete = false;
  /** True if the agent has more rows than it sorts. The list then lacks the last ones. */
  isTruncated = false;
  problem: string | undefined;
  /** Lengths of the longest loaded prefix and host IP. */
  readonly longest: { prefix: number; host: number } = { prefix: 0, host: 0 };
  /** True if the list must be read again: a request had no answer, or the agent does not hold the next page. */
  isLost = false;
  /** Time at which the list was read, by the agent's clock. */
  readonly readAt: number = agentNow();
  readonly #query: RowsQuery;
  /** True if pages can be read at any position. */
  #isRandomAccess: boolean;
  /** By number; unread ones are missing. */
  readonly #pages: PageOfRows[] = [];
  readonly #labels = new Map<number, readonly string[]>();
  readonly #onChange: () => void;
  readonly #ended = new AbortController();
  #loaded = 0;
  /** Number of all rows, if pages can be read at any position and it is known. */
  #total: number | undefined;
  /** Path of the next page, if pages are read one after the other. */
  #next: string | undefined;
  /** First shown row. */
  #from = 0;
  /** Rows before this index are to be loaded. */
  #wanted = FIRST_PAGE_ROWS;
  #isLoading = false;
  #uses = 0;

  /**
   * Begins to read a list. Calls `onChange` after each page. `previous` is the same list at an earlier time. The rows
   * that it shows are read first.
   */
  constructor(query: RowsQuery, onChange: () => void, previous?: Rows) {
    this.#query = query;
    this.#onChange = onChange;
    this.#isRandomAccess = query.sort === '' && Object.keys(query.filters).length === 0;
    if (previous !== undefined) {
      this.#from = previous.#from;
      this.#wanted = previous.#wanted;
      this.#total = previous.#total;
    }
    this.#next = this.#path({ limit: String(FIRST_PAGE_ROWS) });
    void this.#load();
  }

  /** Number of rows to show. Some may not be loaded. */
  get count(): number {
    return Math.max(this.#loaded, this.#total ?? 0);
  }

  /** True if the shown rows are loaded. */
  get isSettled(): boolean {
    return this.#nextRequest() === undefined;
  }

  /** Stops reading. */
  stop(): void {
    this.#ended.abort();
  }

  /** Sets the number of all rows, for a list whose pages can be read at any position. */
  setTotal(total: number): void {
    if (!this.#isRandomAccess) return;
    this.#total = total;
    void this.#load();
  }

  /** Loads the shown rows. */
  load(first: number, end: number): void {
    this.#from = first;
    this.#wanted = this.#isRandomAccess ? end : Math.max(this.#wanted, end);
    void this.#load();
  }

  /** Returns a row; undefined while it is loaded or unpacked. */
  rowAt(index: number): Row | undefined {
    const page = this.#pageAt(index);
    if (page === undefined) return undefined;
    page.usedAt = ++this.#uses;
    if (page.rows === undefined && page.packed !== undefined) void this.#unpack(page, page.packed);
    return page.rows?.[index - page.first];
  }

  #path(position: Readonly<Record<string, string>>): string {
    const { filters, sort } = this.#query;
    return withQuery('/v1/ipcache', { ...filters, sort, ...position });
  }

  #pageAt(index: number): PageOfRows | undefined {
    const holds = (page: PageOfRows | undefined): boolean =>
      page !== undefined && index >= page.first && index < page.first + page.count;
    const page = this.#pages[pageOf(index)];
    if (holds(page)) return page;
    // Pages read one after the other may be short, so a row can be on another page than computed.
    return this.#isRandomAccess ? undefined : this.#pages.find(holds);
  }

  /** Returns the path of the next page to read, and its number. After a failure, none is read. */
  #nextRequest(): { readonly path: string; readonly number: number } | undefined {
    if (this.problem !== undefined) return undefined;
    const pageCount = this.#pages.length;
    if (this.#total === undefined || pageCount === 0) {
      const hasWanted = this.#loaded >= this.#wanted;
      return this.#next === undefined || hasWanted ? undefined : { path: this.#next, number: pageCount };
    }
    const last = pageOf(Math.min(this.#wanted, this.#total) - 1);
    for (let number = pageOf(this.#from); number <= last; number++)
      if (this.#pages[number] === undefined)
        return { number, path: this.#path({ offset: String(firstOf(number)), limit: String(PAGE_ROWS) }) };
    return undefined;
  }

  async #load(): Promise<void> {
    if (this.#isLoading) return;
    this.#isLoading = true;
    for (
      let request = this.#nextRequest();
      request !== undefined && !this.#ended.signal.aborted;
      request = this.#nextRequest()
    ) {
      try {
        const { items, continue: token } = await ask<{ items: readonly EntryDocument[]; continue?: string }>(
          request.path,
          this.#ended.signal,
        );
        this.#add(request.number, items.map(rowOf));
        this.#setNext(token);
      } catch (error) {
        if (this.#ended.signal.aborted) break;
        this.problem = error instanceof Error ? error.message : String(error);
        this.isLost = error instanceof NoAnswer || request.number > 0;
      }
      this.#onChange();
    }
    this.#isLoading = false;
  }

  /** Sets the path of the next page, and whether the list is complete. */
  #setNext(token: string | undefined): void {
    if (this.#pages.length === 1 && token === undefined) {
      // The list has no other page, so no number of rows is needed.
      this.#isRandomAccess = false;
      this.#total = undefined;
    }
    this.#next = token && withQuery('/v1/ipcache', { continue: token, limit: String(PAGE_ROWS) });
    // The agent sorts at most MAX_SORTED rows. Only in the order of prefixes it can continue after the last one.
    const { sort } = this.#query;
    const isFull = this.#loaded > 0 && this.#loaded % MAX_SORTED === 0;
    const hasAllSorted = token === undefined && sort !== '' && isFull;
    const isByPrefix = sort.endsWith('prefix');
    if (hasAllSorted && isByPrefix)
      this.#next = this.#path({
        after: this.rowAt(this.#loaded - 1)?.prefix ?? '',
        limit: String(PAGE_ROWS),
      });
    this.isTruncated = hasAllSorted && !isByPrefix;
    this.isComplete =
      this.#total === undefined ? this.#next === undefined && !this.isTruncated : this.#loaded >= this.#total;
  }

  /** Adds the page with this number. */
  #add(number: number, rows: readonly Row[]): void {
    if (rows.length === 0 && this.#total === undefined) return;
    this.#pages[number] = {
      first: this.#total === undefined ? this.#loaded : firstOf(number),
      count: rows.length,
      rows: rows.map((row) => this.#withSharedLabels(row)),
      packed: undefined,
      usedAt: ++this.#uses,
    };
    this.#loaded += rows.length;
    const { longest } = this;
    for (const { prefix, host = '' } of rows) {
      longest.prefix = Math.max(longest.prefix, shortPrefix(prefix).length);
      longest.host = Math.max(longest.host, host.length);
    }
    void this.#packOldest();
  }

  /** Returns the row with the stored labels of its identity, if they are equal. */
  #withSharedLabels(row: Row): Row {
    if (row.labels === undefined) return row;
    const known = this.#labels.get(row.identity);
    if (known !== undefined && known.join() === row.labels.join()) return { ...row, labels: known };
    this.#labels.set(row.identity, row.labels);
    return row;
  }

  /** Packs the page that was not used for the longest time, if too many pages are unpacked. */
  async #packOldest(): Promise<void> {
    const unpacked = this.#pages.filter(({ rows }) => rows !== undefined);
    if (unpacked.length <= MAX_UNPACKED) return;
    const oldest = unpacked.reduce((a, b) => (a.usedAt < b.usedAt ? a : b));
    const { rows, usedAt } = oldest;
    const text = JSON.stringify(rows?.map(({ labels: _, ...row }) => row));
    oldest.packed ??= await transformed(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
    if (oldest.usedAt === usedAt) oldest.rows = undefined; // not used since
  }

  async #unpack(page: PageOfRows, packed: Uint8Array): Promise<void> {
    const text = new TextDecoder().decode(await transformed(packed, new DecompressionStream('deflate-raw')));
    const rows: readonly Row[] = JSON.parse(text);
    page.rows ??= rows.map((row) => ({ ...row, labels: this.#labels.get(row.identity) }));
    this.#onChange();
    await this.#packOldest();
  }
}
