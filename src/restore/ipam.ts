import {
  checkArgument,
  checkArguments,
  FUNCTION,
  ITERABLE,
  listOf,
  matching,
  objectWith,
  optional,
  TEXT,
} from '../base/arguments.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog, type RejectionStatus, rejection } from '../base/rejection.ts';
import { addressBits } from '../net/address-words.ts';
import { canonicalAddress, Prefix } from '../net/prefix.ts';

/**
 * The use of an address (AGENT 16): by the node (`node`, `router`, `health`, `ingress`), or by an endpoint. `reserved`:
 * it must not be allocated, for some other reason.
 */
export type AddressUse = 'node' | 'router' | 'health' | 'ingress' | 'endpoint' | 'reserved';

/** The owner of an address. */
export interface AddressOwner {
  readonly use: AddressUse;
  /** Name of the owner, such as `shop/checkout-1` for an endpoint. */
  readonly name: string;
}

/** A reserved address. */
export interface ReservedAddress extends AddressOwner {
  /** Address in canonical form. */
  readonly address: string;
  readonly pool: string;
}

/**
 * Outcome of `IPAM.reserve`. `reserved`: the owner has the address now, or had it already. `in-use`: another owner has
 * it and keeps it. `outside`: no CIDR of the pool contains it. `unknown-pool`: the pool does not exist. `invalid`: not
 * an address.
 */
export type ReserveOutcome = 'reserved' | 'in-use' | 'outside' | 'unknown-pool' | 'invalid';

interface AddressPool {
  /** The valid CIDRs. */
  readonly cidrs: readonly Prefix[];
  /** True if the pool was created without CIDRs. A pool with only invalid CIDRs accepts no address. */
  readonly acceptsAny: boolean;
  /** Reserved addresses in canonical form. */
  readonly reserved: Map<string, ReservedAddress>;
}

/** Name of the pool for addresses without a pool. */
export const DEFAULT_POOL = 'default';

/**
 * The reserved addresses and their owners. After a restart, the addresses of restored endpoints, of the router and of
 * the node are reserved before a new address is allocated (AGENT 12, 16, 17). An allocator chooses the addresses and
 * asks {@link IPAM.isFree}, which returns false before {@link IPAM.open}.
 *
 *     reserve(…) for all known addresses ─► open() ─► isFree(address) may return true
 *
 * Pure. A call costs a map lookup and a scan of the CIDRs of its pool. I12: rejected reservations are counted in
 * `status()`.
 */
export class IPAM {
  readonly #pools: ReadonlyMap<string, AddressPool>;
  readonly #rejections: RejectionLog;
  #isOpen = false;

  /** @param pools the CIDRs of each pool; a pool without CIDRs accepts any address, like an external IPAM */
  constructor(
    pools: Iterable<readonly [pool: string, cidrs: readonly string[]]>,
    onReject?: (rejection: Rejection) => void,
  ) {
    checkArgument('new IPAM: pools', pools, ITERABLE);
    const list = [...pools];
    checkArgument('new IPAM: pools', list, POOLS);
    checkArgument('new IPAM: onReject', onReject, optional(FUNCTION));
    this.#rejections = new RejectionLog(onReject, new CallbackGuard());
    this.#pools = new Map(
      list.map(([pool, cidrs]) => {
        const valid = cidrs.flatMap((cidr) => this.#parseCIDR(pool, cidr));
        return [pool, { cidrs: valid, acceptsAny: cidrs.length === 0, reserved: new Map() }];
      }),
    );
  }

  /** Reserves one address. If the same owner has it already, changes nothing. */
  reserve(address: string, owner: AddressOwner, pool: string = DEFAULT_POOL): ReserveOutcome {
    const outcome = this.#reserve(address, owner, pool);
    if (outcome !== 'reserved')
      this.#rejections.add(rejection(outcome, 'address', address, REASONS[outcome], owner.name));
    return outcome;
  }

  /** Releases an address. Returns false if `owner` does not have it. */
  release(address: string, { use, name }: AddressOwner, pool: string = DEFAULT_POOL): boolean {
    const addressPool = this.#pools.get(pool);
    const owner = this.ownerOf(address, pool);
    if (addressPool === undefined || owner?.use !== use || owner.name !== name) return false;
    return addressPool.reserved.delete(owner.address);
  }

  /** Allows the allocation of free addresses, because all addresses from before the restart are reserved. */
  open(): void {
    this.#isOpen = true;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  ownerOf(address: string, pool: string = DEFAULT_POOL): ReservedAddress | undefined {
    const ip = canonicalAddress(address);
    return ip === undefined ? undefined : this.#pools.get(pool)?.reserved.get(ip);
  }

  /**
   * Returns true if an address may be allocated: {@link IPAM.open} was called, the pool contains the address, no owner
   * has it, and it is not a network or broadcast address.
   */
  isFree(address: string, pool: string = DEFAULT_POOL): boolean {
    const ip = addressOf(address);
    const addressPool = this.#pools.get(pool);
    if (!this.#isOpen || ip === undefined || addressPool === undefined) return false;
    return (
      this.ownerOf(ip.address, pool) === undefined &&
      isInside(ip, addressPool) &&
      !isNetworkOrBroadcast(ip, addressPool)
    );
  }

  /** Yields all reserved addresses in any order. */
  *reserved(): Generator<ReservedAddress, void, void> {
    for (const { reserved } of this.#pools.values()) yield* reserved.values();
  }

  status(): {
    readonly open: boolean;
    readonly reserved: Readonly<Record<string, number>>;
    readonly rejections: RejectionStatus;
  } {
    const counts = Array.from(this.#pools, ([pool, { reserved }]) => [pool, reserved.size] as const);
    return {
      open: this.#isOpen,
      reserved: Object.fromEntries(counts),
      rejections: this.#rejections.status(),
    };
  }

  #reserve(address: string, { use, name }: AddressOwner, pool: string): ReserveOutcome {
    const ip = addressOf(address);
    const addressPool = this.#pools.get(pool);
    if (ip === undefined) return 'invalid';
    if (addressPool === undefined) return 'unknown-pool';
    if (!isInside(ip, addressPool)) return 'outside';
    const { reserved } = addressPool;
    const owner = reserved.get(ip.address);
    if (owner !== undefined) return owner.use === use && owner.name === name ? 'reserved' : 'in-use';
    reserved.set(ip.address, { address: ip.address, pool, use, name });
    return 'reserved';
  }

  #parseCIDR(pool: string, cidr: string): readonly Prefix[] {
    const prefix = Prefix.parse(cidr);
    if (prefix !== undefined) return [prefix];
    this.#rejections.add(rejection('invalid-cidr', 'cidr', cidr, 'invalid CIDR', pool));
    return [];
  }
}

const OWNER = objectWith({ use: TEXT, name: TEXT });

const POOLS = listOf(
  matching(
    'must be a name and a list of CIDRs',
    (pool) => Array.isArray(pool) && typeof pool[0] === 'string' && listOf(TEXT)(pool[1]) === undefined,
  ),
);

checkArguments(IPAM, {
  reserve: { address: TEXT, owner: OWNER, pool: optional(TEXT) },
  release: { address: TEXT, owner: OWNER, pool: optional(TEXT) },
  ownerOf: { address: TEXT, pool: optional(TEXT) },
  isFree: { address: TEXT, pool: optional(TEXT) },
});

const REASONS: Readonly<Record<Exclude<ReserveOutcome, 'reserved'>, string>> = {
  'in-use': 'already in use by another owner',
  outside: 'not in a CIDR of the pool',
  'unknown-pool': 'unknown pool',
  invalid: 'invalid IP address',
};

function isInside(ip: Prefix, { cidrs, acceptsAny }: AddressPool): boolean {
  return acceptsAny || cidrs.some((cidr) => cidr.contains(ip));
}

/**
 * Returns true for the first address of a CIDR and for the last one of an IPv4 CIDR. Prefixes of /31, /32, /127 and
 * /128 have no such addresses.
 */
function isNetworkOrBroadcast(ip: Prefix, { cidrs }: AddressPool): boolean {
  return cidrs.some((cidr) => {
    const hostBits = addressBits(cidr.family) - cidr.length;
    if (hostBits < 2 || !cidr.contains(ip)) return false;
    // In the last address, all host bits are set.
    const clearHostBits = ~ip.w0 << (32 - hostBits);
    const isLast = cidr.family === 4 && clearHostBits === 0;
    return isLast || ip.address === cidr.address;
  });
}

/** Returns an address as a prefix of full length. */
function addressOf(text: string): Prefix | undefined {
  const address = canonicalAddress(text);
  return address === undefined ? undefined : Prefix.parse(address);
}
