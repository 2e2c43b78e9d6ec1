import { RESERVED_IDENTITIES } from '../identity/numeric-identity.ts';
import { sameMetadata } from '../ipcache/k8s-metadata.ts';
import type { Claim, NamedPorts } from '../ipcache/types.ts';
import type { PortProtocol } from '../net/port.ts';
import type { ServiceID } from '../servicecache/service-id.ts';
import { type ObjectFields, readTime } from './parse-object.ts';
import { readNamedPort } from './ports.ts';
import { SharedValues } from './shared-values.ts';

/** Addresses of a pod: one a family, and as many again for networks of its own. More are an attack. */
export const MOST_ADDRESSES = 64;
/** Ports of a pod that are read, as of a value of the kvstore. */
const MOST_PORTS = 1024;

/** Which of several objects with the same address has it (K 23). Compared by {@link outranks}. */
export interface EndpointRank {
  /** The object is being deleted. */
  readonly deleting: boolean;
  /** Milliseconds since the epoch; 0 where the object does not say. */
  readonly createdAt: number;
  /** `''` where the object does not say. */
  readonly uid: string;
}

/**
 * What a pod or CiliumEndpoint claims: the same for each of its addresses. Not to be changed. One object, with its rank, as
 * there is one for each of them.
 */
export interface EndpointAddresses extends Claim, EndpointRank {
  /** Canonical, each once; at least one. */
  readonly ips: readonly string[];
}

/**
 * Whether `a` comes before `b` for an address that both list (K 23): one that is not being deleted, then the one that was
 * created last, then the greater `namespace/name/uid`.
 */
export function outranks(a: EndpointAddresses, b: EndpointAddresses): boolean {
  if (a.deleting !== b.deleting) return b.deleting;
  if (a.createdAt !== b.createdAt) return a.createdAt > b.createdAt;
  return fullName(a) > fullName(b);
}

/** Put together only where it decides: it would be a long string for each object. */
function fullName({ k8s, uid }: EndpointAddresses): string {
  return `${k8s?.namespace}/${k8s?.podName}/${uid}`;
}

/** Whether two say the same, so that nothing is to be written. */
export function sameAddresses(a: EndpointAddresses, b: EndpointAddresses): boolean {
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

/** What {@link readRank} looks at, but for the uid, which is always there. */
export const RANK_FIELDS: readonly string[] = ['metadata.creationTimestamp', 'metadata.deletionTimestamp'];

/** The rank of an object, by its metadata. */
export function readRank(fields: ObjectFields): EndpointRank {
  const metadata = fields.map('metadata');
  return {
    deleting: metadata.value('deletionTimestamp') !== undefined,
    createdAt: readTime(metadata, 'creationTimestamp'),
    uid: metadata.string('uid') ?? '',
  };
}

/** The addresses of a list of objects that have them in these fields, each once. */
export function readListedIPs(list: ObjectFields, names: readonly string[]): readonly string[] {
  const ips = new Set<string>();
  for (let index = 0; index < list.size; index++) {
    const item = list.item(index);
    for (const name of names) {
      const ip = item?.address(name);
      if (ip !== undefined) ips.add(ip);
    }
  }
  return [...ips];
}

/** Named ports of lists, the last of equal names (K 19); those without a name are not meant. */
export function readPortsByName(lists: Iterable<ObjectFields>, number: string): NamedPorts | undefined {
  let ports: Map<string, PortProtocol> | undefined;
  for (const list of lists) {
    for (let index = 0; index < list.size; index++) {
      const item = list.item(index);
      const port = item?.value('name') === undefined ? undefined : readNamedPort(item, number);
      if (port === undefined || port.name === '') continue;
      if (ports !== undefined && ports.size >= MOST_PORTS && !ports.has(port.name)) {
        list.reject(index, 'too-many', `must have at most ${MOST_PORTS} names`);
        return ports;
      }
      ports ??= new Map();
      ports.set(port.name, { port: port.port, protocol: port.protocol });
    }
  }
  return ports;
}

/** What many endpoints of one kind say alike: the pods of a deployment have the same ports, those of a node the same host. */
export class SharedParts {
  readonly #hosts = new SharedValues<string>();
  readonly #ports = new SharedValues<NamedPorts>();

  host(ip: string): string {
    return this.#hosts.share(ip, ip);
  }

  ports(ports: NamedPorts): NamedPorts {
    let text = '';
    // With its length no name, whatever is in it, reads as two.
    for (const [name, { port, protocol }] of ports) text += `${name.length}:${name}:${port}/${protocol},`;
    return this.#ports.share(text, ports);
  }
}

/** What a pod or CiliumEndpoint claims. */
export function endpointAddresses(
  source: 'k8s' | 'custom-resource',
  { namespace, name: podName }: ServiceID,
  { deleting, createdAt, uid }: EndpointRank,
  said: {
    readonly ips: readonly string[];
    readonly identity: number | undefined;
    readonly hostIP: string;
    readonly encryptKey: number;
    readonly namedPorts: NamedPorts | undefined;
  },
  shared: SharedParts,
): EndpointAddresses {
  const { ips, identity = RESERVED_IDENTITIES.unmanaged, encryptKey } = said;
  const hostIP = shared.host(said.hostIP);
  const namedPorts = said.namedPorts && shared.ports(said.namedPorts);
  const k8s = { namespace, podName, namedPorts };
  return { source, identity, hostIP, encryptKey, k8s, ips, deleting, createdAt, uid };
}
