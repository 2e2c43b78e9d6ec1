import { Prefix } from '../../../net/prefix.ts';
import type { InterfaceAddress } from '../netlink/interface-address.ts';
import { ReservedPrefixes } from './reserved-prefixes.ts';

/**
 * Private ranges that pods of remote clusters may use: RFC 1918, RFC 6598 (shared), RFC 2544 (benchmarks), RFC 1112
 * (class E, which some providers give to pods), RFC 4193.
 */
const PRIVATE_RANGES: readonly string[] = [
  '10.0.0.0/8',
  '100.64.0.0/10',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '240.0.0.0/4',
  'fc00::/7',
];

/** Owner of the addresses of local interfaces. No node has this name, because full names of nodes contain a slash. */
const THIS_HOST = 'this host';

/**
 * Decides which pod CIDRs of remote clusters get a route. Another cluster announces them, so a CIDR must not take
 * packets away from the local cluster, from this host, or from the Internet.
 */
export class RemoteCIDRs {
  readonly #allowed: readonly Prefix[];
  readonly #private: readonly Prefix[] = prefixes(PRIVATE_RANGES);
  readonly #reserved = new ReservedPrefixes();
  /** Networks of the links of this host, except those of one address. */
  #networks: readonly Prefix[] = [];

  /** `allowed` are ranges accepted in addition to the private ones, even inside the network of a link. */
  constructor(allowed: readonly string[] = []) {
    this.#allowed = prefixes(allowed);
  }

  /** Replaces the prefixes of a node of the local cluster; empty if it was deleted. Returns true if they changed. */
  setClusterNode(fullName: string, used: readonly string[]): boolean {
    return this.#reserved.replace(fullName, used);
  }

  /** Replaces the addresses of local interfaces. */
  setInterfaces(all: readonly InterfaceAddress[]): void {
    const networks = prefixes(all.map(({ address, length }) => `${address}/${length}`));
    this.#networks = networks.filter((network) => !network.isFullLength);
    this.#reserved.replace(
      THIS_HOST,
      all.map(({ address }) => address),
    );
  }

  /** Returns the reason why a CIDR of a remote cluster is refused; `undefined` if it is accepted. */
  refusal(cidr: string): string | undefined {
    const prefix = Prefix.parse(cidr);
    if (prefix === undefined) return 'it is not a CIDR';
    const reserved = this.#reserved.overlapping(prefix);
    if (reserved !== undefined) return `it overlaps ${reserved.prefix} of ${reserved.owner}`;
    const isIn = (network: Prefix): boolean => network.contains(prefix);
    if (this.#allowed.some(isIn)) return undefined;
    if (!this.#private.some(isIn))
      return 'it is in a public range; if it is correct, allow it with --datapath-remote-cidrs';
    const network = this.#networks.find(isIn);
    return (
      network &&
      `it is in ${network}, a network of this host; if it is correct, allow it with --datapath-remote-cidrs`
    );
  }
}

function prefixes(texts: readonly string[]): readonly Prefix[] {
  return texts.flatMap((text) => Prefix.parse(text) ?? []);
}
