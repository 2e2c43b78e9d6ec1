import { Map as ImmutableMap } from 'immutable';
import { PORT_PROTOCOLS, type PortProtocol, PROTOCOL_NUMBERS } from '../net/port.ts';
import { NO_PORTS, type Ports } from '../servicecache/backend.ts';
import type { ObjectFields } from './parse-object.ts';
import { SharedValues } from './shared-values.ts';

const MAX_PORT = 0xffff;

/** Returns the port number of a field, or 0 if the field is 0 or absent: no port is assigned yet. */
export function readNodePort(fields: ObjectFields, name: string): number {
  return fields.integer(name, 0, MAX_PORT) ?? 0;
}

/** Returns the protocol number, TCP if the field is missing. */
function readProtocol(fields: ObjectFields): number | undefined {
  if ((fields.value('protocol') ?? '') === '') return PROTOCOL_NUMBERS.TCP;
  const name = fields.word('protocol', PORT_PROTOCOLS);
  return name === undefined ? undefined : PROTOCOL_NUMBERS[name];
}

/** A port of a list, with its name, which may be empty. */
export interface NamedPort extends PortProtocol {
  readonly name: string;
}

/**
 * Returns one element of a list of ports, whose number is in `numberField`. If its number, protocol or name is invalid,
 * rejects it and returns undefined.
 */
export function readNamedPort(fields: ObjectFields, numberField = 'port'): NamedPort | undefined {
  const port = fields.integer(numberField, 1, MAX_PORT);
  const protocol = readProtocol(fields);
  const name = fields.value('name') === undefined ? '' : fields.string('name');
  if (fields.value(numberField) === undefined)
    fields.reject(
      numberField,
      'missing',
      'must be set, because endpoints without a port number are not supported',
    );
  return port === undefined || protocol === undefined || name === undefined
    ? undefined
    : { name, port, protocol };
}

/**
 * Returns a text that is equal for two lists of ports if and only if they have the same names, numbers, protocols and
 * node ports in the same order.
 */
export function textOfPorts(
  ports: Iterable<readonly [string, PortProtocol & { nodePort?: number }]>,
): string {
  let text = '';
  // The length makes the text unambiguous for any name.
  for (const [name, { port, protocol, nodePort = 0 }] of ports)
    text += `${name.length}:${name}:${port}/${protocol}/${nodePort},`;
  return text;
}

/**
 * Returns the ports of the field `ports` by name. If two ports have the same name, the last one wins. Equal lists
 * usually share one object of `shared`.
 */
export function readPorts(fields: ObjectFields, shared: SharedValues<Ports> = new SharedValues()): Ports {
  const named = fields.list('ports').items((list, index) => {
    const port = list.item(index);
    return port && readNamedPort(port);
  });
  if (named.length === 0) return NO_PORTS;
  const ports = named.map(({ name, port, protocol }): [string, PortProtocol] => [name, { port, protocol }]);
  const text = textOfPorts(ports);
  return shared.get(text) ?? shared.share(text, ImmutableMap(ports));
}
