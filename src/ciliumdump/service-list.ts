import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { canonicalAddress } from '../net/prefix.ts';
import { parseOutputJson } from './output-json.ts';

/** A frontend of a service on a node. */
export interface ListedService {
  /** `10.96.0.1:443/TCP`; an IPv6 address is in brackets. */
  readonly frontend: string;
  /** `external` or `internal`. A frontend with a local traffic policy is listed once with each. */
  readonly scope: string;
  readonly type: string;
  /** `namespace/name`; empty if the frontend has none. */
  readonly service: string;
  /** The remote cluster of the service; empty for the local one. */
  readonly cluster: string;
  /** True if a traffic policy restricts the backends to those of the node. */
  readonly isLocal: boolean;
  /** Backends for new connections, sorted: `10.0.0.1:8080`. */
  readonly active: readonly string[];
  readonly backends: number;
}

/** Returns `address:port/PROTOCOL`, with brackets around IPv6 and the protocol in upper case. */
export function frontendText(address: string, port: number, protocol: string): string {
  return `${hostPort(address, port)}/${protocol.toUpperCase()}`;
}

/** Returns `address:port`, with brackets around IPv6. */
export function hostPort(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

type Dictionary = Readonly<Record<string, unknown>>;

function dictionary(value: unknown): Dictionary {
  return isObject(value) ? value : {};
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/**
 * Reads `service list -o json`, or the answer of `GET /v1/service`. Returns undefined if the text is no such list. A
 * frontend without an address or port is rejected without affecting the others. Unknown fields are ignored. The
 * realized state takes precedence over the specification.
 */
export function readServiceList(
  output: string,
  at: string,
  onReject: (rejection: Rejection) => void,
): readonly ListedService[] | undefined {
  const json = parseOutputJson(output);
  const list = 'value' in json ? (json.value ?? []) : undefined;
  if (!Array.isArray(list)) {
    const why = 'problem' in json ? json.problem : 'must be a list of services';
    onReject(rejection('invalid-json', 'service list', output.slice(0, 64), why, at));
    return undefined;
  }
  return list.flatMap((item: unknown, index) => {
    const { spec, status } = dictionary(item);
    const realized = dictionary(dictionary(status)['realized']);
    const service = listedService('frontend-address' in realized ? realized : dictionary(spec));
    if (service === undefined)
      onReject(rejection('invalid-service', `[${index}]`, item, 'must have an address and a port', at));
    return service ?? [];
  });
}

function listedService(spec: Dictionary): ListedService | undefined {
  const front = dictionary(spec['frontend-address']);
  const address = canonicalAddress(text(front['ip']));
  const port = front['port'];
  if (address === undefined || typeof port !== 'number') return undefined;
  const flags = dictionary(spec['flags']);
  const [namespace, name] = [text(flags['namespace']), text(flags['name'])];
  const policies = [flags['trafficPolicy'], flags['extTrafficPolicy'], flags['intTrafficPolicy']];
  const list = spec['backend-addresses'];
  const backends = Array.isArray(list) ? list.filter(isObject) : [];
  return {
    frontend: frontendText(address, port, text(front['protocol']) || 'TCP'),
    scope: text(front['scope']) || 'external',
    type: text(flags['type']),
    service: name === '' ? '' : `${namespace}/${name}`,
    cluster: text(flags['cluster']),
    isLocal: policies.includes('Local'),
    active: backends.flatMap(activeBackend).sort(),
    backends: backends.length,
  };
}

function activeBackend(backend: Dictionary): readonly string[] {
  const address = canonicalAddress(text(backend['ip']));
  const port = backend['port'];
  const state = text(backend['state']) || 'active';
  if (address === undefined || typeof port !== 'number' || state !== 'active') return [];
  return [hostPort(address, port)];
}
