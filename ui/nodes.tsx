import type { VNode } from 'preact';
import type { NodeDocument } from '../src/api/documents.ts';
import { addressOf } from './address.ts';
import { useAnswer, withQuery } from './ask.ts';
import { Empty, Restored, Section, Table } from './parts.tsx';

/** Returns all addresses of a node: those of its interfaces, for health checks and for ingress. */
function addressesOf(node: NodeDocument): readonly { readonly type: string; readonly ip: string }[] {
  const { ipv4HealthIP, ipv6HealthIP, ipv4IngressIP, ipv6IngressIP } = node;
  const more = Object.entries({
    health: [ipv4HealthIP, ipv6HealthIP],
    ingress: [ipv4IngressIP, ipv6IngressIP],
  });
  return [
    ...node.addresses,
    ...more.flatMap(([type, ips]) => ips.flatMap((ip) => (ip === undefined ? [] : { type, ip }))),
  ];
}

/** Returns the pod CIDRs of a node, the primary ones first. */
function podCIDRs(node: NodeDocument): readonly string[] {
  const { ipv4SecondaryAllocCIDRs = [], ipv6SecondaryAllocCIDRs = [] } = node;
  const all = [
    node.ipv4AllocCIDR,
    node.ipv6AllocCIDR,
    ...ipv4SecondaryAllocCIDRs,
    ...ipv6SecondaryAllocCIDRs,
  ];
  return all.filter((cidr) => cidr !== undefined);
}

/** Shows the nodes with their addresses. */
export function Nodes({ parameters, version }: { parameters: URLSearchParams; version: string }): VNode {
  const cluster = parameters.get('cluster') ?? '';
  const path = withQuery('/v1/nodes', { cluster, limit: '1000' });
  const { document, problem } = useAnswer<{ items: readonly NodeDocument[]; continue?: string }>(
    path,
    version,
  );
  if (document === undefined) return <Empty problem={problem} />;
  return (
    <Section title={cluster === '' ? 'Nodes' : `Nodes of ${cluster}`}>
      {cluster !== '' && <a href={addressOf('nodes')}>Nodes of all clusters</a>}
      {document.items.length === 0 && <Empty>No nodes.</Empty>}
      <Table
        label="Table of nodes"
        head={['node', 'source', 'addresses', 'pods', 'key', 'WireGuard key', 'boot id']}
      >
        {document.items.map((node) => (
          <tr key={`${node.cluster}/${node.name}`}>
            <th scope="row">
              {node.cluster}/{node.name}
            </th>
            <td>{node.restored === undefined ? node.source : <Restored restored={node.restored} />}</td>
            <td>
              {addressesOf(node).map(({ type, ip }) => (
                <div key={`${type} ${ip}`}>
                  <a href={addressOf('prefixes', { ip })}>{ip}</a> <span class="faint">{type}</span>
                </div>
              ))}
            </td>
            <td>
              {podCIDRs(node).map((cidr) => (
                <div key={cidr}>
                  <a href={addressOf('prefixes', { within: cidr })}>{cidr}</a>
                </div>
              ))}
            </td>
            <td class="number">{node.encryptionKey === 0 ? '–' : node.encryptionKey}</td>
            <td>{node.wireguardPubKey ?? '–'}</td>
            <td>{node.bootID ?? '–'}</td>
          </tr>
        ))}
      </Table>
      {document.continue !== undefined && <p class="faint">The first 1,000 nodes; all: dpcache node list.</p>}
    </Section>
  );
}
