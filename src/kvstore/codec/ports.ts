import type { Fields } from '../../net/fields.ts';
import { type PortProtocol, protocolName, protocolNumber } from '../../net/port.ts';
import { jsonMap, jsonObject, jsonString } from './go-json.ts';

/** Ports by name; a port's name may be `''`. */
export type PortConfiguration = ReadonlyMap<string, PortProtocol>;

/** Reads `{"Port": …, "Protocol": …}`. */
export function readPort(fields: Fields<never>): PortProtocol {
  const port = fields.integer('Port', 0, 0xffff) ?? 0;
  const name = fields.string('Protocol') ?? '';
  const protocol =
    protocolNumber(name) ??
    fields.reject('Protocol', 'unknown-protocol', 'is not a known protocol name', name);
  return { port, protocol };
}

/** Reads `{name: {"Protocol": …, "Port": …}}`. */
export function readPortConfiguration(byName: Fields<never>): PortConfiguration {
  const ports = new Map<string, PortProtocol>();
  for (const name of byName.names) ports.set(name, readPort(byName.item(name)));
  return ports;
}

/** Writes what {@link readPortConfiguration} reads. */
export function writePortConfiguration(ports: PortConfiguration): string {
  return jsonMap(ports, ({ port, protocol }) =>
    jsonObject([
      ['Protocol', jsonString(protocolName(protocol))],
      ['Port', String(port)],
    ]),
  );
}
