import { rejection } from '../base/rejection.ts';
import type { Fields } from '../net/fields.ts';
import { fieldsOf, type OutputContext, parseOutputList } from './output-json.ts';

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

/**
 * Reads `service list -o json`, or the answer of `GET /v1/service`. Returns undefined if the text is no such list. A
 * frontend without an address or port is rejected without affecting the others. Unknown fields are ignored. The
 * realized state takes precedence over the specification.
 */
export function readServiceList(text: string, context: OutputContext): readonly ListedService[] | undefined {
  const { at, onReject } = context;
  const list = parseOutputList(text, 'service list', context);
  return list?.flatMap((item, index) => {
    const fields = fieldsOf(item);
    const realized = fields?.object('status')?.object('realized');
    const hasFrontend = realized?.object('frontend-address') !== undefined;
    const service = listedService(hasFrontend ? realized : fields?.object('spec'));
    if (service === undefined)
      onReject(rejection('invalid-service', `[${index}]`, item, 'must have an address and a port', at));
    return service ?? [];
  });
}

function listedService(spec: Fields<undefined> | undefined): ListedService | undefined {
  const frontend = spec?.object('frontend-address');
  const address = frontend?.address('ip');
  const port = frontend?.number('port', 0, 65_535);
  if (spec === undefined || address === undefined || port === undefined) return undefined;
  const flags = spec.map('flags');
  const name = flags.string('name') ?? '';
  const policies = ['trafficPolicy', 'extTrafficPolicy', 'intTrafficPolicy'];
  const backends = spec.list('backend-addresses').items((list, index) => list.item(index));
  return {
    frontend: frontendText(address, port, frontend?.string('protocol') || 'TCP'),
    scope: frontend?.string('scope') || 'external',
    type: flags.string('type') ?? '',
    service: name === '' ? '' : `${flags.string('namespace') ?? ''}/${name}`,
    cluster: flags.string('cluster') ?? '',
    isLocal: policies.some((policy) => flags.value(policy) === 'Local'),
    active: backends.flatMap(activeBackend).sort(),
    backends: backends.length,
  };
}

function activeBackend(backend: Fields<undefined>): readonly string[] {
  const address = backend.address('ip');
  const port = backend.number('port', 0, 65_535);
  const state = backend.string('state') || 'active';
  return address === undefined || port === undefined || state !== 'active' ? [] : [hostPort(address, port)];
}
