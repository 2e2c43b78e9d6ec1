import { TurnGate } from '../../../src/base/turn-gate.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { KvstoreClient } from '../../../src/kvstore/kvstore-client.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { operatorDuties } from '../../../src/operator/duties.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import { Candidate } from './candidates.ts';
import { DUTY_OPTIONS } from './run-duties.ts';
import { SlowKvstore } from './slow-kvstore.ts';
import { type Arrival, trespasses } from './terms.ts';

const LEASE_MS = 15_000;
const ROUND_MS = 3000;
const LOCKS = 'cilium/state/identities/v1/locks/';
const SERVICES = 'cilium/state/services/v1/a/';
const NODES = 'cilium/state/nodes/v1/a/';

/** An operator with all its duties, as a process. The test controls its faults and links. */
export class RivalOperator extends Candidate {
  readonly kvstore: SlowKvstore;
  /** True if it is dead: suspended for ever, with all its locks and leases. */
  isKilled = false;

  constructor(name: string, world: RivalWorld, isFenced: boolean) {
    super(name, world.api, world.clock);
    const { clock, election, client: kubernetes } = this;
    this.kvstore = new SlowKvstore(world.server, world.clock, clock, this.pause);
    const fence = { mayWrite: () => election.mayWrite(), writeTimeoutMs: election.writeMs };
    const backend = new KvstoreClient({
      kind: 'memory',
      transport: this.kvstore,
      clock,
      random: () => 0.5,
      ...(isFenced ? fence : {}),
    });
    const { all } = operatorDuties({
      ...DUTY_OPTIONS,
      publish: { ...DUTY_OPTIONS.publish, identities: false, ips: false, heartbeat: true },
      intervals: { endpoints: 0, identities: 0, nodes: ROUND_MS, locks: ROUND_MS },
      kubernetes,
      backend,
      clock,
      random: () => 0.5,
      election: isFenced ? election : undefined,
      gate: new TurnGate({ clock, nextTurn: setImmediate }),
    });
    this.lead = async (signal) => {
      await Promise.all(all.map((duty) => duty.run(signal)));
    };
    this.#record(name, world);
  }

  #record(name: string, { history, clock }: RivalWorld): void {
    this.transport.onArrival = ({ method = 'GET', path, body }) => {
      const at = clock.now();
      const isLease = path.includes('/leases') && method !== 'GET';
      const holder = isLease
        ? String((body as { spec: { holderIdentity: string } }).spec.holderIdentity)
        : '';
      const arrival = isLease ? { at, by: name, holder } : { at, by: name, deletes: path };
      return (status) => {
        if (status < 300 && (isLease || method === 'DELETE')) history.push(arrival);
      };
    };
    this.kvstore.onArrival = ({ writes, otherwise = [] }) => {
      for (const write of [...writes, ...otherwise])
        if (write.op === 'delete') history.push({ at: clock.now(), by: name, deletes: write.range.start });
    };
  }
}

/** A cluster with several candidate operators, which records everything that arrives at its servers. */
export class RivalWorld {
  readonly clock: ManualClock = new ManualClock();
  readonly api: MemoryApiServer = new MemoryApiServer({ clock: this.clock });
  readonly server: MemoryServer = new MemoryServer({ clock: this.clock });
  readonly history: Arrival[] = [];
  readonly operators: RivalOperator[] = [];
  readonly #isFenced: boolean;
  readonly #nodes = new Set<string>();
  readonly #services = new Set<string>();
  readonly #users = new Map<string, ApiUser>();

  /** @param isFenced false: operators delete and write until their own timers end them */
  constructor({ isFenced = true }: { readonly isFenced?: boolean } = {}) {
    this.#isFenced = isFenced;
  }

  start(): RivalOperator {
    const operator = new RivalOperator(`o${this.operators.length}`, this, this.#isFenced);
    this.operators.push(operator);
    operator.start();
    return operator;
  }

  /** The holder of the lease, if it is not suspended. */
  get leader(): RivalOperator | undefined {
    return this.operators.find(({ election }) => election.mayWrite());
  }

  get trespasses(): readonly string[] {
    return trespasses(this.history, LEASE_MS);
  }

  pass(ms: number): Promise<void> {
    return advance(this.clock, ms);
  }

  /** Shares a service, or stops sharing it. */
  async turnService(name: string): Promise<void> {
    const metadata = { annotations: { 'service.cilium.io/global': 'true' } };
    const spec = { type: 'ClusterIP', clusterIP: '172.16.0.1', ports: [{ name: 'http', port: 80 }] };
    const services = this.#user({ group: '', version: 'v1', plural: 'services' }, 'ns');
    if (this.#services.delete(name)) return services.delete(name);
    this.#services.add(name);
    await services.create(name, { spec }, metadata);
    const kind = { group: 'discovery.k8s.io', version: 'v1', plural: 'endpointslices' };
    const labels = { 'kubernetes.io/service-name': name };
    const slice = { addressType: 'IPv4', endpoints: [{ addresses: ['10.0.0.1'] }], ports: [] };
    await this.#user(kind, 'ns')
      .create(`${name}-0`, slice, { labels })
      .catch(() => {}); // it still exists
  }

  /** Adds a node, or deletes its Node, so that the collector must delete its CiliumNode. */
  async turnNode(name: string): Promise<void> {
    const nodes = this.#user({ group: '', version: 'v1', plural: 'nodes' });
    if (this.#nodes.delete(name)) return nodes.delete(name);
    this.#nodes.add(name);
    await nodes.create(name);
    const spec = { addresses: [{ type: 'InternalIP', ip: '192.168.0.1' }] };
    await this.#user({ group: 'cilium.io', version: 'v2', plural: 'ciliumnodes' })
      .create(name, { spec })
      .catch(() => {}); // it still exists
  }

  /** Takes a lock as another client, and never releases it. */
  takeLock(name: string): void {
    const put = { op: 'put', key: `${LOCKS}${name}/1`, value: bytesOfText(''), lease: NO_LEASE } as const;
    this.server.txn({ compare: [], writes: [put] });
  }

  /** The difference between the kvstore and the objects. */
  get differences(): { readonly there: readonly string[]; readonly said: readonly string[] } {
    const below = (prefix: string): readonly string[] =>
      this.server.range(prefixRange(prefix)).kvs.map(({ key }) => key);
    const services = [...this.#services].map((name) => `${SERVICES}ns/${name}`);
    // Without any node no leftover of a former life is deleted.
    const nodes = this.#nodes.size === 0 ? [] : [...this.#nodes].map((name) => `${NODES}${name}`);
    const there = [...below(SERVICES), ...(this.#nodes.size === 0 ? [] : below(NODES)), ...below(LOCKS)];
    return { there: there.sort(), said: [...services, ...nodes].sort() };
  }

  async end(): Promise<void> {
    for (const { pause, transport, kvstore } of this.operators) {
      for (const link of [transport, kvstore]) [link.loses, link.delayMs] = ['nothing', [0, 0]];
      await pause.go();
    }
    const ended = this.operators.map((operator) => operator.end());
    await this.pass(60_000);
    await Promise.all(ended);
    await settle();
  }

  #user(kind: ConstructorParameters<typeof ApiUser>[1], namespace?: string): ApiUser {
    const user =
      this.#users.get(kind.plural) ?? new ApiUser(new MemoryApiTransport(this.api), kind, namespace);
    this.#users.set(kind.plural, user);
    return user;
  }
}
