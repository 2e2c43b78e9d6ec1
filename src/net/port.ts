import { type Check, checkArgument, isObjectOrList, matching } from '../base/arguments.ts';

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

function isProtocol(value: unknown): value is number {
  return typeof value === 'number' && (value & 0xff) === value;
}

/** A port and its IANA protocol number. */
export interface PortProtocol {
  readonly port: number;
  readonly protocol: number;
}

function isPortProtocol(value: unknown): value is PortProtocol {
  return isObjectOrList(value) && isPort(value['port']) && isProtocol(value['protocol']);
}

const PORT_PROTOCOL: Check = matching(
  'must have a port and the number of a protocol, such as 6 for TCP',
  isPortProtocol,
);

/** Throws a `UsageError` if a value is no {@link PortProtocol}. `fields`: the name of the object with the ports. */
export function checkPorts(fields: string, ports: Iterable<readonly [string, unknown]>): void {
  // The name of the argument costs more than the check.
  for (const [name, port] of ports)
    if (!isPortProtocol(port)) checkArgument(`${fields}.ports ${JSON.stringify(name)}`, port, PORT_PROTOCOL);
}

/** Ports by name: a `Map`, or an immutable one. */
export interface PortsByName extends Iterable<readonly [name: string, port: PortProtocol]> {
  readonly size: number;
  get(name: string): PortProtocol | undefined;
}

/** Returns true if two maps have the same ports. Fast if they are the same object. */
export function samePorts(a: PortsByName, b: PortsByName): boolean {
  if (a === b) return true;
  if (a.size !== b.size) return false;
  for (const [name, { port, protocol }] of a) {
    const other = b.get(name);
    if (other?.port !== port || other.protocol !== protocol) return false;
  }
  return true;
}
