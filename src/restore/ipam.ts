import { checkArguments, objectWith, optional, TEXT } from '../base/arguments.ts';
import { CallbackGuard } from '../base/guard.ts';
import { type Rejection, RejectionLog, type RejectionStatus, rejection } from '../base/rejection.ts';
import { addressBits } from '../net/address-words.ts';
import { canonicalAddress, Prefix } from '../net/prefix.ts';

/** What an address is taken by: the node itself, or an endpoint (AGENT 16). */
export type AddressUse = 'node' | 'router' | 'health' | 'ingress' | 'endpoint' | 'reserved';

/** Who has an address. */
export interface AddressOwner {
  readonly use: AddressUse;
  /** Such as `shop/checkout-1`. */
  readonly name: string;
}

/** A taken address. */
export interface TakenAddress extends AddressOwner {
  /** Canonical text. */
  readonly address: string;
  readonly pool: string;
}

/**
 * `taken`: it has it now, or had it already. `in-use`: another owner has it, who keeps it. `outside`: it lies in no CIDR of the
 * pool. `unknown-pool`: there is no such pool. `invalid`: it is no address.
 */
export type TakeOutcome = 'taken' | 'in-use' | 'outside' | 'unknown-pool' | 'invalid';

interface Pool {
  /** Those that are valid. */
  readonly cidrs: readonly Prefix[];
  /** Without CIDRs, not with invalid ones alone. */
  readonly takesAny: boolean;
  /** By canonical text. */
  readonly taken: Map<string, TakenAddress>;
}

/** The pool of addresses that name none. */
export const DEFAULT_POOL = 'default';

/**
 * Which addresses are taken, and by whom: after a restart those of restored endpoints, of the router and of the node, before
 * any new one is given out (AGENT 12, 16, 17). It keeps no addresses in order and gives none out by itself: whoever does asks
 * {@link IPAM.isFree}, once the pool is open.
 *
 *     take(…) for all that is known ─► open() ─► isFree(address) may say yes
 *
 * Pure; a call costs a map look-up and a look at the CIDRs of its pool. I12: refused takes are counted in `status()`.
 */
export class IPAM {
  readonly #pools: ReadonlyMap<string, Pool>;
  readonly #rejections: RejectionLog;
  #isOpen = false;

  /** @param pools the CIDRs of each pool; one without CIDRs takes any address, as an external IPAM does */
  constructor(
    pools: Iterable<readonly [pool: string, cidrs: readonly string[]]>,
    onReject?: (rejection: Rejection) => void,
  ) {
    this.#rejections = new RejectionLog(onReject, new CallbackGuard());
    this.#pools = new Map(
      Array.from(pools, ([pool, cidrs]) => {
        const valid = cidrs.flatMap((cidr) => this.#cidr(pool, cidr));
        return [pool, { cidrs: valid, takesAny: cidrs.length === 0, taken: new Map() }];
      }),
    );
  }

  /** Takes exactly this address. Taking it again for the same owner changes nothing. */
  take(address: string, owner: AddressOwner, pool: string = DEFAULT_POOL): TakeOutcome {
    const outcome = this.#take(address, owner, pool);
    if (outcome !== 'taken')
      this.#rejections.add(rejection(outcome, 'address', address, WHY[outcome], owner.name));
    return outcome;
  }

  /** Gives an address back; only its owner can. */
  release(address: string, { use, name }: AddressOwner, pool: string = DEFAULT_POOL): boolean {
    const known = this.#pools.get(pool);
    const held = this.ownerOf(address, pool);
    if (known === undefined || held?.use !== use || held.name !== name) return false;
    return known.taken.delete(held.address);
  }

  /** All that was in use before the restart has been taken: from here on what is free may be given out. */
  open(): void {
    this.#isOpen = true;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Who has an address. */
  ownerOf(address: string, pool: string = DEFAULT_POOL): TakenAddress | undefined {
    const ip = canonicalAddress(address);
    return ip === undefined ? undefined : this.#pools.get(pool)?.taken.get(ip);
  }

  /** Whether an address may be given out: the pool is open and has it, it is free, and is not the address of a network itself. */
  isFree(address: string, pool: string = DEFAULT_POOL): boolean {
    const ip = addressOf(address);
    const known = this.#pools.get(pool);
    if (!this.#isOpen || ip === undefined || known === undefined) return false;
    return this.ownerOf(ip.address, pool) === undefined && isInside(ip, known) && !isOfNetwork(ip, known);
  }

  /** Every taken address, in no order that is promised. */
  *taken(): Generator<TakenAddress, void, void> {
    for (const { taken } of this.#pools.values()) yield* taken.values();
  }

  status(): {
    readonly open: boolean;
    readonly taken: Readonly<Record<string, number>>;
    readonly rejections: RejectionStatus;
  } {
    const counts = Array.from(this.#pools, ([pool, { taken }]) => [pool, taken.size] as const);
    return { open: this.#isOpen, taken: Object.fromEntries(counts), rejections: this.#rejections.status() };
  }

  #take(address: string, { use, name }: AddressOwner, pool: string): TakeOutcome {
    const ip = addressOf(address);
    const known = this.#pools.get(pool);
    if (ip === undefined) return 'invalid';
    if (known === undefined) return 'unknown-pool';
    if (!isInside(ip, known)) return 'outside';
    const { taken } = known;
    const held = taken.get(ip.address);
    if (held !== undefined) return held.use === use && held.name === name ? 'taken' : 'in-use';
    taken.set(ip.address, { address: ip.address, pool, use, name });
    return 'taken';
  }

  #cidr(pool: string, cidr: string): readonly Prefix[] {
    const prefix = Prefix.parse(cidr);
    if (prefix !== undefined) return [prefix];
    this.#rejections.add(rejection('invalid-cidr', 'cidr', cidr, 'is not a valid CIDR', pool));
    return [];
  }
}

const OWNER = objectWith({ use: TEXT, name: TEXT });

checkArguments(IPAM, {
  take: { address: TEXT, owner: OWNER, pool: optional(TEXT) },
  release: { address: TEXT, owner: OWNER, pool: optional(TEXT) },
  ownerOf: { address: TEXT, pool: optional(TEXT) },
  isFree: { address: TEXT, pool: optional(TEXT) },
});

const WHY: Readonly<Record<Exclude<TakeOutcome, 'taken'>, string>> = {
  'in-use': 'another owner has it',
  outside: 'lies in no CIDR of the pool',
  'unknown-pool': 'there is no such pool',
  invalid: 'is not a valid IP address',
};

function isInside(ip: Prefix, { cidrs, takesAny }: Pool): boolean {
  return takesAny || cidrs.some((cidr) => cidr.contains(ip));
}

/** Whether it is the first address of a CIDR, or the last one of an IPv4 CIDR: of /31, /32, /127 and /128 there are none. */
function isOfNetwork(ip: Prefix, { cidrs }: Pool): boolean {
  return cidrs.some((cidr) => {
    const hostBits = addressBits(cidr.family) - cidr.length;
    if (hostBits < 2 || !cidr.contains(ip)) return false;
    const isLast = cidr.family === 4 && ~ip.w0 << (32 - hostBits) === 0;
    return isLast || ip.address === cidr.address;
  });
}

/** An address as the prefix of its full length. */
function addressOf(text: string): Prefix | undefined {
  const address = canonicalAddress(text);
  return address === undefined ? undefined : Prefix.parse(address);
}
