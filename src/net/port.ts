/** Names of the IP protocols that ports and policies know, with their IANA numbers; `ANY` is 0. */
export const PROTOCOL_NUMBERS = { ANY: 0, ICMP: 1, TCP: 6, UDP: 17, ICMPv6: 58, SCTP: 132 } as const;

const NUMBERS: ReadonlyMap<string, number> = new Map(Object.entries(PROTOCOL_NUMBERS));
const NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(PROTOCOL_NUMBERS).map(([name, n]) => [n, name]),
);

/** The number of a protocol by its exact name; `undefined` for others. */
export function protocolNumber(name: string): number | undefined {
  return NUMBERS.get(name);
}

/** The name of a protocol number; its decimal text when it has none here. */
export function protocolName(number: number): string {
  return NAMES.get(number) ?? String(number);
}

/** Whether `value` is a port number, 0–65535. */
export function isPort(value: unknown): value is number {
  return typeof value === 'number' && (value & 0xffff) === value;
}

/** A port and its IANA protocol number. */
export interface PortProtocol {
  readonly port: number;
  readonly protocol: number;
}
