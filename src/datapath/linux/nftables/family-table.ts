import { constants } from 'node:os';
import type { Family } from '../../../net/address-words.ts';
import type { TableChange } from '../kernel-table.ts';
import type { NetlinkSocket } from '../netlink/netlink-socket.ts';
import { isAnyPort, type ServiceItem } from '../services/desired-services.ts';
import { parseEndpoint } from '../services/service-layout.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import { changedFrontend, changeRequests, type KernelFrontend } from './frontend-elements.ts';
import { readFrontends } from './frontend-reader.ts';
import { baseChains, PROTOCOLS, pickName, setsOf, tableOf } from './nft-layout.ts';
import {
  addChain,
  addSet,
  addTable,
  deleteChain,
  deleteTable,
  type NftSteps,
  type NftTable,
} from './nft-message.ts';
import { neededSourceChains } from './source-elements.ts';
import { readStructure, type TableStructure, targetChain } from './table-structure.ts';
import { sendSteps } from './transaction.ts';

type ServiceChange = TableChange<ServiceItem>;

/** The requests of a change, and the chains that they create. */
export interface ChangeSteps {
  readonly steps: NftSteps;
  readonly newChains: readonly string[];
}

/** The table of one family in the kernel, as read and written. It exists while it has a frontend. */
export class FamilyTable {
  readonly #family: Family;
  readonly #table: NftTable;
  readonly #open: () => NetlinkSocket;
  readonly #socket: NetlinkSocket;
  #frontends = new Map<string, KernelFrontend>();
  /** Undefined if it must be read before the next write. */
  #structure: TableStructure | undefined;
  /** Number of frontends that refer to each chain, by name. */
  readonly #users = new Map<string, number>();

  /** Reads and writes by `socket`. `open` returns a socket for reads in steps. */
  constructor(family: Family, socket: NetlinkSocket, open: () => NetlinkSocket) {
    this.#family = family;
    this.#table = tableOf(family);
    this.#socket = socket;
    this.#open = open;
  }

  get frontends(): ReadonlyMap<string, KernelFrontend> {
    return this.#frontends;
  }

  /** The differences of the rules from the desired ones, as text. */
  get defects(): readonly string[] {
    return this.#structure?.defects ?? [];
  }

  /** Throws `SyscallError` if the kernel has no nftables. */
  readStructure(): TableStructure {
    const structure = readStructure(this.#socket, this.#table, this.#family);
    this.#recordStructure(structure);
    return structure;
  }

  /** Makes the next write read the structure first, because others may have changed it. */
  forgetStructure(): void {
    this.#structure = undefined;
  }

  /**
   * Reads the table, one dump message at a time. The known frontends are kept until all elements were read, also if a
   * read fails, because a table without frontends is deleted.
   */
  *read(): Generator<undefined, void, void> {
    const structure = this.readStructure();
    const frontends = yield* this.#readFrontends(structure);
    this.#forget();
    this.#frontends = frontends;
    this.#recordStructure(structure);
    for (const frontend of frontends.values()) this.#countUser(frontend, 1);
  }

  *#readFrontends({ state, sets }: TableStructure): Generator<undefined, Map<string, KernelFrontend>, void> {
    if (state === 'unusable') return new Map();
    using socket = this.#open();
    return yield* readFrontends(socket, this.#family, sets);
  }

  #recordStructure(structure: TableStructure): void {
    this.#structure = structure;
    for (const chain of structure.targets) if (!this.#users.has(chain)) this.#users.set(chain, 0);
  }

  #forget(): void {
    this.#frontends.clear();
    this.#users.clear();
    this.#structure = undefined;
  }

  /** Deletes the table. Returns the error. */
  remove(): SyscallError | undefined {
    const error = this.#send([[deleteTable(this.#table)]]);
    if (error !== undefined && error.code !== 'ENOENT') return error;
    this.#forget();
    return undefined;
  }

  /** Replaces defective rules, those of a chain in one transaction, and then deletes foreign chains. */
  repairRules(): SyscallError | undefined {
    const { repair, removal } = this.readStructure();
    return this.#send(repair) ?? this.#send(removal);
  }

  /** Ensures the table of a change. Returns the error if the change cannot be written: its protocol or the table. */
  prepareTable(change: ServiceChange): SyscallError | undefined {
    if (change.item === undefined && !this.#frontends.has(change.key)) return undefined;
    return protocolError(change) ?? this.#ensureTable();
  }

  /**
   * Creates the table if it is missing, and replaces one of another layout. Repairs a damaged one, because without its
   * chains a frontend would be open to clients that its ranges exclude. Returns the error.
   */
  #ensureTable(): SyscallError | undefined {
    const { state, repair } = this.#structure ?? this.readStructure();
    if (state === 'whole') return undefined;
    const table = this.#table;
    const create = [
      addTable(table),
      deleteTable(table),
      addTable(table),
      ...setsOf(this.#family).map((set, id) => addSet(table, set, id + 1)),
      ...baseChains(this.#family).flatMap((chain) => addChain(table, chain)),
    ];
    const error = this.#send(state === 'damaged' ? repair : [create]);
    if (error !== undefined) return error;
    if (state === 'unusable') this.#forget();
    this.readStructure();
    return undefined;
  }

  /** Returns the requests of a change. Its new chains count as existing, because other changes may need them. */
  prepare({ key, item }: ServiceChange): ChangeSteps {
    const current = this.#frontends.get(key);
    if (item === undefined && current === undefined) return { steps: [], newChains: [] };
    const pick = item === undefined || item.backends.length === 0 ? [] : [pickName(item.backends.length)];
    const chains = new Set([...pick, ...neededSourceChains(current, item?.sources)]);
    const newChains = [...chains].filter((name) => !this.#users.has(name));
    for (const name of newChains) this.#users.set(name, 0);
    const steps = [
      ...newChains.flatMap((name) => this.#createTarget(name)),
      ...changeRequests(this.#table, parseEndpoint(key), current, item),
    ];
    return { steps, newChains };
  }

  /** Returns the steps that create a chain which frontends refer to, and its sets. */
  #createTarget(name: string): NftSteps {
    const target = targetChain(this.#family, name);
    if (target === undefined) return [];
    return [
      ...target.sets.map((set, id) => [addSet(this.#table, set, id + 1)]),
      ...addChain(this.#table, target.chain).map((request) => [request]),
    ];
  }

  /** Must be called when the kernel has refused the requests of {@link prepare}. */
  cancel({ newChains }: ChangeSteps): void {
    for (const chain of newChains) this.#users.delete(chain);
  }

  /** Records a change that the kernel has applied. */
  recordSuccess({ key, item }: ServiceChange): void {
    const current = this.#frontends.get(key);
    this.#countUser(current, -1);
    if (item === undefined) {
      this.#frontends.delete(key);
      return;
    }
    const changed = changedFrontend(parseEndpoint(key), current, item);
    this.#countUser(changed, 1);
    this.#frontends.set(key, changed);
  }

  /** Deletes a frontend that is open to all clients because its ranges cannot be written. */
  deleteUnlimited({ key, item }: ServiceChange): void {
    const current = this.#frontends.get(key);
    if (item?.sources === undefined || current === undefined || current.sourceChain !== undefined) return;
    const error = this.#send(changeRequests(this.#table, parseEndpoint(key), current, undefined));
    if (error === undefined) this.recordSuccess({ key, item: undefined });
  }

  /** Deletes chains without frontends, and the table if it has no frontend. */
  deleteUnused(): void {
    const { state } = this.#structure ?? this.readStructure();
    if (state === 'unusable') return;
    if (this.#frontends.size === 0) {
      this.remove();
      return;
    }
    for (const [chain, uses] of this.#users) {
      if (uses > 0) continue;
      const error = this.#send([[deleteChain(this.#table, chain)]]);
      // The kernel refuses this if a rule of another process refers to the chain. The chain is then used or deleted
      // later.
      if (error === undefined || error.code === 'ENOENT') this.#users.delete(chain);
    }
  }

  #countUser(frontend: KernelFrontend | undefined, by: number): void {
    for (const chain of frontend === undefined ? [] : chainsOf(frontend))
      this.#users.set(chain, (this.#users.get(chain) ?? 0) + by);
  }

  #send(steps: NftSteps): SyscallError | undefined {
    return sendSteps(this.#socket, steps);
  }
}

function chainsOf({ backendCount = 0, sourceChain }: KernelFrontend): readonly string[] {
  return [
    ...(backendCount === 0 ? [] : [pickName(backendCount)]),
    ...(sourceChain === undefined ? [] : [sourceChain]),
  ];
}

/** Returns an error if no map exists for the protocol of the frontend. */
function protocolError({ key, item }: ServiceChange): SyscallError | undefined {
  const endpoint = parseEndpoint(key);
  const isKnown = PROTOCOLS.some(({ number }) => number === endpoint.protocol);
  if (isKnown || isAnyPort(endpoint) || item === undefined) return undefined;
  const reason = `${key}: unsupported protocol, expected TCP, UDP or SCTP`;
  return new SyscallError(reason, constants.errno.EPROTONOSUPPORT);
}
