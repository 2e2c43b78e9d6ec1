import type { VNode } from 'preact';
import type { ServiceDocument } from '../../src/api/documents.ts';
import { useVersion } from '../agent/live.ts';
import { Choice, TextFilter } from '../parts/filters.tsx';
import { PrefixLink, ServiceLink } from '../parts/links.tsx';
import { Listing } from '../parts/listing.tsx';
import { Chip, Restored } from '../parts/marks.tsx';
import { BackendsBar, servicePortsText } from '../parts/service-parts.tsx';
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
          <div key={ip} class="nowrap">
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
  { name: 'by cluster', className: 'spread', cell: ({ backends }) => <BackendsBar backends={backends} /> },
];

/** Shows all services. */
export function Services({ parameters }: { parameters: URLSearchParams }): VNode {
  return (
    <Listing
      view="services"
      one="service"
      parameters={parameters}
      filters={['namespace', 'cluster', 'served']}
      version={useVersion('service')}
      columns={COLUMNS}
      keyOf={({ namespace, name }) => `${namespace}/${name}`}
      hint="Services come from Kubernetes and --manifests; remote clusters add backends to global services."
    >
      <TextFilter name="namespace" label="namespace" example="shop" />
      <TextFilter name="cluster" label="backends in remote cluster" example="baltic" />
      <Choice
        name="served"
        label="served by"
        options={['nowhere', 'one-cluster']}
        text={(name) => (name === 'nowhere' ? 'no cluster' : 'one cluster')}
      />
    </Listing>
  );
}
