import fc from 'fast-check';
import type { StateFolder } from '../../../src/base/files/state-folder.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { K8sMetadata } from '../../../src/ipcache/types.ts';
import type { ClusterIdentity } from '../../../src/model/identity-cache.ts';
import type { Labels } from '../../../src/model/labels.ts';
import type { Source } from '../../../src/model/source.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import {
  type CheckpointEngines,
  type CheckpointHeader,
  checkpointSections,
} from '../../../src/restore/checkpoint.ts';
import { writeCheckpoint } from '../../../src/restore/checkpoint-file.ts';
import { Restoration, type RestorationOptions } from '../../../src/restore/restoration.ts';
import { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { ServicePart } from '../../../src/servicecache/service-parts.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import {
  apply as applyToServices,
  type Operation as ServiceOperation,
  operation as serviceOperation,
} from '../../servicecache/support/operations.ts';
import { text } from '../../servicecache/support/plain.ts';

export const OWN = 'own';
export const REMOTE = ['east', 'west', 'westend'] as const;

/** The engines of an agent of cluster `own`. */
export function engines(): CheckpointEngines {
  const ipcache = new IPCache();
  const clock = new ManualClock();
  return {
    ipcache,
    nodes: new NodeManager({ ipcache, clock, clusterName: OWN, nodeName: 'me', localNodeIsHost: true }),
    services: new ServiceCache({ clusterName: OWN }),
  };
}

export interface KnownEntry {
  readonly key: string;
  readonly source: Source;
  readonly owner: string;
  readonly identity: number;
  readonly hostIP: string | undefined;
  readonly encryptKey: number;
  readonly k8s: K8sMetadata | undefined;
}

export interface KnownNode {
  readonly cluster: string;
  readonly name: string;
  readonly ip: string;
  readonly labels: ReadonlyMap<string, string>;
}

/** The claims of all sources, in any order. */
export interface Knowledge {
  readonly entries: readonly KnownEntry[];
  readonly nodes: readonly KnownNode[];
  readonly services: readonly ServiceOperation[];
  readonly identities: readonly ClusterIdentity[];
}

const KEYS = [
  '10.0.0.1',
  '10.0.0.1/32',
  '10.0.0.0/24',
  '0.0.0.0/0',
  '10.0.0.9',
  'fd00::1',
  'fd00::/64',
  '::/0',
  '10.0.0.1@5',
  '10.0.0.0/24@511',
  'fd00::1@1',
];
const NAMES = ['', 'web', 'été', '__proto__', '\u{1f600}', 'x'.repeat(300)];

const writer = fc.oneof(
  fc.constantFrom(...REMOTE).map((owner) => ({ source: 'clustermesh' as const, owner })),
  fc.record({
    source: fc.constantFrom<Source[]>('kvstore', 'custom-resource', 'k8s', 'generated', 'kube-apiserver'),
    owner: fc.constantFrom('', 'shop/allow', 'own/me'),
  }),
);

const namedPorts = fc
  .uniqueArray(fc.constantFrom('', 'http', '__proto__'), { maxLength: 3 })
  .map((names) => new Map(names.map((name, at) => [name, { port: 65_535 - at, protocol: 6 }])));

const pod: fc.Arbitrary<K8sMetadata> = fc.oneof(
  fc.record({ namespace: fc.constantFrom(...NAMES), podName: fc.constantFrom(...NAMES) }),
  fc.record({ namespace: fc.constantFrom(...NAMES), podName: fc.constantFrom(...NAMES), namedPorts }),
  fc.record({
    namespace: fc.constantFrom(...NAMES),
    podName: fc.constantFrom(...NAMES),
    serviceAccount: fc.constantFrom('default', 'web'),
    namedPorts: fc.option(namedPorts, { nil: undefined }),
  }),
);

const entry: fc.Arbitrary<KnownEntry> = fc
  .record({
    key: fc.constantFrom(...KEYS),
    writer,
    identity: fc.constantFrom(0, 1, 127, 128, 66_536, 2 ** 24, 2 ** 32 - 1),
    hostIP: fc.constantFrom(undefined, '192.168.0.1', 'fd00::a'),
    encryptKey: fc.constantFrom(0, 0, 255),
    k8s: fc.option(pod, { nil: undefined }),
  })
  .map(({ writer: of, ...rest }) => ({ ...rest, ...of }));

const node: fc.Arbitrary<KnownNode> = fc.record({
  cluster: fc.constantFrom(OWN, ...REMOTE),
  name: fc.constantFrom('a', 'b'),
  ip: fc.constantFrom('10.0.0.1', '10.0.0.9', '10.0.0.77'),
  labels: fc.constantFrom(new Map(), new Map([['__proto__', 'x']])),
});

const labels: fc.Arbitrary<Labels> = fc.constantFrom<Labels[]>(
  [],
  [{ source: 'k8s', key: 'app', value: 'a;b=c:d' }],
  [
    { source: 'k8s', key: '__proto__', value: '' },
    { source: 'k8s', key: 'z', value: 'é' },
  ],
);

const identity: fc.Arbitrary<ClusterIdentity> = fc.record({
  cluster: fc.constantFrom(OWN, ...REMOTE),
  identity: fc.integer({ min: 256, max: 270 }),
  labels,
});

/** Any claims. */
export const knowledge: fc.Arbitrary<Knowledge> = fc.record({
  entries: fc.array(entry, { maxLength: 12 }),
  nodes: fc.array(node, { maxLength: 4 }),
  services: fc.array(serviceOperation, { maxLength: 12 }),
  identities: fc.uniqueArray(identity, { maxLength: 4, selector: (one) => one.identity }),
});

/** Writes the claims to the engines. */
export function learn({ ipcache, nodes, services }: CheckpointEngines, known: Knowledge): void {
  for (const { key, ...claim } of known.entries) ipcache.upsert(key, claim);
  for (const { cluster, name, ip, labels: given } of known.nodes) {
    const source = cluster === OWN ? 'kvstore' : 'clustermesh';
    nodes.nodeUpdated({ cluster, name, source, addresses: [{ type: 'InternalIP', ip }], labels: given });
  }
  for (const operation of known.services) applyToServices(services, operation);
}

/** Returns a part of a service as text. The order of the backends has no meaning. */
export function partText(part: ServicePart): string {
  if (part.kind !== 'offer') return text(part);
  return text({ ...part, backends: part.backends.map((backend) => text(backend)).sort() });
}

/** Returns the content of engines as text, without the owners of claims: equal texts, equal contents. */
export function contents({ ipcache, nodes, services }: CheckpointEngines): string {
  const entries = Array.from(
    ipcache.entries({ includeShadowed: true }),
    ({ source, owner, ...rest }) => rest,
  );
  const known = Array.from(nodes.nodes(), (one) => ({ ...one.toJSON(), source: '' }));
  return text({
    entries: entries.sort((a, b) => (a.key < b.key ? -1 : 1)),
    nodes: known.sort((a, b) => (a.cluster + a.name < b.cluster + b.name ? -1 : 1)),
    services: Array.from(services.parts(), partText).sort(),
    announced: services.snapshot(),
  });
}

/** Writes a checkpoint of the engines. */
export function save(
  folder: StateFolder,
  known: CheckpointEngines,
  identities: Iterable<ClusterIdentity> = [],
  header: Partial<CheckpointHeader> = {},
): Promise<number> {
  const full = { cluster: OWN, writtenAt: 1_000, knownAt: new Map(), ...header };
  return writeCheckpoint(folder, checkpointSections(known, identities, full));
}

/** Restores the checkpoint into new engines. */
export function restart(
  folder: StateFolder,
  options: Partial<RestorationOptions> = {},
): { readonly next: CheckpointEngines; readonly restoration: Restoration } {
  const next = engines();
  const gate = new TurnGate({ clock: new ManualClock(), nextTurn: setImmediate });
  const restoration = new Restoration({ ...next, folder, clusterName: OWN, gate, ...options });
  return { next, restoration };
}
