import type { VNode } from 'preact';
import type { ServiceDocument } from '../src/api/documents.ts';
import type { ExplainedServiceDocument } from '../src/api/schemas.ts';
import { addressOf } from './address.ts';
import { useAnswer } from './ask.ts';
import { Empty, Mark, Restored, Section, Table } from './parts.tsx';

function portsText(ports: Readonly<Record<string, string>>): string {
  return Object.entries(ports)
    .map(([name, port]) => (name === '' ? port : `${name} ${port}`))
    .join(', ');
}

/** Returns the ports of a service, each with its node port if it has one. */
function servicePortsText({ ports, nodePorts = {} }: ServiceDocument): string {
  const entries = Object.entries(ports).map(([name, port]): [string, string] => {
    const nodePort = nodePorts[name];
    return [name, nodePort === undefined ? port : `${port} (node port ${nodePort})`];
  });
  return portsText(Object.fromEntries(entries));
}

/** The addresses of a service outside the cluster, each with its kind. */
function OutsideAddresses({ service }: { service: ServiceDocument }): VNode {
  const { loadBalancerIPs = [], externalIPs = [] } = service;
  const addresses = [
    ...loadBalancerIPs.map((ip) => ({ ip, kind: 'load balancer' })),
    ...externalIPs.map((ip) => ({ ip, kind: 'external IP' })),
  ];
  if (addresses.length === 0) return <>–</>;
  return (
    <>
      {addresses.map(({ ip, kind }) => (
        <div key={`${kind} ${ip}`}>
          {ip} <span class="faint">{kind}</span>
        </div>
      ))}
    </>
  );
}

/** Returns the number of backends of each cluster. */
function byCluster({ backends }: ServiceDocument): string {
  const counts = new Map<string, number>();
  for (const { cluster = 'local' } of backends) counts.set(cluster, (counts.get(cluster) ?? 0) + 1);
  return (
    [...counts]
      .sort()
      .map(([cluster, count]) => `${count} ${cluster}`)
      .join(', ') || 'none'
  );
}

function Details({ name, version }: { name: string; version: number }): VNode {
  const path = name.split('/').map(encodeURIComponent).join('/');
  const { document, problem } = useAnswer<ExplainedServiceDocument>(`/v1/services/${path}`, version);
  if (document === undefined) return <Empty problem={problem} />;
  return (
    <Section title={`Backends offered to ${name}`}>
      <Table label="Table of backends" head={['backend', 'cluster', 'slice', 'ports', 'state', 'verdict']}>
        {document.explain.backends.map(({ address, cluster, slice, ports, state, verdict }) => (
          <tr key={`${address} ${cluster ?? ''} ${slice}`}>
            <th scope="row">
              <a href={addressOf('prefixes', { ip: address })}>{address}</a>
            </th>
            <td>{cluster ?? 'local'}</td>
            <td>{slice || '–'}</td>
            <td>{portsText(ports)}</td>
            <td>{state}</td>
            <td>
              <Mark good={verdict === 'effective'}>{verdict}</Mark>
            </td>
          </tr>
        ))}
      </Table>
    </Section>
  );
}

/** Services, their backends by cluster, and of one who offers what. */
export function Services({
  parameters,
  version,
  second,
}: {
  parameters: URLSearchParams;
  version: string;
  second: number;
}): VNode {
  const { document, problem } = useAnswer<{ items: readonly ServiceDocument[]; continue?: string }>(
    '/v1/services?limit=1000',
    version,
  );
  const name = parameters.get('name');
  if (document === undefined) return <Empty problem={problem} />;
  return (
    <>
      {name !== null && <Details name={name} version={Math.floor(second / 2)} />}
      <Section title="Services">
        {document.items.length === 0 && <Empty>No services.</Empty>}
        <Table
          label="Table of services"
          head={['service', 'type', 'cluster IP', 'external addresses', 'ports', 'mesh', 'backends']}
        >
          {document.items.map((service) => (
            <tr key={`${service.namespace}/${service.name}`}>
              <th scope="row">
                <a href={addressOf('services', { name: `${service.namespace}/${service.name}` })}>
                  {service.namespace}/{service.name}
                </a>{' '}
                <Restored restored={service.restored} />
              </th>
              <td>{service.type}</td>
              <td>{service.clusterIPs.join(' ') || '–'}</td>
              <td>
                <OutsideAddresses service={service} />
              </td>
              <td>{servicePortsText(service)}</td>
              <td>
                {[service.global && 'global', service.shared && 'shared'].filter(Boolean).join(' ') || '–'}
              </td>
              <td>{byCluster(service)}</td>
            </tr>
          ))}
        </Table>
        {document.continue !== undefined && (
          <p class="faint">The first 1,000 services; all: dpcache service list.</p>
        )}
      </Section>
    </>
  );
}
