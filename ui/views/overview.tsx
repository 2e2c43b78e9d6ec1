import type { VNode } from 'preact';
import type { ConflictsDocument } from '../../src/api/conflicts.ts';
import type { ServiceDocument } from '../../src/api/documents.ts';
import type { StatusDocument } from '../../src/api/status-document.ts';
import { durationText } from '../../src/base/show-value.ts';
import { addressOf } from '../address.ts';
import { type Answered, useAnswer, withQuery } from '../agent/ask.ts';
import { aheadOfBrowser } from '../agent/clock.ts';
import { isAgent, useShared, useTick, useVersion } from '../agent/live.ts';
import { counted, countText, timeText } from '../format.ts';
import { Health } from '../parts/health.tsx';
import { Matrix, type MatrixRow } from '../parts/matrix.tsx';
import { MeshMap } from '../parts/mesh-map.tsx';
import { Empty, Panel, Pending, showPanel, Title } from '../parts/panel.tsx';
import { countByCluster } from '../parts/service-parts.tsx';
import { Reflectors } from './kubernetes.tsx';
import { Charts } from './overview-charts.tsx';
import { Process } from './process.tsx';

/** Titles of panels. The counts at the top are links to them. */
const CONFLICTS = 'Conflicts between clusters';
const REJECTED = 'Last rejected';

/** The counts at the top of the overview, each with a link to the counted objects. */
function Figures({ status, conflicts }: { status: StatusDocument; conflicts: number }): VNode {
  const figures: readonly (readonly [
    name: string,
    count: number,
    href: string | undefined,
    panel?: string,
  ])[] = [
    ['prefixes', status.ipcache.prefixes, addressOf('prefixes')],
    ['services', status.services.announced, addressOf('services')],
    ['backends', status.services.backends, addressOf('services')],
    ['nodes', status.nodes.nodes, addressOf('nodes')],
    ['clusters', status.clusters.length, addressOf('clusters')],
    ['overruled claims', status.ipcache.overruled, undefined],
    ['conflicts', conflicts, addressOf('overview'), CONFLICTS],
    ['rejected', status.rejected.total, addressOf('overview'), REJECTED],
  ];
  return (
    <nav class="figures" aria-label="Counts">
      {figures.map(([name, count, href, panel]) => (
        <a
          key={name}
          href={href}
          onClick={(event) => {
            if (panel === undefined) return;
            event.preventDefault();
            showPanel(panel);
          }}
        >
          <strong class={panel !== undefined && count > 0 ? 'warn' : undefined}>{countText(count)}</strong>
          <span>{name}</span>
        </a>
      ))}
    </nav>
  );
}

/** Number of rows of the matrix. */
const MATRIX_ROWS = 12;

interface Services {
  readonly items: readonly ServiceDocument[];
}

function rowOf({ namespace, name, global, backends }: ServiceDocument, local: string): MatrixRow {
  return { name: `${namespace}/${name}`, global, counts: new Map(countByCluster(backends, local)) };
}

/**
 * The rows of the matrix: first services without backends, then those that only one cluster serves, then the others.
 */
function useMatrixRows(local: string, isMesh: boolean): Answered<readonly MatrixRow[]> {
  const version = useVersion('service');
  const path = (served?: string): string => withQuery('/v1/services', { served, limit: String(MATRIX_ROWS) });
  const unserved = useAnswer<Services>(path('nowhere'), version);
  const servedByOne = useAnswer<Services>(isMesh ? path('one-cluster') : undefined, version);
  const all = useAnswer<Services>(path(), version);
  const { document, problem } = all;
  if (document === undefined) return problem === undefined ? {} : { problem };
  const services = [unserved, servedByOne, all].flatMap(({ document }) => document?.items ?? []);
  // A service of several lists is shown once, in the place of the first.
  const rows = new Map(services.map((service) => rowOf(service, local)).map((row) => [row.name, row]));
  return { document: [...rows.values()].slice(0, MATRIX_ROWS) };
}

function Rejections({ rejected }: { rejected: StatusDocument['rejected'] }): VNode {
  return (
    <Panel
      title={REJECTED}
      className="half"
      side={
        <span class="soft">
          {counted(rejected.total, 'item')}
          {rejected.lastAt !== undefined && `, the last at ${timeText(rejected.lastAt)}`}
        </span>
      }
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

const MAX_CONFLICTS = 8;

function Conflicts({ conflicts, total }: { conflicts: ConflictsDocument | undefined; total: number }): VNode {
  return (
    <Panel title={CONFLICTS} className="half" side={<span class="soft">{counted(total, 'conflict')}</span>}>
      {conflicts === undefined ? (
        <Pending problem={undefined} />
      ) : total === 0 ? (
        <Empty title="No two clusters claim the same prefix, pod CIDR or cluster id." />
      ) : (
        <ul class="lines">
          {conflicts.items.slice(0, MAX_CONFLICTS).map(({ kind, subject, sides }) => (
            <li key={`${kind} ${subject} ${sides.map(({ cluster }) => cluster)}`}>
              <a class="mono" href={kind === 'cluster-id' ? addressOf('clusters') : addressOf('ip', subject)}>
                {subject}
              </a>{' '}
              <span class="faint">{kind}</span>{' '}
              {sides.map(({ cluster, claim }) => `${cluster}: ${claim}`).join('; ')}
            </li>
          ))}
          {total > MAX_CONFLICTS && (
            <li class="faint">
              and {countText(total - MAX_CONFLICTS)} more: run <code>dpcache clustermesh conflicts</code>
            </li>
          )}
        </ul>
      )}
    </Panel>
  );
}

function Agent({ status }: { status: StatusDocument }): VNode {
  const tick = useTick(10_000);
  const services = useMatrixRows(status.cluster, status.clusters.length > 1);
  const { document: conflicts } = useAnswer<ConflictsDocument>('/v1/conflicts', tick);
  const total = conflicts === undefined ? 0 : Object.values(conflicts.counts).reduce((a, b) => a + b, 0);
  const clusters = status.clusters.map(({ name }) => name);
  const ahead = aheadOfBrowser();
  return (
    <>
      <Figures status={status} conflicts={total} />
      <div class="grid">
        {status.kubernetes !== undefined && status.clusters.length < 2 ? (
          <Panel title="Kubernetes" className="wide" flush>
            <Reflectors kinds={status.kubernetes.kinds} isShort />
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
              {status.services.announced > MATRIX_ROWS && (
                <a href={addressOf('services')}>All {countText(status.services.announced)} services</a>
              )}
            </>
          }
        >
          {services.document === undefined ? (
            <Pending problem={services.problem} />
          ) : services.document.length === 0 ? (
            <Empty title="No services.">Services come from Kubernetes and --manifests.</Empty>
          ) : (
            <Matrix clusters={clusters} rows={services.document} local={status.cluster} />
          )}
        </Panel>
        <Charts />
        <Rejections rejected={status.rejected} />
        <Conflicts conflicts={conflicts} total={total} />
      </div>
      <p class="faint">
        {status.cluster}, id {status.clusterID}, kvstore {status.kvstore}
        {status.syncedMs !== undefined && `, initial sync in ${durationText(status.syncedMs)}`}
        {status.history?.retainedFrom !== undefined &&
          `, history from ${timeText(status.history.retainedFrom)}`}
        {ahead !== 0 &&
          `, its clock is ${durationText(Math.abs(ahead))} ${ahead > 0 ? 'ahead of' : 'behind'} that of this browser`}
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
