import type { Clock, Timer } from '../../base/clock.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import { RESERVED_IDENTITIES } from '../../identity/numeric-identity.ts';
import type { WorldLabels } from '../../metadata/cidr-labels.ts';
import { canonicalAddress } from '../../net/prefix.ts';
import type { FedIPCache } from './address-holders.ts';

/** How often the addresses are looked at again (K 51): interfaces come and go, and nothing says so. */
const INTERVAL_MS = 60_000;

/** Apart from what the node manager claims for the own node, whose owner is the node. */
const WRITER = { source: 'local', owner: 'own-addresses' } as const;

/** How {@link OwnAddresses} works. */
export interface OwnAddressesOptions {
  readonly ipcache: FedIPCache;
  readonly clock: Clock;
  /** The addresses of this machine as they are now, in any spelling. */
  readonly addresses: () => Iterable<string>;
  readonly world: WorldLabels;
  /** Receives what `addresses` throws: what was claimed stays until it says them again. */
  readonly onFault?: FaultListener | undefined;
}

/**
 * What is where without any source saying so (K 51): the addresses of this machine are `host`, and everything that is not known
 * is the world. Claims of source `local`, without host IP, looked at again every minute.
 */
export class OwnAddresses {
  readonly #options: OwnAddressesOptions;
  readonly #guard: CallbackGuard;
  #claimed: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;

  constructor(options: OwnAddressesOptions) {
    this.#options = options;
    this.#guard = new CallbackGuard(options.onFault);
  }

  /** Claims them, and again every minute until it is stopped. */
  start(): void {
    this.#timer?.cancel();
    this.#guard.call(() => this.#claim());
    this.#timer = this.#options.clock.after(INTERVAL_MS, () => this.start());
  }

  /** Ends the repetition; what is claimed stays. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #claim(): void {
    const { ipcache, addresses, world } = this.#options;
    const { host, world: single, 'world-ipv4': four, 'world-ipv6': six } = RESERVED_IDENTITIES;
    const isDual = world === 'dual-stack';
    const now = new Set([...addresses()].flatMap((address) => canonicalAddress(address) ?? []));
    ipcache.batch(() => {
      ipcache.upsert('0.0.0.0/0', { ...WRITER, identity: isDual ? four : single });
      ipcache.upsert('::/0', { ...WRITER, identity: isDual ? six : single });
      for (const address of now) ipcache.upsert(address, { ...WRITER, identity: host });
      for (const address of this.#claimed) if (!now.has(address)) ipcache.delete(address, WRITER);
    });
    this.#claimed = now;
  }
}
