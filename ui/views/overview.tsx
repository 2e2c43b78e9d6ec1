import type { VNode } from 'preact';
import type { ConflictsDocument } from '../../src/api/conflicts.ts';
import type { ServiceDocument } from '../../src/api/documents.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { addressOf } from '../address.ts';
import { useAnswer } from '../agent/ask.ts';
import { isAgent, useShared, useTick, useVersion } from '../agent/live.ts';
import { counted, countText, timeText } from '../format.ts';
import { Health } from '../parts/health.tsx';
import { AllServices, MATRIX_ROWS, Matrix, type MatrixRow } from '../parts/matrix.tsx';
import { MeshMap } from '../parts/mesh-map.tsx';
import { Empty, Panel, Pending, Title } from '../parts/panel.tsx';
import { Reflectors } from './kubernetes.tsx';
import { Charts } from './overview-charts.tsx';
import { Process } from './process.tsx';

function Figures({ status, conflicts }: { status: StatusDocument; conflicts: number }): VNode {
  const figures: readonly (readonly [name: string, count: number, href: string, isBad?: boolean])[] = [
    ['prefixes', status.ipcache.prefixes, addressOf('prefixes')],
    ['services', status.services.announced, addressOf('services')],
    ['backends', status.services.backends, addressOf('services')],
    ['nodes', status.nodes.nodes, addressOf('nodes')],
    ['clusters', status.clusters.length, addressOf('clusters')],
    ['overruled claims', status.ipcache.overruled, addressOf('prefixes')],
    ['conflicts', conflicts, addressOf('overview'), conflicts > 0],
    ['rejected', status.rejected.total, addressOf('overview'), status.rejected.total > 0],
  ];
  return (
    <nav class="figures" aria-label="Counts">
      {figures.map(([name, count, href, isBad]) => (
        <a key={name} href={href}>
          <strong class={isBad === true ? 'warn' : undefined}>{countText(count)}</strong>
          <span>{name}</span>
        </a>
      ))}
    </nav>
  );
}

function rowsOf(services: readonly ServiceDocument[], own: string): readonly MatrixRow[] {
  return services.map(({ namespace, name, global, backends }) => {
    const counts: Record<string, number> = {};
    for (const { cluster = own } of backends) counts[cluster] = (counts[cluster] ?? 0) + 1;
    return { name: `${namespace}/${name}`, global, counts };
  });
}

function Rejections({ rejected }: { rejected: StatusDocument['rejected'] }): VNode {
  return (
    <Panel
      title="Last rejected"
      className="half"
      side={<span class="soft">{counted(rejected.total, 'item')}</span>}
    >
      {rejected.total === 0 ? (
        <Empty title="Nothing was rejected." />
      ) : (
        <ul class="lines">
          {[...rejected.recent].reverse().map((text, at) => (
            <li key={`${at}${text}`}>{text}</li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Conflicts({ conflicts }: { conflicts: ConflictsDocument | undefined }): VNode {
  const total = conflicts === undefined ? 0 : Object.values(conflicts.counts).reduce((a, b) => a + b, 0);
  return (
    <Panel
      title="Conflicts between clusters"
      className="half"
      side={<span class="soft">{counted(total, 'conflict')}</span>}
    >
      {conflicts === undefined ? (
        <Pending problem={undefined} />
      ) : total === 0 ? (
        <Empty title="No two clusters claim the same prefix, pod CIDR or cluster id." />
      ) : (
        <ul class="lines">
          {conflicts.items.slice(0, 8).map(({ kind, subject, sides }) => (
            <li key={`${kind} ${subject}`}>
              <a class="mono" href={kind === 'cluster-id' ? addressOf('clusters') : addressOf('ip', subject)}>
                {subject}
              </a>{' '}
              <span class="faint">{kind}</span>{' '}
              {sides.map(({ cluster, claim }) => `${cluster}: ${claim}`).join('; ')}
            </li>
          ))}
          {total > 8 && <li class="faint">and {countText(total - 8)} more: dpcache conflicts</li>}
        </ul>
      )}
    </Panel>
  );
}

function Agent({ status }: { status: StatusDocument }): VNode {
  const tick = useTick(10_000);
  const services = useAnswer<{ items: readonly ServiceDocument[] }>(
    '/v1/services?limit=12',
    useVersion('service'),
  );
  const { document: conflicts } = useAnswer<ConflictsDocument>('/v1/conflicts', tick);
  const total = conflicts === undefined ? 0 : Object.values(conflicts.counts).reduce((a, b) => a + b, 0);
  const clusters = status.clusters.map(({ name }) => name);
  return (
    <>
      <Figures status={status} conflicts={total} />
      <div class="grid">
        {status.kubernetes !== undefined && status.clusters.length < 2 ? (
          <Panel title="Kubernetes" className="wide" flush>
            <Reflectors kinds={status.kubernetes.kinds} />
          </Panel>
        ) : (
          <Panel title="Mesh" className="wide centered">
            <MeshMap clusters={status.clusters} kinds={status.kubernetes?.kinds} />
          </Panel>
        )}
        <Panel
          title="Backends by cluster"
          className="narrow"
          flush
          side={
            <>
              <span class="spacer" />
              {status.services.announced > MATRIX_ROWS && <AllServices count={status.services.announced} />}
            </>
          }
        >
          {services.document === undefined ? (
            <Pending problem={services.problem} />
          ) : services.document.items.length === 0 ? (
            <Empty title="No services.">Global services of remote clusters appear here.</Empty>
          ) : (
            <Matrix
              clusters={clusters.slice(0, 8)}
              rows={rowsOf(services.document.items, status.cluster)}
              own={status.cluster}
            />
          )}
        </Panel>
        <Charts />
        <Rejections rejected={status.rejected} />
        <Conflicts conflicts={conflicts} />
      </div>
      <p class="faint">
        {status.cluster}, id {status.clusterID}, kvstore {status.kvstore}
        {status.syncedMs !== undefined && `, initial sync in ${durationText(status.syncedMs)}`}
        {status.history?.heldFrom !== undefined &&
          `, changes are held from ${timeText(status.history.heldFrom)}`}
      </p>
    </>
  );
}

/** Shows the health, the counts and the mesh of an agent, or the status of a process without engines. */
export function Overview(): VNode {
  const { document, problem } = useShared().status;
  return (
    <>
      <div class="hidden">
        <Title>Overview</Title>
      </div>
      <Health />
      {document === undefined ? (
        <div class="panel">
          <Pending problem={problem} />
        </div>
      ) : isAgent(document) ? (
        <Agent status={document} />
      ) : (
        <Process status={document} />
      )}
    </>
  );
}
