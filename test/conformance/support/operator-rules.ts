import {
  cidrValue,
  comparableValue,
  firstPorts,
  identityValue,
  ipValue,
  isSharedService,
  type NaiveCluster,
  type NaiveObject,
  naiveKeys,
  slicesOf,
} from '../../operator/support/naive-cluster.ts';
import { type LeaseHolder, nameOf, type OperatorWorld } from './operator-world.ts';

/** The content of a key: its value, and the holder of its lease. */
export interface Held {
  readonly v: string | undefined;
  readonly holder: LeaseHolder | undefined;
}

/** A key that differs from the recording. */
export interface KeyDifference {
  readonly etcd: string;
  readonly key: string;
  readonly expected: Held | undefined;
  readonly actual: Held | undefined;
}

/** The recorded history of a key. */
export interface RecordedPast {
  /** The content at the previous quiet point. */
  readonly before: Held | undefined;
  /** Why the key is no longer recorded; `undefined` if it is, or if nothing explains it. */
  readonly gone: 'with its lease' | 'by another client' | undefined;
  /** All values that the objects required under the key at quiet points so far, comparable. */
  readonly meant: ReadonlySet<string>;
}

/** A difference with all inputs of the rules. */
interface Judged extends KeyDifference, RecordedPast {
  readonly world: OperatorWorld;
  readonly cluster: NaiveCluster;
  readonly objects: readonly NaiveObject[];
  /** `nodes`, `services`, `ip`, `identities`; of other keys their second part. */
  readonly resource: string;
  /** Below the prefix of the resource. */
  readonly name: string;
  /** The object of the key, if it exists, and all its versions so far. */
  readonly object: NaiveObject | undefined;
  readonly versions: readonly NaiveObject[];
  /** The last value that another client wrote under the key. */
  readonly put: Held | undefined;
  /** The value that the objects require now, comparable. */
  readonly now: string | undefined;
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

type Fields = Readonly<Record<string, unknown>>;

function parsed(value: string | undefined): Fields {
  try {
    const json: unknown = JSON.parse(value ?? '');
    return typeof json === 'object' && json !== null ? (json as Fields) : {};
  } catch {
    return {};
  }
}

/** Returns true if two values are equal as JSON, in any order of fields. */
function isSame(a: unknown, b: unknown): boolean {
  return comparableValue(JSON.stringify(a) ?? '') === comparableValue(JSON.stringify(b) ?? '');
}

function without(fields: Fields, ...names: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));
}

function judged(difference: KeyDifference, past: RecordedPast, world: OperatorWorld): Judged {
  const cluster = clusterOf(world);
  const { etcd, key } = difference;
  const [, area = '', ...parts] = key.split('/');
  const [resource = area, , ...rest] = area === 'state' ? parts : [];
  const [scope, ...names] = rest;
  const isOwn = area !== 'state' || scope === cluster.name || scope === 'default' || scope === 'id';
  const name = isOwn ? names.join('/') : rest.join('/');
  const [namespace, plain] = resource === 'services' ? name.split('/') : ['', name];
  const of = `${KINDS[resource]} ${namespace}/${plain}`;
  const objects = [...world.objects.values()];
  return {
    ...difference,
    ...past,
    world,
    cluster,
    objects,
    name,
    resource: isOwn ? resource : `foreign ${resource}`,
    object: isOwn ? world.objects.get(of) : undefined,
    versions: isOwn ? (world.versions.get(of) ?? []) : [],
    put: world.puts.get(`${etcd} ${key}`),
    now: naiveKeys(objects, cluster).get(key),
  };
}

// ── Values that the original may have written
// ───────────────────────────────────────────────────────────────

/**
 * Returns the value as the original writes it: addresses without named ports, services without zones, identities
 * without the cluster label.
 */
function asOriginal({ resource, cluster }: Judged, value: string): readonly string[] {
  if (resource === 'ip')
    return [value, comparableValue(JSON.stringify(without(parsed(value), 'NamedPorts')))];
  if (resource === 'services')
    return [value, comparableValue(JSON.stringify(without(parsed(value), 'zones')))];
  if (resource !== 'identities') return [value];
  return [value, value.replace(`k8s:io.cilium.k8s.policy.cluster=${cluster.name};`, '')];
}

/** Returns the required values if `instead` replaces the object of its name. */
function meantWith(
  { objects, cluster, key }: Judged,
  ...instead: readonly NaiveObject[]
): string | undefined {
  const names = new Set(instead.map((object) => nameOf(object as never)));
  const others = objects.filter((object) => !names.has(nameOf(object as never)));
  return naiveKeys([...others, ...instead], cluster).get(key);
}

/** Returns true if the objects, or an earlier version of the key's object, required the recorded value. */
function isEarlier(all: Judged): boolean {
  const value = comparableValue(withoutNil(all) ?? all.expected?.v ?? '');
  const earlier = [...all.meant, ...all.versions.map((version) => meantWith(all, version))];
  return earlier.some((one) => one !== undefined && asOriginal(all, one).includes(value));
}

/**
 * The recorded value without the frontend `<nil>` of a headless service, if it has one with the ports of a version of
 * the service.
 */
function withoutNil({ expected, versions }: Judged): string | undefined {
  const { frontends, ...recorded } = parsed(expected?.v);
  const { '<nil>': nil, ...others } = (frontends ?? {}) as Fields;
  const hasPorts = (version: NaiveObject): boolean => {
    const spec = (version['spec'] ?? {}) as { readonly ports?: Parameters<typeof firstPorts>[0] };
    return nil !== undefined && isSame(nil, firstPorts(spec.ports));
  };
  return versions.some(hasPorts) ? JSON.stringify({ ...recorded, frontends: others }) : undefined;
}

/** Returns true if another client wrote the recorded value under the recorded lease. */
function isPut({ put, expected }: Judged): boolean {
  return (
    put !== undefined && expected !== undefined && put.v === expected.v && put.holder === expected.holder
  );
}

/** Returns true if the program, in any of its lives, or another client wrote the recorded value. */
function isLeft(all: Judged): boolean {
  return isPut(all) || (typeof all.expected?.holder === 'number' && isEarlier(all));
}

/**
 * Returns true if the recorded key was deleted with its lease or by another client; the program writes it
 * again.
 */
function isLost({ expected, gone }: Judged): boolean {
  return expected === undefined && gone !== undefined;
}

/** Returns all CiliumEndpoints that exist or existed. */
function endpointsOf({ world }: Judged): readonly NaiveObject[] {
  return [...world.versions.values()].flat().filter(({ kind }) => kind === 'CiliumEndpoint');
}

/** Returns true if the value of an address with these fields is that of an endpoint. */
function isOfEndpoint(all: Judged, ip: string, fields: Fields = {}): boolean {
  const { NamedPorts: _, ...recorded } = parsed(all.expected?.v);
  return endpointsOf(all).some((endpoint) =>
    isSame({ ...without(ipValue(ip, endpoint) as Fields, 'NamedPorts'), ...fields }, recorded),
  );
}

/** Returns the service of the key with these annotations. */
function annotated(
  { object }: Judged,
  annotations: Readonly<Record<string, string>>,
): readonly NaiveObject[] {
  if (object === undefined) return [];
  return [{ ...object, metadata: { ...object.metadata, annotations } }];
}

/** An object with the annotations that 1.8 knows. */
function withOldNames(object: NaiveObject): NaiveObject {
  const all = Object.entries(object.metadata.annotations ?? {});
  const annotations = Object.fromEntries(all.filter(([name]) => !name.startsWith('service.cilium.io/')));
  return { ...object, metadata: { ...object.metadata, annotations } };
}

const SHARED = { 'service.cilium.io/global': 'true', 'service.cilium.io/shared': 'true' };

/** With external workloads 1.17 writes every service, and says that it is not shared. */
function isUnsharedService(all: Judged): boolean {
  const [shared] = annotated(all, SHARED);
  if (shared === undefined || all.object === undefined || isSharedService(all.object, '1.17')) return false;
  const value = parsed(meantWith(all, shared));
  const { annotations = {} } = all.object.metadata;
  const includeExternal = ['service.cilium.io/global', 'io.cilium/global-service'].some(
    (name) => annotations[name] === 'true',
  );
  return isSame({ ...value, shared: false, includeExternal }, parsed(all.expected?.v));
}

/** Returns the required values if the service of the key had an empty slice. */
function withEmptySlice(all: Judged): string | undefined {
  const { object, cluster } = all;
  if (object === undefined) return undefined;
  const { name, namespace = '' } = object.metadata;
  const labels = { 'kubernetes.io/service-name': name };
  const empty = cluster.slices
    ? { kind: 'EndpointSlice', metadata: { name: 'empty', namespace, labels } }
    : { kind: 'Endpoints', metadata: { name, namespace } };
  return meantWith(all, empty);
}

/**
 * Returns true if the slices of a service were deleted, but its key remains with the last backends or none.
 */
function isWithoutSlices(all: Judged): boolean {
  const { object, cluster, objects, expected } = all;
  if (object === undefined || slicesOf(objects, object, cluster.slices).length > 0) return false;
  return comparableValue(withoutNil(all) ?? expected?.v ?? '') === withEmptySlice(all) || isLeft(all);
}

/** Returns true if slices of the service have DNS names as addresses. */
function hasNamedBackends(all: Judged): boolean {
  const { object, objects, expected } = all;
  const { backends, ...recorded } = parsed(expected?.v);
  const { backends: _, ...meant } = parsed(withEmptySlice(all));
  const names = objects.flatMap((slice) => {
    const { addressType, endpoints, ports, metadata } = slice as NaiveObject & {
      readonly endpoints?: readonly { readonly addresses: readonly string[] }[];
      readonly ports?: Parameters<typeof firstPorts>[0];
    };
    const isOfService = metadata.labels?.['kubernetes.io/service-name'] === object?.metadata.name;
    if (addressType !== 'FQDN' || !isOfService) return [];
    return (endpoints ?? []).flatMap(({ addresses }) => addresses.map((name) => [name, firstPorts(ports)]));
  });
  return names.length > 0 && isSame(recorded, meant) && isSame(backends, Object.fromEntries(names));
}

type Backends = Readonly<Record<string, Readonly<Record<string, { readonly Protocol: string }>>>>;

/** Returns true if only SCTP ports are missing. */
function isWithoutSCTP({ expected, now }: Judged): boolean {
  const { backends, ...meant } = parsed(now);
  const without = Object.entries((backends ?? {}) as Backends).map(([ip, ports]) => [
    ip,
    Object.fromEntries(Object.entries(ports).filter(([, { Protocol }]) => Protocol !== 'SCTP')),
  ]);
  return isSame({ ...meant, backends: Object.fromEntries(without) }, parsed(expected?.v));
}

/**
 * Returns true if the differing backends are in several slices, and have the ports of another slice or of
 * all.
 */
function isOfOtherSlice({ expected, now, object, objects, cluster }: Judged): boolean {
  if (object === undefined) return false;
  const [{ backends: recorded, ...rest }, { backends: meant, ...others }] = [
    parsed(expected?.v),
    parsed(now),
  ];
  const slices = slicesOf(objects, object, cluster.slices);
  const a = (recorded ?? {}) as Backends;
  const b = (meant ?? {}) as Backends;
  return (
    isSame(rest, others) &&
    isSame(Object.keys(a).sort(), Object.keys(b).sort()) &&
    Object.keys(a).every((ip) => {
      const ports: readonly unknown[] = slices
        .map(({ backends }) => backends.get(ip))
        .filter((one) => one !== undefined);
      const possible = ports.length > 1 ? [...ports, Object.assign({}, ...ports)] : [b[ip]];
      return possible.some((one) => isSame(one, a[ip]));
    })
  );
}

const CIDR_FIELDS = ['IPv4AllocCIDR', 'IPv6AllocCIDR'];
const HEALTH_FIELDS = ['IPv4HealthIP', 'IPv6HealthIP'];

/**
 * CIDRs and health addresses are those of the object: any CIDR of the family, also with a mask of 16 bytes, and any
 * address.
 */
function isOtherCIDR({ expected, now, object }: Judged): boolean {
  const [recorded, meant] = [parsed(expected?.v), parsed(now)];
  const spec = (object?.['spec'] ?? {}) as {
    readonly ipam?: { readonly podCIDRs?: readonly string[] };
    readonly health?: Readonly<Record<string, string>>;
  };
  const cidrs = (spec.ipam?.podCIDRs ?? []).flatMap((cidr) => {
    const plain = cidrValue(cidr);
    if (plain === undefined) return [];
    const field = `IPv${plain.family}AllocCIDR`;
    const mask = Buffer.concat([Buffer.alloc(12, 0xff), Buffer.from(plain.value.Mask, 'base64')]);
    return [
      { field, value: plain.value },
      { field, value: { ...plain.value, Mask: mask.toString('base64') } },
    ];
  });
  return (
    isSame(
      without(recorded, ...CIDR_FIELDS, ...HEALTH_FIELDS),
      without(meant, ...CIDR_FIELDS, ...HEALTH_FIELDS),
    ) &&
    CIDR_FIELDS.every(
      (field) =>
        isSame(recorded[field], meant[field]) ||
        cidrs.some((cidr) => cidr.field === field && isSame(cidr.value, recorded[field])),
    ) &&
    HEALTH_FIELDS.every(
      (field) =>
        recorded[field] === meant[field] ||
        recorded[field] === spec.health?.[field.slice(0, 4).toLowerCase()],
    )
  );
}

/**
 * Returns true if the encryption key of a node exceeds a byte: the original keeps its old value or the lowest
 * byte.
 */
function isKeyOutOfRange(all: Judged): boolean {
  const spec = (all.object?.['spec'] ?? {}) as { readonly encryption?: { readonly key?: number } };
  const key = spec.encryption?.key ?? 0;
  if (all.object === undefined || (key >= 0 && key <= 255)) return false;
  const cut = { ...all.object, spec: { ...spec, encryption: { key: key & 255 } } };
  return isLeft(all) || meantWith(all, cut) === comparableValue(all.expected?.v ?? '');
}

/** Returns true if the name of the identity is no number: the original writes it, we do not. */
function isNamedIdentity(all: Judged): boolean {
  const { name, versions, cluster, expected } = all;
  return (
    !/^\d+$/.test(name) &&
    versions.some((version) =>
      asOriginal(all, identityValue(version, cluster) ?? '').includes(expected?.v ?? ''),
    )
  );
}

/** Returns true if the value has all addresses of an endpoint although one is invalid. */
function hasNoAddress(all: Judged): boolean {
  return all.name === '<nil>' && isOfEndpoint(all, '');
}

// ── The rules ────────────────────────────────────────────────────────────────────────────────────────────────

type Rule = readonly [resource: string, name: string, holds: (all: Judged) => boolean];

function type({ object }: Judged): unknown {
  return (object?.['spec'] as { readonly type?: unknown } | undefined)?.type;
}

/** Rules for keys that only the original has. */
const MISSING: readonly Rule[] = [
  ['nodes', 'O 13: leftovers are deleted', (all) => !all.object && isLeft(all)],
  ['nodes', 'K 36: a key out of range refuses the node', isKeyOutOfRange],
  ['services', 'O 9: leftovers are deleted', (all) => !all.object && isLeft(all)],
  [
    'services',
    'SEMANTICS 3.1: a service that is not served has no key',
    (all) => type(all) === 'ExternalName' && isEarlier(all),
  ],
  ['services', 'O 43: what is not shared is not written, external workloads or not', isUnsharedService],
  ['services', 'SEMANTICS 3.1: no names as addresses', hasNamedBackends],
  ['services', 'O 6: no key without a slice', isWithoutSlices],
  [
    'services',
    'O 6: annotations count at once',
    (all) => !!all.object && !isSharedService(all.object, all.cluster.version) && isLeft(all),
  ],
  ['ip', 'K 30: no address, no key', hasNoAddress],
  ['ip', 'O 40: no key without a node', (all) => isOfEndpoint(all, all.name, { HostIP: '' })],
  ['ip', 'O 9: leftovers are deleted', isLeft],
  ['identities', 'K 44: a name that is no number', isNamedIdentity],
  ['identities', 'O 38: without labels the key is deleted', (all) => !!all.object && isLeft(all)],
  ['identities', 'O 9: leftovers are deleted', (all) => !all.object && isLeft(all)],
];

/** Rules for keys that only we have. */
const ADDED: readonly Rule[] = [
  ['nodes', 'O 10: a node is put again, and survives a lost lease', (all) => !!all.object && isLost(all)],
  ['services', 'SEMANTICS 5: what was lost is put again', isLost],
  ['.heartbeat', 'SEMANTICS 5: what was lost is put again', isLost],
  ['synced', 'SEMANTICS 5: what was lost is put again', isLost],
  ['cluster-config', 'O 35: a lost configuration is put again at once', isLost],
  ['ip', 'O 41: the next owner of an address is put', (all) => isLost(all) || isContested(all)],
  [
    'services',
    'SEMANTICS 3.1: annotations by their newer names count',
    ({ cluster, before, object }) =>
      cluster.version === '1.8' && !before && !!object && !isSharedService(withOldNames(object), '1.8'),
  ],
  [
    'services',
    'O 8: no name decides',
    ({ name, before }) => !before && /\/kube-(scheduler|controller-manager)$/.test(name),
  ],
  [
    'services',
    'O 6: annotations count at once',
    ({ cluster, before, versions }) =>
      cluster.version === '1.8' && // for 1.17 they do
      !before &&
      versions.some((version) => !isSharedService(version, cluster.version)),
  ],
];

/** Returns true if another endpoint has, or had, the address. */
function isContested(all: Judged): boolean {
  const owners = endpointsOf(all).filter((endpoint) =>
    JSON.stringify(endpoint['status'] ?? '').includes(`"${all.name}"`),
  );
  return new Set(owners.map((owner) => nameOf(owner as never))).size > 1;
}

/** Rules for keys that both have with different values. */
const CHANGED: readonly Rule[] = [
  ['nodes', 'SEMANTICS 5: what others have overwritten is put again', isPut],
  ['services', 'SEMANTICS 5: what others have overwritten is put again', isPut],
  ['nodes', 'O 12: labels and annotations count', isEarlier],
  ['nodes', 'K 36: of several CIDRs the first is primary; health addresses have a family', isOtherCIDR],
  [
    'services',
    'SEMANTICS 3.1: no frontend without an address',
    (all) => comparableValue(withoutNil(all) ?? '') === all.now,
  ],
  ['services', 'SEMANTICS 3.1: SCTP', isWithoutSCTP],
  [
    'services',
    'O 6: zones are written',
    (all) => asOriginal(all, all.now ?? '{}')[1] === comparableValue(all.expected?.v ?? ''),
  ],
  ['services', 'SEMANTICS 3.2: of an address in two slices one counts', isOfOtherSlice],
  [
    'ip',
    'O 40: named ports are written',
    (all) => asOriginal(all, all.now ?? '')[1] === comparableValue(all.expected?.v ?? ''),
  ],
  [
    'ip',
    'O 41: the next owner of an address is put',
    (all) => isContested(all) && isOfEndpoint(all, all.name),
  ],
  [
    'identities',
    'O 38: the label of the cluster is added',
    (all) => asOriginal(all, all.now ?? '')[1] === all.expected?.v,
  ],
];

/**
 * Returns true if the recorded lease belongs to this life. A key that is not written again keeps its earlier
 * lease.
 */
function isOfLife({ expected, before, world }: Judged): boolean {
  const { holder } = expected ?? {};
  return typeof holder === 'number' && (holder === world.lives || holder === before?.holder);
}

const NODE_LEASE = 'O 10: nodes have no lease';

/**
 * Returns true if the key is a node under a lease: 1.8 and 1.17 lease nodes; here only nodes written by an
 * agent have a lease.
 */
function isNodeLease(all: Judged): boolean {
  const { resource, actual, put } = all;
  const holder = put !== undefined && put.v === actual?.v ? put.holder : undefined;
  return resource === 'nodes' && isOfLife(all) && actual?.holder === holder;
}

/** A key of another client that the original deletes because of its name or as a leftover. */
function keepsOthers(all: Judged): string | undefined {
  const { resource, name, expected, actual, put, world, gone, objects } = all;
  if (!resource.endsWith('nodes') || expected !== undefined || actual === undefined) return undefined;
  if (!world.isRunning && gone !== undefined && actual.holder === undefined)
    return 'O 10: nodes stay while no operator runs';
  if (put === undefined || put.v !== actual.v || put.holder !== actual.holder) return undefined;
  if (!objects.some(({ kind }) => kind === 'CiliumNode'))
    return 'O 13: while there is no CiliumNode at all, leftovers stay';
  const isOthers = resource === 'foreign nodes' || name === '' || name.includes('/');
  return isOthers ? 'O 13: whole path elements, and the value names the cluster' : undefined;
}

/** Returns true if the recorded key has the program's lease. A key without one belongs to another client. */
function hasLease({ expected, put }: Pick<Judged, 'expected' | 'put'>): boolean {
  return (
    expected === undefined ||
    expected.holder !== undefined ||
    (put?.holder === undefined && put?.v === expected.v)
  );
}

/**
 * Returns the rule that allows a difference; `undefined` if it is a mismatch. A rule holds if its
 * circumstance exists, the recorded value follows from the original's behaviour, and our value is that of a
 * naive reading of the objects.
 */
export function differenceRule(
  difference: KeyDifference,
  past: RecordedPast,
  world: OperatorWorld,
): string | undefined {
  const all = judged(difference, past, world);
  const { expected, actual, now, resource, key } = all;
  if (!hasLease(all)) return undefined;
  const kept = keepsOthers(all);
  if (kept !== undefined) return kept;
  const isAsMeant =
    now === undefined
      ? actual === undefined || !key.startsWith('cilium/state/')
      : actual?.v !== undefined && comparableValue(actual.v) === now;
  if (!isAsMeant) return undefined;
  const ruleOf = (rules: readonly Rule[]): string | undefined =>
    rules.find(([of, , holds]) => of === resource && holds(all))?.[1];
  if (actual === undefined) return isPut(all) || isOfLife(all) ? ruleOf(MISSING) : undefined;
  if (expected === undefined) return ruleOf(ADDED);
  const value =
    comparableValue(expected.v ?? '') === comparableValue(actual.v ?? '') ? NODE_LEASE : ruleOf(CHANGED);
  if (value === undefined || expected.holder === actual.holder || (value !== NODE_LEASE && isPut(all)))
    return value;
  return isNodeLease(all) ? value : undefined;
}

/** Returns true if a recorded key has the required lease. Otherwise {@link differenceRule} rejects it. */
export function isLeasedAsRecorded({ etcd, key, expected }: KeyDifference, world: OperatorWorld): boolean {
  return hasLease({ expected, put: world.puts.get(`${etcd} ${key}`) });
}

/** Returns the values that the objects require now, comparable, by key. */
export function meantNow(world: OperatorWorld): ReadonlyMap<string, string> {
  return naiveKeys(world.objects.values(), clusterOf(world));
}
