import { checkArgument, FUNCTION, objectWith, optionsWith } from '../../base/arguments.ts';
import type { Timer } from '../../base/clock.ts';
import { CallbackGuard, type FaultListener } from '../../base/guard.ts';
import { type Runtime, type RuntimeOptions, withRuntime } from '../../base/system-clock.ts';
import { WORLD_LABELS, type WorldLabels } from '../../metadata/cidr-labels.ts';
import { RESERVED_IDENTITIES } from '../../model/numeric-identity.ts';
import { canonicalAddress } from '../../net/prefix.ts';
import type { FedIPCache } from './address-holders.ts';

/** Interval between two reads of the addresses (KUBERNETES 51), because changes of interfaces are not reported. */
const INTERVAL_MS = 60_000;

/**
 * The writer of the claims of {@link HostIPs}. The node manager claims addresses of the local node with the same
 * source, but with the full name of the node as owner.
 */
const WRITER = { source: 'local', owner: 'host-ips' } as const;

/** Options of {@link HostIPs}. */
export interface HostIPsOptions extends Pick<RuntimeOptions, 'clock'> {
  /** Receives the claims. */
  readonly ipcache: FedIPCache;
  /** Returns the current addresses of this machine in any notation. */
  readonly addresses: () => Iterable<string>;
  /** Selects the identities of `0.0.0.0/0` and `::/0`: `world` for both, or one for each address family. */
  readonly world: WorldLabels;
  /** Receives the errors of `addresses`. The claims stay until `addresses` succeeds again. */
  readonly onFault?: FaultListener | undefined;
}

/**
 * Writes the claims that no external source provides (KUBERNETES 51): the addresses of this machine get identity
 * `host`, and all unknown addresses identity `world`. The claims have source `local` and no host IP, and are updated
 * every minute.
 */
export class HostIPs implements Disposable {
  readonly #options: HostIPsOptions & Runtime;
  readonly #guard: CallbackGuard;
  /** The addresses with a claim. */
  #claimed: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;

  constructor(options: HostIPsOptions) {
    checkArgument('new HostIPs: options', options, OPTIONS);
    this.#options = withRuntime(options);
    this.#guard = new CallbackGuard(options.onFault);
  }

  /** Writes the claims now and every minute until `stop`. */
  start(): void {
    this.#timer?.cancel();
    this.#guard.call(() => this.#writeClaims());
    this.#timer = this.#options.clock.after(INTERVAL_MS, () => this.start());
  }

  /** Ends the updates; the claims stay. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  #writeClaims(): void {
    const { ipcache, addresses, world } = this.#options;
    const { host, world: singleStack, 'world-ipv4': ipv4, 'world-ipv6': ipv6 } = RESERVED_IDENTITIES;
    const isDual = world === 'dual-stack';
    const current = new Set([...addresses()].flatMap((address) => canonicalAddress(address) ?? []));
    ipcache.batch(() => {
      ipcache.upsert('0.0.0.0/0', { ...WRITER, identity: isDual ? ipv4 : singleStack });
      ipcache.upsert('::/0', { ...WRITER, identity: isDual ? ipv6 : singleStack });
      for (const address of current) ipcache.upsert(address, { ...WRITER, identity: host });
      for (const address of this.#claimed) if (!current.has(address)) ipcache.delete(address, WRITER);
    });
    this.#claimed = current;
  }
}

const OPTIONS = optionsWith({
  ipcache: objectWith({ upsert: FUNCTION, delete: FUNCTION }),
  addresses: FUNCTION,
  world: WORLD_LABELS,
});
