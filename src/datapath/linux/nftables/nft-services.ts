import { disposeOnError } from '../../../base/dispose-on-error.ts';
import type { Family } from '../../../net/address-words.ts';
import { NFT_TABLE } from '../kernel-names.ts';
import type { KernelTable, TableChange } from '../kernel-table.ts';
import { familyOf } from '../netlink/address-bytes.ts';
import { NETLINK, NetlinkSocket } from '../netlink/netlink-socket.ts';
import type { ServiceItem } from '../services/desired-services.ts';
import { FAMILIES, parseEndpoint } from '../services/service-layout.ts';
import type { Kernel } from '../syscall/kernel.ts';
import type { SyscallError } from '../syscall/syscall-error.ts';
import { type ChangeSteps, FamilyTable } from './family-table.ts';
import { itemOf } from './frontend-elements.ts';
import { tableOf } from './nft-layout.ts';
import { isAbout, NFTABLES_GROUP, type NftTable } from './nft-message.ts';
import { sendSteps, sizeOf, TRANSACTION_BYTES } from './transaction.ts';

/**
 * Changes in one call of `apply`. The kernel checks all frontends in each transaction, so larger calls cost less per
 * change, but block longer.
 */
const CHUNK = 64;
/** Elements that count as one change of {@link CHUNK}: a chunk has about 1,024 elements, written in 5 ms. */
const ELEMENTS_PER_CHANGE = 16;
/** Prefix of the keys that {@link rulesKey} returns; no frontend has such a key. */
const RULES = 'rules of ';

/** A change with its requests. */
interface PreparedChange extends ChangeSteps {
  /** Index of the change in the call of `apply`. */
  readonly at: number;
  readonly change: TableChange<ServiceItem>;
  readonly table: FamilyTable;
  /** Encoded size of the steps. */
  readonly bytes: number;
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
  readonly #tables: Readonly<Record<Family, FamilyTable>>;
  #monitor: Disposable | undefined;
  #onChange: () => void = () => {};

  /** Opens a socket, in the given network namespace if there is one. Writes nothing. */
  constructor(kernel: Kernel, namespace?: string) {
    this.#open = (groups) => new NetlinkSocket(kernel, { protocol: NETLINK.netfilter, namespace, groups });
    const socket = this.#open();
    this.#socket = socket;
    this.#tables = {
      4: new FamilyTable(4, socket, this.#open),
      6: new FamilyTable(6, socket, this.#open),
    };
  }

  [Symbol.dispose](): void {
    this.#monitor?.[Symbol.dispose]();
    this.#socket[Symbol.dispose]();
  }

  /** Throws `SyscallError` if the kernel has no nftables. */
  check(): void {
    for (const family of FAMILIES) this.#tables[family].readStructure();
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
      for (let received = monitor.receive(); received !== undefined; received = monitor.receive()) {
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
    const current = this.#tables[4].frontends.get(key) ?? this.#tables[6].frontends.get(key);
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
    yield* this.#read();
    for (const family of FAMILIES) {
      const { defects, frontends } = this.#tables[family];
      if (defects.length > 0) yield [rulesKey(family), { backends: defects, affinitySeconds: 0 }];
      for (const [name, frontend] of frontends) yield [name, itemOf(frontend)];
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
        const family = FAMILIES.find((each) => change.key === rulesKey(each)) ?? 4;
        outcomes[at] = this.#tables[family].repairRules();
        return;
      }
      const table = this.#tableOf(change.key);
      const error = table.prepareTable(change);
      if (error !== undefined) {
        outcomes[at] = error;
        table.deleteUnlimited(change);
        return;
      }
      const prepared = this.#prepare(change, at);
      if (bytes + prepared.bytes > TRANSACTION_BYTES) flush();
      batch.push(prepared);
      bytes += prepared.bytes;
    });
    flush();
    for (const family of FAMILIES) this.#tables[family].deleteUnused();
    return outcomes;
  }

  /** Deletes the tables of both families. */
  remove(): void {
    for (const family of FAMILIES) {
      const error = this.#tables[family].remove();
      if (error !== undefined) throw error;
    }
  }

  *#read(): Generator<undefined, void, void> {
    for (const family of FAMILIES) yield* this.#tables[family].read();
  }

  #tableOf(key: string): FamilyTable {
    return this.#tables[familyOf(parseEndpoint(key).ip)];
  }

  #prepare(change: TableChange<ServiceItem>, at: number): PreparedChange {
    const table = this.#tableOf(change.key);
    const prepared = table.prepare(change);
    return { at, change, table, ...prepared, bytes: sizeOf(prepared.steps.flat()) };
  }

  /** Writes prepared changes as one transaction; if it fails, each change as one of its own. */
  #commit(batch: readonly PreparedChange[], outcomes: (SyscallError | undefined)[]): void {
    if (batch.length === 0) return;
    const error = sendSteps(
      this.#socket,
      batch.flatMap(({ steps }) => steps),
    );
    if (error === undefined) {
      for (const { table, change } of batch) table.recordSuccess(change);
      return;
    }
    for (const prepared of batch) prepared.table.cancel(prepared);
    const [only] = batch;
    if (batch.length === 1 && only !== undefined) this.#recordFailure(only, error, outcomes);
    else for (const { change, at } of batch) this.#commit([this.#prepare(change, at)], outcomes);
  }

  /**
   * Records a failed change. The kernel may have another state than the known one. The structure is read again at the
   * end of the call, and the elements when the owner, which `onChange` notifies, dumps them. If the change has several
   * transactions, some may have been applied: everything is read now, because unknown ranges could admit clients later.
   */
  #recordFailure(
    { at, change, table, bytes }: PreparedChange,
    error: SyscallError,
    outcomes: (SyscallError | undefined)[],
  ): void {
    outcomes[at] = error;
    if (change.isRetry !== true) this.#onChange(); // a failed retry would find the same
    if (bytes > TRANSACTION_BYTES) for (const _ of this.#read());
    table.deleteUnlimited(change);
    table.forgetStructure();
  }
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
