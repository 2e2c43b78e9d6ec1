import { byLabel, byName, type Description, type MetricSources, singleSample } from './description.ts';

export function ipcacheDescriptions({ ipcache }: MetricSources): readonly Description[] {
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
    {
      name: 'dpcache_ipcache_entries_by_source',
      help: 'Effective entries of the IPCache by the source of their claim.',
      type: 'gauge',
      labels: ['source'],
      samples: () => byLabel('source', ipcache.status().entriesBySource),
    },
    {
      name: 'dpcache_ipcache_overruled_claims',
      help: 'Claims that are overruled by a stronger one.',
      type: 'gauge',
      samples: () => singleSample(ipcache.status().overruledClaims),
    },
    {
      name: 'dpcache_ipcache_waiting_keys',
      help: 'Keys that are not in the IPCache because it is full.',
      type: 'gauge',
      samples: () => singleSample(ipcache.status().waiting),
    },
    {
      name: 'dpcache_ipcache_bytes',
      help: 'Memory of the tables and rows of the IPCache.',
      type: 'gauge',
      samples: () => singleSample(ipcache.status().bytes),
    },
    {
      name: 'dpcache_ipcache_outcomes_total',
      help: 'Writes to the IPCache by outcome.',
      type: 'counter',
      labels: ['outcome'],
      samples: () => byLabel('outcome', ipcache.status().outcomes),
    },
    {
      name: 'dpcache_ipcache_listeners',
      help: 'Listeners of the IPCache.',
      type: 'gauge',
      samples: () => singleSample(ipcache.status().listeners),
    },
  ];
}

/** Returns the metrics of the other engines and of all listeners and handlers. */
export function engineDescriptions({ ipcache, services, nodes }: MetricSources): readonly Description[] {
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
    {
      name: 'dpcache_services',
      help: 'Services by state: announced, or unknown (only their endpoints or offers of other clusters are known).',
      type: 'gauge',
      labels: ['state'],
      samples: () => {
        const { announced, unknown } = services.status();
        return byLabel('state', { announced, unknown });
      },
    },
    {
      name: 'dpcache_service_backends',
      help: 'Effective backends of all services.',
      type: 'gauge',
      samples: () => singleSample(services.status().backends),
    },
    {
      name: 'dpcache_nodes',
      help: 'Nodes by source.',
      type: 'gauge',
      labels: ['source'],
      samples: () => byLabel('source', nodes.status().nodesBySource),
    },
    {
      name: 'dpcache_node_outcomes_total',
      help: 'Writes to the node manager by outcome.',
      type: 'counter',
      labels: ['outcome'],
      samples: () => byLabel('outcome', nodes.status().outcomes),
    },
    {
      name: 'dpcache_node_handler_pending',
      help: 'Nodes with pending changes for a handler.',
      type: 'gauge',
      labels: ['handler'],
      samples: () => byName('handler', nodes.status().handlers, ({ pending }) => pending),
    },
    {
      name: 'dpcache_node_handler_faults_total',
      help: 'Failed calls of a node handler.',
      type: 'counter',
      labels: ['handler'],
      samples: () => byName('handler', nodes.status().handlers, ({ faults }) => faults),
    },
  ];
}
