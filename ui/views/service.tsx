import type { VNode } from 'preact';
import type { ExplainedServiceDocument } from '../../src/api/documents.ts';
import { namePath } from '../../src/api/name-path.ts';
import { DEFAULT_WEIGHT } from '../../src/model/backend-weight.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useMoment, useStatus, useVersion } from '../agent/live.ts';
import { counted } from '../format.ts';
import { Card } from '../parts/card.tsx';
import { ClusterLink, NodeLink, PrefixLink } from '../parts/links.tsx';
import { LongTable } from '../parts/listing.tsx';
import { Chip, Mark } from '../parts/marks.tsx';
import { Empty, Facts, Panel } from '../parts/panel.tsx';
import { BackendsBar, countByCluster, portsText, servicePortsText } from '../parts/service-parts.tsx';
import { type Column, NONE, numberColumn } from '../parts/table.tsx';

type Offered = ExplainedServiceDocument['explain']['backends'][number];

/** Returns the columns of the table. Columns without a value are omitted. */
function columns(local: string, backends: readonly Offered[]): readonly Column<Offered>[] {
  const has = (of: (backend: Offered) => string | undefined): boolean =>
    backends.some((backend) => of(backend));
  const all: readonly (Column<Offered> | false)[] = [
    { name: 'backend', by: ({ address }) => address, cell: ({ address }) => <PrefixLink prefix={address} /> },
    {
      name: 'cluster',
      by: ({ cluster = local }) => cluster,
      cell: ({ cluster = local }) => <ClusterLink name={cluster} />,
    },
    { name: 'ports', cell: ({ ports }) => portsText(ports) },
    {
      name: 'state',
      by: ({ state }) => state,
      // Only unusual states have a mark, so that they stand out.
      cell: ({ state }) => (state === 'active' ? state : <Mark tone="warn">{state}</Mark>),
    },
    numberColumn('weight', ({ weight = DEFAULT_WEIGHT }) => weight),
    has(({ nodeName }) => nodeName) && {
      name: 'node',
      by: ({ nodeName = '' }) => nodeName,
      cell: ({ nodeName, cluster = local }) =>
        nodeName === undefined ? NONE : <NodeLink name={`${cluster}/${nodeName}`} short />,
    },
    has(({ zone }) => zone) && {
      name: 'zone',
      by: ({ zone = '' }) => zone,
      cell: ({ zone }) => zone ?? NONE,
    },
    has(({ slice }) => slice) && {
      name: 'slice',
      cell: ({ slice }) => <span class="soft">{slice || '–'}</span>,
    },
    {
      name: 'verdict',
      by: ({ verdict }) => verdict,
      cell: ({ verdict }) => (verdict === 'effective' ? verdict : <Mark tone="warn">{verdict}</Mark>),
    },
  ];
  return all.filter((column) => column !== false);
}

/** Returns the clients that `loadBalancerSourceRanges` admit. */
function clientsText(ranges: readonly string[], isDeny: boolean): string {
  if (ranges.length === 0) return isDeny ? 'all' : 'none';
  return `${isDeny ? 'outside of ' : ''}${ranges.join(', ')}`;
}

/** The addresses, ports and settings of a service. */
function Frontends({ service }: { service: ExplainedServiceDocument }): VNode {
  return (
    <Panel title="Frontends" className="half">
      <Facts
        of={[
          ['type', service.type],
          [
            'cluster IP',
            service.clusterIPs.length > 0 &&
              service.clusterIPs.map((ip) => (
                <div key={ip}>
                  <PrefixLink prefix={ip} />
                </div>
              )),
          ],
          ['load balancer', service.loadBalancerIPs?.map((ip) => <PrefixLink key={ip} prefix={ip} />)],
          ['external IP', service.externalIPs?.map((ip) => <PrefixLink key={ip} prefix={ip} />)],
          [
            'admitted clients',
            service.sourceRanges && clientsText(service.sourceRanges, service.sourceRangesPolicy === 'deny'),
          ],
          ['ports', servicePortsText(service)],
          ['node selector', service.nodeSelector ?? service.nodeLabel],
          [
            'mesh',
            <span class="chips" key="mesh">
              <Chip tone={service.global ? 'accent' : ''}>{service.global ? 'global' : 'not global'}</Chip>
              {service.global && <Chip>{service.shared ? 'shared' : 'not shared'}</Chip>}
              {service.affinity !== 'none' && <Chip>affinity {service.affinity}</Chip>}
            </span>,
          ],
          [
            'namespace',
            <a key="of" href={addressOf('services', '', { namespace: service.namespace })}>
              {service.namespace}
            </a>,
          ],
        ]}
      />
    </Panel>
  );
}

/** The numbers of effective backends of a service. `refused`: the number of offered backends that are not used. */
function BackendsByCluster({
  service,
  refused,
  local,
}: {
  service: ExplainedServiceDocument;
  refused: number;
  local: string;
}): VNode {
  const counts = countByCluster(service.backends, local);
  return (
    <Panel
      title="Backends by cluster"
      className="half"
      side={
        counts.length === 1 && service.global ? (
          <Chip tone="warn">only one cluster serves it</Chip>
        ) : undefined
      }
    >
      {service.backends.length === 0 ? (
        <Empty title="No backend serves this service.">
          {refused > 0
            ? `${counted(refused, 'backend')} of the table below cannot be used.`
            : 'No cluster offers one. Check the endpoints of its pods.'}
        </Empty>
      ) : (
        <>
          <BackendsBar backends={service.backends} hasText={false} />
          <ul class="lines spread-list">
            {counts.map(([cluster, count]) => (
              <li key={cluster}>
                <ClusterLink name={cluster} /> <span class="soft">{counted(count, 'backend')}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}

/** Shows one service: its frontends, and the offered backends of each cluster. */
export function Service({ name }: { name: string }): VNode {
  const at = useMoment();
  const local = useStatus()?.cluster ?? 'local';
  const answer = useAnswer<ExplainedServiceDocument>(
    withQuery(`/v1/services/${namePath(name)}`, { at }),
    useVersion('service'),
  );
  const refused =
    answer.document?.explain.backends.filter(({ verdict }) => verdict !== 'effective').length ?? 0;
  return (
    <Card kind="service" name={name} answer={answer}>
      {(document) => (
        <>
          <Frontends service={document} />
          <BackendsByCluster service={document} refused={refused} local={local} />
          <Panel
            title="Offered backends"
            flush
            side={
              <span class="soft">
                {counted(document.explain.backends.length, 'backend')}
                {refused > 0 && `, ${refused} not used`}
              </span>
            }
          >
            <LongTable
              label="Table of backends"
              columns={columns(local, document.explain.backends)}
              rows={document.explain.backends}
              keyOf={({ address, cluster = '', slice }) => `${address} ${cluster} ${slice}`}
            />
          </Panel>
        </>
      )}
    </Card>
  );
}
