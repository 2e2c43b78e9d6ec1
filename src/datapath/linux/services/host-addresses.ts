import type { Clock } from '../../../base/clock.ts';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { messageOf } from '../../../base/failure.ts';
import { type Unsubscribe, unsubscribeOnce } from '../../../base/subscription.ts';
import { Prefix } from '../../../net/prefix.ts';
import { ADDRESS_DUMP, readInterfaceAddress } from '../netlink/interface-address.ts';
import { NetlinkSocket } from '../netlink/netlink-socket.ts';
import { PacedTask } from '../paths/paced-task.ts';
import type { Kernel } from '../syscall/kernel.ts';

/** Groups of rtnetlink: addresses of both families. */
const GROUPS: readonly number[] = [5, 9];
/** Minimum time between two reads, because addresses may change in thousands. */
const PACE_MS = 100;

/** Addresses by family, in canonical text, sorted. */
export interface AddressesByFamily {
  readonly ipv4: readonly string[];
  readonly ipv6: readonly string[];
}

export interface HostAddressesOptions {
  /** Path of a network namespace; default that of the process. */
  readonly namespace?: string | undefined;
  readonly clock: Pick<Clock, 'now' | 'after'>;
}

/**
 * The addresses of this host, which answer on node ports: those of all its interfaces, except IPv6 link-local
 * addresses, which are ambiguous without the link. After an event of the kernel, or if events were lost, all addresses
 * are read again.
 */
export class HostAddresses implements Disposable {
  /** Opens the socket of one read. */
  readonly #open: () => NetlinkSocket;
  readonly #monitor: NetlinkSocket;
  readonly #readTask: PacedTask;
  readonly #listeners = new Set<(addresses: AddressesByFamily) => void>();
  #subscription: Disposable | undefined;
  #current: AddressesByFamily;
  #all: ReadonlySet<string>;
  /** Why the last read failed. */
  #failure: string | undefined;
  #listenerFailures: readonly string[] = [];

  /** Reads the addresses. Throws `SyscallError`. */
  constructor(kernel: Kernel, { namespace, clock }: HostAddressesOptions) {
    // Opened before the addresses are read, so that no change is missed.
    this.#monitor = new NetlinkSocket(kernel, { namespace, groups: GROUPS });
    this.#open = () => new NetlinkSocket(kernel, { namespace });
    this.#current = disposeOnError([this.#monitor], () => this.#read());
    this.#all = addressSet(this.#current);
    this.#readTask = new PacedTask(
      clock,
      () => PACE_MS,
      async () => this.#readAgain(),
    );
  }

  get current(): AddressesByFamily {
    return this.#current;
  }

  has(address: string): boolean {
    return this.#all.has(address);
  }

  /** Returns a problem if the last read failed, and one for each listener that failed with the current addresses. */
  problems(): readonly string[] {
    return [
      ...(this.#failure === undefined ? [] : [`cannot read the addresses of this host: ${this.#failure}`]),
      ...this.#listenerFailures.map((reason) => `cannot apply the addresses of this host: ${reason}`),
    ];
  }

  /** Calls `onChange` with all addresses after each change, until the result is called. */
  follow(onChange: (addresses: AddressesByFamily) => void): Unsubscribe {
    this.#listeners.add(onChange);
    this.#subscription ??= this.#monitor.onEvents(() => this.#onEvents());
    return unsubscribeOnce(() => this.#listeners.delete(onChange));
  }

  [Symbol.dispose](): void {
    this.#readTask[Symbol.dispose]();
    this.#subscription?.[Symbol.dispose]();
    this.#monitor[Symbol.dispose]();
  }

  /** Discards the events and schedules a read of all addresses. */
  #onEvents(): void {
    try {
      while (this.#monitor.receive() !== undefined);
    } catch (error) {
      this.#failure = messageOf(error);
    }
    void this.#readTask.request();
  }

  #readAgain(): void {
    const before = this.#current;
    try {
      this.#current = this.#read();
      this.#failure = undefined;
    } catch (error) {
      this.#failure = messageOf(error);
      void this.#readTask.request();
    }
    if (isSame(before, this.#current)) return;
    this.#all = addressSet(this.#current);
    this.#listenerFailures = [...this.#listeners].flatMap((onChange) => {
      try {
        onChange(this.#current);
        return [];
      } catch (error) {
        return [messageOf(error)];
      }
    });
  }

  #read(): AddressesByFamily {
    using socket = this.#open();
    const all = socket.dump(ADDRESS_DUMP, readInterfaceAddress).map(({ address }) => address);
    const ofFamily = (isIPv6: boolean): readonly string[] =>
      [...new Set(all)].filter((one) => one.includes(':') === isIPv6 && !isLinkLocal(one)).sort();
    return { ipv4: ofFamily(false), ipv6: ofFamily(true) };
  }
}

const LINK_LOCAL = Prefix.parse('fe80::/10');

function isLinkLocal(address: string): boolean {
  const parsed = Prefix.parse(address);
  return parsed !== undefined && LINK_LOCAL?.contains(parsed) === true;
}

function addressSet({ ipv4, ipv6 }: AddressesByFamily): ReadonlySet<string> {
  return new Set([...ipv4, ...ipv6]);
}

function isSame(a: AddressesByFamily, b: AddressesByFamily): boolean {
  return a.ipv4.join() === b.ipv4.join() && a.ipv6.join() === b.ipv6.join();
}
