import type { VNode } from 'preact';
import { durationText } from '../../src/base/show-value.ts';
import { addressOf } from '../address.ts';
import { useShared, useStatus } from '../agent/live.ts';
import { countText, timeText } from '../format.ts';
import { ClusterMark } from '../parts/cluster-parts.tsx';
import { Chip } from '../parts/marks.tsx';
import { Empty, Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { Table } from '../parts/table.tsx';
import { WhatIfItLeft } from '../parts/what-if.tsx';

/** The list of each resource. */
const LISTS: Readonly<Record<string, string>> = {
  nodes: 'nodes',
  services: 'services',
  identities: 'identities',
  ip: 'prefixes',
};

/** Shows one cluster: its state, the resources that it delivers, and its failures. */
export function Cluster({ name }: { name: string }): VNode {
  const status = useStatus();
  const { problem } = useShared().status;
  const cluster = status?.clusters.find((other) => other.name === name);
  const restored = status?.checkpoint?.restored.find((item) => item.cluster === name);
  return (
    <>
      <Title kind="cluster" side={cluster && <ClusterMark cluster={cluster} />}>
        {name}
      </Title>
      {status === undefined ? (
        <Pending problem={problem} />
      ) : cluster === undefined ? (
        <Empty title={`The mesh has no cluster ${name}.`}>
          <a href={addressOf('clusters')}>All clusters</a>
        </Empty>
      ) : (
        <div class="grid">
          <Panel title="State" className="half">
            <Facts
              of={[
                ['id', cluster.id === 0 ? 'unknown' : String(cluster.id)],
                [
                  'role',
                  cluster.own ? (
                    <Chip key="own" tone="accent">
                      own cluster
                    </Chip>
                  ) : (
                    'remote cluster'
                  ),
                ],
                ['state', cluster.state],
                [
                  'kvstore',
                  `${cluster.connected ? 'connected' : 'not connected'} since ${timeText(cluster.connectedSince)}`,
                ],
                [
                  'served state',
                  cluster.knownAt &&
                    `of ${timeText(cluster.knownAt)}, ${durationText(Date.now() - Date.parse(cluster.knownAt))} old`,
                ],
                ['restored state', restored && `of ${timeText(restored.knownAt)}, not confirmed`],
                ['rejected values', countText(cluster.rejected)],
                ['failures', countText(cluster.failures)],
                [
                  'last failure',
                  cluster.lastFailure &&
                    `${cluster.lastFailure}${cluster.lastFailureAt === undefined ? '' : `, ${timeText(cluster.lastFailureAt)}`}`,
                ],
                ['missing', cluster.missing.join(', ')],
              ]}
            />
          </Panel>
          <Panel title="Resources" className="half" flush>
            <Table
              label="Table of resources"
              rows={Object.entries(cluster.keys)}
              keyOf={([resource]) => resource}
              columns={[
                {
                  name: 'resource',
                  by: ([resource]) => resource,
                  cell: ([resource]) => (
                    <a
                      href={addressOf(
                        LISTS[resource] ?? 'overview',
                        '',
                        cluster.own && resource !== 'nodes' ? {} : { cluster: name },
                      )}
                    >
                      {resource}
                    </a>
                  ),
                },
                {
                  name: 'keys',
                  number: true,
                  by: ([, count = 0]) => count,
                  cell: ([, count = 0]) => countText(count),
                },
                {
                  name: 'initial list',
                  cell: ([resource]) =>
                    cluster.missing.some((other) => other === resource) ? 'not complete' : 'complete',
                },
              ]}
            />
          </Panel>
          {!cluster.own && <WhatIfItLeft key={name} cluster={name} />}
        </div>
      )}
    </>
  );
}
