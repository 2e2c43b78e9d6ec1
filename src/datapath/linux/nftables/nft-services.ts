import { constants } from 'node:os';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import type { Family } from '../../../net/address-words.ts';
import { NFT_TABLE } from '../kernel-names.ts';
import type { KernelTable, TableChange } from '../kernel-table.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import { MessageWriter } from '../netlink/message-writer.ts';
import { NETLINK, type NetlinkRequest, NetlinkSocket } from '../netlink/netlink-socket.ts';
import { isAnyPort, type ServiceItem } from '../services/desired-services.ts';
import { FAMILIES, parseEndpoint } from '../services/service-layout.ts';
import type { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import { changedFrontend, changeRequests, itemOf, type KernelFrontend } from './frontend-elements.ts';
import { readFrontends } from './frontend-reader.ts';
import { baseChains, PROTOCOLS, pickName, setsOf, tableOf } from './nft-layout.ts';
import {
  addChain,
  addSet,
  addTable,
  deleteChain,
  deleteTable,
  isAbout,
  NFTABLES_GROUP,
  type NftSteps,
  type NftTable,
  nftBatch,
} from './nft-message.ts';
import { neededSourceChains } from './source-elements.ts';
import { readStructure, type TableStructure, targetChain } from './table-structure.ts';

/** Maximum size of a transaction, which must fit into one send with its begin and end messages. */
const BATCH_BYTES = 60_000;
/**
 * Changes in one call of `apply`. The kernel checks all frontends in each transaction, so larger calls cost less per
 * change, but block longer.
 */
const CHUNK = 64;
/** Elements that count as one change of {@link CHUNK}: a chunk has about 1,024 elements, written in 5 ms. */
const ELEMENTS_PER_CHANGE = 16;
/** Prefix of the keys that {@link rulesKey} returns; no frontend has such a key. */
const RULES = 'rules of ';

interface PreparedChange {
  /** Index of the change in the call of `apply`. */
  readonly at: number;
  readonly change: TableChange<ServiceItem>;
  readonly family: Family;
  readonly steps: NftSteps;
  /** Encoded size of the steps. */
  readonly bytes: number;
  readonly newChains: readonly string[];
}

/** Returns true if a key reports defective rules, which can be repaired before the inputs of services are complete. */
export function isRulesKey(key: string): boolean {
  return key.startsWith(RULES);
}

/**
 * Balances services by nftables rules, for packets that no socket program translates. Frontends and backends are map
 * elements. Each *number* of backends has one chain, shared by all services of that size. The cost of a change grows
 * with the service, not with the number of services.
 *
 *     services      frontend → goto pick-N      refused      frontends without backends
 *     pick-N        numgen random mod N → slot  backends-*   frontend, slot → backend → dnat
 *     masquerade-*  frontends whose clients are masqueraded
 *     cluster-ips   refuse ports that they do not have
 *     limited       frontend → goto admit-L or deny-L, before connection tracking
 *     admit-L       source in from-L → accept, otherwise drop; one such chain for each combination of lengths of ranges
 *
 * Backends are added before their frontend and deleted after it. Connection tracking keeps a connection at its backend.
 * Each family has one table, which exists while it has a frontend. Other tables are never changed.
 */
export class NftServices implements KernelTable<ServiceItem>, Disposable {
  readonly name = 'nftables';
  readonly chunk: number = CHUNK;
  readonly #open: (groups?: readonly number[]) => NetlinkSocket;
  readonly #socket: NetlinkSocket;
  readonly #frontends: Record<Family, Map<string, KernelFrontend>> = { 4: new Map(), 6: new Map() };
  readonly #structure: Record<Family, TableStructure | undefined> = { 4: undefined, 6: undefined };
  /** Number of frontends that refer to each chain, by name. */
  readonly #users: Record<Family, Map<string, number>> = { 4: new Map(), 6: new Map() };
  #monitor: Disposable | undefined;
  #onChange: () => void = () => {};

  /** Opens a socket, in the given network namespace if there is one. Writes nothing. */
  constructor(kernel: Kernel, namespace?: string) {
    this.#open = (groups) => new NetlinkSocket(kernel, { protocol: NETLINK.netfilter, namespace, groups });
    this.#socket = this.#open();
  }

  [Symbol.dispose](): void {
    this.#monitor?.[Symbol.dispose]();
    this.#socket[Symbol.dispose]();
  }

  /** Throws `SyscallError` if the kernel has no nftables. */
  check(): void {
    for (const family of FAMILIES) this.#readStructure(family);
  }

  /**
   * Calls `onChange` when the tables may differ from the known state: another process changes them, events were lost or
   * cannot be read, or a transaction failed. Call it once only.
   */
  follow(onChange: () => void): void {
    this.#onChange = onChange;
    const monitor = this.#open([NFTABLES_GROUP]);
    const tables = FAMILIES.map(tableOf);
    const events = disposeOnError([monitor], () =>
      monitor.onEvents(() => {
        if (this.#areChanged(monitor, tables)) onChange();
      }),
    );
    this.#monitor = {
      [Symbol.dispose]: () => {
        events[Symbol.dispose]();
        monitor[Symbol.dispose]();
      },
    };
  }

  /** Reads all pending events. Returns true if they report changes of the tables by others, or if events were lost. */
  #areChanged(monitor: NetlinkSocket, tables: readonly NftTable[]): boolean {
    let isChanged = false;
    try {
      for (let received = monitor.events(); received !== undefined; received = monitor.events()) {
        isChanged ||=
          received === 'overrun' ||
          received.some(
            (message) =>
              message.port !== this.#socket.port && tables.some((table) => isAbout(message, table)),
          );
      }
      return isChanged;
    } catch {
      // An unreadable event is treated like a lost one.
      return true;
    }
  }

  weight(key: string, item: ServiceItem | undefined): number {
    const current = this.#frontends[4].get(key) ?? this.#frontends[6].get(key);
    const before = (current?.slots.length ?? 0) + (current?.ranges.size ?? 0);
    const after = (item?.backends.length ?? 0) + (item?.sources?.ranges.length ?? 0);
    return Math.max(1, Math.ceil(Math.max(before, after) / ELEMENTS_PER_CHANGE));
  }

  equal(a: ServiceItem, b: ServiceItem): boolean {
    return (
      (a.masquerade ?? false) === (b.masquerade ?? false) &&
      haveSameTexts(a.backends, b.backends) &&
      equalSources(a.sources, b.sources)
    );
  }

  print({ backends, masquerade, sources }: ServiceItem): string {
    const text = backends.length === 0 ? 'refused' : backends.join(' ');
    return [text, ...(masquerade === true ? ['masquerade'] : []), ...sourceWords(sources)].join(' ');
  }

  /**
   * Reads the tables and writes nothing. A table of another layout, or without one of its sets, is returned as empty.
   */
  *dump(): Generator<readonly [string, ServiceItem] | undefined, void, void> {
    yield* this.#readAll();
    for (const family of FAMILIES) {
      const defects = this.#structure[family]?.defects ?? [];
      if (defects.length > 0) yield [rulesKey(family), { backends: defects, affinitySeconds: 0 }];
      for (const [name, frontend] of this.#frontends[family]) yield [name, itemOf(frontend)];
    }
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
      if (isRulesKey(change.key)) {
        outcomes[at] = this.#repairRules(change.key);
        return;
      }
      const error = this.#prepareTable(change);
      if (error !== undefined) {
        outcomes[at] = error;
        this.#deleteUnlimited(change);
        return;
      }
      const prepared = this.#prepare(change, at);
      if (bytes + prepared.bytes > BATCH_BYTES) flush();
      batch.push(prepared);
      bytes += prepared.bytes;
    });
    flush();
    for (const family of FAMILIES) this.#deleteUnused(family);
    return outcomes;
  }

  /** Deletes the tables of both families. */
  remove(): void {
    for (const family of FAMILIES) {
      const error = this.#removeTable(family);
      if (error !== undefined) throw error;
    }
  }

  #removeTable(family: Family): SyscallError | undefined {
    const error = this.#send([[deleteTable(tableOf(family))]]);
    if (error !== undefined && error.code !== 'ENOENT') return error;
    this.#forget(family);
    return undefined;
  }

  #forget(family: Family): void {
    this.#frontends[family].clear();
    this.#users[family].clear();
    this.#structure[family] = undefined;
  }

  /** Replaces defective rules, those of a chain in one transaction, and then deletes foreign chains. */
  #repairRules(key: string): SyscallError | undefined {
    const family = FAMILIES.find((each) => key === rulesKey(each)) ?? 4;
    const { repair, removal } = this.#readStructure(family);
    return this.#send(repair) ?? this.#send(removal);
  }

  /**
   * Reads both tables, one dump message at a time. The known frontends of a table are kept until all of its elements
   * were read, also if a read fails, because a table without frontends is deleted.
   */
  *#readAll(): Generator<undefined, void, void> {
    for (const family of FAMILIES) {
      const structure = this.#readStructure(family);
      const frontends = yield* this.#readFrontends(family, structure);
      this.#forget(family);
      this.#frontends[family] = frontends;
      this.#recordStructure(family, structure);
      for (const frontend of frontends.values()) this.#countUser(family, frontend, 1);
    }
  }

  *#readFrontends(
    family: Family,
    { state, sets }: TableStructure,
  ): Generator<undefined, Map<string, KernelFrontend>, void> {
    if (state === 'unusable') return new Map();
    using socket = this.#open();
    return yield* readFrontends(socket, family, sets);
  }

  #readStructure(family: Family): TableStructure {
    const structure = readStructure(this.#socket, tableOf(family), family);
    this.#recordStructure(family, structure);
    return structure;
  }

  #recordStructure(family: Family, structure: TableStructure): void {
    this.#structure[family] = structure;
    for (const chain of structure.targets)
      if (!this.#users[family].has(chain)) this.#users[family].set(chain, 0);
  }

  /** Ensures the table of a change. Returns the error if the change cannot be written: its protocol or the table. */
  #prepareTable(change: TableChange<ServiceItem>): SyscallError | undefined {
    const { key, item } = change;
    const family = familyOf(parseEndpoint(key).ip);
    if (item === undefined && !this.#frontends[family].has(key)) return undefined;
    return protocolError(change) ?? this.#ensureTable(family);
  }

  /**
   * Creates the table if it is missing, and replaces one of another layout. Repairs a damaged one, because without its
   * chains a frontend would be open to clients that its ranges exclude. Returns the error.
   */
  #ensureTable(family: Family): SyscallError | undefined {
    const { state, repair } = this.#structure[family] ?? this.#readStructure(family);
    if (state === 'whole') return undefined;
    const table = tableOf(family);
    const create = [
      addTable(table),
      deleteTable(table),
      addTable(table),
      ...setsOf(family).map((set, id) => addSet(table, set, id + 1)),
      ...baseChains(family).flatMap((chain) => addChain(table, chain)),
    ];
    const error = this.#send(state === 'damaged' ? repair : [create]);
    if (error !== undefined) return error;
    if (state === 'unusable') this.#forget(family);
    this.#readStructure(family);
    return undefined;
  }

  #commit(batch: readonly PreparedChange[], outcomes: (SyscallError | undefined)[]): void {
    if (batch.length === 0) return;
    const error = this.#send(batch.flatMap(({ steps }) => steps));
    if (error === undefined) {
      for (const { change } of batch) this.#recordSuccess(change);
      return;
    }
    for (const { family, newChains } of batch)
      for (const chain of newChains) this.#users[family].delete(chain);
    const [only] = batch;
    if (batch.length === 1 && only !== undefined) this.#recordFailure(only, error, outcomes);
    // One failed change fails the whole transaction.
    else for (const { change, at } of batch) this.#commit([this.#prepare(change, at)], outcomes);
  }

  /**
   * Records a failed change. The kernel may have another state than the known one. The structure is read again at the
   * end of the call, and the elements when the owner, which `onChange` notifies, dumps them. If the change has several
   * transactions, some may have been applied: everything is read now, because unknown ranges could admit clients later.
   */
  #recordFailure(
    { at, change, family, bytes }: PreparedChange,
    error: SyscallError,
    outcomes: (SyscallError | undefined)[],
  ): void {
    outcomes[at] = error;
    if (change.isRetry !== true) this.#onChange(); // a failed retry would find the same
    if (bytes > BATCH_BYTES) for (const _ of this.#readAll());
    this.#deleteUnlimited(change);
    this.#structure[family] = undefined;
  }

  /** Deletes a frontend that is open to all clients because its ranges cannot be written. */
  #deleteUnlimited({ key, item }: TableChange<ServiceItem>): void {
    const endpoint = parseEndpoint(key);
    const family = familyOf(endpoint.ip);
    const current = this.#frontends[family].get(key);
    if (item?.sources === undefined || current === undefined || current.sourceChain !== undefined) return;
    const error = this.#send(changeRequests(tableOf(family), endpoint, current, undefined));
    if (error === undefined) this.#recordSuccess({ key, item: undefined });
  }

  /** Sends steps as one transaction, or as several if one service exceeds the limit. */
  #send(steps: NftSteps): SyscallError | undefined {
    for (let next = 0; next < steps.length; ) {
      const part: NetlinkRequest[] = [];
      for (let bytes = 0; next < steps.length; next++) {
        const step = steps[next] ?? [];
        bytes += sizeOf(step);
        if (bytes > BATCH_BYTES && part.length > 0) break;
        part.push(...step);
      }
      const error = this.#transact(part);
      if (error !== undefined) return error;
    }
    return undefined;
  }

  #transact(requests: readonly NetlinkRequest[]): SyscallError | undefined {
    try {
      return this.#socket.transact(nftBatch(requests)).find((one) => one !== undefined);
    } catch (error) {
      if (error instanceof SyscallError) return error;
      throw error;
    }
  }

  /** Records a change that the kernel has applied. */
  #recordSuccess({ key, item }: TableChange<ServiceItem>): void {
    const endpoint = parseEndpoint(key);
    const family = familyOf(endpoint.ip);
    const current = this.#frontends[family].get(key);
    this.#countUser(family, current, -1);
    if (item === undefined) {
      this.#frontends[family].delete(key);
      return;
    }
    const changed = changedFrontend(endpoint, current, item);
    this.#countUser(family, changed, 1);
    this.#frontends[family].set(key, changed);
  }

  #countUser(family: Family, frontend: KernelFrontend | undefined, by: number): void {
    const users = this.#users[family];
    for (const chain of frontend === undefined ? [] : chainsOf(frontend))
      users.set(chain, (users.get(chain) ?? 0) + by);
  }

  /** Deletes chains without frontends, and the table if it has no frontend. */
  #deleteUnused(family: Family): void {
    const { state } = this.#structure[family] ?? this.#readStructure(family);
    if (state === 'unusable') return;
    if (this.#frontends[family].size === 0) {
      this.#removeTable(family);
      return;
    }
    for (const [chain, uses] of this.#users[family]) {
      if (uses > 0) continue;
      const error = this.#send([[deleteChain(tableOf(family), chain)]]);
      // The kernel refuses this if a rule of another process refers to the chain. The chain is then used or deleted
      // later.
      if (error === undefined || error.code === 'ENOENT') this.#users[family].delete(chain);
    }
  }

  /** Returns a change with its requests. Its new chains count as existing, because other changes may need them. */
  #prepare(change: TableChange<ServiceItem>, at: number): PreparedChange {
    const { key, item } = change;
    const frontend = parseEndpoint(key);
    const family = familyOf(frontend.ip);
    const current = this.#frontends[family].get(key);
    if (item === undefined && current === undefined)
      return { at, change, family, steps: [], bytes: 0, newChains: [] };
    const pick = item === undefined || item.backends.length === 0 ? [] : [pickName(item.backends.length)];
    const chains = new Set([...pick, ...neededSourceChains(current, item?.sources)]);
    const newChains = [...chains].filter((name) => !this.#users[family].has(name));
    for (const name of newChains) this.#users[family].set(name, 0);
    const steps = [
      ...newChains.flatMap((name) => createTarget(family, name)),
      ...changeRequests(tableOf(family), frontend, current, item),
    ];
    return { at, change, family, steps, bytes: sizeOf(steps.flat()), newChains };
  }
}

/** Returns the steps that create a chain which frontends refer to, and its sets. */
function createTarget(family: Family, name: string): NftSteps {
  const target = targetChain(family, name);
  if (target === undefined) return [];
  const table = tableOf(family);
  return [
    ...target.sets.map((set, id) => [addSet(table, set, id + 1)]),
    ...addChain(table, target.chain).map((request) => [request]),
  ];
}

function chainsOf({ backendCount = 0, sourceChain }: KernelFrontend): readonly string[] {
  return [
    ...(backendCount === 0 ? [] : [pickName(backendCount)]),
    ...(sourceChain === undefined ? [] : [sourceChain]),
  ];
}

function equalSources(a: ServiceItem['sources'], b: ServiceItem['sources']): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.policy === b.policy && haveSameTexts(a.ranges, b.ranges);
}

/** Returns true if two lists, which have each text once, have the same texts in any order. */
function haveSameTexts(a: readonly string[], b: readonly string[]): boolean {
  const others = new Set(b);
  return a.length === others.size && a.every((text) => others.has(text));
}

function sourceWords(sources: ServiceItem['sources']): readonly string[] {
  if (sources === undefined) return [];
  const { policy, ranges } = sources;
  return [policy === 'deny' ? 'not from' : 'only from', ranges.length === 0 ? 'no range' : ranges.join(' ')];
}

/** Returns the key that reports defects of the rules of a family. */
function rulesKey(family: Family): string {
  return `${RULES}${family === 4 ? 'ip' : 'ip6'} ${NFT_TABLE}`;
}

/** Returns an error if no map exists for the protocol of the frontend. */
function protocolError({ key, item }: TableChange<ServiceItem>): SyscallError | undefined {
  const endpoint = parseEndpoint(key);
  const isKnown = PROTOCOLS.some(({ number }) => number === endpoint.protocol);
  if (isKnown || isAnyPort(endpoint) || item === undefined) return undefined;
  const reason = `${key}: unsupported protocol, expected TCP, UDP or SCTP`;
  return new SyscallError(reason, constants.errno.EPROTONOSUPPORT);
}

/** The writer by which {@link sizeOf} measures requests. */
const measured = new MessageWriter();

function sizeOf(requests: readonly NetlinkRequest[]): number {
  measured.clear();
  for (const request of requests) {
    measured.begin(request.type, 0, 0);
    request.write(measured);
    measured.end();
  }
  return measured.length;
}
