import { counted } from '../../base/show-value.ts';
import type { KeyedEntry } from '../../ipcache/types.ts';
import { labelName } from '../../model/label-name.ts';
import { reservedIdentityName } from '../../model/numeric-identity.ts';
import { parseServiceKey } from '../../servicecache/service-id.ts';
import type { ReadModel } from '../read-model.ts';
import type { SearchKind } from './search-document.ts';

/** The state that is searched. */
export type SearchModel = Pick<
  ReadModel,
  'ipcache' | 'services' | 'nodes' | 'labelsOf' | 'clusterOf' | 'identities' | 'cluster' | 'clusterNames'
>;

/** The detail of a result that was removed during the search. */
const REMOVED = 'removed';

/** Functions that return one line about a result, by its kind. */
export const DETAILS: Readonly<Record<SearchKind, (model: SearchModel, key: string) => string>> = {
  prefix: prefixDetail,
  pod: podDetail,
  service: serviceDetail,
  node: nodeDetail,
  identity: identityDetail,
  label: () => 'label of identities',
  namespace: () => 'namespace',
  cluster: clusterDetail,
};

function prefixDetail(model: SearchModel, prefix: string): string {
  const entry = model.ipcache.lookupByPrefix(prefix);
  if (entry === undefined) return REMOVED;
  const pod = entry.k8s?.podName ? [`pod ${entry.k8s.namespace}/${entry.k8s.podName}`] : [];
  return [...pod, ...claimParts(model, entry)].join(', ');
}

function podDetail(model: SearchModel, key: string): string {
  const { ipcache } = model;
  const { namespace, name } = parseServiceKey(key); // a pod has a key of the same form
  const entries = ipcache.lookupByPod(namespace, name).flatMap((at) => ipcache.get(at) ?? []);
  const [first] = entries;
  if (first === undefined) return REMOVED;
  return [...entries.map((entry) => entry.key), ...claimParts(model, first)].join(', ');
}

/** Returns the identity, the host and the writer of a claim. */
function claimParts(model: SearchModel, { identity, hostIP, source, owner }: KeyedEntry): readonly string[] {
  const name = identityName(model, identity);
  return [
    name === undefined ? `identity ${identity}` : `identity ${identity} (${name})`,
    ...(hostIP === undefined ? [] : [`on ${hostIP}`]),
    owner === '' ? `by ${source}` : `by ${source} (${owner})`,
  ];
}

/** Returns the reserved name or the label of an identity; undefined if both are unknown. */
function identityName({ labelsOf }: SearchModel, identity: number): string | undefined {
  return reservedIdentityName(identity) ?? labelName(labelsOf(identity) ?? []);
}

function serviceDetail({ services }: SearchModel, key: string): string {
  const announced = services.get(parseServiceKey(key));
  if (announced === undefined) return REMOVED;
  const { service, endpoints } = announced;
  const backends = counted(endpoints.backends.size, 'backend');
  return [...service.clusterIPs, backends, ...(service.global ? ['global'] : [])].join(', ');
}

function nodeDetail({ nodes }: SearchModel, key: string): string {
  const node = nodes.get(key);
  return node?.fields.addresses.map(({ ip }) => ip).join(', ') ?? REMOVED;
}

function identityDetail(model: SearchModel, key: string): string {
  const identity = Number(key);
  const name = identityName(model, identity);
  const cluster = model.clusterOf(identity);
  const prefixes = counted(model.ipcache.countByIdentity(identity), 'prefix', 'prefixes');
  return [name, cluster, prefixes].filter(Boolean).join(', ');
}

function clusterDetail(model: SearchModel, name: string): string {
  const cluster = model.cluster(name);
  if (cluster === undefined) return REMOVED;
  const keys = Object.values(cluster.keys).reduce((sum, count) => sum + count, 0);
  return `${cluster.state}, ${counted(keys, 'key')}`;
}
