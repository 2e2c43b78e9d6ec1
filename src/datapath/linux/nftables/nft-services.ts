import type { Family } from '../../../net/address-words.ts';
import { formatFrontend } from '../../../servicecache/frontends.ts';
import type { KernelTable, TableChange } from '../kernel-table.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import { MessageWriter } from '../netlink/message-writer.ts';
import { NETLINK, type NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import type { ServiceItem } from '../services/desired-services.ts';
import { type Endpoint, parseEndpoint } from '../services/service-layout.ts';
import type { Kernel } from '../syscall/kernel.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';
import {
  addChain,
  addElements,
  addSet,
  addTable,
  deleteElements,
  deleteTable,
  dumpChains,
  dumpElements,
  type NftElement,
  type NftTable,
  nftBatch,
  readChain,
  readElements,
} from './nft-message.ts';
import {
  backendValue,
  baseChains,
  frontendKey,
  LAYOUT_CHAIN,
  pickChain,
  pickedOf,
  pickName,
  readBackend,
  readKey,
  SETS,
  setsOf,
  tableOf,
} from './service-layout.ts';

const FAMILIES = [4, 6] as const;
/** How often a table is read anew that is not whole. */
const READ_TRIES = 8;
/** A message of more elements than this would be too long, IPv6 and all. */
const ELEMENTS_A_MESSAGE = 256;
/** A transaction has to go in one send, its edges included. */
const BATCH_BYTES = 60_000;
/** A transaction looks at all frontends, so that fewer are worth it; but the event loop has to turn, too. */
const CHUNK = 64;

/** A change, and how it is made. */
interface PreparedChange {
  /** Its place among all. */
  readonly at: number;
  readonly change: TableChange<ServiceItem>;
  readonly requests: readonly NetlinkRequest[];
}

/** A slot that is missing: somebody has deleted it. */
const HOLE = '';

/** What the kernel has of a frontend. */
interface Known {
  /** Of how many backends it picks one; 0: it refuses; `undefined`: nothing is there but slots. */
  readonly backends: number | undefined;
  /** Filled while it is read. */
  readonly slots: string[];
}

/**
 * Services in nftables, for hosts where no program can be attached to a cgroup. Frontends are the elements of a map, and so
 * are backends; there is a chain for each *number* of backends, not for each service, so that a change costs as much as the service
 * is large, however many there are.
 *
 *     services  frontend → goto pick-N     refused  frontends without backends
 *     pick-N    numgen random mod N → slot; frontend, slot → backends → dnat
 *
 * The backends of a frontend are there before it is, and stay longer. A connection keeps its backend, whatever changes, by
 * connection tracking. One table for each family; nothing outside of them is touched.
 */
export class NftServices implements KernelTable<ServiceItem>, Disposable {
  readonly name = 'nftables';
  readonly chunk: number = CHUNK;
  readonly #table: string;
  readonly #open: () => NetlinkSocket;
  readonly #socket: NetlinkSocket;
  readonly #known: Readonly<Record<Family, Map<string, Known>>> = { 4: new Map(), 6: new Map() };
  readonly #picks: Record<Family, Set<number>> = { 4: new Set(), 6: new Set() };
  readonly #isThere: Record<Family, boolean> = { 4: false, 6: false };

  /** Opens a socket, in a network namespace if one is named; writes nothing. */
  constructor(
    kernel: Kernel,
    { table, namespace }: { readonly table: string; readonly namespace?: string | undefined },
  ) {
    this.#table = table;
    this.#open = () => new NetlinkSocket(kernel, { protocol: NETLINK.netfilter, namespace });
    this.#socket = this.#open();
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  equal(a: ServiceItem, b: ServiceItem): boolean {
    const others = new Set(b.backends);
    return a.backends.length === others.size && a.backends.every((backend) => others.has(backend));
  }

  print({ backends }: ServiceItem): string {
    return backends.length === 0 ? 'refused' : backends.join(' ');
  }

  /** Writes nothing. A table of another layout counts as none. */
  *dump(): Generator<readonly [string, ServiceItem] | undefined, void, void> {
    yield* this.#readAll();
    for (const family of FAMILIES)
      for (const [name, known] of this.#known[family]) yield [name, itemOf(known)];
  }

  apply(changes: readonly TableChange<ServiceItem>[]): readonly (SyscallError | undefined)[] {
    const outcomes: (SyscallError | undefined)[] = changes.map(() => undefined);
    let batch: PreparedChange[] = [];
    let bytes = 0;
    const flush = (): void => {
      this.#commit(batch, outcomes);
      batch = [];
      bytes = 0;
    };
    changes.forEach((change, at) => {
      const prepared = this.#prepared(at, change);
      const size = sizeOf(prepared.requests);
      if (bytes + size > BATCH_BYTES) flush();
      batch.push(prepared);
      bytes += size;
    });
    flush();
    return outcomes;
  }

  /** Takes away all of it. */
  remove(): void {
    for (const family of FAMILIES) {
      const error = this.#send([deleteTable(tableOf(family, this.#table))]);
      if (error !== undefined && error.code !== 'ENOENT') throw error;
      this.#known[family].clear();
      this.#isThere[family] = false;
    }
  }

  #tableOf(family: Family): NftTable {
    return tableOf(family, this.#table);
  }

  /** Takes down what is there, piece by piece. */
  *#readAll(): Generator<undefined, void, void> {
    for (const family of FAMILIES) {
      this.#known[family].clear();
      if (!this.#readChains(family)) continue;
      // While the kernel makes a map larger, a dump of it may miss some, and nothing says so.
      for (let tries = 1; tries === 1 || (this.#isTorn(family) && tries <= READ_TRIES); tries++) {
        this.#known[family].clear();
        yield* this.#readSets(family);
      }
    }
  }

  *#readSets(family: Family): Generator<undefined, void, void> {
    using socket = this.#open();
    for (const set of Object.values(SETS)) {
      for (const piece of socket.dumpPieces(dumpElements(this.#tableOf(family), set), readElements)) {
        if (piece === 'again') continue;
        for (const element of piece.flat()) this.#take(family, set, element);
        yield;
      }
    }
  }

  #isTorn(family: Family): boolean {
    return [...this.#known[family].values()].some(
      ({ backends, slots }) => backends !== slots.length || slots.includes(HOLE),
    );
  }

  #take(family: Family, set: string, { key, value, chain = '' }: NftElement): void {
    const { slot = 0, ...frontend } = readKey(key, family);
    const name = formatFrontend(frontend);
    const { backends, slots } = this.#known[family].get(name) ?? { backends: undefined, slots: [] };
    if (value !== undefined) {
      while (slots.length < slot) slots.push(HOLE);
      slots[slot] = formatFrontend({ ...readBackend(value, family), protocol: frontend.protocol });
    }
    this.#known[family].set(name, {
      backends: set === SETS.backends ? backends : (pickedOf(chain) ?? 0),
      slots,
    });
  }

  #prepared(at: number, change: TableChange<ServiceItem>): PreparedChange {
    return { at, change, requests: this.#requests(change) };
  }

  /** Reads which chains there are; whether the table is there, and of this layout. */
  #readChains(family: Family): boolean {
    const table = this.#tableOf(family);
    const chains = this.#socket.dump(dumpChains(table), (message) => readChain(message, table));
    const picks = chains.map(pickedOf).filter((backends) => backends !== undefined);
    this.#isThere[family] = chains.includes(LAYOUT_CHAIN);
    this.#picks[family] = new Set(this.#isThere[family] ? picks : []);
    return this.#isThere[family];
  }

  /** Makes the table where it is not; one of another layout is ours by its name, and begun anew. */
  #ensureTable(family: Family): void {
    if (this.#isThere[family] || this.#readChains(family)) return;
    const table = this.#tableOf(family);
    const error = this.#send([
      addTable(table),
      deleteTable(table),
      addTable(table),
      ...setsOf(family).map((set, id) => addSet(table, set, id + 1)),
      ...baseChains(family).flatMap((chain) => addChain(table, chain)),
    ]);
    if (error !== undefined) throw error;
  }

  #commit(batch: readonly PreparedChange[], outcomes: (SyscallError | undefined)[]): void {
    if (batch.length === 0) return;
    const error = this.#send(batch.flatMap(({ requests }) => requests));
    if (error === undefined) {
      for (const { change } of batch) this.#settle(change);
      return;
    }
    // One has failed, and with it all. What is there is read anew: it may be another than was known.
    for (const _ of this.#readAll());
    const [only] = batch;
    if (batch.length === 1 && only !== undefined) outcomes[only.at] = error;
    else for (const { at, change } of batch) this.#commit([this.#prepared(at, change)], outcomes);
  }

  /** One transaction where it fits, several where a service is larger than that. */
  #send(requests: readonly NetlinkRequest[]): SyscallError | undefined {
    for (let next = 0; next < requests.length; ) {
      const part: NetlinkRequest[] = [];
      for (let bytes = 0; next < requests.length; next++) {
        const request = requests[next];
        if (request === undefined) break;
        bytes += sizeOf([request]);
        if (bytes > BATCH_BYTES && part.length > 0) break;
        part.push(request);
      }
      const error = this.#socket.transact(nftBatch(part)).find((one) => one !== undefined);
      if (error !== undefined) return error;
    }
    return undefined;
  }

  #settle({ key, item }: TableChange<ServiceItem>): void {
    const family = familyOf(parseEndpoint(key).ip);
    const known = this.#known[family];
    if (item === undefined) {
      known.delete(key);
      return;
    }
    const slots = place(known.get(key)?.slots ?? [], item.backends);
    known.set(key, { backends: slots.length, slots });
    if (slots.length > 0) this.#picks[family].add(slots.length);
  }

  /** Backends are added before the frontend points to them, and deleted after it does not any more. */
  #requests({ key, item }: TableChange<ServiceItem>): readonly NetlinkRequest[] {
    const frontend = parseEndpoint(key);
    const family = familyOf(frontend.ip);
    if (item === undefined && !this.#isThere[family]) return [];
    this.#ensureTable(family);
    const table = this.#tableOf(family);
    const known = this.#known[family].get(key);
    const before = known?.slots ?? [];
    const after = item && place(before, item.backends);
    const changed = before.flatMap((backend, slot) =>
      backend === HOLE || after?.[slot] === backend ? [] : [slot],
    );
    const added = (after ?? []).flatMap((backend, slot) =>
      before[slot] === backend ? [] : [{ backend, slot }],
    );
    const isReplaced = (slot: number): boolean => slot < (after?.length ?? 0);
    const slotKey = (slot: number): Uint8Array => frontendKey(frontend, slot);
    return [
      ...this.#newPick(family, after?.length ?? 0),
      ...inMessages(changed.filter(isReplaced), (slots) =>
        deleteElements(table, SETS.backends, slots.map(slotKey)),
      ),
      ...inMessages(added, (slots) =>
        addElements(
          table,
          SETS.backends,
          slots.map(({ backend, slot }) => ({
            key: slotKey(slot),
            value: backendValue(parseEndpoint(backend)),
          })),
        ),
      ),
      ...frontendRequests(table, frontend, known?.backends, after?.length),
      ...inMessages(
        changed.filter((slot) => !isReplaced(slot)),
        (slots) => deleteElements(table, SETS.backends, slots.map(slotKey)),
      ),
    ];
  }

  /** The chain for this number of backends, where no service has had so many before. */
  #newPick(family: Family, backends: number): readonly NetlinkRequest[] {
    if (backends === 0 || this.#picks[family].has(backends)) return [];
    // Two of a batch may need it: what fails goes on one by one, and knows then.
    this.#picks[family].add(backends);
    return addChain(this.#tableOf(family), pickChain(family, backends));
  }
}

/** Which slot each backend has: those that stay keep theirs, so that as little as possible is written. */
function place(before: readonly string[], backends: readonly string[]): string[] {
  const wanted = new Set(backends);
  const slots = backends.map((_, slot) => {
    const backend = before[slot];
    return backend !== undefined && wanted.delete(backend) ? backend : undefined;
  });
  const rest = wanted.values();
  return slots.map((backend) => backend ?? rest.next().value ?? '');
}

/** What is there as an item; where it is not whole, none that is ever desired. */
function itemOf({ backends, slots }: Known): ServiceItem {
  return { backends: backends === slots.length ? slots : [HOLE, ...slots], affinitySeconds: 0 };
}

/** Moves a frontend from one number of backends to another; `undefined`: it is not there, 0: it refuses. */
function frontendRequests(
  table: NftTable,
  frontend: Endpoint,
  before: number | undefined,
  after: number | undefined,
): readonly NetlinkRequest[] {
  if (before === after) return [];
  const key = frontendKey(frontend);
  const setOf = (backends: number): string => (backends === 0 ? SETS.refused : SETS.services);
  const chain = after === undefined || after === 0 ? undefined : pickName(after);
  return [
    ...(before === undefined ? [] : [deleteElements(table, setOf(before), [key])]),
    ...(after === undefined ? [] : [addElements(table, setOf(after), [{ key, chain }])]),
  ];
}

function inMessages<T>(
  all: readonly T[],
  message: (some: readonly T[]) => NetlinkRequest,
): readonly NetlinkRequest[] {
  const messages: NetlinkRequest[] = [];
  for (let at = 0; at < all.length; at += ELEMENTS_A_MESSAGE)
    messages.push(message(all.slice(at, at + ELEMENTS_A_MESSAGE)));
  return messages;
}

const scratch = new MessageWriter();

/** Bytes that requests take on their way. */
function sizeOf(requests: readonly NetlinkRequest[]): number {
  scratch.clear();
  for (const request of requests) {
    scratch.begin(request.type, 0, 0);
    request.write(scratch);
    scratch.end();
  }
  return scratch.length;
}
