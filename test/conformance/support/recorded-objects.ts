import {
  type EndpointSliceID,
  parseEndpointSlice,
  parseEndpointSliceID,
} from '../../../src/k8s/parse-endpoint-slice.ts';
import { parseEndpoints } from '../../../src/k8s/parse-endpoints.ts';
import { parseService } from '../../../src/k8s/parse-service.ts';
import { type PortProtocol, PROTOCOL_NUMBERS } from '../../../src/net/port.ts';
import {
  type Backends,
  createBackend,
  type EndpointSlice,
  type Ports,
} from '../../../src/servicecache/backend.ts';
import { createService, type Service, type ServicePort } from '../../../src/servicecache/service.ts';

/**
 * Reads the Kubernetes objects of the traces like Cilium 1.8: without defaults, with ports cut to 16 bits,
 * without SCTP and terminating endpoints in slices. Objects are rewritten before our parsers read them, and
 * the original values are restored afterwards.
 */

type Fields = Readonly<Record<string, unknown>>;

/** A port as written in the object. */
interface SaidPort {
  readonly name: string;
  readonly port: number;
  readonly hasProtocol: boolean;
}

const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
const NO_NAME = 'no-name';
const UNSET_PROTOCOL = 0;

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function field(value: unknown, name: string): unknown {
  return isFields(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

function isUnset(value: unknown): boolean {
  return value === undefined || value === null || value === '';
}

function cut(value: unknown): unknown {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value & 0xffff : value;
}

/** Returns the object with one field rewritten, if it has the field. */
function rewritten(object: unknown, name: string, rewrite: (value: unknown) => unknown): unknown {
  return isFields(object) && name in object ? { ...object, [name]: rewrite(object[name]) } : object;
}

function each(rewrite: (item: unknown) => unknown): (list: unknown) => unknown {
  return (list) => (Array.isArray(list) ? list.map(rewrite) : list);
}

/**
 * The ports of one object, changed such that the parsers accept them, under names that map to the original
 * ports.
 */
class SaidPorts {
  readonly #said: SaidPort[] = [];

  readonly hide = each((item) => {
    if (!isFields(item) || (!isUnset(field(item, 'name')) && typeof field(item, 'name') !== 'string'))
      return item;
    const port = cut(field(item, 'port'));
    if (typeof port !== 'number' || !Number.isInteger(port) || port < 0) return item;
    const tag = this.#said.length;
    this.#said.push({
      name: String(field(item, 'name') ?? ''),
      port,
      hasProtocol: !isUnset(field(item, 'protocol')),
    });
    return {
      ...item,
      name: `${tag}`,
      port: 1,
      protocol: field(item, 'protocol') || 'TCP',
      nodePort: cut(field(item, 'nodePort')),
    };
  });

  /** Yields the original ports, in order; other fields are kept. */
  *restore<P extends PortProtocol>(ports: Iterable<readonly [string, P]>): Generator<readonly [string, P]> {
    for (const [tag, port] of ports) {
      const said = this.#said[Number(tag)];
      if (said === undefined) continue;
      const protocol = said.hasProtocol ? port.protocol : UNSET_PROTOCOL;
      yield [said.name, { ...port, port: said.port, protocol }];
    }
  }
}

/** Like {@link parseService}, but the first of equal port names is used. */
export function readService(object: unknown): Service | undefined {
  const ports = new SaidPorts();
  const hidden = rewritten(object, 'spec', (spec) =>
    rewritten(rewritten(spec, 'ports', ports.hide), 'healthCheckNodePort', cut),
  );
  const { value } = parseService(hidden);
  if (value === undefined) return undefined;
  const type = isUnset(field(field(object, 'spec'), 'type')) ? 'unknown' : value.type;
  const said = new Map<string, ServicePort>();
  for (const [name, port] of ports.restore(value.ports)) if (!said.has(name)) said.set(name, port);
  return createService({ ...value, type, ports: said });
}

/** Like {@link parseEndpoints}, but ports are copied unchanged. */
export function readEndpoints(object: unknown): EndpointSlice | undefined {
  const ports = new SaidPorts();
  const hidden = rewritten(
    object,
    'subsets',
    each((subset) => rewritten(subset, 'ports', ports.hide)),
  );
  return withPorts(parseEndpoints(hidden).value, (said) => new Map(ports.restore(said)));
}

/** Like {@link parseEndpointSlice}, but ports get the default protocol and SCTP is omitted. */
export function readEndpointSlice(object: unknown): EndpointSlice | undefined {
  const ports = new SaidPorts();
  const readyOnly = (endpoint: unknown): unknown =>
    rewritten(endpoint, 'conditions', (conditions) =>
      isFields(conditions) ? { ready: field(conditions, 'ready') } : conditions,
    );
  const hidden = rewritten(rewritten(object, 'ports', ports.hide), 'endpoints', each(readyOnly));
  const { value } = parseEndpointSlice(withServiceName(hidden));
  return withPorts(value && { ...value, ...sliceID(value) }, (said) => {
    const restored = Array.from(ports.restore(said), ([name, port]): [string, PortProtocol] =>
      port.protocol === UNSET_PROTOCOL ? [name, { ...port, protocol: PROTOCOL_NUMBERS.TCP }] : [name, port],
    );
    return new Map(restored.filter(([, { protocol }]) => protocol !== PROTOCOL_NUMBERS.SCTP));
  });
}

/** As {@link parseEndpointSliceID}. */
export function readEndpointSliceID(object: unknown): EndpointSliceID | undefined {
  const { value } = parseEndpointSliceID(withServiceName(object));
  return value && sliceID(value);
}

/** Adds the label of an empty service name to a slice without the label. */
function withServiceName(object: unknown): unknown {
  return rewritten(object, 'metadata', (metadata) => {
    const labels = field(metadata, 'labels');
    if (!isFields(metadata) || !isUnset(field(labels, SERVICE_NAME_LABEL))) return metadata;
    return { ...metadata, labels: { ...(isFields(labels) && labels), [SERVICE_NAME_LABEL]: NO_NAME } };
  });
}

function sliceID({ service, name }: EndpointSliceID): EndpointSliceID {
  return { service: service.name === NO_NAME ? { ...service, name: '' } : service, name };
}

function withPorts(
  slice: EndpointSlice | undefined,
  restore: (ports: Ports) => Iterable<readonly [string, PortProtocol]>,
): EndpointSlice | undefined {
  const all = (backends: Backends): Backends =>
    backends.map((backend) => createBackend({ ...backend, ports: restore(backend.ports) }));
  return slice && { ...slice, backends: all(slice.backends), notReady: all(slice.notReady) };
}
