import type { VNode } from 'preact';
import type { DatapathTableDocument } from '../../src/api/datapath-document.ts';
import { useShared, useStatus } from '../agent/live.ts';
import { Chip, Mark } from '../parts/marks.tsx';
import { Empty, Facts, Panel, Pending, Problem, Title } from '../parts/panel.tsx';
import { type Column, numberColumn, Table } from '../parts/table.tsx';

const TABLES: readonly Column<DatapathTableDocument>[] = [
  { name: 'table', by: ({ name }) => name, cell: ({ name }) => <code>{name}</code> },
  {
    name: 'state',
    by: ({ state }) => state,
    cell: ({ state, failures }) => (
      <Mark
        tone={state === 'degraded' ? 'bad' : state === 'unread' ? 'idle' : 'good'}
        title={failures.map(({ key, reason }) => `${key}: ${reason}`).join('\n')}
      >
        {state}
      </Mark>
    ),
  },
  numberColumn('items', ({ actual }) => actual),
  numberColumn('wanted', ({ desired }) => desired),
  numberColumn('capacity', ({ capacity }) => capacity),
  numberColumn('pending', ({ pending }) => pending),
  numberColumn('unconfirmed', ({ unconfirmed }) => unconfirmed),
  numberColumn('no room', ({ noRoom }) => noRoom),
  numberColumn('failing', ({ failing }) => failing),
  numberColumn('repaired', ({ repairs }) => repairs),
];

/** Shows the kernel tables of the agent's machine. */
export function Datapath(): VNode {
  const status = useStatus();
  const { problem } = useShared().status;
  const datapath = status?.datapath;
  if (datapath === undefined)
    return (
      <>
        <Title>Datapath</Title>
        {status === undefined ? (
          <Pending problem={problem} />
        ) : (
          <Empty title="No datapath is configured.">Start the agent with --datapath linux.</Empty>
        )}
      </>
    );
  const { kernel, pinFolder, cgroup, layout, dryRun, parts, tables, waitsFor, failures } = datapath;
  const hasUnconfirmed = tables.some(({ unconfirmed }) => unconfirmed > 0);
  return (
    <>
      <Title side={dryRun && <Chip tone="warn">dry run, nothing is written</Chip>}>Datapath</Title>
      {[...failures, ...(hasUnconfirmed ? waitsFor : [])].map((text) => (
        <Problem key={text}>{text}</Problem>
      ))}
      <div class="grid">
        <Panel title="Machine" className="half">
          <Facts
            of={[
              ['kernel', `Linux ${kernel}`],
              ['pins', <code key="pins">{pinFolder}</code>],
              ['cgroup', cgroup],
              ['layout', layout],
            ]}
          />
        </Panel>
        <Panel title="Parts" className="half">
          <Facts
            of={parts.map(({ name, state, missing }) => [
              name,
              <>
                <Mark
                  tone={
                    state === 'unavailable' || missing.length > 0 ? 'bad' : state === 'off' ? 'idle' : 'good'
                  }
                >
                  {state}
                </Mark>
                {missing.map((text) => (
                  <div key={text}>{text}</div>
                ))}
              </>,
            ])}
          />
        </Panel>
        <Panel
          title="Kernel tables"
          flush
          side={
            <span class="soft">
              <code>dpcache datapath diff</code> prints the differences between the kernel and the caches
            </span>
          }
        >
          <Table label="Table of the kernel" columns={TABLES} rows={tables} keyOf={({ name }) => name} />
        </Panel>
      </div>
    </>
  );
}
