import { isPort, type PortProtocol, protocolName, protocolNumber } from '../../net/port.ts';
import { asObject, fieldOf, type JsonObject, readEntries, readString, refuse } from './fields.ts';
import { jsonMap, jsonObject, jsonString } from './go-json.ts';

/** Ports by name; a port's name may be `''`. */
export type PortConfiguration = ReadonlyMap<string, PortProtocol>;

/** Reads `{"Port": …, "Protocol": …}`. */
export function readPort(object: JsonObject, path: string): PortProtocol {
  const port = fieldOf(object, 'Port') ?? 0;
  if (!isPort(port))
    return refuse('out-of-range', `${path}.Port`, port, 'must be an integer from 0 to 65535');
  const name = readString(object, 'Protocol', `${path}.Protocol`);
  const protocol = protocolNumber(name);
  if (protocol !== undefined) return { port, protocol };
  return refuse('unknown-protocol', `${path}.Protocol`, name, 'is not a known protocol name');
}

/** Reads `{name: {"Protocol": …, "Port": …}}`. */
export function readPortConfiguration(value: unknown, path: string): PortConfiguration {
  const ports = new Map<string, PortProtocol>();
  for (const [name, port] of readEntries({ [path]: value }, path)) {
    const portPath = `${path}.${name}`;
    ports.set(name, readPort(asObject(port, portPath), portPath));
  }
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
