import type { VNode } from 'preact';
import { namePath } from '../../src/api/name-path.ts';
import type {
  CheckpointDocument,
  ClusterDetailDocument,
  ClusterDocument,
  StoreDocument,
} from '../../src/api/status-document.ts';
import { addressOf } from '../address.ts';
import { useAnswer } from '../agent/ask.ts';
import { useStatus, useTick } from '../agent/live.ts';
import { countText, timeText } from '../format.ts';
import {
  boundText,
  bytesText,
  ClusterMark,
  lagText,
  p99Column,
  sinceText,
  stateText,
} from '../parts/cluster-parts.tsx';
import { Chip, Mark, type Tone } from '../parts/marks.tsx';
import { Empty, Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { type Column, NONE, numberColumn, Table } from '../parts/table.tsx';
import { WhatIfItLeft } from '../parts/what-if.tsx';

/** The view with the list of a resource, by resource. */
const LISTS: Readonly<Record<string, string>> = {
  nodes: 'nodes',
  services: 'services',
  identities: 'identities',
  ip: 'prefixes',
  endpointslices: 'services',
};

/** Interval at which the status of the cluster is read. */
const READ_MS = 2_000;

const HEARTBEAT_TEXTS: Readonly<Record<NonNullable<ClusterDocument['heartbeat']>, string>> = {
  never: 'none seen',
  fresh: 'changes',
  stale: 'has not changed for 2 min',
};

const TONES: Readonly<Record<StoreDocument['state'], Tone>> = {
  listing: 'warn',
  watching: 'good',
  waiting: 'bad',
  forbidden: 'bad',
  ended: 'idle',
  diverged: 'bad',
  stopped: 'idle',
};

/** Returns the columns of the stores of a cluster. */
function columns(name: string, isLocal: boolean): readonly Column<StoreDocument>[] {
  return [
    {
      name: 'resource',
      by: ({ resource }) => resource,
      cell: ({ resource }) => {
        const list = LISTS[resource];
        const filter = isLocal && resource !== 'nodes' ? {} : { cluster: name };
        return list === undefined ? resource : <a href={addressOf(list, '', filter)}>{resource}</a>;
      },
    },
    {
      name: 'state',
      by: ({ state }) => state,
      cell: ({ state, complete }) => (
        <Mark tone={TONES[state]}>{complete ? state : `${state}, not complete`}</Mark>
      ),
    },
    numberColumn('keys', ({ keys }) => keys),
    numberColumn('revision', ({ revision }) => revision),
    p99Column(),
    numberColumn(
      'waiting',
      ({ queuedBytes }) => queuedBytes,
      (bytes) => (bytes === 0 ? '0' : bytesText(bytes)),
    ),
    numberColumn('rejected', ({ rejected }) => rejected),
    numberColumn('lists', ({ lists }) => lists),
    numberColumn('failures', ({ failures }) => failures),
    {
      name: 'last failure',
      cell: ({ lastFailure, lastFailureAt }) =>
        lastFailure === undefined
          ? NONE
          : `${lastFailure}${lastFailureAt === undefined ? '' : `, ${timeText(lastFailureAt)}`}`,
    },
  ];
}

/** The configuration of a cluster, from its kvstore. */
function Config({ config }: { config: ClusterDetailDocument['config'] }): VNode {
  if (config === undefined)
    return (
      <Empty title="No configuration.">
        The kvstore has no key cilium/cluster-config for this cluster, or the agent has not read it yet.
      </Empty>
    );
  const { id, capabilities } = config;
  return (
    <Facts
      of={[
        ['id', String(id)],
        ...Object.entries(capabilities).map(([capability, value]): [string, VNode] => [
          capability,
          <code key={capability}>{String(value)}</code>,
        ]),
      ]}
    />
  );
}

/** The state of a cluster. `restored`: its state that was restored from a checkpoint and not confirmed. */
function State({
  cluster,
  restored,
}: {
  cluster: ClusterDetailDocument;
  restored: CheckpointDocument['restored'][number] | undefined;
}): VNode {
  return (
    <Panel title="State" className="half">
      <Facts
        of={[
          [
            'role',
            cluster.local ? (
              <Chip key="local" tone="accent">
                local cluster
              </Chip>
            ) : (
              'remote cluster'
            ),
          ],
          ['id', cluster.id === 0 ? 'unknown' : String(cluster.id)],
          ['state', stateText(cluster)],
          [
            'kvstore',
            `${cluster.connected ? 'connected' : 'not connected'} since ${timeText(cluster.connectionChangedAt)}`,
          ],
          ['heartbeat', cluster.heartbeat && HEARTBEAT_TEXTS[cluster.heartbeat]],
          ['revision', cluster.revision !== undefined && countText(cluster.revision)],
          ['lag', lagText(cluster)],
          ['propagation', cluster.p99Ms !== undefined && `p99 ${boundText(cluster.p99Ms)}`],
          [
            'served state',
            cluster.knownAt &&
              `of ${timeText(cluster.knownAt)}, ${sinceText(cluster.knownAt)} old${cluster.servicesExpired === true ? ', without services' : ''}`,
          ],
          [
            'restored state',
            restored && `of ${timeText(restored.knownAt)}, not yet confirmed by the cluster`,
          ],
          ['rejected values', countText(cluster.rejected)],
          ['failures', countText(cluster.failures)],
          [
            'last failure',
            cluster.lastFailure &&
              `${cluster.lastFailure}${cluster.lastFailureAt === undefined ? '' : `, ${timeText(cluster.lastFailureAt)}`}`,
          ],
        ]}
      />
    </Panel>
  );
}

/** Shows one cluster: its state, its configuration, and each store read from it. */
export function Cluster({ name }: { name: string }): VNode {
  const { problem, document: cluster } = useAnswer<ClusterDetailDocument>(
    `/v1/clustermesh/${namePath(name)}`,
    useTick(READ_MS),
  );
  const status = useStatus();
  const restored = status?.checkpoint?.restored.find((item) => item.cluster === name);
  const isMember = status?.clusters.some((other) => other.name === name) !== false;
  return (
    <>
      <Title kind="cluster" side={cluster && <ClusterMark cluster={cluster} />}>
        {name}
      </Title>
      {cluster === undefined && !isMember ? (
        <Empty title={`The mesh has no cluster ${name}.`}>
          <a href={addressOf('clusters')}>All clusters</a>
        </Empty>
      ) : cluster === undefined ? (
        <Pending problem={problem} />
      ) : (
        <div class="grid">
          <State cluster={cluster} restored={restored} />
          <Panel title="Configuration" className="half">
            <Config config={cluster.config} />
          </Panel>
          <Panel title="Stores" flush>
            {cluster.stores.length === 0 ? (
              <Empty title="Nothing is read from its kvstore." />
            ) : (
              <Table
                label="Table of stores"
                rows={cluster.stores}
                keyOf={({ resource }) => resource}
                columns={columns(name, cluster.local)}
              />
            )}
          </Panel>
          {!cluster.local && <WhatIfItLeft key={name} cluster={name} />}
        </div>
      )}
    </>
  );
}
