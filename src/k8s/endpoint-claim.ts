import { sameMetadata } from '../ipcache/k8s-metadata.ts';
import type { Claim, NamedPorts } from '../ipcache/types.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import type { PortProtocol } from '../net/port.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { type ObjectFields, readTime } from './parse-object.ts';
import { readNamedPort, textOfPorts } from './ports.ts';
import { SharedValues } from './shared-values.ts';

/** Maximum number of addresses of a pod. A pod has one address per family, and a few for additional networks. */
export const MAX_ADDRESSES = 64;
/** Maximum number of ports of a pod, as for a value of the kvstore. */
const MAX_PORTS = 1024;

/** The rank of an object among those with the same address (KUBERNETES 23), compared by {@link outranks}. */
export interface EndpointRank {
  /** True if the object is being deleted. */
  readonly deleting: boolean;
  /** Milliseconds since the epoch; 0 if unknown. */
  readonly createdAt: number;
  /** Empty if unknown. */
  readonly uid: string;
}

/**
 * The addresses of a pod or CiliumEndpoint, and their claim, which is the same for all of them. Must not be changed. It
 * contains its rank to save memory.
 */
export interface EndpointClaim extends Claim, EndpointRank {
  /** Canonical and distinct; at least one. */
  readonly ips: readonly string[];
}

/**
 * Returns true if `a` wins an address that both objects list (KUBERNETES 23): an object that is not being deleted wins,
 * then the object created last, then the greater `namespace/name/uid`.
 */
export function outranks(a: EndpointClaim, b: EndpointClaim): boolean {
  if (a.deleting !== b.deleting) return b.deleting;
  if (a.createdAt !== b.createdAt) return a.createdAt > b.createdAt;
  return fullName(a) > fullName(b);
}

/** Returns `namespace/name/uid`. It is not stored, because that would cost a long string for each object. */
function fullName({ k8s, uid }: EndpointClaim): string {
  return `${k8s?.namespace}/${k8s?.podName}/${uid}`;
}

/** Returns true if both claims are equal, so that no write is necessary. */
export function sameEndpointClaim(a: EndpointClaim, b: EndpointClaim): boolean {
  return (
    a.identity === b.identity &&
    a.hostIP === b.hostIP &&
    a.encryptKey === b.encryptKey &&
    sameMetadata(a.k8s, b.k8s) &&
    a.deleting === b.deleting &&
    a.createdAt === b.createdAt &&
    a.uid === b.uid &&
    a.ips.length === b.ips.length &&
    a.ips.every((ip, index) => ip === b.ips[index])
  );
}

/** The fields read by {@link readRank}, except the uid, which is always present. */
export const RANK_FIELDS: readonly string[] = ['metadata.creationTimestamp', 'metadata.deletionTimestamp'];

/** Returns the rank of an object. */
export function readRank(fields: ObjectFields): EndpointRank {
  const metadata = fields.map('metadata');
  return {
    deleting: metadata.value('deletionTimestamp') !== undefined,
    createdAt: readTime(metadata, 'creationTimestamp'),
    uid: metadata.string('uid') ?? '',
  };
}

/**
 * Returns the addresses and another one, each once. Makes a new array, because V8 reserves 17 elements at the first
 * append to an empty one: 130 bytes for each object.
 */
export function withIP(ips: readonly string[], ip: string): readonly string[] {
  if (ips.length === 0) return [ip];
  return ips.includes(ip) ? ips : [...ips, ip];
}

/** Returns the distinct addresses in the fields `names` of all elements of a list. */
export function readListedIPs(list: ObjectFields, names: readonly string[]): readonly string[] {
  let ips: readonly string[] = [];
  for (let index = 0; index < list.size; index++) {
    const item = list.item(index);
    for (const name of names) {
      const ip = item?.address(name);
      if (ip !== undefined) ips = withIP(ips, ip);
    }
  }
  return ips;
}

/**
 * Returns the named ports of lists, whose numbers are in `numberField`. If two ports have the same name, the last one
 * wins (KUBERNETES 19). Ports without a name are ignored.
 */
export function readPortsByName(lists: Iterable<ObjectFields>, numberField: string): NamedPorts | undefined {
  let ports: Map<string, PortProtocol> | undefined;
  for (const list of lists) {
    for (let index = 0; index < list.size; index++) {
      const item = list.item(index);
      const port = item?.value('name') === undefined ? undefined : readNamedPort(item, numberField);
      if (port === undefined || port.name === '') continue;
      if (ports !== undefined && ports.size >= MAX_PORTS && !ports.has(port.name)) {
        list.reject(index, 'too-many', `must have at most ${MAX_PORTS} names`);
        return ports;
      }
      ports ??= new Map();
      ports.set(port.name, { port: port.port, protocol: port.protocol });
    }
  }
  return ports;
}

/**
 * Values that many endpoints of a kind share: pods of a deployment have the same ports, pods of a node the same host.
 */
export class SharedParts {
  readonly #hosts = new SharedValues<string>();
  readonly #accounts = new SharedValues<string>();
  readonly #ports = new SharedValues<NamedPorts>();

  host(ip: string): string {
    return this.#hosts.share(ip, ip);
  }

  account(name: string): string {
    return this.#accounts.share(name, name);
  }

  ports(ports: NamedPorts): NamedPorts {
    return this.#ports.share(textOfPorts(ports), ports);
  }
}

/** The fields of a claim, in addition to its object and rank. Host, ports and service account are shared. */
export interface EndpointFields {
  readonly ips: readonly string[];
  readonly identity: number | undefined;
  readonly hostIP: string;
  readonly encryptKey: number;
  readonly namedPorts: NamedPorts | undefined;
  readonly serviceAccount?: string | undefined;
}

/** Returns the claim of a pod or CiliumEndpoint. */
export function endpointClaim(
  source: 'k8s' | 'custom-resource',
  { namespace, name: podName }: ServiceID,
  { deleting, createdAt, uid }: EndpointRank,
  {
    ips,
    identity = RESERVED_IDENTITIES.unmanaged,
    hostIP,
    encryptKey,
    namedPorts,
    serviceAccount,
  }: EndpointFields,
): EndpointClaim {
  // Literals, because a spread costs as much as a fifth of reading the object.
  const k8s = serviceAccount
    ? { namespace, podName, serviceAccount, namedPorts }
    : { namespace, podName, namedPorts };
  return { source, identity, hostIP, encryptKey, k8s, ips, deleting, createdAt, uid };
}
