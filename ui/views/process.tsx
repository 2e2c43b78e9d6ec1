import type { VNode } from 'preact';
import { durationText } from '../../src/base/show-value.ts';
import {
  type DutyDocument,
  type FollowedClusterDocument,
  type ProcessStatus,
  processName,
} from '../agent/live.ts';
import { capitalized, timeText } from '../format.ts';
import { Mark, type Tone } from '../parts/marks.tsx';
import { Facts, Panel } from '../parts/panel.tsx';
import { type Column, NONE, numberColumn, Table } from '../parts/table.tsx';

type Step = ProcessStatus['steps'][number];

const TONES: Readonly<Record<Step['state'], Tone>> = {
  pending: 'idle',
  running: 'warn',
  done: 'good',
  overdue: 'bad',
  failed: 'bad',
  stopping: 'warn',
  stopped: 'idle',
  hanging: 'bad',
};

/** Returns a value of a status as text. */
function valueText(value: unknown): string {
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map(valueText).join(', ');
  if (typeof value === 'object' && value !== null)
    return Object.entries(value)
      .map(([name, part]) => `${name} ${valueText(part)}`)
      .join(', ');
  return String(value);
}

/** Returns a column of times that may be missing. */
function timeColumn<T>(name: string, of: (row: T) => string | undefined): Column<T> {
  return {
    name,
    className: 'nowrap',
    by: (row) => of(row) ?? '',
    cell: (row) => {
      const value = of(row);
      return value === undefined ? NONE : timeText(value);
    },
  };
}

const DUTY_TONES: Readonly<Record<string, Tone>> = { running: 'good', waiting: 'warn' };

const DUTY_COLUMNS: readonly Column<DutyDocument>[] = [
  { name: 'duty', by: ({ name }) => name, cell: ({ name }) => name },
  {
    name: 'state',
    by: ({ state }) => state,
    cell: ({ state }) => <Mark tone={DUTY_TONES[state] ?? 'idle'}>{state}</Mark>,
  },
  numberColumn('keys', ({ published }) => published?.keys),
  numberColumn('pending', ({ published }) => published?.pending),
  timeColumn('last round', ({ rounds }) => rounds?.lastRoundAt),
  numberColumn('marked', ({ rounds }) => rounds?.marked),
  numberColumn('deleted', ({ rounds }) => rounds?.deleted),
  numberColumn('conflicts', ({ rounds }) => rounds?.conflicts),
  timeColumn('next round', ({ rounds }) => rounds?.nextRoundAt),
  numberColumn('failures', ({ failures }) => failures),
  { name: 'last failure', cell: ({ lastFailure }) => lastFailure?.message ?? NONE },
];

const CLUSTER_COLUMNS: readonly Column<FollowedClusterDocument>[] = [
  { name: 'cluster', by: ({ name }) => name, cell: ({ name }) => name },
  numberColumn('id', ({ config }) => config?.id),
  {
    name: 'state',
    by: ({ state }) => state,
    cell: ({ state, ready }) => <Mark tone={ready ? 'good' : 'warn'}>{state}</Mark>,
  },
  numberColumn('keys', ({ copy }) => copy?.keys),
  numberColumn('pending', ({ copy }) => copy?.pending),
  numberColumn('failed writes', ({ copy }) => copy?.failures),
  { name: 'last failure', cell: ({ lastFailure }) => lastFailure?.message ?? NONE },
];

/** Columns of the clusters of an operator, which copies nothing. */
const OPERATOR_COLUMNS = ['cluster', 'state', 'last failure'];

/** Titles other than the name of the field. */
const TITLES: Readonly<Record<string, string>> = { mcs: 'Multi-cluster services' };

function titleOf(name: string): string {
  return capitalized(wordsOf(name));
}

/** Returns the name of a field as words. */
function wordsOf(name: string): string {
  return name.replaceAll(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
}

/** Shows the status of a process without engines: an operator or a kvstoremesh. */
export function Process({ status }: { status: ProcessStatus }): VNode {
  const { steps, duties, clusters, rejected } = status;
  const entries = Object.entries(status).filter(([, value]) => value !== undefined);
  const plain = entries.filter(([, value]) => typeof value !== 'object');
  const objects = entries.filter(
    ([name, value]) => name !== 'rejected' && typeof value === 'object' && !Array.isArray(value),
  );
  const isKvstoreMesh = duties === undefined;
  // Three panels in a row, if the two fixed ones and those of `objects` fill all rows.
  const width = (2 + objects.length) % 3 === 0 ? 'third' : 'half';
  return (
    <div class="grid">
      <Panel title={titleOf(processName(status))} className={width}>
        <Facts of={plain.map(([name, value]) => [wordsOf(name), valueText(value)])} />
      </Panel>
      <Panel title="Steps of the start" className={width}>
        <Facts
          of={steps.map(({ name, state, ms, failure }) => [
            name,
            <>
              <Mark tone={TONES[state]}>{state}</Mark>
              <span class="faint"> {failure ?? (ms === undefined ? '' : durationText(ms))}</span>
            </>,
          ])}
        />
      </Panel>
      {objects.map(([name, value]) => (
        <Panel key={name} title={TITLES[name] ?? titleOf(name)} className={width}>
          <Facts
            of={Object.entries(value as object).map(([field, part]) => [wordsOf(field), valueText(part)])}
          />
        </Panel>
      ))}
      {duties !== undefined && (
        <Panel title="Duties" flush>
          <Table label="Table of duties" rows={duties} keyOf={({ name }) => name} columns={DUTY_COLUMNS} />
        </Panel>
      )}
      {clusters !== undefined && (isKvstoreMesh || clusters.length > 0) && (
        <Panel title={isKvstoreMesh ? 'Copied clusters' : 'Remote clusters'} flush>
          <Table
            label="Table of clusters"
            rows={clusters}
            keyOf={({ name }) => name}
            columns={
              isKvstoreMesh
                ? CLUSTER_COLUMNS
                : CLUSTER_COLUMNS.filter(({ name }) => OPERATOR_COLUMNS.includes(name))
            }
          />
        </Panel>
      )}
      {rejected !== undefined && rejected.total > 0 && (
        <Panel
          title="Rejected"
          side={
            rejected.lastAt !== undefined && <span class="soft">the last at {timeText(rejected.lastAt)}</span>
          }
        >
          <ul class="lines">
            {[...rejected.recent].reverse().map((message, at) => (
              <li key={`${at}${message}`}>{message}</li>
            ))}
          </ul>
        </Panel>
      )}
    </div>
  );
}
