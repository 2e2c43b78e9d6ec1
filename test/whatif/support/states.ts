import fc from 'fast-check';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { Claim } from '../../../src/ipcache/types.ts';
import { SOURCES, type Source } from '../../../src/model/source.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import { createBackend, createEndpointSlice } from '../../../src/servicecache/backend.ts';
import { createService } from '../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { Edit } from '../../../src/whatif/edits.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';

/** The sources that rank edits move; they are adjacent in the order. */
export const MOVED: readonly Source[] = ['kvstore', 'custom-resource', 'k8s', 'clustermesh'];

export interface Engines {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
}

/** A write, to be repeated on a copy under other names of sources. */
export type Write =
  | { readonly write: 'claim'; readonly key: string; readonly claim: Claim }
  | { readonly write: 'unclaim'; readonly key: string; readonly source: Source; readonly owner: string }
  | { readonly write: 'node'; readonly node: NodeSpec }
  | { readonly write: 'unnode'; readonly node: Pick<NodeSpec, 'cluster' | 'name' | 'source'> }
  | { readonly write: 'service'; readonly name: string; readonly global: boolean; readonly affinity: string }
  | { readonly write: 'unservice'; readonly name: string }
  | {
      readonly write: 'slice';
      readonly name: string;
      readonly slice: string;
      readonly addresses: readonly string[];
    }
  | {
      readonly write: 'offer';
      readonly name: string;
      readonly cluster: string;
      readonly addresses: readonly string[];
    };

const KEYS = [
  '10.0.0.1',
  '10.0.0.1/32',
  '10.0.0.2',
  '10.0.0.0/24',
  '10.0.0.0/8',
  'fd00::1',
  'fd00::1/128',
  '10.0.0.1@5',
  '10.0.0.1/32@5',
  '192.168.0.1',
];
const CLUSTERS = ['baltic', 'caspian'];
const NAMES = ['cart', 'lobby'];
const ADDRESSES = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];

const source = fc.constantFrom<Source>(...MOVED, 'generated', 'restored');
const owner = fc.constantFrom('', ...CLUSTERS);
const addresses = fc.subarray(ADDRESSES);

const nodeName = { cluster: fc.constantFrom('own', ...CLUSTERS), name: fc.constantFrom('n1', 'n2') };
const node: fc.Arbitrary<NodeSpec> = fc.record({
  ...nodeName,
  source: fc.constantFrom<Source>('kvstore', 'k8s', 'clustermesh', 'custom-resource', 'restored'),
  addresses: fc.subarray([
    { type: 'InternalIP', ip: '192.168.0.1' },
    { type: 'CiliumInternalIP', ip: '10.0.0.1' },
    { type: 'ExternalIP', ip: 'fd00::1' },
  ]),
  encryptionKey: fc.constantFrom(0, 7),
  ipv4AllocCIDR: fc.constantFrom(undefined, '10.1.0.0/24'),
});

export const WRITE: fc.Arbitrary<Write> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      write: fc.constant('claim' as const),
      key: fc.constantFrom(...KEYS),
      claim: fc.record({
        source,
        owner,
        identity: fc.constantFrom(1, 2, 7),
        hostIP: fc.constantFrom(undefined, '192.168.0.1'),
        k8s: fc.constantFrom(undefined, { namespace: 'shop', podName: 'a' }, { namespace: '', podName: '' }),
      }),
    }),
  },
  fc.record({ write: fc.constant('unclaim' as const), key: fc.constantFrom(...KEYS), source, owner }),
  { weight: 3, arbitrary: fc.record({ write: fc.constant('node' as const), node }) },
  fc.record({ write: fc.constant('unnode' as const), node }),
  {
    weight: 2,
    arbitrary: fc.record({
      write: fc.constant('service' as const),
      name: fc.constantFrom(...NAMES),
      global: fc.boolean(),
      affinity: fc.constantFrom('none', 'local', 'remote'),
    }),
  },
  fc.record({ write: fc.constant('unservice' as const), name: fc.constantFrom(...NAMES) }),
  fc.record({
    write: fc.constant('slice' as const),
    name: fc.constantFrom(...NAMES),
    slice: fc.constantFrom('s1', 's2'),
    addresses,
  }),
  {
    weight: 2,
    arbitrary: fc.record({
      write: fc.constant('offer' as const),
      name: fc.constantFrom(...NAMES),
      cluster: fc.constantFrom(...CLUSTERS),
      addresses,
    }),
  },
);

export const WRITES: fc.Arbitrary<readonly Write[]> = fc.array(WRITE, { maxLength: 24 });

export const EDIT: fc.Arbitrary<Edit> = fc.oneof(
  fc.record({ edit: fc.constant('remove-cluster' as const), cluster: fc.constantFrom(...CLUSTERS) }),
  fc.record({
    edit: fc.constantFrom('remove-node' as const, 'drain-node' as const),
    node: fc.constantFrom('own/n1', 'baltic/n1', 'baltic/n2'),
  }),
  fc.record({
    edit: fc.constant('remove-source' as const),
    source,
    owner: fc.constantFrom(undefined, ...CLUSTERS),
  }),
  fc.record({
    edit: fc.constant('rank' as const),
    source: fc.constantFrom(...MOVED),
    place: fc.constantFrom('above' as const, 'below' as const),
    other: fc.constantFrom(...MOVED),
  }),
  fc.record({
    edit: fc.constant('setting' as const),
    settings: fc.constantFrom(
      { remoteNodeIdentities: false },
      { encryption: true },
      { hostFirewall: true },
      { encryption: true, nodeEncryption: true },
      { underlay: 'ipv6' as const },
      { underlay: 'ipv6' as const, encryption: true, remoteNodeIdentities: false },
    ),
  }),
  fc.record({
    edit: fc.constant('upsert' as const),
    key: fc.constantFrom(...KEYS),
    claim: fc.record({
      source,
      owner,
      identity: fc.constantFrom(2, 9),
      hostIP: fc.constantFrom(undefined, '192.168.0.1'),
      k8s: fc.constantFrom(undefined, { namespace: '', podName: '' }, { namespace: 'shop', podName: 'a' }),
    }),
  }),
  fc.record({
    edit: fc.constant('delete' as const),
    key: fc.constantFrom(...KEYS),
    by: fc.record({
      source,
      owner,
      ifPod: fc.constantFrom(
        undefined,
        { namespace: 'shop', podName: 'a' },
        { namespace: 'shop', podName: 'b' },
      ),
    }),
  }),
  fc.record({
    edit: fc.constant('service' as const),
    service: fc.constantFrom(serviceOf('cart', true, 'none'), serviceOf('lobby', false, 'none')),
  }),
  fc.record({
    edit: fc.constant('slice' as const),
    slice: fc
      .tuple(fc.constantFrom(...NAMES), fc.constantFrom('s1', 's3'), addresses)
      .map(([name, slice, list]) => sliceOf(name, slice, list)),
  }),
);

function serviceOf(name: string, global: boolean, affinity: string) {
  return createService({
    id: { namespace: 'shop', name },
    addressing: 'assigned',
    clusterIPs: ['10.96.0.1'],
    global,
    ...(affinity !== 'none' && { affinity: affinity as 'local' | 'remote' }),
  });
}

function sliceOf(name: string, slice: string, list: readonly string[]) {
  return createEndpointSlice({
    service: { namespace: 'shop', name },
    name: slice,
    backends: list.map((address) => {
      // 10.0.0.1 is on the node n1, 10.0.0.2 on n2
      const nodeName = `n${address.slice(-1)}`;
      return createBackend({ address, nodeName, ports: [['http', { port: 80, protocol: 6 }]] });
    }),
  });
}

export function newEngines(): Engines {
  const ipcache = new IPCache();
  const services = new ServiceCache({ clusterName: 'own' });
  const nodes = new NodeManager({
    ipcache,
    clock: new ManualClock(),
    clusterName: 'own',
    nodeName: 'here',
    random: () => 0.5,
  });
  return { ipcache, services, nodes };
}

type Rename = (source: Source) => Source;
const SAME: Rename = (named) => named;

/** Makes a write. `rename` gives a source the rank of another one. */
export function apply({ ipcache, services, nodes }: Engines, write: Write, rename: Rename = SAME): void {
  switch (write.write) {
    case 'claim':
      ipcache.upsert(write.key, { ...write.claim, source: rename(write.claim.source) });
      return;
    case 'unclaim':
      ipcache.delete(write.key, { source: rename(write.source), owner: write.owner });
      return;
    case 'node':
      nodes.nodeUpdated({ ...write.node, source: rename(write.node.source) });
      return;
    case 'unnode':
      nodes.nodeDeleted({ ...write.node, source: rename(write.node.source) });
      return;
    case 'service':
      services.updateService(serviceOf(write.name, write.global, write.affinity));
      return;
    case 'unservice':
      services.deleteService({ namespace: 'shop', name: write.name });
      return;
    case 'slice':
      services.updateEndpoints(sliceOf(write.name, write.slice, write.addresses));
      return;
    case 'offer':
      services.mergeExternalServiceUpdate({
        cluster: write.cluster,
        namespace: 'shop',
        name: write.name,
        clusterID: 1,
        shared: true,
        frontends: new Map(),
        labels: new Map(),
        selector: new Map(),
        includeExternal: true,
        backends: new Map(
          write.addresses.map((address) => [address, new Map([['http', { port: 80, protocol: 6 }]])]),
        ),
        hostnames: new Map(),
        zones: new Map(),
      } as never);
  }
}

/**
 * Returns a function from a source to the name that has its rank after the edits, computed by moving one
 * source at a time.
 */
export function renaming(edits: readonly Edit[]): Rename {
  let order: Source[] = [...SOURCES];
  for (const edit of edits) {
    if (edit.edit !== 'rank' || edit.source === edit.other) continue;
    const others = order.filter((one) => one !== edit.source);
    order = others.flatMap((one) => {
      if (one !== edit.other) return [one];
      return edit.place === 'above' ? [edit.source, one] : [one, edit.source];
    });
  }
  return (named) => SOURCES[order.indexOf(named)] ?? named;
}

/** Makes the edits by the calls of a real process. `hostsOf` returns the addresses of a node before the edits. */
export function makeEdits(
  engines: Engines,
  edits: readonly Edit[],
  rename: Rename,
  hostsOf: (fullName: string) => readonly string[],
): void {
  const { ipcache, services, nodes } = engines;
  const removeNodes = (
    is: (node: { cluster: string; fullName: string; source: Source; name: string }) => boolean,
  ): void => {
    for (const [, claims] of [...nodes.claims()])
      for (const one of claims)
        if (is(one)) nodes.nodeDeleted({ cluster: one.cluster, name: one.name, source: one.source });
  };
  for (const edit of edits) {
    if (edit.edit === 'remove-cluster') {
      for (const of of ['clustermesh', 'restored'] as const) {
        ipcache.withdraw({ source: rename(of), owner: edit.cluster });
        nodes.withdraw({ source: rename(of), cluster: edit.cluster });
      }
      services.withdrawCluster(edit.cluster);
    } else if (edit.edit === 'drain-node') {
      for (const key of KEYS)
        for (const { source, owner, hostIP, k8s } of ipcache.claimsOf(key))
          if (k8s !== undefined && hostsOf(edit.node).includes(hostIP ?? ''))
            ipcache.delete(key, { source, owner });
      const [cluster, name] = edit.node.split('/');
      const slices =
        cluster === 'own' ? [...services.states()].flatMap((one) => [...one.slices.values()]) : [];
      for (const slice of slices) {
        const backends = [...slice.backends.values()].filter(({ nodeName }) => nodeName !== name);
        services.updateEndpoints(createEndpointSlice({ ...slice, backends }));
      }
    } else if (edit.edit === 'remove-node') removeNodes(({ fullName }) => fullName === edit.node);
    else if (edit.edit === 'remove-source') {
      const { owner } = edit;
      const named = rename(edit.source);
      for (const by of ['', ...CLUSTERS])
        if (owner === undefined || by === owner) ipcache.withdraw({ source: named, owner: by });
      removeNodes((one) => one.source === named && (owner === undefined || owner === one.cluster));
      if (edit.source === 'clustermesh')
        for (const cluster of CLUSTERS)
          if (owner === undefined || owner === cluster) services.withdrawCluster(cluster);
      if (edit.source === 'k8s' && owner === undefined)
        for (const name of NAMES) {
          for (const slice of ['s1', 's2', 's3'])
            services.deleteEndpoints({ namespace: 'shop', name }, slice);
          services.deleteService({ namespace: 'shop', name });
        }
    } else if (edit.edit === 'setting') nodes.configure(edit.settings);
    else if (edit.edit === 'upsert')
      ipcache.upsert(edit.key, { ...edit.claim, source: rename(edit.claim.source) });
    else if (edit.edit === 'delete') ipcache.delete(edit.key, { ...edit.by, source: rename(edit.by.source) });
    else if (edit.edit === 'service') services.updateService(edit.service);
    else if (edit.edit === 'slice') services.updateEndpoints(edit.slice);
  }
}
