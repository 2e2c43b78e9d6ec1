import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { keyRange, prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { type LeaseID, NO_LEASE } from '../../../src/kvstore/session/transport.ts';
import { KvstoreMesh } from '../../../src/operator/kvstoremesh/kvstore-mesh.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance, settle } from '../../kvstore/support/settle.ts';
import {
  nextKeys,
  type RecordedKeys,
  type RecordedQuiet,
  type RecordedStep,
  type RecordedValue,
  type Recording,
} from './recordings.ts';
import type { ReplayTally } from './report.ts';

/**
 * Values that are always equal or were not recorded: a canary's value is a time, and only we write fences.
 */
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
const FENCE = 'cilium/.initlock/';

/** The inputs of the rules. */
interface Difference {
  readonly key: string;
  readonly theirs: RecordedValue | undefined;
  readonly ours: RecordedValue | undefined;
}

const SWEEP = 'ours: what the complete remote list lacks goes before the canary (OPERATOR 47)';
const SLAVES = 'ours: slave keys of identities are not copied (OPERATOR, kvstoremesh)';
const PUT_BACK = 'ours: a copied key that another client deletes is put back (SEMANTICS 5)';
const ADOPTED = 'ours: the copies of an earlier process keep their lease, which is renewed (OPERATOR 47)';
const NOT_EXPORTED = 'ours: a resource that is not exported has a canary, too, since 1.20 (WIRE)';
const AT_ONCE =
  'ours: a new configuration is followed at once, with its canaries, and not at the next reconnect (OPERATOR 44)';

/** Three kvstores in memory, and the process that copies between them. */
class Replay {
  readonly #clock = new ManualClock();
  readonly #servers = new Map<string, MemoryServer>();
  readonly #leases = new Map<string, LeaseID>();
  /** The process that granted each lease of the local kvstore, by its recorded name: `L1` for the first. */
  readonly #granted = new Map<LeaseID, string>();
  /** Configuration files: cluster → its kvstore. */
  readonly #files = new Map<string, string>();
  readonly #recorded = new Map<string, RecordedKeys>();
  readonly #scenario: string;
  readonly #tally: ReplayTally;
  #processes = 0;
  #running: { readonly mesh: KvstoreMesh; readonly backend: MemoryBackend } | undefined;
  /** Keys of the local kvstore that another client deleted, with their last values. */
  readonly #deletedByOthers = new Map<string, string | undefined>();
  /** Clusters whose configuration has changed since the process began. */
  readonly #reconfigured = new Set<string>();

  constructor({ scenario }: Recording, tally: ReplayTally) {
    this.#scenario = scenario.name;
    this.#tally = tally;
    for (const name of scenario['etcds'] as readonly string[]) {
      this.#servers.set(name, new MemoryServer({ clock: this.#clock, clusterID: name }));
      this.#recorded.set(name, new Map());
    }
    const local = this.#server('local');
    const grant = local.grantLease.bind(local);
    local.grantLease = (ttlSeconds) => {
      const lease = grant(ttlSeconds);
      this.#granted.set(lease, `L${this.#processes}`);
      return lease;
    };
  }

  async step(step: RecordedStep): Promise<void> {
    const { op } = step;
    const text = (field: string): string => String(step[field]);
    switch (op) {
      case 'etcd-put':
      case 'etcd-delete': {
        const isLocal = step['etcd'] === 'local';
        if (!isLocal && text('key').startsWith('cilium/cluster-config/'))
          this.#reconfigured.add(text('key').slice(22));
        if (isLocal && op === 'etcd-delete')
          this.#deletedByOthers.set(text('key'), this.#content().get(text('key'))?.v);
        return this.#write(this.#server(text('etcd')), text('key'), step['value'], step['lease']);
      }
      case 'etcd-lease-revoke':
        return this.#server(text('etcd')).revokeLease(this.#leases.get(text('lease')) ?? NO_LEASE);
      case 'config-add': {
        const content = step['content'] === undefined ? text('cluster') : text('content');
        const name = [...this.#servers.keys()].find((server) => content.includes(server)) ?? '';
        this.#files.set(text('cluster'), name);
        return this.#add(text('cluster'), name);
      }
      case 'config-remove':
        this.#files.delete(text('cluster'));
        void this.#running?.mesh.remove(text('cluster'));
        return;
      case 'start':
        return this.#start();
      case 'stop':
        return this.stop();
      default:
        throw new Error(`${this.#scenario}: unknown step ${op}`);
    }
  }

  async quiet(quiet: RecordedQuiet): Promise<void> {
    if (quiet.note?.includes('3 min later')) await advance(this.#clock, 181_000);
    await settle(40);
    for (const [name, change] of Object.entries(quiet['etcd'] as Readonly<Record<string, unknown>>))
      this.#recorded.set(name, nextKeys(this.#recorded.get(name) ?? new Map(), change));
    this.#compare(quiet.n, this.#recorded.get('local') ?? new Map(), this.#content());
  }

  async stop(): Promise<void> {
    await this.#running?.mesh.stop();
    await this.#running?.backend.close({ keepLeases: true });
    this.#running = undefined;
  }

  #start(): void {
    this.#processes++;
    this.#reconfigured.clear();
    const context = { clock: this.#clock, random: () => 0.5 };
    const backend = new MemoryBackend({ ...context, server: this.#server('local') });
    const mesh = new KvstoreMesh({ ...context, clusterName: 'atlantic', clusterID: 1, local: backend });
    this.#running = { mesh, backend };
    for (const [cluster, server] of this.#files) this.#add(cluster, server);
  }

  #add(cluster: string, name: string): void {
    const server = this.#server(name);
    const connect = (): MemoryBackend => new MemoryBackend({ server, clock: this.#clock, random: () => 0.5 });
    void this.#running?.mesh.add(cluster, connect);
  }

  #server(name: string): MemoryServer {
    const server = this.#servers.get(name);
    if (server === undefined) throw new Error(`${this.#scenario}: unknown kvstore ${name}`);
    return server;
  }

  #write(server: MemoryServer, key: string, value: unknown, lease: unknown): void {
    if (typeof lease === 'string' && !this.#leases.has(lease))
      this.#leases.set(lease, server.grantLease(600));
    const of = (typeof lease === 'string' ? this.#leases.get(lease) : undefined) ?? NO_LEASE;
    const put = { op: 'put', key, value: bytesOfText(String(value)), lease: of } as const;
    const remove = { op: 'delete', range: keyRange(key) } as const;
    server.txn({ compare: [], writes: [value === undefined ? remove : put] });
  }

  #content(): RecordedKeys {
    const server = this.#server('local');
    const leaseOf = new Map<string, string>();
    for (const [lease, { keys }] of server.snapshot().leases)
      for (const key of keys) leaseOf.set(key, this.#granted.get(lease) ?? 'of somebody');
    const { kvs } = server.range(prefixRange('cilium/'));
    return new Map(
      kvs.flatMap(({ key, value }) => {
        if (key.startsWith(FENCE)) return [];
        const text = textOfBytes(value) ?? 'no text';
        const lease = leaseOf.get(key);
        const recorded = { v: TIME.test(text) ? '<time>' : text, ...(lease === undefined ? {} : { lease }) };
        return [[key, recorded] as const];
      }),
    );
  }

  #compare(step: number, theirs: RecordedKeys, ours: RecordedKeys): void {
    this.#tally.compared();
    for (const key of new Set([...theirs.keys(), ...ours.keys()])) {
      const found = { key, theirs: theirs.get(key), ours: ours.get(key) };
      if (found.theirs?.v === found.ours?.v && found.theirs?.lease === found.ours?.lease) continue;
      const rule = this.#explain(found);
      if (rule !== undefined) this.#tally.explained(rule);
      else {
        const { theirs: expected, ours: actual } = found;
        this.#tally.mismatch({ scenario: this.#scenario, step, what: key, expected, actual });
      }
    }
  }

  /** Returns the rule that allows a difference; undefined if it is a mismatch. */
  #explain({ key, theirs, ours }: Difference): string | undefined {
    if (/^cilium\/cache\/identities\/v1\/[^/]+\/value\//.test(key))
      return ours === undefined ? SLAVES : undefined;
    if (/\/cilium\/cache\/(?:endpointslices|serviceexports)\/v1$/.test(key)) {
      const services = this.#content().get(key.replace(/[a-z]+\/v1$/, 'services/v1'));
      return ours?.lease !== undefined && ours.lease === services?.lease ? NOT_EXPORTED : undefined;
    }
    const deleted = this.#deletedByOthers.get(key);
    if (deleted !== undefined && theirs === undefined && ours?.v === deleted)
      return ours.lease === `L${this.#processes}` ? PUT_BACK : undefined;
    if (this.#isAdopted({ key, theirs, ours })) return ADOPTED;
    const [, cluster = ''] = /^cilium\/(?:cluster-config|synced|cache\/[a-z]+\/v1)\/([^/]+)/.exec(key) ?? [];
    if (key.startsWith('cilium/cache/')) {
      const isLeft = this.#processes > 1 && ours === undefined && theirs?.lease !== `L${this.#processes}`;
      return isLeft && !this.#remoteHas(cluster, key) ? SWEEP : undefined;
    }
    if (!this.#reconfigured.has(cluster) || theirs !== undefined) return undefined;
    if (key.startsWith('cilium/synced/')) return AT_ONCE;
    const max = /"maxConnectedClusters":(\d+)/.exec(this.#remoteConfig(cluster))?.[0];
    return max !== undefined && ours?.v.includes(max) ? AT_ONCE : undefined;
  }

  /**
   * Returns true if an earlier process wrote the key, the recorded kvstoremesh wrote it again, and the values
   * are equal.
   */
  #isAdopted({ key, theirs, ours }: Difference): boolean {
    if (!key.startsWith('cilium/cache/') || theirs?.v !== ours?.v) return false;
    const isOfEarlier = ours?.lease !== undefined && Number(ours.lease.slice(1)) < this.#processes;
    return isOfEarlier && theirs?.lease === `L${this.#processes}`;
  }

  #remoteConfig(cluster: string): string {
    return (
      this.#recorded.get(this.#files.get(cluster) ?? '')?.get(`cilium/cluster-config/${cluster}`)?.v ?? ''
    );
  }

  /** Returns true if the remote kvstore has the original of this copy. */
  #remoteHas(cluster: string, copy: string): boolean {
    const key = copy.replace('/cache/', '/state/').replace(`/ip/v1/${cluster}/`, '/ip/v1/default/');
    return this.#recorded.get(this.#files.get(cluster) ?? '')?.has(key) ?? false;
  }
}

/** Compares the local kvstore with the recorded one of kvstoremesh 1.17 after each step. */
export async function replayKvstoreMesh(recording: Recording, tally: ReplayTally): Promise<void> {
  tally.scenario();
  const replay = new Replay(recording, tally);
  for (const event of recording.events) {
    if (event.t === 'step') await replay.step(event);
    else await replay.quiet(event);
  }
  await replay.stop();
}
