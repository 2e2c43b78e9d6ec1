import type { VNode } from 'preact';
import type { ProcessStatus } from '../agent/live.ts';
import { durationText } from '../format.ts';
import { Mark, type Tone } from '../parts/marks.tsx';
import { Facts, Panel } from '../parts/panel.tsx';
import { Table } from '../parts/table.tsx';

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
  if (Array.isArray(value)) return value.map(valueText).join(', ');
  if (typeof value === 'object' && value !== null)
    return Object.entries(value)
      .map(([name, part]) => `${name} ${valueText(part)}`)
      .join(', ');
  return String(value);
}

function isTable(value: unknown): value is readonly Readonly<Record<string, unknown>>[] {
  return (
    Array.isArray(value) && value.length > 0 && value.every((row) => typeof row === 'object' && row !== null)
  );
}

/** A list of a status as a table: a column for each field. */
function StatusTable({
  name,
  rows,
}: {
  name: string;
  rows: readonly Readonly<Record<string, unknown>>[];
}): VNode {
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return (
    <Panel title={titleOf(name)} flush>
      <Table<Readonly<Record<string, unknown>>>
        label={`Table of ${name}`}
        rows={rows}
        keyOf={(row) => JSON.stringify(row)}
        columns={fields.map((field) => ({
          name: field,
          by: (row) => (typeof row[field] === 'number' ? row[field] : valueText(row[field] ?? '')),
          number: rows.every((row) => row[field] === undefined || typeof row[field] === 'number'),
          cell: (row) => (row[field] === undefined ? <span class="faint">–</span> : valueText(row[field])),
        }))}
      />
    </Panel>
  );
}

function titleOf(name: string): string {
  const words = name.replaceAll(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

/** Shows the status of a process without engines: an operator or a kvstoremesh. */
export function Process({ status }: { status: ProcessStatus }): VNode {
  const { steps, blockers: _, ...others } = status;
  const entries = Object.entries(others).filter(([, value]) => value !== undefined);
  const plain = entries.filter(([, value]) => typeof value !== 'object');
  const objects = entries.filter(
    ([, value]) => typeof value === 'object' && value !== null && !Array.isArray(value),
  );
  const tables = entries.filter(([, value]) => isTable(value));
  return (
    <div class="grid">
      <Panel title="Process" className="half">
        <Facts of={plain.map(([name, value]) => [titleOf(name), valueText(value)])} />
      </Panel>
      <Panel title="Steps of the start" className="half">
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
        <Panel key={name} title={titleOf(name)} className="half">
          <Facts
            of={Object.entries(value as object).map(([field, part]) => [titleOf(field), valueText(part)])}
          />
        </Panel>
      ))}
      {tables.map(([name, value]) => isTable(value) && <StatusTable key={name} name={name} rows={value} />)}
    </div>
  );
}
