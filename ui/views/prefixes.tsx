import type { VNode } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { SOURCES } from '../../src/model/source.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { agentNow } from '../agent/clock.ts';
import { useFeed, useMoment, useStatus } from '../agent/live.ts';
import { type Row, Rows, type RowsQuery } from '../agent/rows.ts';
import { counted, omittedRowsText, timeText } from '../format.ts';
import { Choice, TextFilter } from '../parts/filters.tsx';
import { IdentityLink, PodLink, PrefixLink } from '../parts/links.tsx';
import { SourceText } from '../parts/marks.tsx';
import { Empty, Problem, Skeleton, Title } from '../parts/panel.tsx';
import { MAX_ROWS, type VirtualColumn, VirtualTable } from '../parts/virtual.tsx';

const FILTERS = ['within', 'identity', 'label', 'pod', 'node', 'source', 'cluster'] as const;

/**
 * Maximum number of rows of a list that is read again after changes. For a longer one, the page shows the number of
 * changes.
 */
const MAX_FOLLOWED = 1_000;

/** Number of rows loaded ahead of the shown ones. */
const ROWS_AHEAD = 3_000;

/** Time between two reads of a followed list. */
const FOLLOW_MS = 2_000;

/** Returns the columns, and the width of all. Long addresses are not cut, because several may begin equally. */
function columnsOf({ longest }: Rows): {
  readonly columns: readonly VirtualColumn[];
  readonly minWidth: string;
} {
  const prefixWidth = `max(9rem, ${longest.prefix}ch)`;
  const hostWidth = `max(7rem, ${longest.host}ch)`;
  const columns = [
    { name: 'prefix', width: `minmax(${prefixWidth}, 1.4fr)` },
    { name: 'identity', width: 'minmax(9rem, 1.3fr)' },
    { name: 'pod', width: 'minmax(9rem, 1.7fr)' },
    { name: 'host IP', width: `minmax(${hostWidth}, 1fr)` },
    { name: 'source', width: 'minmax(9rem, 1.9fr)' },
  ];
  return { columns, minWidth: `calc(36rem + ${prefixWidth} + ${hostWidth})` };
}

/** The name of the API's order for each column. */
const ORDERS = ['prefix', 'identity', 'pod', 'node', 'source'];

function cellsOf({ prefix, identity, labels, pod, host, source, owner, restored }: Row): readonly VNode[] {
  return [
    <PrefixLink key="prefix" prefix={prefix} />,
    <IdentityLink key="identity" identity={identity} labels={labels} />,
    pod === undefined ? <span key="pod" /> : <PodLink key="pod" name={pod} />,
    host === undefined ? (
      <span key="host" />
    ) : (
      <a key="host" class="mono" href={addressOf('ip', host)}>
        {host}
      </a>
    ),
    restored === undefined ? (
      <SourceText key="source" source={source} owner={owner} />
    ) : (
      <span key="source" class="restored">
        restored, as of {timeText(restored)}
      </span>
    ),
  ];
}

/**
 * Returns the filters of the API for the parameters of the address. The parameter `family` becomes the filter `within`
 * all IPv4 or all IPv6 addresses.
 */
function filtersOf(parameters: URLSearchParams): Readonly<Record<string, string>> {
  const filters: Record<string, string> = {};
  for (const name of FILTERS) {
    const value = parameters.get(name);
    if (value !== null && value !== '') filters[name] = value;
  }
  const family = parameters.get('family');
  if (filters['within'] === undefined && family !== null && family !== '')
    filters['within'] = family === '6' ? '::/0' : '0.0.0.0/0';
  return filters;
}

/** Returns the rows of a list, and the number of changes since it was read. */
function useRows(query: RowsQuery): {
  readonly rows: Rows | undefined;
  /** False while the rows of another order are shown. */
  readonly isCurrent: boolean;
  readonly problem: string | undefined;
  readonly missed: number;
  readonly reload: () => void;
} {
  const feed = useFeed();
  const queryKey = JSON.stringify(query);
  /** The shown rows, and the key of their query. */
  const [{ shown, shownKey }, setShown] = useState<{ readonly shown?: Rows; readonly shownKey?: string }>({});
  /** The rows whose last read failed. */
  const [failed, setFailed] = useState<Rows>();
  const [, setCount] = useState(0);
  /** The rows of the last read. They are shown when they are loaded. */
  const latest = useRef<Rows>();
  /** The state of the feed when the last read began. */
  const feedAtRead = useRef({ changes: 0, epoch: feed.epoch });
  const read = (previous?: Rows): void => {
    latest.current?.stop();
    feedAtRead.current = { changes: feed.counts.ip, epoch: feed.epoch };
    const onChange = (): void => {
      setFailed(rows.problem === undefined ? undefined : rows);
      // A list that is read again replaces the previous one only when all shown rows are loaded, to keep the position.
      if (previous === undefined || (rows.problem === undefined && rows.isSettled)) {
        previous = undefined;
        setShown((before) => (before.shown === rows ? before : { shown: rows, shownKey: queryKey }));
      }
      setCount((before) => before + 1);
    };
    const rows: Rows = new Rows(query, onChange, previous);
    latest.current = rows;
  };
  useEffect(() => setShown({}), [JSON.stringify(query.filters)]);
  useEffect(() => {
    read();
    return () => latest.current?.stop();
  }, [queryKey]);
  const missed = feed.counts.ip - feedAtRead.current.changes;
  const isShort = shown?.isComplete === true && shown.count <= MAX_FOLLOWED;
  const isNewEpoch = feed.epoch !== feedAtRead.current.epoch;
  const isReading = latest.current !== shown && latest.current !== failed;
  const isDue = !isReading && (isNewEpoch || failed?.isLost === true || (isShort && missed > 0));
  const reload = (): void => read(shownKey === queryKey ? shown : undefined);
  useEffect(() => {
    if (!isDue) return;
    const since = agentNow() - (latest.current?.readAt ?? 0);
    const pause = Math.min(FOLLOW_MS, Math.max(0, FOLLOW_MS - since)); // the clock may have been set
    const timer = setTimeout(reload, isNewEpoch ? 0 : pause);
    return () => clearTimeout(timer);
  }, [isDue, queryKey, failed, shown]);
  return {
    rows: shown,
    isCurrent: shownKey === queryKey,
    problem: failed?.problem,
    missed: isShort ? 0 : missed,
    reload,
  };
}

/** Shows the list of prefixes with its filters. */
export function Prefixes({ parameters }: { parameters: URLSearchParams }): VNode {
  const filters = filtersOf(parameters);
  const at = useMoment();
  const isPast = at !== undefined;
  const status = useStatus();
  const [order, setOrder] = useState(0);
  const sort = at !== undefined || order === 0 ? '' : `${order < 0 ? '-' : ''}${ORDERS[Math.abs(order) - 1]}`;
  const { rows, isCurrent, problem, missed, reload } = useRows({
    filters: at === undefined ? filters : { ...filters, at },
    sort,
  });
  const show = useCallback(
    (first: number, end: number) => rows?.load(first, Math.min(end + ROWS_AHEAD, MAX_ROWS)),
    [rows],
  );
  const isFiltered = Object.keys(filters).length > 0;
  const counting = useAnswer<{ count: number }>(
    isPast ? undefined : withQuery('/v1/ipcache/count', filters),
    rows?.readAt,
  );
  const all = counting.document?.count;
  const total = rows?.isComplete === true ? rows.count : all;
  const omitted = rows && omittedRowsText(rows, MAX_ROWS, all);
  useEffect(() => {
    if (all !== undefined && rows !== undefined) rows.setTotal(all);
  }, [all, rows]);
  const clusters = (status?.clusters ?? []).filter(({ local }) => !local).map(({ name }) => name);
  return (
    <>
      <Title
        side={
          <>
            <span class="soft">{total === undefined ? '' : counted(total, 'prefix', 'prefixes')}</span>
            {isFiltered && <a href={addressOf('prefixes')}>Clear filters</a>}
            <span class="spacer" />
            {missed > 0 && !isPast && rows !== undefined && (
              <span class="notice" role="status">
                {counted(missed, 'change')} since {timeText(rows.readAt)}
                <button type="button" onClick={reload}>
                  Reload
                </button>
              </span>
            )}
          </>
        }
      >
        Prefixes
      </Title>
      <search class="filters" aria-label="Filters of the prefixes">
        <TextFilter name="within" label="within CIDR" example="10.10.0.0/24" />
        <TextFilter name="identity" label="identity" example="66536" />
        <TextFilter name="label" label="label" example="app=checkout" />
        <TextFilter name="pod" label="pod" example="shop/web-0" />
        <TextFilter name="node" label="host IP" example="192.168.10.1" />
        <Choice name="source" label="source" options={SOURCES} />
        <Choice name="cluster" label="remote cluster" options={clusters} />
        <Choice name="family" label="family" options={['4', '6']} text={(name) => `IPv${name}`} />
      </search>
      {problem !== undefined && <Problem>{problem}</Problem>}
      <div class="panel">
        {rows === undefined ? (
          <Skeleton />
        ) : rows.count === 0 && rows.isComplete ? (
          <Empty title={isFiltered ? 'No matching prefixes.' : 'No prefixes yet.'}>
            {isFiltered
              ? 'Remove a filter, or press / to search for a part of a name.'
              : 'No source has sent one. The overview shows the state of each source.'}
          </Empty>
        ) : (
          <VirtualTable
            label="List of prefixes"
            {...columnsOf(rows)}
            count={Math.min(rows.count, MAX_ROWS)}
            order={isPast ? 0 : order}
            onOrder={isPast ? undefined : setOrder}
            onShow={show}
            row={(index) => {
              const row = isCurrent ? rows.rowAt(index) : undefined;
              return row && cellsOf(row);
            }}
          />
        )}
      </div>
      {omitted !== undefined && <p class="faint">{omitted}</p>}
    </>
  );
}
