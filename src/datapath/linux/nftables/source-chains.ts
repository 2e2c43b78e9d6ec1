import { addressBits, type Family } from '../../../net/address-words.ts';
import { addressBytes, prefixLength, readPrefix } from '../netlink/address-bytes.ts';
import type { SourceRanges } from '../services/desired-services.ts';
import type { Endpoint } from '../services/service-layout.ts';
import {
  addressType,
  addressWords,
  compositeType,
  frontendKey,
  loadAddressAt,
  loadFrontend,
  matchSet,
  REGISTER,
  readFrontend,
  TYPE,
  VERDICT_REGISTER,
} from './nft-layout.ts';
import type { NftChain, NftExpression, NftSet } from './nft-message.ts';

const ADMIT = 'admit';
const DENY = 'deny';
const SOURCE_CHAIN = /^(?:admit|deny)((?:-(?:0|[1-9]\d*|any))*)$/;
/** Replaces the list of lengths if the name of a chain would be too long (`NFT_NAME_MAXLEN`). */
const ANY = 'any';
/** Maximum number of lengths in a name: all lengths of IPv4. */
const MAX_LISTED = 33;
const RANGE_SET = /^from-(0|[1-9]\d*)$/;
/** Codes of verdicts (`NF_*`). */
const NF = { drop: 0, accept: 1 } as const;
/** Offset of the source address in the network header. */
const SOURCE_OFFSET = { 4: 12, 6: 8 } as const;

/** Name of the chain that admits no client. */
export const CLOSED_CHAIN: string = ADMIT;

/**
 * Returns the name of the chain for all frontends with this policy and these lengths of ranges: `admit-8-32` admits
 * only clients in ranges of length 8 and 32, `deny-8-32` only other clients.
 */
export function sourceChainName({ policy, ranges }: SourceRanges): string {
  const lengths = [...new Set(ranges.map(prefixLength))].sort((a, b) => a - b);
  return [policy === 'deny' ? DENY : ADMIT, ...(lengths.length > MAX_LISTED ? [ANY] : lengths)].join('-');
}

/** Returns the policy of a chain named by {@link sourceChainName}. */
export function policyOf(chain: string): SourceRanges['policy'] {
  return chain.startsWith(DENY) ? 'deny' : 'allow';
}

/** Returns the lengths of ranges in the name of a chain; `undefined` if it is another chain. */
function lengthsOf(family: Family, chain: string): readonly number[] | undefined {
  const [, listed] = SOURCE_CHAIN.exec(chain) ?? [];
  if (listed === undefined) return undefined;
  const words = listed.split('-').slice(1);
  const all = Array.from({ length: addressBits(family) + 1 }, (_, length) => length);
  const lengths = words.join() === ANY ? all : words.map(Number);
  return lengths.every((length) => length < all.length) ? lengths : undefined;
}

export function rangeSetName(length: number): string {
  return `from-${length}`;
}

/** Returns the length of the ranges in a set; `undefined` if it is another set. */
export function rangeLengthOf(family: Family, set: string): number | undefined {
  const [, length] = RANGE_SET.exec(set) ?? [];
  return length !== undefined && Number(length) <= addressBits(family) ? Number(length) : undefined;
}

/** Returns the definition of the set of ranges of a length. Each element is a frontend and a range of its clients. */
export function rangeSet(family: Family, length: number): NftSet {
  const keyType = compositeType(family, TYPE.protocol, TYPE.service, addressType(family));
  return { name: rangeSetName(length), keyType, keyBytes: 8 * addressWords(family) + 8 };
}

/** Returns the chain with this name, and the sets that it reads; `undefined` if it is another chain. */
export function sourceChain(
  family: Family,
  name: string,
): { readonly chain: NftChain; readonly sets: readonly NftSet[] } | undefined {
  const lengths = lengthsOf(family, name);
  if (lengths === undefined) return undefined;
  const isDeny = policyOf(name) === 'deny';
  const matched = decide(isDeny ? NF.drop : NF.accept);
  const rules = lengths.map((length) => [
    ...loadRange(family, length),
    matchSet(rangeSetName(length)),
    matched,
  ]);
  return {
    chain: { name, rules: isDeny ? rules : [...rules, [decide(NF.drop)]] },
    sets: lengths.map((length) => rangeSet(family, length)),
  };
}

function decide(verdict: number): NftExpression {
  return { name: 'immediate', registers: { 1: VERDICT_REGISTER }, verdict };
}

/** `ip daddr . meta l4proto . th dport . ip saddr & 255.0.0.0` */
function loadRange(family: Family, length: number): readonly NftExpression[] {
  const at = REGISTER + addressWords(family) + 2;
  const bytes = 4 * addressWords(family);
  const mask = Uint8Array.from({ length: bytes }, (_, index) => {
    const ones = Math.min(8, Math.max(0, length - 8 * index));
    return 0xff00 >> ones;
  });
  const narrow: NftExpression = {
    name: 'bitwise',
    registers: { 1: at, 2: at },
    numbers: { 3: bytes },
    values: { 4: mask, 5: new Uint8Array(bytes) },
  };
  const load = [...loadFrontend(family), loadAddressAt(family, SOURCE_OFFSET[family], at)];
  return length === addressBits(family) ? load : [...load, narrow];
}

/** Returns the key of a range: the frontend as in `frontendKey`, then the address of the range, unmasked. */
export function rangeKey(frontend: Endpoint, range: string): Uint8Array {
  return Buffer.concat([frontendKey(frontend), addressBytes(range.slice(0, range.indexOf('/')))]);
}

/** Reads a key of {@link rangeKey}. A foreign range may have host bits. Throws `NetlinkFormatError`. */
export function readRange(
  bytes: Uint8Array,
  family: Family,
  length: number,
): { readonly frontend: Endpoint; readonly range: string } {
  const range = readPrefix(bytes.subarray(4 * addressWords(family) + 8), length, family);
  return { frontend: readFrontend(bytes, family), range };
}
