import type { Fields, RejectField } from '../../net/fields.ts';
import { type PortProtocol, PROTOCOL_NUMBERS, protocolName, protocolNumber } from '../../net/port.ts';
import { jsonMap, jsonObject, jsonString } from './go-json.ts';

/** Ports by name. A name may be `''`. */
export type PortConfiguration = ReadonlyMap<string, PortProtocol>;

const LOWER_CASE: ReadonlyMap<string, number> = new Map(
  Object.entries(PROTOCOL_NUMBERS).map(([name, number]) => [name.toLowerCase(), number]),
);

/**
 * Returns the port in `{"Port": …, "Protocol": …}`. Protocol names are case-insensitive, as in Cilium (pkg/u8proto,
 * `ParseProtocol`). If the protocol is missing or unknown, drops the port and returns undefined.
 */
export function readPort(fields: Fields<never>, drop: RejectField<undefined>): PortProtocol | undefined {
  const port = fields.integer('Port', 0, 0xffff) ?? 0;
  const name = fields.string('Protocol') ?? '';
  const protocol = protocolNumber(name) ?? LOWER_CASE.get(name.toLowerCase());
  if (protocol !== undefined) return { port, protocol };
  return drop('unknown-protocol', fields.pathOf('Protocol'), name, 'is not a known protocol name');
}

/** Reads `{name: {"Protocol": …, "Port": …}}`; see {@link readPort}. */
export function readPortConfiguration(
  byName: Fields<never>,
  drop: RejectField<undefined>,
): PortConfiguration {
  const ports = new Map<string, PortProtocol>();
  for (const name of byName.names) {
    const port = readPort(byName.item(name), drop);
    if (port !== undefined) ports.set(name, port);
  }
  return ports;
}

/** Returns the JSON for {@link readPortConfiguration}. */
export function writePortConfiguration(ports: PortConfiguration): string {
  return jsonMap(ports, ({ port, protocol }) =>
    jsonObject([
      ['Protocol', jsonString(protocolName(protocol))],
      ['Port', String(port)],
    ]),
  );
}
