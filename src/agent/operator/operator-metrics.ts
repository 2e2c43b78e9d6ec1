import {
  countsByLabel,
  type Description,
  itemMetrics,
  statusMetrics,
} from '../../api/metrics/description.ts';
import type { Scrape } from '../../api/metrics/scrape.ts';
import type { OperatorDuties } from '../../operator/duties.ts';

/** The measured parts of an operator. They are read at each scrape. */
export interface MeasuredOperator {
  readonly clusterName: string;
  readonly duties: () => OperatorDuties;
  readonly isLeader: () => boolean;
}

export function operatorMetrics(operator: MeasuredOperator, scrape: Scrape): readonly Description[] {
  const duties = itemMetrics(
    'duty',
    scrape.once(() => operator.duties().all.map((duty) => duty.status())),
  );
  return [
    duties.gauge(
      'dpcache_operator_duty_running',
      '1 if a duty is running, else 0.',
      ({ state }) => state === 'running',
    ),
    duties.counter('dpcache_operator_failures_total', 'Failures of a duty.', 'failures'),
    duties.gauge(
      'dpcache_operator_keys',
      'Keys that a duty publishes in the kvstore.',
      ({ published }) => published?.keys,
    ),
    duties.gauge(
      'dpcache_operator_pending_keys',
      'Keys of a duty that are not yet written to the kvstore.',
      ({ published }) => published?.pending,
    ),
    duties.counter(
      'dpcache_operator_writes_total',
      'Keys written by a duty.',
      ({ published }) => published?.writes,
    ),
    duties.gauge(
      'dpcache_operator_marked',
      'Marked objects, which a later round of a duty deletes if they are still unused.',
      ({ rounds }) => rounds?.marked,
    ),
    duties.counter(
      'dpcache_operator_deleted_total',
      'Objects deleted by a duty.',
      ({ rounds }) => rounds?.deleted,
    ),
    duties.counter(
      'dpcache_operator_conflicts_total',
      'Deletes of a duty that failed because another writer had changed the object.',
      ({ rounds }) => rounds?.conflicts,
    ),
    countsByLabel(
      'gauge',
      'dpcache_operator_namespaces',
      'Namespaces whose objects are published to the mesh (global="true"), and the others.',
      'global',
      () => {
        const counts = operator.duties().namespaces?.counts();
        return counts && { true: counts.global, false: counts.known - counts.global };
      },
    ),
    ...mcsMetrics(operator, scrape),
    statusMetrics(() => operator).gauge(
      'dpcache_operator_leader',
      '1 if this operator runs the duties: it holds the Lease or runs without leader election; else 0.',
      ({ isLeader }) => isLeader(),
    ),
  ];
}

/** Returns the metrics of the multi-cluster services API, without samples if it is off. */
function mcsMetrics({ clusterName, duties }: MeasuredOperator, scrape: Scrape): readonly Description[] {
  const counts = scrape.once(() => duties().mcs?.counts());
  const mcs = statusMetrics(counts);
  return [
    countsByLabel(
      'gauge',
      'dpcache_operator_mcs_exports',
      'Services that a cluster exports with ServiceExports.',
      'cluster',
      () => {
        const current = counts();
        return current && { [clusterName]: current.exports, ...current.remoteExports };
      },
    ),
    mcs.gauge('dpcache_operator_mcs_imports', 'ServiceImports.', 'imports'),
    countsByLabel(
      'gauge',
      'dpcache_operator_mcs_conflicts',
      'Services that clusters export differently.',
      'reason',
      () => counts()?.conflicts,
    ),
    mcs.gauge(
      'dpcache_operator_mcs_held_imports',
      'ServiceImports that are not changed, because a cluster that exports the service is incomplete.',
      'held',
    ),
  ];
}
