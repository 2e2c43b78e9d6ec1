import { Map as ImmutableMap } from 'immutable';
import {
  type Backend,
  type BackendState,
  createBackend,
  type EndpointSlice,
  type Ports,
} from '../servicecache/backend.ts';
import { readAddress } from './addresses.ts';
import { type FieldReader, field, type Parsed, type ParseOptions } from './field-reader.ts';
import { readerFor, readID } from './metadata.ts';
import { readPorts } from './ports.ts';

/** One address of a subset, merged into what other subsets have said of it: ports add up, the last node counts. */
function mergeAddress(known: Backend | undefined, next: Backend): Backend {
  if (known === undefined) return next;
  return createBackend({
    ...known,
    ports: known.ports.merge(next.ports),
    nodeName: next.nodeName === '' ? known.nodeName : next.nodeName,
    hostname: next.hostname === '' ? known.hostname : next.hostname,
  });
}

interface Subset {
  readonly subset: unknown;
  readonly path: string;
  readonly ports: Ports;
}

function readSubsets(object: unknown, reader: FieldReader): readonly Subset[] {
  return reader.list(field(object, 'subsets'), 'subsets').flatMap((item, index) => {
    const path = `subsets[${index}]`;
    const subset = reader.object(item, path);
    return subset === undefined
      ? []
      : [{ subset, path, ports: readPorts(field(subset, 'ports'), `${path}.ports`, reader) }];
  });
}

/** The backends of one of the two lists of addresses, over all subsets. */
function readAddressList(
  subsets: readonly Subset[],
  list: 'addresses' | 'notReadyAddresses',
  state: BackendState,
  reader: FieldReader,
): Map<string, Backend> {
  const backends = new Map<string, Backend>();
  for (const { subset, path, ports } of subsets) {
    reader.list(field(subset, list), `${path}.${list}`).forEach((item, index) => {
      const at = `${path}.${list}[${index}]`;
      if (reader.object(item, at) === undefined) return;
      const address = readAddress(field(item, 'ip'), `${at}.ip`, reader);
      if (address === undefined) return;
      const nodeName = reader.string(field(item, 'nodeName'), `${at}.nodeName`) ?? '';
      const hostname = reader.string(field(item, 'hostname'), `${at}.hostname`) ?? '';
      const backend = createBackend({ address, ports, nodeName, hostname, state });
      backends.set(address, mergeAddress(backends.get(address), backend));
    });
  }
  return backends;
}

/**
 * Reads a v1 `Endpoints` object from outside: it is one slice, named like the object. An address or port that
 * is none is refused alone. Never throws.
 */
export function parseEndpoints(object: unknown, options: ParseOptions = {}): Parsed<EndpointSlice> {
  const reader = readerFor('Endpoints', object, options);
  const service = readID(object, reader);
  if (service === undefined) return { value: undefined, rejections: reader.rejections };
  const subsets = readSubsets(object, reader);
  const backends = readAddressList(subsets, 'addresses', 'active', reader);
  const notReady = readAddressList(subsets, 'notReadyAddresses', 'not-ready', reader);
  for (const address of backends.keys()) notReady.delete(address);
  const value: EndpointSlice = {
    service,
    name: service.name,
    backends: ImmutableMap(backends),
    notReady: ImmutableMap(notReady),
  };
  return { value, rejections: reader.rejections };
}
