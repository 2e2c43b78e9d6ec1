import { describe, expect, it } from 'vitest';
import {
  type AppliedOutcome,
  type ClusterService,
  connectDatapath,
  type Datapath,
  type DatapathEngines,
  formatServiceID,
  type HandlerFailure,
  type HandlerStatus,
  IPCache,
  type LostAddress,
  type Node,
  type NodeCheckpoint,
  type NodeHandler,
  NodeManager,
  type NodeSpec,
  nodeFullName,
  type PlainNode,
  PROTOCOL_NUMBERS,
  parseEndpointSlice,
  parseService,
  ServiceCache,
  type ServiceStream,
  systemClock,
  tunnelEndpoint,
} from '../src/index.ts';
import {
  RecordingIPCacheListener,
  RecordingNodeHandler,
  RecordingServiceListener,
} from './datapath/support/recording.ts';

/** A program outside of the package, which uses only the package's entry. */
const CHECKOUT = { namespace: 'shop', name: 'checkout' };

const manifests = {
  service: {
    metadata: { ...CHECKOUT, annotations: { 'service.cilium.io/global': 'true' } },
    spec: { clusterIP: '172.16.0.10', ports: [{ name: 'http', port: 80 }] },
  },
  slice: {
    metadata: { ...CHECKOUT, labels: { 'kubernetes.io/service-name': 'checkout' } },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080 }],
    endpoints: [{ addresses: ['10.0.0.1'], nodeName: 'here' }],
  },
};

const offer: ClusterService = {
  cluster: 'east',
  ...CHECKOUT,
  frontends: new Map(),
  backends: new Map([['10.9.0.1', new Map([['http', { port: 8080, protocol: PROTOCOL_NUMBERS.TCP }]])]]),
  labels: new Map(),
  selector: new Map(),
  includeExternal: true,
  shared: true,
  clusterID: 2,
};

const nodeA: NodeSpec = {
  cluster: 'east',
  name: 'a',
  source: 'kvstore',
  addresses: [
    { type: 'InternalIP', ip: '192.168.0.1' },
    { type: 'CiliumInternalIP', ip: '10.1.0.1' },
  ],
};

function nodeManager(ipcache: IPCache): NodeManager {
  return new NodeManager({ ipcache, clock: systemClock, clusterName: 'west', nodeName: 'here' });
}

function feed(services: ServiceCache): void {
  const service = parseService(manifests.service).value;
  const slice = parseEndpointSlice(manifests.slice).value;
  if (service !== undefined) services.updateService(service);
  if (slice !== undefined) services.updateEndpoints(slice);
  services.mergeExternalServiceUpdate(offer);
  services.markSynced();
}

/** The tunnel endpoint of each node, as a datapath might store them. Rejects nodes without one. */
class Routes implements NodeHandler {
  readonly name = 'routes';
  readonly endpoints: Map<string, string> = new Map();

  async nodeAdd(node: Node, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const ip = tunnelEndpoint(node, 'ipv4');
    if (ip === undefined) throw new Error(`${node.fullName} has no tunnel endpoint`);
    this.endpoints.set(node.fullName, ip);
  }

  async nodeUpdate(_old: Node, node: Node, signal: AbortSignal): Promise<void> {
    await this.nodeAdd(node, signal);
  }

  async nodeDelete(): Promise<void> {}
}

describe('the entry of the package', () => {
  it('is enough to feed services from Kubernetes and other clusters, and to look up their backends and the reason', async () => {
    const services = new ServiceCache({ clusterName: 'west', nodeName: 'here', zone: 'z1' });
    feed(services);
    const match = services.lookupFrontend('172.16.0.10', 80, PROTOCOL_NUMBERS.TCP);
    expect(match && formatServiceID(match.id)).toBe('shop/checkout');
    expect(services.select(CHECKOUT, 'cluster-ip')?.size).toBe(2);
    expect(services.explain(CHECKOUT)?.origins.map(({ cluster, slice }) => cluster + slice)).toEqual([
      'checkout',
      'east',
    ]);
    const stream: ServiceStream = services.stream();
    const given: string[] = [];
    for await (const event of stream) {
      given.push(`${event.action} ${formatServiceID(event.id)}`);
      event.acknowledge();
      break;
    }
    expect(given).toEqual(['update shop/checkout']);
  });

  it('is enough to pass nodes to a datapath, wait for it, and restore them', async () => {
    const ipcache = new IPCache();
    const nodes = nodeManager(ipcache);
    const routes = new Routes();
    nodes.subscribe(routes, { concurrency: 4 });
    nodes.nodeUpdated(nodeA);
    const outcome: AppliedOutcome = await nodes.whenApplied(nodeFullName(nodeA));
    expect([outcome, [...routes.endpoints]]).toEqual(['applied', [['east/a', '192.168.0.1']]]);
    const checkpoint: NodeCheckpoint = nodes.checkpoint();
    const [first]: readonly PlainNode[] = checkpoint.nodes;
    expect(first?.name).toBe('a');
    nodes.close();

    const again = nodeManager(new IPCache());
    expect(again.restore(JSON.parse(JSON.stringify(checkpoint)))).toBe(1);
    expect(again.withdraw({ source: 'restored', cluster: 'east' })).toBe(1);
    again.close();
  });

  it('is enough to see failed handler calls and lost nodes', async () => {
    const ipcache = new IPCache();
    const nodes = nodeManager(ipcache);
    nodes.subscribe(new Routes());
    ipcache.upsert('10.1.0.1', { identity: 1000, source: 'local' });
    nodes.nodeUpdated({ ...nodeA, source: 'local' });
    nodes.nodeUpdated({ ...nodeA, name: 'b', addresses: [] });
    await Promise.resolve();
    const [handler]: readonly HandlerStatus[] = nodes.status().handlers;
    const [failure]: readonly HandlerFailure[] = handler?.failing ?? [];
    expect([handler?.name, failure?.call]).toEqual(['routes', 'add']);
    expect(failure?.error.message).toBe('east/b has no tunnel endpoint');
    const [lost]: readonly LostAddress[] = nodes.explain('east/a')?.lostAddresses ?? [];
    expect(lost).toMatchObject({ ip: '10.1.0.1', holder: { source: 'local' }, stronger: false });
    nodes.close();
  });

  it('is enough to connect a datapath to all three engines in one call', () => {
    const ipcache = new IPCache();
    const nodes = nodeManager(ipcache);
    const services = new ServiceCache({ clusterName: 'west' });
    nodes.nodeUpdated(nodeA);
    feed(services);
    const told: string[] = [];
    const record = ({ kind }: { readonly kind: string }): void => {
      told.push(kind);
    };
    const datapath: Datapath = {
      nodes: new RecordingNodeHandler(record),
      ipcache: new RecordingIPCacheListener(record),
      services: new RecordingServiceListener(record),
    };
    const engines: DatapathEngines = { nodes, ipcache, services };
    const disconnect = connectDatapath(datapath, engines);
    expect(told.splice(0)).toEqual([
      'configuration',
      'add',
      'synced',
      'change',
      'change',
      'synced',
      'event',
      'synced',
      'inputs-complete',
    ]);
    disconnect();
    nodes.deleteAllNodes();
    expect(told).toEqual([]);
    nodes.close();
  });
});
