import type { VNode } from 'preact';
import type { EntryDocument } from '../../src/api/documents.ts';
import type { ExplainedNodeDocument } from '../../src/api/schemas.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useMoment, useVersion } from '../agent/live.ts';
import { Changes } from '../parts/changes.tsx';
import { ClusterLink, IdentityLink, PodLink, PrefixLink } from '../parts/links.tsx';
import { Chip, Mark, Restored } from '../parts/marks.tsx';
import { Certainty } from '../parts/moment.tsx';
import { addressesOf, podCIDRs } from '../parts/node-parts.tsx';
import { Empty, Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { WhatIfItLeft } from '../parts/what-if.tsx';

const PODS = 500;

const COLUMNS: readonly Column<EntryDocument>[] = [
  { name: 'prefix', by: ({ prefix }) => prefix, cell: ({ prefix }) => <PrefixLink prefix={prefix} /> },
  {
    name: 'pod',
    by: ({ podName = '' }) => podName,
    cell: ({ namespace = '', podName }) =>
      podName === undefined ? <span class="faint">–</span> : <PodLink namespace={namespace} pod={podName} />,
  },
  {
    name: 'identity',
    by: ({ identity }) => identity,
    cell: ({ identity, labels }) => <IdentityLink identity={identity} labels={labels} />,
  },
];

/** The prefixes whose host is a node. */
function Pods({ hostIP }: { hostIP: string }): VNode {
  const version = useVersion('ip');
  const { document, problem } = useAnswer<{ items: readonly EntryDocument[]; continue?: string }>(
    withQuery('/v1/ipcache', { node: hostIP, limit: String(PODS) }),
    version,
  );
  return (
    <Panel
      title="Pods and prefixes"
      flush
      side={
        <a href={addressOf('prefixes', '', { node: hostIP })}>
          {document?.continue === undefined ? 'Open as a list' : `The first ${PODS}: open all`}
        </a>
      }
    >
      {document === undefined ? (
        <Pending problem={problem} />
      ) : document.items.length === 0 ? (
        <Empty title="No prefix is on this node." />
      ) : (
        <Table
          label="Table of prefixes on the node"
          columns={COLUMNS}
          rows={document.items}
          keyOf={({ prefix }) => prefix}
        />
      )}
    </Panel>
  );
}

/** Shows one node: its addresses, the claims of its sources, and its pods. */
export function Node({ name }: { name: string }): VNode {
  const at = useMoment();
  const path = name.split('/').map(encodeURIComponent).join('/');
  const { document, problem } = useAnswer<ExplainedNodeDocument>(
    withQuery(`/v1/nodes/${path}`, { at }),
    useVersion('node'),
  );
  const host = document?.addresses.find(({ type }) => type === 'InternalIP')?.ip;
  return (
    <>
      <Title kind="node" side={<Restored restored={document?.restored} />}>
        {name}
      </Title>
      <Certainty past={document?.past} />
      {document === undefined ? (
        <Pending problem={problem} />
      ) : (
        <div class="grid">
          <Panel title="Addresses and routes" className="half">
            <Facts
              of={[
                ['cluster', <ClusterLink key="cluster" name={document.cluster} />],
                ...addressesOf(document).map(({ type, ip }): [string, VNode] => [
                  type,
                  <PrefixLink key={ip} prefix={ip} />,
                ]),
                [
                  'pod CIDRs',
                  podCIDRs(document).map((cidr) => (
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
          <Panel title="Properties" className="half">
            <Facts
              of={[
                [
                  'sources',
                  <span class="chips" key="sources">
                    {document.explain.claims.map(({ source }, place) => (
                      <Chip key={source} tone={place === 0 ? 'accent' : ''}>
                        {source}
                        {place > 0 && ', overruled'}
                      </Chip>
                    ))}
                  </span>,
                ],
                ['encryption key', document.encryptionKey !== 0 && String(document.encryptionKey)],
                [
                  'WireGuard key',
                  document.wireguardPubKey && <code key="key">{document.wireguardPubKey}</code>,
                ],
                ['boot id', document.bootID && <code key="boot">{document.bootID}</code>],
                [
                  'handlers',
                  document.explain.heldBack ? (
                    <Mark key="held" tone="warn">
                      held back: another node has the same address
                    </Mark>
                  ) : (
                    'notified'
                  ),
                ],
                [
                  'lost addresses',
                  document.explain.lostAddresses.length > 0 &&
                    document.explain.lostAddresses.map(({ ip, holder }) => (
                      <div key={ip}>
                        <PrefixLink prefix={ip} />{' '}
                        <span class="faint">
                          belongs to {holder === undefined ? 'nobody' : `${holder.source} ${holder.owner}`}
                        </span>
                      </div>
                    )),
                ],
                [
                  'labels',
                  Object.keys(document.labels).length > 0 && (
                    <span class="chips">
                      {Object.entries(document.labels).map(([key, value]) => (
                        <Chip key={key}>{value === '' ? key : `${key}=${value}`}</Chip>
                      ))}
                    </span>
                  ),
                ],
              ]}
            />
          </Panel>
          {host !== undefined && <Pods hostIP={host} />}
          <WhatIfItLeft key={name} node={name} />
        </div>
      )}
      <Changes of={name} type="node" />
    </>
  );
}
