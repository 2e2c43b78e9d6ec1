import type { VNode } from 'preact';
import type { ServiceDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useList } from '../agent/list.ts';
import { useVersion } from '../agent/live.ts';
import { counted } from '../format.ts';
import { TextFilter } from '../parts/filters.tsx';
import { PrefixLink, ServiceLink } from '../parts/links.tsx';
import { LongTable } from '../parts/long-table.tsx';
import { Chip, Restored } from '../parts/marks.tsx';
import { Empty, Pending, Title } from '../parts/panel.tsx';
import { Spread, servicePortsText } from '../parts/service-parts.tsx';
import type { Column } from '../parts/table.tsx';

const COLUMNS: readonly Column<ServiceDocument>[] = [
  {
    name: 'service',
    by: ({ namespace, name }) => `${namespace}/${name}`,
    cell: ({ namespace, name, restored }) => (
      <>
        <ServiceLink name={`${namespace}/${name}`} /> <Restored restored={restored} />
      </>
    ),
  },
  { name: 'type', by: ({ type }) => type, cell: ({ type }) => <span class="soft">{type}</span> },
  {
    name: 'addresses',
    cell: ({ clusterIPs, loadBalancerIPs = [], externalIPs = [] }) => (
      <>
        {clusterIPs.map((ip) => (
          <div key={ip}>
            <PrefixLink prefix={ip} />
          </div>
        ))}
        {loadBalancerIPs.map((ip) => (
          <div key={ip} class="nowrap">
            <PrefixLink prefix={ip} /> <span class="faint">load balancer</span>
          </div>
        ))}
        {externalIPs.map((ip) => (
          <div key={ip} class="nowrap">
            <PrefixLink prefix={ip} /> <span class="faint">external IP</span>
          </div>
        ))}
      </>
    ),
  },
  { name: 'ports', cell: (service) => servicePortsText(service) },
  {
    name: 'mesh',
    by: ({ global, shared }) => Number(global) + Number(shared),
    cell: ({ global, shared, affinity }) => (
      <span class="chips">
        {global && <Chip tone="accent">global</Chip>}
        {global && !shared && <Chip>not shared</Chip>}
        {affinity !== 'none' && <Chip>affinity {affinity}</Chip>}
      </span>
    ),
  },
  {
    name: 'backends',
    number: true,
    by: ({ backends }) => backends.length,
    cell: ({ backends }) => (backends.length === 0 ? <Chip tone="bad">none</Chip> : backends.length),
  },
  { name: 'by cluster', className: 'spread', cell: ({ backends }) => <Spread backends={backends} /> },
];

/** Shows all services. */
export function Services({ parameters }: { parameters: URLSearchParams }): VNode {
  const filters = {
    namespace: parameters.get('namespace') ?? undefined,
    cluster: parameters.get('cluster') ?? undefined,
  };
  const { list, problem } = useList<ServiceDocument>('/v1/services', filters, useVersion('service'));
  const isFiltered = parameters.get('namespace') !== null || parameters.get('cluster') !== null;
  return (
    <>
      <Title side={<span class="soft">{list && counted(list.items.length, 'service')}</span>}>Services</Title>
      <search class="filters" aria-label="Filters of the services">
        <TextFilter
          name="namespace"
          label="namespace"
          value={parameters.get('namespace') ?? ''}
          example="shop"
        />
        <TextFilter
          name="cluster"
          label="backends in remote cluster"
          value={parameters.get('cluster') ?? ''}
          example="baltic"
        />
        {isFiltered && <a href={addressOf('services')}>Clear filters</a>}
      </search>
      {problem !== undefined && list !== undefined && <p class="problem">{problem}</p>}
      <div class="panel">
        {list === undefined ? (
          <Pending problem={problem} />
        ) : list.items.length === 0 ? (
          <Empty title={isFiltered ? 'No matching services.' : 'No services.'}>
            Services come from Kubernetes, from --manifests, and from global services of remote clusters.
          </Empty>
        ) : (
          <LongTable
            label="Table of services"
            columns={COLUMNS}
            rows={list.items}
            isCut={list.isCut}
            keyOf={({ namespace, name }) => `${namespace}/${name}`}
          />
        )}
      </div>
    </>
  );
}
