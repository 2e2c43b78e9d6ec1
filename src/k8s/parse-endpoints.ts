import { Map as ImmutableMap } from 'immutable';
import {
  type Backend,
  type BackendState,
  createBackend,
  type EndpointSlice,
  isPlaceholder,
  type Ports,
} from '../servicecache/backend.ts';
import { type ObjectFields, type Parsed, type ParseOptions, parseObject, readID } from './parse-object.ts';
import { readPorts } from './ports.ts';

/**
 * Merges two entries of an address from different subsets: combines the ports, and uses the node and the hostname of
 * the last entry that has them.
 */
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
  readonly fields: ObjectFields;
  readonly ports: Ports;
}

function readSubset(list: ObjectFields, index: number): Subset | undefined {
  const fields = list.item(index);
  return fields && { fields, ports: readPorts(fields) };
}

/** Returns the backends of one of the two address lists in all subsets. */
function readAddressList(
  subsets: readonly Subset[],
  list: 'addresses' | 'notReadyAddresses',
  state: BackendState,
): Map<string, Backend> {
  const backends = new Map<string, Backend>();
  for (const { fields, ports } of subsets) {
    const addresses = fields.list(list);
    for (let index = 0; index < addresses.size; index++) {
      const item = addresses.item(index);
      const address = item?.address('ip');
      if (item === undefined || address === undefined) continue;
      const nodeName = item.string('nodeName') ?? '';
      const hostname = item.string('hostname') ?? '';
      const backend = createBackend({ address, ports, nodeName, hostname, state });
      if (isPlaceholder(backend.address, backend.ports)) continue;
      backends.set(address, mergeAddress(backends.get(address), backend));
    }
  }
  return backends;
}

/** The fields read by {@link readEndpoints}. */
export const ENDPOINTS_FIELDS: readonly string[] = ['subsets'];

/** Returns the slice, or undefined if it is rejected; see {@link parseEndpoints}. */
export function readEndpoints(fields: ObjectFields): EndpointSlice | undefined {
  const service = readID(fields);
  if (service === undefined) return undefined;
  const subsets = fields.list('subsets').items(readSubset);
  const backends = readAddressList(subsets, 'addresses', 'active');
  const notReady = readAddressList(subsets, 'notReadyAddresses', 'not-ready');
  for (const address of backends.keys()) notReady.delete(address);
  return {
    service,
    name: service.name,
    backends: ImmutableMap(backends),
    notReady: ImmutableMap(notReady),
  };
}

/**
 * Parses an untrusted v1 `Endpoints` object as one slice with the name of the object. An invalid address or port is
 * rejected, and the rest is used. Never throws.
 */
export function parseEndpoints(object: unknown, options: ParseOptions = {}): Parsed<EndpointSlice> {
  return parseObject('Endpoints', object, options, readEndpoints);
}
