import { TurnGate } from '../../../src/base/turn-gate.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES, type ResourceType } from '../../../src/k8s/memory/resource-types.ts';
import type { ApiRequest } from '../../../src/k8s/rest/api-transport.ts';
import { resourcePath } from '../../../src/k8s/rest/resource-path.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { type LeaseID, NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import {
  flagsOf,
  type OperatorScenario,
  type OperatorStep,
  type TraceObject,
  type TraceWrite,
} from './operator-trace.ts';
import type { RecordedKeys } from './recordings.ts';

/** A program under test, running. */
export interface RunningProgram {
  /** Ends; keys and leases stay as after either signal. */
  stop(): Promise<void>;
}

/** Begins the program under test over the servers of a world. */
export type StartProgram = (world: OperatorWorld) => RunningProgram;

/** The holder of a lease: the number of the program's life, or the recorded name of another client. */
export type LeaseHolder = number | string;

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const SECOND_MS = 1000;
const OTHERS_LEASE_SECONDS = 10_000_000;

/** A kvstore of a scenario that records the holder of each lease. */
class TracedKvstore {
  readonly server: MemoryServer;
  readonly holders: Map<LeaseID, LeaseHolder> = new Map();

  constructor(clock: ManualClock, name: string, life: () => number) {
    this.server = new MemoryServer({ clock, clusterID: name });
    const grant = this.server.grantLease.bind(this.server);
    this.server.grantLease = (ttl) => {
      const lease = grant(ttl);
      this.holders.set(lease, life());
      return lease;
    };
    // A later life of the program takes over earlier leases.
    const keepAlive = this.server.keepLeaseAlive.bind(this.server);
    this.server.keepLeaseAlive = (lease) => {
      if (typeof this.holders.get(lease) === 'number') this.holders.set(lease, life());
      return keepAlive(lease);
    };
  }

  /** Returns the lease of another client. */
  leaseOf(holder: string): LeaseID {
    for (const [lease, held] of this.holders) if (held === holder) return lease;
    const lease = this.server.grantLease(OTHERS_LEASE_SECONDS);
    this.holders.set(lease, holder);
    return lease;
  }

  revoke(holder: LeaseHolder): void {
    for (const [lease, held] of this.holders)
      if (held === holder && this.server.leases.includes(lease)) this.server.expireLease(lease);
  }

  /** Returns the keys below `cilium/` without fences, like recordings, with the holder of each lease. */
  content(): ReadonlyMap<string, { readonly v: string; readonly holder: LeaseHolder | undefined }> {
    const holderOf = new Map<string, LeaseHolder | undefined>();
    for (const [lease, { keys }] of this.server.snapshot().leases)
      for (const key of keys) holderOf.set(key, this.holders.get(lease));
    const { kvs } = this.server.range(prefixRange('cilium/'));
    return new Map(
      kvs
        .filter(({ key }) => !key.startsWith('cilium/.initlock/'))
        .map(({ key, value }) => {
          const text = textOfBytes(value) ?? '';
          return [key, { v: TIME.test(text) ? '<time>' : text, holder: holderOf.get(key) }];
        }),
    );
  }
}

/** The servers of one scenario, the external actions on them, and the program. */
export class OperatorWorld {
  readonly scenario: OperatorScenario;
  readonly flags: ReadonlyMap<string, string>;
  readonly clock: ManualClock = new ManualClock();
  readonly api: MemoryApiServer;
  readonly etcds: Map<string, TracedKvstore> = new Map();
  /** Objects that exist, by kind and name, as the API server keeps them. */
  readonly objects: Map<string, TraceObject> = new Map();
  /** Creation times in seconds, by name. */
  readonly createdAt: Map<string, number> = new Map();
  /** All versions of each object by name, the last one at the end. */
  readonly versions: Map<string, TraceObject[]> = new Map();
  /** Keys that another client has deleted or written, by etcd and key. */
  readonly deleted: Set<string> = new Set();
  readonly puts: Map<string, { readonly v: string; readonly holder: LeaseHolder | undefined }> = new Map();
  /** Holders whose lease was revoked. */
  readonly revoked: Set<LeaseHolder> = new Set();
  /** Names and contents of the files of remote clusters that are there. */
  readonly remotes: Map<string, string> = new Map();
  /** Writes of the program to Kubernetes since the last call of `takeWrites`. */
  readonly writes: TraceWrite[] = [];
  readonly gate: TurnGate;
  readonly #start: StartProgram;
  readonly #outside: MemoryApiTransport;
  #running: RunningProgram | undefined;
  /** Lives of the program so far. */
  lives: number = 0;

  constructor(scenario: OperatorScenario, start: StartProgram) {
    this.scenario = scenario;
    this.flags = flagsOf(scenario);
    this.#start = start;
    const hasSlices = this.flags.get('enable-k8s-endpoint-slice') !== 'false';
    const types = CLUSTER_TYPES.filter(
      ({ kind, version }) => kind !== 'EndpointSlice' || (hasSlices && version === 'v1beta1'),
    );
    this.api = new MemoryApiServer({ clock: this.clock, types });
    this.#outside = new MemoryApiTransport(this.api);
    this.gate = new TurnGate({ clock: this.clock, nextTurn: queueMicrotask });
    for (const name of scenario.etcds ?? ['local'])
      this.etcds.set(name, new TracedKvstore(this.clock, name, () => this.lives));
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  /** A client of a kvstore; of the program's own one by default. */
  backend(etcd: string = 'local'): MemoryBackend {
    const { clock } = this;
    return new MemoryBackend({ server: this.#etcd(etcd).server, clock, random: () => 0.5 });
  }

  /** Returns a client of the API server whose writes are recorded. */
  kubernetes(): KubernetesClient {
    const { clock, gate } = this;
    return new KubernetesClient(this.transport(), { clock, random: () => 0.5, gate });
  }

  /** Returns a transport to the API server that records writes. */
  transport(): MemoryApiTransport {
    const transport = new MemoryApiTransport(this.api);
    const send = transport.send.bind(transport);
    transport.send = async (request) => {
      const answer = await send(request);
      this.#note(request, answer.status);
      return answer;
    };
    return transport;
  }

  /** Creates the objects that an API server has initially. */
  async begin(): Promise<void> {
    for (const object of this.scenario.preexisting ?? []) await this.#put(object, 'create');
  }

  /** Performs a step without waiting for its consequences. */
  async step(step: OperatorStep, holderOf: (lease: string) => LeaseHolder | undefined): Promise<void> {
    const { op, object, stored = object, key = '', value = '', etcd = 'local' } = step;
    const { server } = this.#etcd(etcd);
    if ((op === 'create' || op === 'update') && stored !== undefined) await this.#put(stored, op);
    else if (op === 'delete' && object !== undefined) {
      for (const gone of [object, ...(step.alsoDeleted ?? [])]) await this.#delete(gone);
    } else if (op === 'etcd-put') {
      const holder = typeof step.lease === 'string' ? step.lease : undefined;
      const lease = holder === undefined ? NO_LEASE : this.#etcd(etcd).leaseOf(holder);
      this.puts.set(`${etcd} ${key}`, { v: value, holder });
      server.txn({ compare: [], writes: [{ op: 'put', key, value: bytesOfText(value), lease }] });
    } else if (op === 'etcd-delete') {
      this.deleted.add(`${etcd} ${key}`);
      server.txn({ compare: [], writes: [{ op: 'delete', range: keyRange(key) }] });
    } else if (op === 'etcd-lease-revoke') this.#revoke(etcd, step.lease ?? [], holderOf);
    else if (op === 'start') this.#run();
    else if (op === 'stop') await this.stop();
    else if (op === 'config-add') this.remotes.set(step.cluster ?? '', step.content ?? '');
    else if (op === 'config-remove') this.remotes.delete(step.cluster ?? '');
    else if (op !== 'note' && op !== 'rejected') throw new Error(`step ${step.n}: unknown operation ${op}`);
    await settle();
  }

  /** Advances the clock by the recorded waiting time, and lets all work complete. */
  async quiet(ms: number): Promise<void> {
    await settle(8);
    await advance(this.clock, ms);
    await settle(8);
  }

  async stop(): Promise<void> {
    await this.#running?.stop();
    this.#running = undefined;
  }

  takeWrites(): readonly TraceWrite[] {
    return this.writes.splice(0);
  }

  #etcd(name: string): TracedKvstore {
    const etcd = this.etcds.get(name);
    if (etcd === undefined) throw new Error(`there is no etcd ${name}`);
    return etcd;
  }

  #run(): void {
    this.lives++;
    this.#running = this.#start(this);
  }

  #revoke(
    etcd: string,
    leases: string | readonly string[],
    holderOf: (lease: string) => LeaseHolder | undefined,
  ): void {
    for (const name of [leases].flat()) {
      const holder = holderOf(name) ?? name;
      this.revoked.add(holder);
      this.#etcd(etcd).revoke(holder);
    }
  }

  async #put(object: TraceObject, op: 'create' | 'update'): Promise<void> {
    const name = nameOf(object);
    this.objects.set(name, object);
    this.versions.set(name, [...(this.versions.get(name) ?? []), object]);
    if (op === 'create') this.createdAt.set(name, Math.floor(this.clock.wallTime() / SECOND_MS));
    const type = this.#typeOf(object);
    if (type === undefined) return;
    const place = { namespace: namespaceOf(type, object), name: object.metadata.name };
    const path = resourcePath(type, op === 'create' ? { namespace: place.namespace } : place);
    await this.#send({ method: op === 'create' ? 'POST' : 'PUT', path, body: object });
    if (type.hasStatus !== true || object['status'] === undefined) return;
    await this.#send({
      method: 'PUT',
      path: resourcePath(type, { ...place, subresource: 'status' }),
      body: object,
    });
  }

  async #delete(object: TraceObject): Promise<void> {
    this.objects.delete(nameOf(object));
    const type = this.#typeOf(object);
    if (type === undefined) return;
    const { name } = object.metadata;
    await this.#send({
      method: 'DELETE',
      path: resourcePath(type, { namespace: namespaceOf(type, object), name }),
    });
  }

  /** Returns undefined if the server does not serve the kind here. */
  #typeOf({ apiVersion, kind }: TraceObject): ResourceType | undefined {
    const [version = '', group = ''] = apiVersion.split('/').reverse();
    const type = CLUSTER_TYPES.find(
      (one) => one.kind === kind && one.group === group && one.version === version,
    );
    if (type === undefined) throw new Error(`${apiVersion} ${kind} is not served`);
    const isServed = kind !== 'EndpointSlice' || this.flags.get('enable-k8s-endpoint-slice') !== 'false';
    return isServed ? type : undefined;
  }

  async #send(request: Omit<ApiRequest, 'signal'>): Promise<void> {
    const { status } = await this.#outside.send({ ...request, signal: new AbortController().signal });
    if (status >= 300 && status !== 404) throw new Error(`${request.method} ${request.path}: ${status}`);
  }

  #note({ method = 'GET', path, body }: ApiRequest, code: number): void {
    if (method === 'GET' || path.includes('/leases')) return;
    const [, api, ...rest] = path.split('?')[0]?.split('/').map(decodeURIComponent) ?? [];
    const parts = api === 'api' ? rest : rest.slice(1);
    const group = api === 'api' ? `${parts[0]}` : `${rest[0]}/${parts[0]}`;
    const [scope, namespace, ...scoped] = parts.slice(1);
    const [resource = '', name = '', part] =
      scope === 'namespaces' && scoped.length > 0 ? scoped : parts.slice(1);
    const where = scope === 'namespaces' && scoped.length > 0 ? { namespace: namespace ?? '' } : {};
    const verb = { POST: 'create', PUT: 'update', PATCH: 'patch', DELETE: 'delete' }[method] ?? method;
    const plural = part === undefined ? resource : `${resource}/${part}`;
    this.writes.push({ verb, resource: `${group}/${plural}`, ...where, name, code, body });
  }
}

/** Returns the unique name of an object: `Service shop/web`. */
export function nameOf({ kind, metadata: { namespace = '', name } }: TraceObject): string {
  return `${kind} ${namespace}/${name}`;
}

function namespaceOf({ namespaced }: ResourceType, { metadata }: TraceObject): string | undefined {
  return namespaced ? (metadata.namespace ?? 'default') : undefined;
}

/** Returns the recorded waiting time before a quiet point, from its note. */
export function waitOf(note: string | undefined): number {
  const [, later] = /^(\d+) s later/.exec(note ?? '') ?? [];
  if (later !== undefined) return Number(later) * SECOND_MS;
  // Our periodic sync runs within half a minute more.
  if (note?.includes('periodic sync has run') === true) return 340 * SECOND_MS;
  return 1.5 * SECOND_MS;
}

/** Content as recorded, with the holder of each lease instead of its name. */
export function withHolders(
  content: RecordedKeys,
  holderOf: (lease: string) => LeaseHolder | undefined,
): ReadonlyMap<string, { readonly v: string | undefined; readonly holder: LeaseHolder | undefined }> {
  return new Map(
    [...content].map(([key, { v, lease }]) => [
      key,
      { v, holder: lease === undefined ? undefined : (holderOf(lease) ?? lease) },
    ]),
  );
}
