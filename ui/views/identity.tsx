import type { VNode } from 'preact';
import type { IdentityDocument } from '../../src/api/documents.ts';
import { useAnswer } from '../agent/ask.ts';
import { useVersion } from '../agent/live.ts';
import { counted } from '../format.ts';
import { ClusterLink, identityName, LabelLinks } from '../parts/links.tsx';
import { Restored } from '../parts/marks.tsx';
import { Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { PrefixPanel } from '../parts/prefix-panel.tsx';

/** Shows one identity: its labels and its prefixes. */
export function Identity({ name }: { name: string }): VNode {
  const { document, problem } = useAnswer<IdentityDocument>(
    `/v1/identities/${encodeURIComponent(name)}`,
    useVersion('ip'),
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
                    <LabelLinks key="labels" labels={document.labels} />
                  ),
                ],
              ]}
            />
          </Panel>
          <PrefixPanel
            title="Prefixes"
            filter="identity"
            value={name}
            className="two-thirds"
            side={counted(document.prefixes, 'prefix', 'prefixes')}
            empty="No prefix has this identity."
          />
        </div>
      )}
    </>
  );
}
