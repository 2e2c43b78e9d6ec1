/** Names of the IP protocols of ports and policies, with their IANA numbers. `ANY` is 0. */
export const PROTOCOL_NUMBERS = { ANY: 0, ICMP: 1, TCP: 6, UDP: 17, ICMPv6: 58, SCTP: 132 } as const;

/** The protocols of ports in Kubernetes. */
export const PORT_PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const;

const NUMBERS: ReadonlyMap<string, number> = new Map(Object.entries(PROTOCOL_NUMBERS));
const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(PROTOCOL_NUMBERS).map(([name, number]) => [number, name]),
);

/** Returns the number of a protocol by its exact name; `undefined` for other names. */
export function protocolNumber(name: string): number | undefined {
  return NUMBERS.get(name);
}

/** Returns the name of a protocol number; its decimal text if it has no name here. */
export function protocolName(number: number): string {
  return NAMES.get(number) ?? String(number);
}

/** Returns true if `value` is a port number, 0–65535. */
export function isPort(value: unknown): value is number {
  return typeof value === 'number' && (value & 0xffff) === value;
}

/** A port and its IANA protocol number. */
export interface PortProtocol {
  readonly port: number;
  readonly protocol: number;
}
