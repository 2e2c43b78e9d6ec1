import type { VNode } from 'preact';
import type { ExplainedNodeDocument } from '../../src/api/documents.ts';
import { namePath } from '../../src/api/name-path.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useMoment, useVersion } from '../agent/live.ts';
import { Card } from '../parts/card.tsx';
import { ClusterLink, PrefixLink } from '../parts/links.tsx';
import { Chip, Mark } from '../parts/marks.tsx';
import { nodeIPs, podCIDRs } from '../parts/node-parts.tsx';
import { Facts, Panel } from '../parts/panel.tsx';
import { PrefixPanel } from '../parts/prefix-panel.tsx';
import { WhatIfItLeft } from '../parts/what-if.tsx';

/** The addresses and pod CIDRs of a node. `host`: the next hop of its pod CIDRs. */
function Addresses({ node, host }: { node: ExplainedNodeDocument; host: string | undefined }): VNode {
  return (
    <Panel title="Addresses and routes" className="half">
      <Facts
        of={[
          ['cluster', <ClusterLink key="cluster" name={node.cluster} />],
          ...nodeIPs(node).map(({ type, ip }): [string, VNode] => [
            type,
            <PrefixLink key={ip} prefix={ip} />,
          ]),
          [
            'pod CIDRs',
            podCIDRs(node).map((cidr) => (
              <div key={cidr}>
                <a class="mono" href={addressOf('prefixes', '', { within: cidr })}>
                  {cidr}
                </a>
                {host !== undefined && <span class="faint"> via {host}</span>}
              </div>
            )),
          ],
        ]}
      />
    </Panel>
  );
}

/** The sources of a node, its keys, its state for handlers, and its labels. */
function Properties({ node }: { node: ExplainedNodeDocument }): VNode {
  return (
    <Panel title="Properties" className="half">
      <Facts
        of={[
          [
            'sources',
            <span class="chips" key="sources">
              {node.explain.claims.map(({ source }, place) => (
                <Chip key={source} tone={place === 0 ? 'accent' : ''}>
                  {source}
                  {place > 0 && ', overruled'}
                </Chip>
              ))}
            </span>,
          ],
          ['encryption key', node.encryptionKey !== 0 && String(node.encryptionKey)],
          ['WireGuard key', node.wireguardPubKey && <code key="key">{node.wireguardPubKey}</code>],
          ['boot id', node.bootID && <code key="boot">{node.bootID}</code>],
          [
            'handlers',
            node.explain.heldBack ? (
              <Mark key="held" tone="warn">
                not notified: a stronger source claims an address
              </Mark>
            ) : (
              'notified'
            ),
          ],
          [
            'lost addresses',
            node.explain.lostAddresses.length > 0 &&
              node.explain.lostAddresses.map(({ ip, holder }) => (
                <div key={ip}>
                  <PrefixLink prefix={ip} />{' '}
                  <span class="faint">
                    {holder === undefined
                      ? 'not claimed: the IPCache is full'
                      : `claimed by ${holder.source} ${holder.owner}`}
                  </span>
                </div>
              )),
          ],
          [
            'labels',
            Object.keys(node.labels).length > 0 && (
              <span class="chips">
                {Object.entries(node.labels).map(([key, value]) => (
                  <Chip key={key}>{value === '' ? key : `${key}=${value}`}</Chip>
                ))}
              </span>
            ),
          ],
        ]}
      />
    </Panel>
  );
}

/** Shows one node: its addresses, the claims of its sources, and its pods. */
export function Node({ name }: { name: string }): VNode {
  const at = useMoment();
  const answer = useAnswer<ExplainedNodeDocument>(
    withQuery(`/v1/nodes/${namePath(name)}`, { at }),
    useVersion('node'),
  );
  const host = answer.document?.addresses.find(({ type }) => type === 'InternalIP')?.ip;
  return (
    <Card kind="node" name={name} answer={answer}>
      {(document) => (
        <>
          <Addresses node={document} host={host} />
          <Properties node={document} />
          {host !== undefined && (
            <PrefixPanel
              title="Pods and prefixes"
              filter="node"
              value={host}
              at={at}
              empty="No prefix is on this node."
            />
          )}
          <WhatIfItLeft key={name} node={name} />
        </>
      )}
    </Card>
  );
}
