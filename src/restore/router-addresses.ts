import { canonicalAddress } from '../net/prefix.ts';

/** The addresses of the router (`cilium_host`) of a Cilium agent. */
export interface RouterAddresses {
  readonly ipv4: string | undefined;
  readonly ipv6: string | undefined;
}

/** Patterns by family, in the order of preference: a comment, then the definition in older headers. */
const PATTERNS = {
  4: [/cilium\.v4\.internal\.raw[ \t]+([^\r\n]*)/, /#define[ \t]+IPV4_GATEWAY[ \t]+([^\r\n]*)/],
  6: [/cilium\.v6\.internal\.raw[ \t]+([^\r\n]*)/, /#define[ \t]+ROUTER_IP[ \t]+([^\r\n]*)/],
} as const;

/**
 * Returns the addresses in `node_config.h` (AGENT 17). A value is a list of bytes in network order, `0x0, 0x0, …`,
 * which for IPv4 are the 16 bytes of a mapped address. If a value is a single number, its lowest bits are the first
 * byte of the address. If a value is not an address, the result is undefined.
 */
export function readRouterAddresses(header: string): RouterAddresses {
  return { ipv4: findAddress(header, 4), ipv6: findAddress(header, 6) };
}

function findAddress(header: string, family: 4 | 6): string | undefined {
  for (const pattern of PATTERNS[family]) {
    const [, text = ''] = pattern.exec(header) ?? [];
    const address = addressOf(bytesOf(text.trim()), family);
    if (address !== undefined) return address;
  }
  return undefined;
}

/** Returns the bytes in a value; none if a number is invalid. */
function bytesOf(text: string): readonly number[] {
  const numbers = text
    .split(',')
    .map((part) => part.trim())
    .map((number) => (/^0x[0-9a-f]{1,8}$/i.test(number) ? Number(number) : Number.NaN));
  const [single = 0] = numbers;
  if (numbers.length === 1) return [0, 8, 16, 24].map((shift) => (single >>> shift) & 0xff);
  return numbers.every((byte) => byte <= 0xff) ? numbers : [];
}

/** Returns the address with these bytes; undefined if they are too few, too many or all zero. */
function addressOf(bytes: readonly number[], family: 4 | 6): string | undefined {
  if (bytes.every((byte) => byte === 0) || (bytes.length !== 4 && bytes.length !== 16)) return undefined;
  if (family === 4) return canonicalAddress(bytes.slice(-4).join('.'));
  const groups = Array.from({ length: 8 }, (_, at) => ((bytes[2 * at] ?? 0) << 8) | (bytes[2 * at + 1] ?? 0));
  return bytes.length === 16
    ? canonicalAddress(groups.map((group) => group.toString(16)).join(':'))
    : undefined;
}
