import { Map as ImmutableMap } from 'immutable';
import { type PortProtocol, PROTOCOL_NUMBERS } from '../net/port.ts';
import { NO_PORTS, type Ports } from '../servicecache/backend.ts';
import { type FieldReader, field } from './field-reader.ts';

const MAX_PORT = 0xffff;
const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const;

/** A port number from `min`. */
export function readPort(value: unknown, path: string, min: 0 | 1, reader: FieldReader): number | undefined {
  return reader.integer(value, path, min, MAX_PORT);
}

/** A protocol number; TCP when the object names none. */
function readProtocol(value: unknown, path: string, reader: FieldReader): number | undefined {
  if (value === undefined || value === null || value === '') return PROTOCOL_NUMBERS.TCP;
  const name = reader.word(value, path, PROTOCOLS);
  return name === undefined ? undefined : PROTOCOL_NUMBERS[name];
}

/** A port with its name. */
export interface NamedPort extends PortProtocol {
  readonly name: string;
}

/** One element of a list of ports; refused when its number or protocol is none. */
export function readNamedPort(value: unknown, path: string, reader: FieldReader): NamedPort | undefined {
  if (reader.object(value, path) === undefined) return undefined;
  const number = field(value, 'port');
  const port = readPort(number, `${path}.port`, 1, reader);
  const protocol = readProtocol(field(value, 'protocol'), `${path}.protocol`, reader);
  const name = field(value, 'name') ?? '';
  if (typeof name !== 'string') reader.refuse('wrong-type', `${path}.name`, name, 'must be a string');
  if (number === undefined || number === null) {
    reader.refuse(
      'missing',
      `${path}.port`,
      number,
      'a port without a number means all ports: not supported',
    );
  }
  if (port === undefined || protocol === undefined || typeof name !== 'string') return undefined;
  return { name, port, protocol };
}

/** A list of ports by name; the last of equal names counts. */
export function readPorts(value: unknown, path: string, reader: FieldReader): Ports {
  const ports = new Map<string, PortProtocol>();
  reader.list(value, path).forEach((item, index) => {
    const named = readNamedPort(item, `${path}[${index}]`, reader);
    if (named !== undefined) ports.set(named.name, { port: named.port, protocol: named.protocol });
  });
  return ports.size === 0 ? NO_PORTS : ImmutableMap(ports);
}
