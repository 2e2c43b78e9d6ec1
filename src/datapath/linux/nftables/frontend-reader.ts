import type { Family } from '../../../net/address-words.ts';
import { formatFrontend } from '../../../servicecache/frontends.ts';
import type { NetlinkSocket } from '../netlink/netlink-socket.ts';
import type { Endpoint } from '../services/service-layout.ts';
import { EMPTY_SLOT, emptyFrontend, type KernelFrontend } from './frontend-elements.ts';
import {
  pickSizeOf,
  readClusterIP,
  readFrontend,
  readPortKey,
  readSlot,
  SETS,
  setKind,
  setsOf,
  tableOf,
} from './nft-layout.ts';
import { dumpElements, type NftElement, type NftTable, readElements } from './nft-message.ts';
import { rangeLengthOf, readRange } from './source-chains.ts';

/** Maximum number of attempts to read a set completely. */
const READ_TRIES = 8;
/** Maximum number of slots of a frontend. */
const MAX_SLOTS = 1 << 20;

/** States by frontend, as formatted by `formatFrontend`. */
type Frontends = Map<string, KernelFrontend>;

/** Reads the frontends of a table from those of its sets that this agent defines, one dump message at a time. */
export function* readFrontends(
  socket: NetlinkSocket,
  family: Family,
  sets: readonly string[],
): Generator<undefined, Frontends, void> {
  const frontends: Frontends = new Map();
  const names = setsOf(family).map(({ name }) => name);
  for (const name of sets) {
    if (!names.includes(name) && rangeLengthOf(family, name) === undefined) continue;
    for (const piece of yield* readSet(socket, tableOf(family), name)) {
      for (const element of piece) recordElement(frontends, family, name, element);
      yield;
    }
  }
  return frontends;
}

function recordElement(frontends: Frontends, family: Family, set: string, element: NftElement): void {
  const { key, chain = '' } = element;
  const rangeLength = rangeLengthOf(family, set);
  const protocolSet = setKind(set);
  if (rangeLength !== undefined) {
    const { frontend, range } = readRange(key, family, rangeLength);
    frontendAt(frontends, frontend).ranges.add(range);
  } else if (set === SETS.limited) {
    frontendAt(frontends, readFrontend(key, family)).sourceChain = chain;
  } else if (set === SETS.clusterIPs) {
    const { ip, protocol } = readClusterIP(key, family);
    frontendAt(frontends, { ip, port: 0, protocol: 0 }).listedProtocols.add(protocol);
  } else if (protocolSet === undefined) {
    const frontend = frontendAt(frontends, readFrontend(key, family));
    const backendCount = set === SETS.refused ? 0 : pickSizeOf(chain);
    // In these sets, we write one element for a frontend with a port, and none for `isAny`.
    const isForeign = backendCount === undefined || frontend.backendCount !== undefined || frontend.isAny;
    if (isForeign) frontend.foreign.push({ set, key });
    else frontend.backendCount = backendCount;
  } else if (protocolSet.kind === 'masquerade') {
    const { protocol } = protocolSet;
    frontendAt(frontends, readPortKey(key, family, protocol)).listedProtocols.add(protocol);
  } else recordSlot(frontends, family, set, protocolSet.protocol, element);
}

/** Records a backend of a frontend. */
function recordSlot(
  frontends: Frontends,
  family: Family,
  set: string,
  protocol: number,
  { key, value }: NftElement,
): void {
  const { frontend, slot } = readSlot(key, family, protocol);
  const { slots, foreign } = frontendAt(frontends, frontend);
  if (slot >= MAX_SLOTS) {
    foreign.push({ set, key });
    return;
  }
  while (slots.length < slot) slots.push(EMPTY_SLOT);
  slots[slot] = value === undefined ? EMPTY_SLOT : formatFrontend(readPortKey(value, family, protocol));
}

/** Returns the state of a frontend; adds an empty one if there is none. */
function frontendAt(frontends: Frontends, endpoint: Endpoint): KernelFrontend {
  const name = formatFrontend(endpoint);
  const frontend = frontends.get(name) ?? emptyFrontend(endpoint);
  frontends.set(name, frontend);
  return frontend;
}

/** Reads the elements of a set, one dump message at a time, and returns those of each message, each element once. */
function* readSet(
  socket: NetlinkSocket,
  table: NftTable,
  set: string,
): Generator<undefined, readonly (readonly NftElement[])[], void> {
  for (let tries = 1; ; tries++) {
    const pieces: (readonly NftElement[])[] = [];
    const keys = new Set<string>();
    let isComplete = true;
    for (const piece of socket.dumpPieces(dumpElements(table, set), readElements)) {
      if (piece === 'again') {
        pieces.length = 0;
        keys.clear();
        isComplete = true;
        continue;
      }
      const elements: NftElement[] = [];
      for (const element of piece.flat()) {
        const key = Buffer.from(element.key).toString('latin1');
        if (keys.has(key)) isComplete = false;
        else elements.push(element);
        keys.add(key);
      }
      pieces.push(elements);
      yield;
    }
    // The kernel continues a dump at the next position of the set. If it has resized the set, which changes the order,
    // the dump returns some elements twice and misses others, without an error.
    if (isComplete || tries === READ_TRIES) return pieces;
  }
}
