import {
  comparableValue,
  isSharedService,
  type NaiveCluster,
  type NaiveObject,
  naiveKeys,
  slicesOf,
} from '../../operator/support/naive-cluster.ts';
import { nameOf, type OperatorWorld } from './operator-world.ts';
import type { KeyDifference } from './replay-operator.ts';

/** A difference with all that decides whether it is meant. */
interface Judged extends KeyDifference {
  readonly world: OperatorWorld;
  readonly cluster: NaiveCluster;
  /** `nodes`, `services`, `ip`, `identities`; of other keys their second part. */
  readonly resource: string;
  /** Below the prefix of the resource. */
  readonly name: string;
  /** The object that the key is of, if it is there. */
  readonly object: NaiveObject | undefined;
  /** Names of the fields in which two JSON values differ. */
  readonly fields: readonly string[];
}

function clusterOf(world: OperatorWorld): NaiveCluster {
  const { flags, scenario } = world;
  const isOperator = scenario.program.startsWith('cilium-operator');
  const resources = [
    ...(flags.get('synchronize-k8s-services') === 'false' ? [] : ['services']),
    ...(flags.get('synchronize-k8s-nodes') === 'false' ? [] : ['nodes']),
    ...(isOperator ? [] : ['ip', 'identities']),
  ];
  return {
    name: flags.get('cluster-name') ?? 'default',
    id: Number(flags.get('cluster-id') ?? 0),
    version: isOperator ? '1.8' : '1.17',
    slices: flags.get('enable-k8s-endpoint-slice') !== 'false',
    proxyName: flags.get('k8s-service-proxy-name'),
    createdAt: (object) => world.createdAt.get(nameOf(object as never)) ?? 0,
    resources: new Set(resources),
  };
}

const KINDS: Readonly<Record<string, string>> = {
  nodes: 'CiliumNode',
  services: 'Service',
  identities: 'CiliumIdentity',
};

function parsed(value: string | undefined): Readonly<Record<string, unknown>> {
  try {
    const json: unknown = JSON.parse(value ?? '');
    return typeof json === 'object' && json !== null ? (json as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

function differingFields(a: string | undefined, b: string | undefined): readonly string[] {
  const [x, y] = [parsed(a), parsed(b)];
  const names = new Set([...Object.keys(x), ...Object.keys(y)]);
  return [...names].filter((name) => JSON.stringify(x[name]) !== JSON.stringify(y[name]));
}

function judged(difference: KeyDifference, world: OperatorWorld): Judged {
  const cluster = clusterOf(world);
  const { key, expected, actual } = difference;
  const [, area = '', resource = area, , ...rest] = key.split('/');
  const [scope, ...names] = rest;
  const isOwn = scope === cluster.name || scope === 'default' || scope === 'id';
  const name = isOwn ? names.join('/') : rest.join('/');
  const [namespace, plain] = resource === 'services' ? name.split('/') : ['', name];
  const object = isOwn ? world.objects.get(`${KINDS[resource]} ${namespace}/${plain}`) : undefined;
  const fields = differingFields(expected?.v, actual?.v);
  return {
    ...difference,
    world,
    cluster,
    resource: isOwn ? resource : `foreign ${resource}`,
    name,
    object,
    fields,
  };
}

const only = (fields: readonly string[], ...allowed: string[]): boolean =>
  fields.length > 0 && fields.every((field) => allowed.includes(field));

/**
 * What is meant, and which rule says so; the first that holds counts. Besides, what is there must be what a naive reading of
 * the objects gives: no rule excuses anything else.
 */
const RULES: readonly (readonly [string, (difference: Judged) => boolean])[] = [
  // Nodes.
  [
    'O 10: nodes have no lease',
    ({ resource, expected, actual, fields }) =>
      resource === 'nodes' && fields.length === 0 && !!expected && !!actual && actual.holder === undefined,
  ],
  [
    'O 10: a node is put again, and survives a lost lease',
    ({ resource, expected, actual, object }) => resource === 'nodes' && !expected && !!actual && !!object,
  ],
  [
    'SEMANTICS 5: what others have overwritten is put again',
    ({ resource, expected, actual, object }) =>
      resource === 'nodes' && expected?.v === '{}' && expected.holder === undefined && !!actual && !!object,
  ],
  [
    'O 12: labels and annotations count',
    ({ resource, fields }) => resource === 'nodes' && only(fields, 'Labels', 'Annotations'),
  ],
  [
    'K 36: of several CIDRs the first is primary; health addresses have a family',
    ({ resource, fields }) =>
      resource === 'nodes' &&
      only(fields, 'IPv4AllocCIDR', 'IPv6AllocCIDR', 'IPv4HealthIP', 'IPv6HealthIP', 'Labels'),
  ],
  [
    'K 36: a key out of range refuses the node',
    ({ resource, actual, object }) => resource === 'nodes' && !actual && !!object,
  ],
  [
    'O 13: leftovers are deleted',
    ({ resource, actual, object }) => resource === 'nodes' && !actual && !object,
  ],
  // Services.
  [
    'SEMANTICS 5: what was lost with a lease is put again',
    ({ resource, world, expected, actual }) =>
      (resource === 'services' || resource === '.heartbeat') &&
      world.revoked &&
      !expected &&
      actual?.holder === world.lives,
  ],
  [
    'O 9: leftovers are deleted',
    ({ resource, actual, object }) => resource === 'services' && !actual && !object,
  ],
  [
    'SEMANTICS 3.1: a service that is not served has no key',
    ({ resource, actual, object }) =>
      resource === 'services' && !actual && (object?.['spec'] as { type?: string })?.type === 'ExternalName',
  ],
  [
    'O 43: what is not shared is not written, external workloads or not',
    ({ resource, expected, actual }) =>
      resource === 'services' && !actual && parsed(expected?.v)['shared'] === false,
  ],
  [
    'O 6: annotations count at once',
    ({ resource, actual, object, cluster }) =>
      resource === 'services' && !!object && !actual && !isSharedService(object, cluster.version),
  ],
  [
    'O 6: no key without a slice',
    ({ resource, actual, object, world, cluster }) =>
      resource === 'services' &&
      !!object &&
      !actual &&
      slicesOf([...world.objects.values()], object, cluster.slices).length === 0,
  ],
  [
    'O 8: no name decides',
    ({ resource, name, expected, actual }) =>
      resource === 'services' && !expected && !!actual && /\/kube-(scheduler|controller-manager)$/.test(name),
  ],
  [
    'SEMANTICS 5: what others have deleted is put again at once',
    ({ resource, key, world, expected, actual }) =>
      resource === 'services' && !expected && !!actual && world.deleted.has(key),
  ],
  [
    'O 6: annotations count at once',
    ({ resource, expected, actual, object, cluster }) =>
      resource === 'services' &&
      cluster.version === '1.8' && // for 1.17 they do
      !expected &&
      !!actual &&
      !!object &&
      isSharedService(object, cluster.version),
  ],
  [
    'SEMANTICS 3.1: no frontend without an address, SCTP, no names as addresses',
    ({ resource, fields, expected, actual }) =>
      resource === 'services' &&
      only(fields, 'frontends', 'backends') &&
      (expected?.v?.includes('\\u003cnil\\u003e') === true || actual?.v?.includes('SCTP') === true),
  ],
  [
    'SEMANTICS 3.2: of an address in two slices one counts',
    ({ resource, fields, object, world, cluster }) =>
      resource === 'services' &&
      only(fields, 'backends') &&
      !!object &&
      slicesOf([...world.objects.values()], object, cluster.slices).length > 1,
  ],
  // Addresses.
  [
    'K 30: no address, no key',
    ({ resource, name, actual }) => resource === 'ip' && name === '<nil>' && !actual,
  ],
  [
    'O 40: no key without a node',
    ({ resource, expected, actual }) => resource === 'ip' && !actual && parsed(expected?.v)['HostIP'] === '',
  ],
  [
    'O 40: named ports are written',
    ({ resource, fields }) => resource === 'ip' && only(fields, 'NamedPorts'),
  ],
  ['O 41: the next owner of an address is put', ({ resource, actual }) => resource === 'ip' && !!actual],
  ['O 9: leftovers are deleted', ({ resource, actual }) => resource === 'ip' && !actual],
  // Identities.
  [
    'K 44: a name that is no number',
    ({ resource, name, actual }) => resource === 'identities' && !actual && !/^\d+$/.test(name),
  ],
  [
    'O 38: without labels the key is deleted',
    ({ resource, actual, object }) => resource === 'identities' && !actual && !!object,
  ],
  [
    'O 9: leftovers are deleted',
    ({ resource, actual, object }) => resource === 'identities' && !actual && !object,
  ],
];

/** What somebody else has put and the original deletes, because a name begins alike or a value names the cluster. */
function isOthersKept({ resource, name, expected, actual }: Judged): boolean {
  const isOthers =
    resource === 'foreign nodes' || (resource === 'nodes' && (name === '' || name.includes('/')));
  return isOthers && expected === undefined && actual?.holder === undefined;
}

function isLeftByStopped({ resource, expected, actual, world }: Judged): boolean {
  return resource === 'nodes' && !world.isRunning && expected === undefined && actual?.holder === undefined;
}

function isKeptWhenEmpty({ resource, expected, actual, world }: Judged): boolean {
  const hasNodes = [...world.objects.keys()].some((name) => name.startsWith('CiliumNode '));
  return resource === 'nodes' && expected === undefined && actual !== undefined && !hasNodes;
}

/** The rule by which a key is not as recorded; `undefined`: there is none, and it is a mismatch. */
export function differenceRule(difference: KeyDifference, world: OperatorWorld): string | undefined {
  const all = judged(difference, world);
  if (isLeftByStopped(all)) return 'O 10: nodes stay while no operator runs';
  if (isKeptWhenEmpty(all)) return 'O 13: while there is no CiliumNode at all, leftovers stay';
  if (isOthersKept(all)) return 'O 13: whole path elements, and the value names the cluster';
  const meant = naiveKeys(world.objects.values(), all.cluster).get(difference.key);
  const { actual } = difference;
  const isAsMeant =
    meant === undefined
      ? actual === undefined || !all.key.startsWith('cilium/state/')
      : actual?.v !== undefined && comparableValue(actual.v) === comparableValue(meant);
  return isAsMeant ? RULES.find(([, holds]) => holds(all))?.[0] : undefined;
}
