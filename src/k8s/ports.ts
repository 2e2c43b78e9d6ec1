import { type PortProtocol, PROTOCOL_NUMBERS } from '../net/port.ts';
import { type FieldReader, field } from './field-reader.ts';

const PORT_MASK = 0xffff;
const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const;

/** No protocol was given, and none is to be assumed; only in the dialect of 1.8. */
const UNSET_PROTOCOL = 0;

/** A port number from `min`; in the dialect of 1.8 cut to 16 bits. */
export function readPort(value: unknown, path: string, min: 0 | 1, reader: FieldReader): number | undefined {
  if (reader.dialect === 'cilium-1.8') {
    const wide = reader.integer(value, path, 0, Number.MAX_SAFE_INTEGER);
    return wide === undefined ? undefined : wide & PORT_MASK;
  }
  return reader.integer(value, path, min, PORT_MASK);
}

/** A protocol number; TCP when the object names none. */
function readProtocol(value: unknown, path: string, reader: FieldReader): number | undefined {
  if (value === undefined || value === null || value === '') {
    return reader.dialect === 'cilium-1.8' ? UNSET_PROTOCOL : PROTOCOL_NUMBERS.TCP;
  }
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
