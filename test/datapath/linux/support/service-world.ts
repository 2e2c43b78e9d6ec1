import fc from 'fast-check';
import { PROTOCOL_NUMBERS } from '../../../../src/net/port.ts';
import { createBackend, createEndpointSlice } from '../../../../src/servicecache/backend.ts';
import { createService } from '../../../../src/servicecache/service.ts';
import { ServiceCache } from '../../../../src/servicecache/service-cache.ts';

/** A backend in a test: an address such as `10.0.0.1`, and its state. */
export interface PlainBackend {
  readonly ip: string;
  readonly state: 'active' | 'terminating';
  readonly node: string;
}

/** A service in a test. Its number determines its addresses. */
export interface PlainService {
  readonly number: number;
  readonly affinitySeconds: number;
  readonly isLocal: boolean;
  /** True if it claims the external address that is shared by all such services. */
  readonly isShared: boolean;
}

/** A step of a test. */
export type ServiceStep =
  | { readonly do: 'service'; readonly service: PlainService }
  | { readonly do: 'delete-service'; readonly number: number }
  | { readonly do: 'slice'; readonly number: number; readonly backends: readonly PlainBackend[] }
  | {
      readonly do: 'offer';
      readonly number: number;
      readonly cluster: string;
      readonly ips: readonly string[];
    };

const { TCP, UDP } = PROTOCOL_NUMBERS;
const SHARED_IP = '203.0.113.1';
const PORTS = [
  { name: 'web', protocol: TCP, text: 'TCP', port: 80, target: 8080 },
  { name: 'dns', protocol: UDP, text: 'UDP', port: 53, target: 5353 },
] as const;

const idOf = (number: number) => ({ namespace: 'shop', name: `s${number}` });
const portsOfBackend = PORTS.map(({ name, target, protocol }) => [name, { port: target, protocol }] as const);
const addressesOf = ({ number, isShared }: PlainService): readonly string[] => [
  ...[`172.16.0.${number}`, `fd00:16::${number + 1}`],
  ...(isShared ? [SHARED_IP] : []),
];

/** A service cache whose inputs are complete, and a model of the required content of the kernel. */
export class ServiceWorld {
  readonly cache: ServiceCache = new ServiceCache({ clusterName: 'own', nodePort: { enabled: true } });
  readonly #services = new Map<number, PlainService>();
  readonly #slices = new Map<number, readonly PlainBackend[]>();
  readonly #offers = new Map<string, readonly string[]>();

  take(step: ServiceStep): void {
    if (step.do === 'service') this.#takeService(step.service);
    else if (step.do === 'delete-service') {
      this.#services.delete(step.number);
      this.cache.deleteService(idOf(step.number));
    } else if (step.do === 'slice') {
      this.#slices.set(step.number, step.backends);
      const backends = step.backends.map(({ ip, state, node }) =>
        createBackend({ address: ip, state, nodeName: node, ports: portsOfBackend }),
      );
      this.cache.updateEndpoints(
        createEndpointSlice({ service: idOf(step.number), name: 'slice', backends }),
      );
    } else this.#takeOffer(step.number, step.cluster, step.ips);
  }

  #takeService(service: PlainService): void {
    this.#services.set(service.number, service);
    const [ipv4 = '', ipv6 = '', ...externalIPs] = addressesOf(service);
    this.cache.updateService(
      createService({
        id: idOf(service.number),
        type: 'NodePort',
        addressing: 'assigned',
        clusterIPs: [ipv4, ipv6],
        externalIPs,
        ports: PORTS.map(({ name, port, protocol }) => [name, { port, protocol, nodePort: 0 }]),
        internalTrafficPolicy: service.isLocal ? 'Local' : 'Cluster',
        sessionAffinitySeconds: service.affinitySeconds,
        global: true,
      }),
    );
  }

  #takeOffer(number: number, cluster: string, ips: readonly string[]): void {
    this.#offers.set(`${cluster} ${number}`, ips);
    this.cache.mergeExternalServiceUpdate({
      ...idOf(number),
      cluster,
      clusterID: 2,
      shared: true,
      includeExternal: true,
      frontends: new Map(),
      labels: new Map(),
      selector: new Map(),
      backends: new Map(ips.map((ip) => [ip, new Map(portsOfBackend)])),
    });
  }

  /** Returns the target of each frontend as text. */
  expected(): Record<string, string> {
    const rows: [string, string][] = [];
    const services = [...this.#services.values()].sort((a, b) => (`s${a.number}` < `s${b.number}` ? 1 : -1));
    for (const service of services) {
      for (const ip of addressesOf(service)) {
        // Any other port of a cluster IP.
        if (ip !== SHARED_IP) rows.push([`${ip.includes(':') ? `[${ip}]` : ip}:0/ANY`, '→ refused']);
        for (const { port, text, target } of PORTS) {
          const six = ip.includes(':');
          const write = (address: string, at: number): string =>
            `${six ? `[${address}]` : address}:${at}/${text}`;
          const isLocal = service.isLocal && ip !== SHARED_IP;
          const ips = this.#usable(service.number, isLocal, six);
          const backends = ips.map((address) => write(address, target)).sort();
          const affinity = service.affinitySeconds === 0 ? '' : ` affinity ${service.affinitySeconds}s`;
          rows.push([write(ip, port), `→ ${backends.join(' ') || 'refused'}${affinity}`]);
        }
      }
    }
    return Object.fromEntries(new Map(rows.sort(([a], [b]) => (a < b ? -1 : 1))));
  }

  #usable(number: number, isLocal: boolean, six: boolean): readonly string[] {
    const all = new Map<string, PlainBackend>();
    for (const [key, ips] of this.#offers) {
      if (key.split(' ')[1] !== String(number)) continue;
      for (const ip of ips) all.set(ip, { ip, state: 'active', node: '' });
    }
    for (const backend of this.#slices.get(number) ?? []) all.set(backend.ip, backend);
    const here = [...all.values()].filter(
      ({ ip, node }) => ip.includes(':') === six && (!isLocal || node === 'here'),
    );
    const active = here.filter(({ state }) => state === 'active');
    return (active.length > 0 ? active : here).map(({ ip }) => ip);
  }
}

const NUMBER = fc.integer({ min: 0, max: 5 });
const IP = fc.constantFrom(
  ...['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', 'fd00::1', 'fd00::2', 'fd00::3'],
);

/** Steps over few services and few addresses, so that they collide. */
export const SERVICE_STEP: fc.Arbitrary<ServiceStep> = fc.oneof(
  fc.record({
    do: fc.constant('service' as const),
    service: fc.record({
      number: NUMBER,
      affinitySeconds: fc.constantFrom(0, 0, 30),
      isLocal: fc.boolean(),
      isShared: fc.boolean(),
    }),
  }),
  fc.record({ do: fc.constant('delete-service' as const), number: NUMBER }),
  fc.record({
    do: fc.constant('slice' as const),
    number: NUMBER,
    backends: fc.uniqueArray(
      fc.record({
        ip: IP,
        state: fc.constantFrom('active' as const, 'active' as const, 'terminating' as const),
        node: fc.constantFrom('here', 'there'),
      }),
      { selector: ({ ip }) => ip },
    ),
  }),
  fc.record({
    do: fc.constant('offer' as const),
    number: NUMBER,
    cluster: fc.constantFrom('east', 'west'),
    ips: fc.uniqueArray(IP),
  }),
);
