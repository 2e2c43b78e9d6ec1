/**
 * One program for each documented entry, by its path in the package. Each uses values, classes and types of the entry.
 */
export const PROGRAMS: Readonly<Record<string, (name: string) => string>> = {
  '': (name) => `
    import { ClusterMesh, type Datapath, IPCache, MemoryBackend, NodeManager, ServiceCache, systemClock } from '${name}';
    const ipcache = new IPCache({ maxEntries: 10 });
    const names = { clusterName: 'west', nodeName: 'n1' };
    const nodes = new NodeManager({ ...names, ipcache, clock: systemClock, random: Math.random });
    const datapath: Datapath = { ipcache: { onChanges: (changes) => changes.map(({ prefix }) => prefix) } };
    export const all = [ClusterMesh, MemoryBackend, new ServiceCache(names), nodes, datapath];
  `,
  '/ipcache': (name) => `
    import { type Claim, IPCache, IPCacheSnapshot, type UpsertOutcome } from '${name}';
    const cache = new IPCache();
    const claim: Claim = { identity: 7, source: 'k8s' };
    const outcome: UpsertOutcome = cache.upsert('10.0.0.1', claim);
    export const identity: number | undefined = cache.lookup('10.0.0.1')?.identity;
    export async function first(): Promise<string | undefined> {
      for await (const batch of cache.changes()) if (batch.kind === 'changes') return batch.changes[0]?.prefix;
    }
    export const others = [outcome, IPCacheSnapshot.diff(cache.snapshot(), cache.snapshot())];
  `,
  '/servicecache': (name) => `
    import { createBackend, createEndpointSlice, createService, ServiceCache, type ServiceEvent } from '${name}';
    const id = { namespace: 'shop', name: 'checkout' };
    const services = new ServiceCache({ clusterName: 'west' });
    services.updateService(createService({ id, addressing: 'assigned', clusterIPs: ['172.16.0.1'] }));
    const backend = createBackend({ address: '10.0.0.1', ports: [['http', { port: 80, protocol: 6 }]] });
    services.updateEndpoints(createEndpointSlice({ service: id, backends: [backend] }));
    export const backends: readonly string[] = [...(services.get(id)?.endpoints.backends.keys() ?? [])];
    export const isNew = ({ action, oldService }: ServiceEvent): boolean => action === 'update' && !oldService;
  `,
  '/nodemanager': (name) => `
    import { IPCache, type NodeHandler, NodeManager } from '${name}';
    const clock = { now: () => 0, wallTime: () => 0, after: () => ({ cancel() {} }) };
    const ipcache = new IPCache();
    const nodes = new NodeManager({ ipcache, clock, clusterName: 'west', nodeName: 'n1' });
    const log: string[] = [];
    const handler: NodeHandler = {
      nodeAdd: (node) => void log.push(node.fullName),
      nodeUpdate: (old, node) => void log.push(old.fullName, node.fullName),
      nodeDelete: (node) => void log.push(node.fullName),
    };
    nodes.subscribe(handler);
    export const names: readonly string[] = [...nodes.nodes()].map((node) => node.fullName);
  `,
  '/sysdump': (name) => `
    import { ArchiveError, examineSysdump, type Finding } from '${name}';
    export async function findingsOf(path: string): Promise<readonly Finding[] | string> {
      try {
        return (await examineSysdump(path, { limits: { entries: 9, entryBytes: 9, archiveBytes: 9 } })).findings;
      } catch (error) {
        if (error instanceof ArchiveError) return error.code;
        throw error;
      }
    }
  `,
  '/formats': (name) => `
    import { decodeIPIdentityPair, encodeIPIdentityPair, ipKey } from '${name}';
    const key: string = ipKey('10.0.0.1/32');
    export const decoded = decodeIPIdentityPair('10.0.0.1/32', new Uint8Array(), key);
    export const value = decoded.ok ? encodeIPIdentityPair(decoded.value) : decoded.rejection.message;
  `,
  '/etcd': (name) => `
    import { EtcdBackend } from '${name}';
    export const keys = (etcd: EtcdBackend): Promise<unknown> => etcd.get('a');
    export const open = (): EtcdBackend => new EtcdBackend({ endpoints: ['http://127.0.0.1:2379'] });
  `,
  '/kubernetes': (name) => `
    import { type KubernetesFeed, readKubeconfig } from '${name}';
    export const start = (feed: KubernetesFeed): void => feed.start();
    export const read = readKubeconfig;
  `,
  '/testing': (name) => `
    import { FaultyMemoryBackend, type FaultyLink, type MemoryApiServer } from '${name}';
    export const watches = (server: MemoryApiServer): number => server.watches;
    export const disconnect = (link: FaultyLink): void => link.down();
    export { FaultyMemoryBackend };
  `,
  '/shared': (name) => `
    import { openLookup, SharedLookup, type SharedLookupHandle, type SharedReader } from '${name}';
    import { IPCache } from '${name.replace('/shared', '/ipcache')}';
    const lookup = new SharedLookup(new IPCache(), { maxBytes: 1 << 20 });
    const handle: SharedLookupHandle = lookup.handle;
    const reader: SharedReader = openLookup(handle);
    export const identity: number | undefined = reader.lookupIdentity('10.0.0.1');
    export const waiting: number = lookup.status().waiting;
  `,
  '/linux': (name) => `
    import { type HostDatapathOptions, openHostDatapath } from '${name}';
    export const options: Pick<HostDatapathOptions, 'routing'> = { routing: 'auto' };
    export const open: typeof openHostDatapath = openHostDatapath;
  `,
};
