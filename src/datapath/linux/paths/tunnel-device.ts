import { constants } from 'node:os';
import { TUNNEL_DEVICE } from '../kernel-names.ts';
import { type Link, linkRequest, RTM_LINK, readLink, writeLink } from '../netlink/link.ts';
import { NLM_F } from '../netlink/message-writer.ts';
import type { NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import type { DeviceItem } from './path-item.ts';

/** Distinguishes our interface from an interface of others with the same name. */
const ALIAS = 'datapath-cache';

type LinkSocket = Pick<NetlinkSocket, 'ask' | 'change' | 'dump' | 'transact'>;

const { EADDRINUSE, EBUSY, EEXIST, EOPNOTSUPP } = constants.errno;

/** Returns true if an interface is ours, whatever its name. */
export function isOurLink({ vxlan, alias }: Link): boolean {
  return vxlan !== undefined && alias === ALIAS;
}

/** Returns the item of our interface; undefined if the interface is no VXLAN. */
export function deviceItem({ vxlan, mtu, ...link }: Link): DeviceItem | undefined {
  return vxlan && { kind: 'device', ...vxlan, mtu, defect: defectOf(link) };
}

function defectOf({ name, up, arp }: Pick<Link, 'name' | 'up' | 'arp'>): string | undefined {
  if (name !== TUNNEL_DEVICE) return `named ${name}`;
  if (!up) return 'down';
  return arp ? 'arp on' : undefined;
}

/** Returns the interface with the name of the tunnel, also a foreign one; undefined if there is none. */
export function namedTunnel(socket: Pick<NetlinkSocket, 'ask'>): Link | undefined {
  try {
    return socket.ask(linkRequest({ name: TUNNEL_DEVICE }), readLink);
  } catch (error) {
    if (error instanceof SyscallError && error.code === 'ENODEV') return undefined;
    throw error;
  }
}

/**
 * Changes the VXLAN interface to the desired item, or deletes it. If a property cannot be changed, the interface is
 * created again, and all its items are lost. Throws `SyscallError`, also if a foreign interface has the name; that
 * interface is not changed.
 */
export function setDevice(socket: LinkSocket, item: DeviceItem | undefined): void {
  const named = namedTunnel(socket);
  const isForeign = named !== undefined && !isOurLink(named);
  if (isForeign && item !== undefined)
    throw new SyscallError(`add ${TUNNEL_DEVICE}`, EEXIST, `a foreign interface ${TUNNEL_DEVICE} exists`);
  // Our interface, which others may have renamed.
  const found = isForeign ? findOurLink(socket) : (named ?? findOurLink(socket));
  const previous = found && deviceItem(found);
  const canStay = previous !== undefined && item !== undefined && isSameTunnel(previous, item);
  if (item !== undefined && !canStay) checkPort(socket, item, found?.index);
  if (found !== undefined && !canStay) socket.change(deleteRequest(found));
  if (item === undefined) return;
  const link: Link = {
    index: canStay ? (found?.index ?? 0) : 0, // 0: it is created
    name: TUNNEL_DEVICE,
    up: true,
    mtu: item.mtu,
    arp: false,
    alias: ALIAS,
    vxlan: { vni: item.vni, port: item.port },
  };
  createOrChange(socket, link);
}

/**
 * Throws if a foreign VXLAN interface uses the port. Two interfaces can share a port only if both have a fixed VNI. The
 * check precedes the creation, because a failed creation causes events, and each event another attempt.
 */
function checkPort(socket: LinkSocket, { port }: DeviceItem, ownIndex: number | undefined): void {
  const foreign = socket
    .dump(linkRequest(), readLink)
    .find(
      ({ index, up, vxlan }) => index !== ownIndex && vxlan?.port === port && (up || vxlan.vni === 'any'),
    );
  if (foreign === undefined) return;
  const remedy = `interface ${foreign.name} uses UDP port ${port}: delete it, or set --datapath-routing direct`;
  throw new SyscallError(`add ${TUNNEL_DEVICE}`, EADDRINUSE, remedy);
}

/** Returns our interface, whatever its name. */
function findOurLink(socket: LinkSocket): Link | undefined {
  return socket.dump(linkRequest(), readLink).find(isOurLink);
}

function isSameTunnel(a: DeviceItem, b: DeviceItem): boolean {
  return a.vni === b.vni && a.port === b.port;
}

function createOrChange(socket: LinkSocket, link: Link): void {
  const operation = `add ${link.name}`;
  const request = (change: 'create' | 'change', flags: number, target = link): NetlinkRequest => ({
    operation,
    type: RTM_LINK.add,
    flags,
    write: (writer) => writeLink(writer, target, change),
  });
  // The interface is created and gets its alias in one transaction, because without our alias it is considered foreign.
  const requests =
    link.index === 0
      ? [request('create', NLM_F.create | NLM_F.exclusive), request('change', 0)]
      : [request('change', 0)];
  let error = socket.transact(requests).find((one) => one !== undefined);
  // Before Linux 6.2, an interface cannot be renamed while it is up. It is set down first, by a request without a name.
  if (error?.errno === EBUSY)
    error = socket
      .transact([request('change', 0, { ...link, name: '', up: false }), request('change', 0)])
      .find((one) => one !== undefined);
  if (error === undefined) return;
  if (error.errno !== EOPNOTSUPP) throw error;
  const remedy = 'the kernel has no VXLAN: load the module vxlan';
  throw new SyscallError(
    error.call,
    error.errno,
    error.detail === '' ? remedy : `${error.detail}: ${remedy}`,
  );
}

function deleteRequest({ index, name }: Link): NetlinkRequest {
  return { ...linkRequest({ index }), operation: `delete ${name}`, type: RTM_LINK.delete };
}
