import type { VNode } from 'preact';
import { addressOf } from '../address.ts';
import { countText } from '../format.ts';
import { ClusterLink, ServiceLink } from './links.tsx';
import { Chip } from './marks.tsx';

/** A service and the number of its backends in each cluster. */
export interface MatrixRow {
  readonly name: string;
  readonly global: boolean;
  readonly counts: Readonly<Record<string, number>>;
}

/** A table of clusters and services with the number of backends, and a bar of each service. */
export function Matrix({
  clusters,
  rows,
  own,
}: {
  clusters: readonly string[];
  rows: readonly MatrixRow[];
  own: string;
}): VNode {
  return (
    <section class="scroll matrix" tabIndex={0} aria-label="Backends by service and cluster">
      <table>
        <thead>
          <tr>
            <th scope="col">service</th>
            {clusters.map((name) => (
              <th scope="col" class="number" key={name}>
                <ClusterLink name={name} />
              </th>
            ))}
            <th scope="col">spread</th>
            <th scope="col">
              <span class="hidden">remark</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.name} row={row} clusters={clusters} own={own} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Row({
  row: { name, global, counts },
  clusters,
  own,
}: {
  row: MatrixRow;
  clusters: readonly string[];
  own: string;
}): VNode {
  const serving = clusters.filter((cluster) => (counts[cluster] ?? 0) > 0);
  const total = serving.reduce((sum, cluster) => sum + (counts[cluster] ?? 0), 0);
  return (
    <tr>
      <th scope="row" class="nowrap">
        <ServiceLink name={name} />
      </th>
      {clusters.map((cluster) => {
        const count = counts[cluster] ?? 0;
        return (
          <td class="number" key={cluster}>
            {count === 0 ? <span class="faint">–</span> : countText(count)}
          </td>
        );
      })}
      <td class="spread">
        <div class="bars" aria-hidden="true">
          {serving.map((cluster) => (
            <i
              key={cluster}
              class={cluster === own ? 'local' : undefined}
              style={{ flexGrow: counts[cluster] ?? 0 }}
            />
          ))}
        </div>
      </td>
      <td class="nowrap">
        {total === 0 ? (
          <Chip tone="bad">no backends</Chip>
        ) : global && serving.length === 1 && clusters.length > 1 ? (
          <Chip tone="warn" title="If this cluster fails, no backend is left.">
            only {serving[0]}
          </Chip>
        ) : !global ? (
          <span class="faint">not global</span>
        ) : null}
      </td>
    </tr>
  );
}

/** Rows that the overview shows. */
export const MATRIX_ROWS = 12;

/** A link to the list of all services. */
export function AllServices({ count }: { count: number }): VNode {
  return <a href={addressOf('services')}>All {countText(count)} services</a>;
}
