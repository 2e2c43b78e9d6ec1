import {
  countsMetric,
  itemMetrics,
  type Metrics,
  rejectionsMetric,
  statusMetrics,
} from '../../api/metrics/metric.ts';
import type { Scrape } from '../../api/metrics/scrape.ts';
import type { RejectionStatus } from '../../base/rejection.ts';
import type { OperatorDuties } from '../../operator/duties.ts';

/** The measured parts of an operator. They are read at each scrape. */
export interface MeasuredOperator {
  readonly clusterName: string;
  readonly duties: () => OperatorDuties;
  readonly isLeader: () => boolean;
  readonly rejections: () => Pick<RejectionStatus, 'byReason'>;
}

/** Returns the tables of the metrics of an operator. */
export function operatorMetrics(operator: MeasuredOperator, scrape: Scrape): readonly Metrics[] {
  const duties = itemMetrics(
    'duty',
    scrape.once(() => operator.duties().all.map((duty) => duty.status())),
  );
  const operatorTable: Metrics = {
    dpcache_rejections_total: rejectionsMetric(() => operator.rejections()),
    dpcache_operator_duty_running: duties.gauge(
      '1 if a duty is running, else 0; absent if it is off.',
      ({ state }) => (state === 'off' ? undefined : state === 'running'),
    ),
    dpcache_operator_failures_total: duties.counter('Failures of a duty.', 'failures'),
    dpcache_operator_keys: duties.gauge(
      'Keys that a duty publishes in the kvstore.',
      ({ published }) => published?.keys,
    ),
    dpcache_operator_pending_keys: duties.gauge(
      'Keys of a duty that are not yet written to the kvstore.',
      ({ published }) => published?.pending,
    ),
    dpcache_operator_writes_total: duties.counter(
      'Keys written by a duty.',
      ({ published }) => published?.writes,
    ),
    dpcache_operator_marked: duties.gauge(
      'Marked objects, which a later round of a duty deletes if they are still unused.',
      ({ rounds }) => rounds?.marked,
    ),
    dpcache_operator_deleted_total: duties.counter(
      'Objects deleted by a duty.',
      ({ rounds }) => rounds?.deleted,
    ),
    dpcache_operator_conflicts_total: duties.counter(
      'Deletes of a duty that failed because another writer had changed the object.',
      ({ rounds }) => rounds?.conflicts,
    ),
    dpcache_operator_namespaces: countsMetric(
      'gauge',
      'Namespaces whose objects are published to the mesh (global="true"), and the others.',
      'global',
      () => {
        const counts = operator.duties().namespaces?.counts();
        return counts && { true: counts.global, false: counts.known - counts.global };
      },
    ),
    dpcache_operator_leader: statusMetrics(() => operator).gauge(
      '1 if this operator runs the duties: it holds the Lease or runs without leader election; else 0.',
      ({ isLeader }) => isLeader(),
    ),
  };
  return [operatorTable, mcsMetrics(operator, scrape)];
}

/** Returns the metrics of the multi-cluster services API, without samples if it is off. */
function mcsMetrics({ clusterName, duties }: MeasuredOperator, scrape: Scrape): Metrics {
  const counts = scrape.once(() => duties().mcs?.counts());
  const mcs = statusMetrics(counts);
  return {
    dpcache_operator_mcs_exports: countsMetric(
      'gauge',
      'Services that a cluster exports with ServiceExports.',
      'cluster',
      () => {
        const current = counts();
        return current && { [clusterName]: current.exports, ...current.remoteExports };
      },
    ),
    dpcache_operator_mcs_imports: mcs.gauge('ServiceImports.', 'imports'),
    dpcache_operator_mcs_conflicts: countsMetric(
      'gauge',
      'Services that clusters export differently.',
      'reason',
      () => counts()?.conflicts,
    ),
    dpcache_operator_mcs_waiting_imports: mcs.gauge(
      'ServiceImports that are not changed, because a cluster that exports the service is incomplete.',
      'waitingImports',
    ),
  };
}
