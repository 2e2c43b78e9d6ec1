import type { VNode } from 'preact';
import { compareNames, countText } from '../format.ts';
import { ClusterLink, ServiceLink } from './links.tsx';
import { Chip } from './marks.tsx';
import { NONE } from './table.tsx';

/** A service and the number of its backends in each cluster. */
export interface MatrixRow {
  readonly name: string;
  readonly global: boolean;
  /** By cluster, the local one first; clusters without backends are absent. */
  readonly counts: ReadonlyMap<string, number>;
}

/** Maximum number of columns of clusters. The other clusters share one column. */
const MAX_COLUMNS = 8;

/**
 * Returns the clusters with columns: all clusters of a small mesh; otherwise the local one and those with backends in
 * the most rows.
 */
function columnsOf(
  clusters: readonly string[],
  rows: readonly MatrixRow[],
  local: string,
): readonly string[] {
  if (clusters.length <= MAX_COLUMNS) return clusters;
  const served = new Map<string, number>();
  for (const { counts } of rows)
    for (const name of counts.keys()) served.set(name, (served.get(name) ?? 0) + 1);
  served.delete(local);
  const byServices = [...served].sort(
    ([nameA, servedA], [nameB, servedB]) => servedB - servedA || compareNames(nameA, nameB),
  );
  return [local, ...byServices.map(([name]) => name)].slice(0, MAX_COLUMNS);
}

/** A table of clusters and services with the number of backends, and a bar of each service. */
export function Matrix({
  clusters,
  rows,
  local,
}: {
  clusters: readonly string[];
  rows: readonly MatrixRow[];
  local: string;
}): VNode {
  const columns = columnsOf(clusters, rows, local);
  const hasOthers = rows.some(({ counts }) => [...counts.keys()].some((name) => !columns.includes(name)));
  return (
    <section class="scroll matrix" tabIndex={0} aria-label="Backends by service and cluster">
      <table>
        <thead>
          <tr>
            <th scope="col">service</th>
            <th scope="col">distribution</th>
            {columns.map((name) => (
              <th scope="col" class="number" key={name}>
                <ClusterLink name={name} />
              </th>
            ))}
            {hasOthers && (
              <th scope="col" class="number">
                others
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row
              key={row.name}
              row={row}
              columns={columns}
              hasOthers={hasOthers}
              local={local}
              isMesh={clusters.length > 1}
            />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Cell({ count }: { count: number }): VNode {
  return <td class="number">{count === 0 ? NONE : countText(count)}</td>;
}

function Row({
  row: { name, global, counts },
  columns,
  hasOthers,
  local,
  isMesh,
}: {
  row: MatrixRow;
  columns: readonly string[];
  hasOthers: boolean;
  local: string;
  isMesh: boolean;
}): VNode {
  const serving = [...counts];
  const others = serving.reduce((sum, [cluster, count]) => sum + (columns.includes(cluster) ? 0 : count), 0);
  return (
    <tr>
      <th scope="row" class="nowrap">
        <ServiceLink name={name} />
      </th>
      <td class="spread">
        {serving.length === 0 ? (
          <Chip tone="bad">no backends</Chip>
        ) : isMesh && global && serving.length === 1 ? (
          <Chip tone="warn" title="If this cluster fails, the service has no backends.">
            only {serving[0]?.[0]}
          </Chip>
        ) : !global ? (
          <span class="faint">not global</span>
        ) : (
          <div class="bars" aria-hidden="true">
            {serving.map(([cluster, count]) => (
              <i key={cluster} class={cluster === local ? 'local' : undefined} style={{ flexGrow: count }} />
            ))}
          </div>
        )}
      </td>
      {columns.map((cluster) => (
        <Cell key={cluster} count={counts.get(cluster) ?? 0} />
      ))}
      {hasOthers && <Cell count={others} />}
    </tr>
  );
}
