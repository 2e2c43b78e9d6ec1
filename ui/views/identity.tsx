import type { VNode } from 'preact';
import type { EntryDocument, IdentityDocument } from '../../src/api/documents.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useVersion } from '../agent/live.ts';
import { counted, countText } from '../format.ts';
import { ClusterLink, identityName, PodLink, PrefixLink } from '../parts/links.tsx';
import { Restored, SourceText } from '../parts/marks.tsx';
import { Empty, Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { type Column, Table } from '../parts/table.tsx';

const PREFIXES = 200;

const COLUMNS: readonly Column<EntryDocument>[] = [
  { name: 'prefix', by: ({ prefix }) => prefix, cell: ({ prefix }) => <PrefixLink prefix={prefix} /> },
  {
    name: 'pod',
    by: ({ podName = '' }) => podName,
    cell: ({ namespace = '', podName }) =>
      podName === undefined ? <span class="faint">–</span> : <PodLink namespace={namespace} pod={podName} />,
  },
  {
    name: 'host',
    by: ({ hostIP = '' }) => hostIP,
    cell: ({ hostIP }) =>
      hostIP === undefined ? <span class="faint">–</span> : <PrefixLink prefix={hostIP} />,
  },
  {
    name: 'source',
    by: ({ source, owner = '' }) => `${source} ${owner}`,
    cell: ({ source, owner }) => <SourceText source={source} owner={owner} />,
  },
];

/** Shows one identity: its labels, and the prefixes that have it. */
export function Identity({ name }: { name: string }): VNode {
  const version = useVersion('ip');
  const { document, problem } = useAnswer<IdentityDocument>(
    `/v1/identities/${encodeURIComponent(name)}`,
    version,
  );
  const prefixes = useAnswer<{ items: readonly EntryDocument[]; continue?: string }>(
    document === undefined
      ? undefined
      : withQuery('/v1/ipcache', { identity: name, limit: String(PREFIXES) }),
    version,
  );
  const title = document === undefined ? '' : identityName(document.identity, document.labels);
  return (
    <>
      <Title kind="identity" side={<span class="soft">{title}</span>}>
        {name}
      </Title>
      {document === undefined ? (
        <Pending problem={problem} />
      ) : (
        <div class="grid">
          <Panel title="Labels" className="third">
            <Facts
              of={[
                [
                  'cluster',
                  document.cluster === undefined ? (
                    'reserved'
                  ) : (
                    <ClusterLink key="cluster" name={document.cluster} />
                  ),
                ],
                ['restored', document.restored && <Restored key="restored" restored={document.restored} />],
                [
                  'labels',
                  document.labels.length === 0 ? (
                    'unknown'
                  ) : (
                    <span class="chips">
                      {document.labels.map((label) => (
                        <a key={label} class="chip" href={addressOf('prefixes', '', { label })}>
                          {label}
                        </a>
                      ))}
                    </span>
                  ),
                ],
              ]}
            />
          </Panel>
          <Panel
            title="Prefixes"
            className="two-thirds"
            flush
            side={
              <a href={addressOf('prefixes', '', { identity: name })}>
                {counted(document.prefixes, 'prefix', 'prefixes')}
                {prefixes.document?.continue !== undefined && `, the first ${countText(PREFIXES)} are listed`}
              </a>
            }
          >
            {prefixes.document === undefined ? (
              <Pending problem={prefixes.problem} />
            ) : prefixes.document.items.length === 0 ? (
              <Empty title="No prefix has this identity." />
            ) : (
              <Table
                label="Table of prefixes of the identity"
                columns={COLUMNS}
                rows={prefixes.document.items}
                keyOf={({ prefix }) => prefix}
              />
            )}
          </Panel>
        </div>
      )}
    </>
  );
}
