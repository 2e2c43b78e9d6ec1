import { countsMetric, itemMetrics, type MetricSources, type Metrics, statusMetrics } from './metric.ts';

/** Returns the metrics of the engines, and of all listeners and handlers. */
export function engineMetrics({ ipcache, services, nodes }: MetricSources): Metrics {
  const cache = statusMetrics(ipcache.status);
  const handlers = itemMetrics('handler', () => nodes.status().handlers);
  return {
    dpcache_ipcache_entries: {
      type: 'gauge',
      help: 'Keys of the IPCache by family and form (`endpoint`, `cidr`), including full-length CIDRs that are shadowed by an entry of the same IP.',
      labels: ['family', 'form'],
      *samples() {
        const { ipv4, ipv6 } = ipcache.status();
        for (const [family, { endpoints, cidrs }] of Object.entries({ ipv4, ipv6 })) {
          yield { value: endpoints, labels: { family, form: 'endpoint' } };
          yield { value: Object.values(cidrs).reduce((a, b) => a + b, 0), labels: { family, form: 'cidr' } };
        }
      },
    },
    dpcache_ipcache_entries_by_source: countsMetric(
      'gauge',
      'Effective entries of the IPCache by the source of their claim.',
      'source',
      () => ipcache.status().entriesBySource,
    ),
    dpcache_ipcache_overruled_claims: cache.gauge(
      'Claims that are overruled by a stronger one.',
      'overruledClaims',
    ),
    dpcache_ipcache_waiting_keys: cache.gauge(
      'Keys that are not in the IPCache because it is full.',
      'waiting',
    ),
    dpcache_ipcache_bytes: cache.gauge('Memory of the tables and rows of the IPCache.', 'bytes'),
    dpcache_ipcache_outcomes_total: countsMetric(
      'counter',
      'Writes to the IPCache by outcome.',
      'outcome',
      () => ipcache.status().outcomes,
    ),
    dpcache_ipcache_listeners: cache.gauge('Listeners of the IPCache.', 'listeners'),
    dpcache_listener_faults_total: countsMetric(
      'counter',
      'Faults of listeners and of other callbacks of an engine, without calls of node handlers.',
      'engine',
      () => ({
        ipcache: ipcache.status().listenerFaults,
        servicecache: services.status().listenerFaults,
        nodemanager: nodes.status().callbackFaults,
      }),
    ),
    dpcache_services: countsMetric(
      'gauge',
      'Services by state: announced, or unknown (only their endpoints or offers of other clusters are known).',
      'state',
      () => {
        const { announced, unknown } = services.status();
        return { announced, unknown };
      },
    ),
    dpcache_service_backends: statusMetrics(services.status).gauge(
      'Effective backends of all services.',
      'backends',
    ),
    dpcache_nodes: countsMetric('gauge', 'Nodes by source.', 'source', () => nodes.status().nodesBySource),
    dpcache_node_outcomes_total: countsMetric(
      'counter',
      'Writes to the node manager by outcome.',
      'outcome',
      () => nodes.status().outcomes,
    ),
    dpcache_node_handler_pending: handlers.gauge('Nodes with pending changes for a handler.', 'pending'),
    dpcache_node_handler_faults_total: handlers.counter('Failed calls of a node handler.', 'faults'),
  };
}
