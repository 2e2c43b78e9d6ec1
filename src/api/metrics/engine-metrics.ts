import {
  countsByLabel,
  type Description,
  itemMetrics,
  type MetricSources,
  statusMetrics,
} from './description.ts';

export function ipcacheDescriptions({ ipcache }: MetricSources): readonly Description[] {
  const cache = statusMetrics(ipcache.status);
  return [
    {
      name: 'dpcache_ipcache_entries',
      help: 'Keys of the IPCache by family and form (`endpoint`, `cidr`), including full-length CIDRs that are shadowed by an entry of the same IP.',
      type: 'gauge',
      labels: ['family', 'form'],
      *samples() {
        const { ipv4, ipv6 } = ipcache.status();
        for (const [family, { endpoints, cidrs }] of [
          ['ipv4', ipv4],
          ['ipv6', ipv6],
        ] as const) {
          yield { value: endpoints, labels: { family, form: 'endpoint' } };
          yield { value: Object.values(cidrs).reduce((a, b) => a + b, 0), labels: { family, form: 'cidr' } };
        }
      },
    },
    countsByLabel(
      'gauge',
      'dpcache_ipcache_entries_by_source',
      'Effective entries of the IPCache by the source of their claim.',
      'source',
      () => ipcache.status().entriesBySource,
    ),
    cache.gauge(
      'dpcache_ipcache_overruled_claims',
      'Claims that are overruled by a stronger one.',
      'overruledClaims',
    ),
    cache.gauge(
      'dpcache_ipcache_waiting_keys',
      'Keys that are not in the IPCache because it is full.',
      'waiting',
    ),
    cache.gauge('dpcache_ipcache_bytes', 'Memory of the tables and rows of the IPCache.', 'bytes'),
    countsByLabel(
      'counter',
      'dpcache_ipcache_outcomes_total',
      'Writes to the IPCache by outcome.',
      'outcome',
      () => ipcache.status().outcomes,
    ),
    cache.gauge('dpcache_ipcache_listeners', 'Listeners of the IPCache.', 'listeners'),
  ];
}

/** Returns the metrics of the other engines and of all listeners and handlers. */
export function engineDescriptions({ ipcache, services, nodes }: MetricSources): readonly Description[] {
  const handlers = itemMetrics('handler', () => nodes.status().handlers);
  return [
    {
      name: 'dpcache_listener_faults_total',
      help: 'Faults of listeners and of other callbacks of an engine, without calls of node handlers.',
      type: 'counter',
      labels: ['engine'],
      samples: () => [
        { value: ipcache.status().listenerFaults, labels: { engine: 'ipcache' } },
        { value: services.status().listenerFaults, labels: { engine: 'servicecache' } },
        { value: nodes.status().callbackFaults, labels: { engine: 'nodemanager' } },
      ],
    },
    countsByLabel(
      'gauge',
      'dpcache_services',
      'Services by state: announced, or unknown (only their endpoints or offers of other clusters are known).',
      'state',
      () => {
        const { announced, unknown } = services.status();
        return { announced, unknown };
      },
    ),
    statusMetrics(services.status).gauge(
      'dpcache_service_backends',
      'Effective backends of all services.',
      'backends',
    ),
    countsByLabel('gauge', 'dpcache_nodes', 'Nodes by source.', 'source', () => nodes.status().nodesBySource),
    countsByLabel(
      'counter',
      'dpcache_node_outcomes_total',
      'Writes to the node manager by outcome.',
      'outcome',
      () => nodes.status().outcomes,
    ),
    handlers.gauge('dpcache_node_handler_pending', 'Nodes with pending changes for a handler.', 'pending'),
    handlers.counter('dpcache_node_handler_faults_total', 'Failed calls of a node handler.', 'faults'),
  ];
}
