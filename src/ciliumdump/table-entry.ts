import { isNumericIdentity } from '../model/numeric-identity.ts';
import { formatPrefixOf, type PrefixRegister, parseKey, prefixRegister } from '../net/prefix.ts';

/** An entry of a node's ipcache, as the agent or the map of the kernel has it. */
export interface TableEntry {
  /** Canonical, with a length: `10.0.0.1/32`; with the address space of a cluster: `10.0.0.1/32@3`. */
  readonly prefix: string;
  readonly identity: number;
  /** Address of the node of the prefix; undefined if the entry has none (`0.0.0.0`). */
  readonly hostIP: string | undefined;
  /** True if packets to the address are not encapsulated. */
  readonly skipTunnel: boolean;
  /** The source in the agent: `k8s`, `custom-resource`, `kvstore`; undefined for the map. */
  readonly source: string | undefined;
  /** `namespace/name` of the pod; undefined if unknown. */
  readonly pod: string | undefined;
}

/** The part of an entry that a map of the kernel stores. */
export type MapValue = Pick<TableEntry, 'identity' | 'hostIP' | 'skipTunnel'>;

const NO_HOST: ReadonlySet<string> = new Set(['', '0.0.0.0', '::', '<nil>']);

const register: PrefixRegister = prefixRegister();

/** Returns the canonical prefix of a key of a table, or undefined if it is invalid. */
export function tablePrefix(text: string): string | undefined {
  return parseKey(text, register) ? formatPrefixOf(text, register) : undefined;
}

/** Returns the address of a host, or undefined if the text means that there is none. */
export function hostOf(text: string): string | undefined {
  return NO_HOST.has(text) ? undefined : text;
}

/** Returns an identity of 32 bits; undefined if the value is no identity. */
export function identityOf(value: unknown): number | undefined {
  return isNumericIdentity(value) ? value : undefined;
}

/**
 * Fields of `identity=55 encryptkey=0 tunnelendpoint=192.168.0.9, flags=<none>`. Their order and further fields do not
 * matter.
 */
const NAMED = /(?:^|[\s,])identity=(\d{1,10})(?=[\s,]|$)/;
const TUNNEL = /(?:^|[\s,])tunnelendpoint=([^\s,]*)/;
const FLAGS = /(?:^|[\s,])flags=(\S*)/;
/** `55 0 192.168.0.9`, as in 1.8. */
const BARE = /^(\d{1,10}) \d{1,3} (\S+)$/;

/** Returns the map value in a text as Cilium 1.8 or 1.17 prints it; undefined if the text is no such value. */
export function parseMapValue(text: string): MapValue | undefined {
  const bare = BARE.exec(text);
  if (bare !== null) return mapValue(bare[1], bare[2], '');
  return mapValue(NAMED.exec(text)?.[1], TUNNEL.exec(text)?.[1], FLAGS.exec(text)?.[1]);
}

function mapValue(number: string | undefined, host = '', flags = ''): MapValue | undefined {
  const identity = number === undefined ? undefined : identityOf(Number(number));
  if (identity === undefined) return undefined;
  return { identity, hostIP: hostOf(host), skipTunnel: flags.includes('skiptunnel') };
}
