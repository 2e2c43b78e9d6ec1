import type { VNode } from 'preact';
import type { KindDocument, KubernetesDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { useShared, useStatus } from '../agent/live.ts';
import { countText, timeText } from '../format.ts';
import { Mark, type Tone } from '../parts/marks.tsx';
import { Empty, Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { type Column, NONE, numberColumn, Table } from '../parts/table.tsx';

const TONES: Readonly<Record<KindDocument['state'], Tone>> = {
  watching: 'good',
  listing: 'warn',
  waiting: 'warn',
  missing: 'idle',
  forbidden: 'bad',
  stopped: 'bad',
  resting: 'idle',
};

/** Texts for the provider of each group of data. */
const PROVIDERS: Readonly<Record<KubernetesDocument['handover']['ip'], string>> = {
  following: 'from Kubernetes',
  resting: 'from a kvstore',
  withdrawing: 'from a kvstore; the data of Kubernetes is being deleted',
};

const COLUMNS: readonly Column<KindDocument>[] = [
  { name: 'kind', by: ({ name }) => name, cell: ({ name }) => <code>{name}</code> },
  {
    name: 'state',
    by: ({ state }) => state,
    cell: ({ state, retryInMs, behindMs }) => (
      <>
        <Mark tone={behindMs === undefined ? TONES[state] : 'bad'}>{state}</Mark>
        {behindMs !== undefined && <span class="faint"> behind for {durationText(behindMs)}</span>}
        {retryInMs !== undefined && <span class="faint">, next attempt in {durationText(retryInMs)}</span>}
      </>
    ),
  },
  numberColumn('objects', ({ objects }) => objects),
  numberColumn('rejected', ({ rejected }) => rejected),
  numberColumn('events', ({ events }) => events),
  {
    name: 'last event',
    by: ({ lastEventAt = '' }) => lastEventAt,
    cell: ({ lastEventAt }) => (lastEventAt === undefined ? NONE : timeText(lastEventAt)),
  },
  numberColumn('lists', ({ lists }) => lists),
  {
    name: 'last message',
    className: 'nowrap',
    by: ({ lagMs = 0 }) => lagMs,
    cell: ({ lagMs }) => (lagMs === undefined ? NONE : `${durationText(lagMs)} ago`),
  },
  {
    name: 'last failure',
    by: ({ failures }) => failures,
    cell: ({ failures, lastFailure }) =>
      failures === 0 ? NONE : `${countText(failures)}: ${lastFailure ?? ''}`,
  },
];

/** The table of the reflectors; the short one has the first columns. */
export function Reflectors({
  kinds,
  isShort = false,
}: {
  kinds: readonly KindDocument[];
  isShort?: boolean;
}): VNode {
  return (
    <Table
      label="Table of reflectors"
      columns={isShort ? COLUMNS.slice(0, 6) : COLUMNS}
      rows={kinds}
      keyOf={({ name }) => name}
    />
  );
}

/** Shows the reflectors of the Kubernetes API server. */
export function Kubernetes(): VNode {
  const status = useStatus();
  const { problem } = useShared().status;
  const kubernetes = status?.kubernetes;
  return (
    <>
      <Title>Kubernetes</Title>
      {status === undefined ? (
        <Pending problem={problem} />
      ) : kubernetes === undefined ? (
        <Empty title="This agent follows no API server.">
          Start it with --kubeconfig, or in a pod with --k8s on.
        </Empty>
      ) : (
        <>
          <Panel
            title="API server"
            side={
              <Mark tone={kubernetes.synced ? 'good' : 'warn'}>
                {kubernetes.synced ? 'synced' : 'initial lists'}
              </Mark>
            }
          >
            <Facts
              of={[
                ['server', <code key="server">{kubernetes.server}</code>],
                ...Object.entries(kubernetes.handover).map(([group, state]): [string, VNode] => [
                  group,
                  <span key={group}>{PROVIDERS[state]}</span>,
                ]),
              ]}
            />
          </Panel>
          <Panel title="Reflectors" flush>
            <Reflectors kinds={kubernetes.kinds} />
          </Panel>
        </>
      )}
    </>
  );
}
