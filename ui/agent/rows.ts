import type { EntryDocument } from '../../src/api/documents.ts';
import { ask, withQuery } from './ask.ts';

/** A row of the list of prefixes: the fields that are shown. */
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

/** Rows of a page. The agent allows at most 1,000. */
const PAGE = 1_000;

/** The first page is small, so that it is shown at once. */
const FIRST_PAGE = 200;

/** Number of pages at the begin that stay unpacked: those that are sorted. */
const SORTABLE = 20;

/** Other pages that stay unpacked: the last used ones. A million packed rows take about 20 MB, outside of the JavaScript heap. */
const UNPACKED = 12;

interface PageOfRows {
  readonly first: number;
  readonly count: number;
  rows: readonly Row[] | undefined;
  packed: Uint8Array | undefined;
  usedAt: number;
}

async function through(
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

/**
 * The rows of a list that is read in pages, in the order of the agent. Pages far from the shown ones are packed, so that a million
 * rows fit into a small heap. The labels of an identity are stored once.
 */
export class Rows {
  /** Number of loaded rows. */
  count = 0;
  /** True if all rows are loaded. */
  isComplete = false;
  problem: string | undefined;
  /** Time at which the list was read. */
  readonly readAt: number = Date.now();
  readonly #pages: PageOfRows[] = [];
  readonly #labels = new Map<number, readonly string[]>();
  readonly #onChange: () => void;
  readonly #ended = new AbortController();
  #next: string | undefined;
  #wanted = FIRST_PAGE;
  #isLoading = false;
  #uses = 0;

  /** Begins to read the list at a path with filters. Calls `onChange` after each page. */
  constructor(filters: Readonly<Record<string, string>>, onChange: () => void) {
    this.#onChange = onChange;
    this.#next = withQuery('/v1/ipcache', { ...filters, limit: String(FIRST_PAGE) });
    void this.#load();
  }

  /** Stops reading. */
  end(): void {
    this.#ended.abort();
  }

  /** Loads rows until there are this many. */
  want(count: number): void {
    this.#wanted = Math.max(this.#wanted, count);
    void this.#load();
  }

  /** Returns a row; undefined while it is loaded or unpacked. */
  at(index: number): Row | undefined {
    const page = this.#pageAt(index);
    if (page === undefined) return undefined;
    page.usedAt = ++this.#uses;
    if (page.rows === undefined && page.packed !== undefined) void this.#unpack(page, page.packed);
    return page.rows?.[index - page.first];
  }

  /** Returns the rows that can be sorted: the first ones. */
  sortable(): readonly Row[] {
    return this.#pages.slice(0, SORTABLE).flatMap(({ rows }) => rows ?? []);
  }

  /** Maximum number of rows that can be sorted. */
  static readonly SORTED: number = FIRST_PAGE + (SORTABLE - 1) * PAGE;

  #pageAt(index: number): PageOfRows | undefined {
    const place = index < FIRST_PAGE ? 0 : 1 + Math.floor((index - FIRST_PAGE) / PAGE);
    const page = this.#pages[place];
    if (page !== undefined && index >= page.first && index < page.first + page.count) return page;
    // Pages may be short, so a row can be on an earlier or a later page than computed.
    return this.#pages.find(({ first, count }) => index >= first && index < first + count);
  }

  async #load(): Promise<void> {
    if (this.#isLoading) return;
    this.#isLoading = true;
    while (this.#next !== undefined && this.count < this.#wanted && !this.#ended.signal.aborted) {
      try {
        const { items, continue: token } = await ask<{ items: readonly EntryDocument[]; continue?: string }>(
          this.#next,
          this.#ended.signal,
        );
        this.#add(items.map(rowOf));
        this.#next = token && withQuery('/v1/ipcache', { continue: token, limit: String(PAGE) });
        this.isComplete = token === undefined;
      } catch (error) {
        if (this.#ended.signal.aborted) break;
        this.problem = error instanceof Error ? error.message : String(error);
        this.#next = undefined;
      }
      this.#onChange();
    }
    this.#isLoading = false;
  }

  #add(rows: readonly Row[]): void {
    if (rows.length === 0) return;
    const shared = rows.map((row) => this.#withSharedLabels(row));
    this.#pages.push({
      first: this.count,
      count: rows.length,
      rows: shared,
      packed: undefined,
      usedAt: ++this.#uses,
    });
    this.count += rows.length;
    void this.#packOldest();
  }

  #withSharedLabels(row: Row): Row {
    if (row.labels === undefined) return row;
    const known = this.#labels.get(row.identity);
    if (known !== undefined && known.join() === row.labels.join()) return { ...row, labels: known };
    this.#labels.set(row.identity, row.labels);
    return row;
  }

  async #packOldest(): Promise<void> {
    const plain = this.#pages.slice(SORTABLE).filter(({ rows }) => rows !== undefined);
    if (plain.length <= UNPACKED) return;
    const oldest = plain.reduce((a, b) => (a.usedAt < b.usedAt ? a : b));
    const { rows, usedAt } = oldest;
    const text = JSON.stringify(rows?.map(({ labels: _, ...row }) => row));
    oldest.packed ??= await through(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
    if (oldest.usedAt === usedAt) oldest.rows = undefined;
  }

  async #unpack(page: PageOfRows, packed: Uint8Array): Promise<void> {
    const text = new TextDecoder().decode(await through(packed, new DecompressionStream('deflate-raw')));
    const rows: readonly Row[] = JSON.parse(text);
    page.rows ??= rows.map((row) => ({ ...row, labels: this.#labels.get(row.identity) }));
    this.#onChange();
    await this.#packOldest();
  }
}
