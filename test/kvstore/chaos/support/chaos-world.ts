import type { Random } from '../../../../src/base/clock.ts';
import type { EtcdConfig } from '../../../../src/kvstore/etcd/etcd-config.ts';
import type { Watch } from '../../../../src/kvstore/session/backend.ts';
import { until } from '../../../base/support/until.ts';
import type { LinkMode } from '../../etcd/support/tcp-proxy.ts';
import { ChaosClient } from './chaos-client.ts';
import { ChaosCluster, type ClusterOptions } from './chaos-cluster.ts';
import type { PastWrite } from './past.ts';
import { leakedSince, resourceCount } from './resource-count.ts';
import { WriteLoad } from './write-load.ts';

/** Options of a {@link ChaosWorld}. */
export interface WorldOptions extends ClusterOptions {
  readonly random: Random;
  /** TLS configuration of clients, if the cluster has TLS. */
  readonly clientTLS?: EtcdConfig['tls'];
  /** See `ChaosClientOptions`; for the first client. */
  readonly tamper?: (watch: Watch) => Watch;
}

/** Results so far. */
export interface Figures {
  readonly keys: number;
  readonly events: number;
  /** Number of keys that a watch missed, and of writes that the server lost. */
  readonly lost: number;
  /** Number of deleted keys that a watch still had. */
  readonly phantom: number;
}

const PREFIX = 'chaos/';
const CONTRIBUTED_KEYS = 20;

/**
 * A cluster under write load with two clients that follow it and contribute to it. After any fault, the
 * content of each client must equal the content read by etcdctl, and its events must have been legal,
 * revision by revision.
 */
export class ChaosWorld {
  readonly cluster: ChaosCluster;
  readonly load: WriteLoad;
  readonly clients: readonly ChaosClient[];
  readonly random: Random;
  readonly #resources: ReadonlyMap<string, number>;
  readonly #rejections: unknown[] = [];
  readonly #wrong: string[] = [];
  #round = 0;
  #closing: Promise<readonly string[]> | undefined;
  #lost = 0;
  #phantom = 0;

  private constructor(
    parts: Pick<ChaosWorld, 'cluster' | 'load' | 'clients' | 'random'>,
    resources: ReadonlyMap<string, number>,
  ) {
    this.cluster = parts.cluster;
    this.load = parts.load;
    this.clients = parts.clients;
    this.random = parts.random;
    this.#resources = resources;
    process.on('unhandledRejection', this.#onRejection);
  }

  static async start(options: WorldOptions): Promise<ChaosWorld> {
    const { random, clientTLS: tls, tamper } = options;
    const resources = resourceCount();
    const cluster = await ChaosCluster.start(PREFIX, options);
    const { auth, members, pasts } = cluster;
    const config: EtcdConfig = { endpoints: members.map(({ url }) => url), auth, tls };
    const load = new WriteLoad(config, `${PREFIX}keys/`, random);
    const ports = members.map(({ clientPort }) => clientPort);
    const clients = await Promise.all(
      ['a', 'b'].map((name) =>
        ChaosClient.start({
          name,
          ports,
          config,
          prefix: PREFIX,
          pasts,
          random,
          tamper: name === 'a' ? tamper : undefined,
        }),
      ),
    );
    return new ChaosWorld({ cluster, load, clients, random }, resources);
  }

  get figures(): Figures {
    const events = this.clients.reduce((sum, { watch }) => sum + watch.events, 0);
    return { keys: this.load.keys, events, lost: this.#lost, phantom: this.#phantom };
  }

  readonly #onRejection = (reason: unknown): void => void this.#rejections.push(reason);

  /** Sets the mode of all clients' links to all members. */
  links(mode: LinkMode): void {
    for (const client of this.clients) client.setLinks(mode);
  }

  /** Waits until every client has noticed a fault. */
  async noticed(): Promise<void> {
    await until('the fault is noticed', () => this.clients.every(({ hasNoticed }) => hasNoticed));
  }

  /** Runs `strike` under load. Returns the problems found afterwards. */
  async cycle(strike: (world: ChaosWorld) => Promise<void>): Promise<readonly string[]> {
    this.#round++;
    this.load.start();
    await this.load.more(100);
    for (const client of this.clients) client.contribute(this.#round, CONTRIBUTED_KEYS);
    await strike(this);
    await this.load.more(100);
    return this.judge();
  }

  /**
   * Replaces the store while the clients are disconnected. No one writes between the last read of the old
   * history and its end.
   */
  async replace(replacement: () => Promise<void>): Promise<void> {
    await this.quiet();
    this.links('refuse');
    await this.cluster.learn();
    this.#wrong.push(...this.#judgeEvents(), ...this.#judgeWrites());
    await replacement();
    this.load.start();
  }

  /** Waits until everything is quiet. Returns the problems. */
  async judge(): Promise<readonly string[]> {
    await this.quiet();
    const wrong = this.#wrong.splice(0);
    wrong.push(
      ...this.#judgeEvents(),
      ...this.#judgeWatches(),
      ...this.#judgeWrites(),
      ...(await this.#judgeStores()),
    );
    for (const reason of this.#rejections.splice(0)) wrong.push(`unhandled rejection: ${String(reason)}`);
    return wrong;
  }

  /** Waits until exactly the contributions of the clients exist. */
  async landed(): Promise<void> {
    let shared: ReadonlyMap<string, PastWrite> = new Map();
    let unanswered: unknown;
    const wanted = this.clients.flatMap(({ contribution }) => [...contribution]);
    await until('contributions have landed', async () => {
      // A cluster without a leader may give no answer, which proves nothing.
      const answer = await this.cluster.content('shared/').catch((error: unknown) => {
        unanswered = error;
      });
      shared = answer ?? shared;
      return answer !== undefined && isSame(shared, wanted, `${PREFIX}shared/`);
    }).catch((cause: unknown) => {
      const stores = this.clients.map(({ sharedStatus, backend }) => [sharedStatus, backend.status()]);
      const found = { shared: [...shared], wanted, stores, unanswered: String(unanswered ?? 'nothing') };
      throw new Error(JSON.stringify(found), { cause });
    });
  }

  /** Stops the writes, and waits until every client has received everything. */
  async quiet(): Promise<void> {
    await this.load.pause();
    await this.landed();
    // The keys of a lease that was lost late are written again, so there is more history to read.
    await until('everything is seen', async () => {
      const revision = await this.cluster.learn();
      await until('what is known is seen', () => this.clients.every(({ watch }) => watch.isPast(revision)));
      return this.clients.every(({ watch }) => watch.status().nextRevision === revision + 1);
    });
  }

  /** Ends everything. Returns the remaining objects. Idempotent. */
  close(): Promise<readonly string[]> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<readonly string[]> {
    await this.load.close();
    await Promise.all(this.clients.map((client) => client.close()));
    const streams = this.clients.filter(({ backend }) => backend.openStreams > 0);
    await this.cluster.dispose();
    process.off('unhandledRejection', this.#onRejection);
    let leaked: readonly string[] = [];
    await until('handles are closed', () => {
      leaked = leakedSince(this.#resources);
      return leaked.length === 0;
    }).catch(() => {}); // the leftovers are the result
    return [...leaked, ...streams.map(({ name }) => `streams of ${name}`)];
  }

  /** Returns illegal events. */
  #judgeEvents(): readonly string[] {
    const { revision } = this.cluster.past;
    return this.clients.flatMap(({ name, watch }) =>
      watch.check(revision).map((breach) => `watch ${name}: ${breach}`),
    );
  }

  /** Returns differences between the folded events and the content. */
  #judgeWatches(): readonly string[] {
    return this.clients.flatMap(({ name, watch }) => {
      const { lost, phantom } = watch.difference();
      this.#lost += lost.length;
      this.#phantom += phantom.length;
      return [
        ...lost.map((key) => `watch ${name} has lost ${key}`),
        ...phantom.map((key) => `watch ${name} still has ${key}`),
      ];
    });
  }

  /** Returns acknowledged writes that the server has lost, and keys that no one wrote. */
  #judgeWrites(): readonly string[] {
    const { past } = this.cluster;
    const missing = this.load.missingFrom(past);
    this.#lost += missing.length;
    const alien = [...past.content()].filter(
      ([key, { value }]) => key.startsWith(`${PREFIX}keys/`) && !this.load.wrote(key, value ?? ''),
    );
    this.#phantom += alien.length;
    return [
      ...missing.map(({ key, revision }) => `the server has lost ${key} of revision ${revision}`),
      ...alien.map(([key]) => `nobody has written ${key}`),
    ];
  }

  /** The stores have separate watches, which may lag. */
  async #judgeStores(): Promise<readonly string[]> {
    let wrong: readonly string[] = [];
    await until('stores are right', async () => {
      const { cluster } = this;
      const [keys, shared] = [await cluster.content('keys/'), await cluster.content('shared/')];
      const idle = await cluster.content('idle/');
      wrong = this.clients.flatMap((client) => [
        ...(isSame(keys, [...client.keys], `${PREFIX}keys/`) ? [] : [`keys of ${client.name}`]),
        ...(isSame(idle, [...client.idle], `${PREFIX}idle/`) ? [] : [`idle keys of ${client.name}`]),
        ...(isSame(shared, [...client.shared], `${PREFIX}shared/`) ? [] : [`shared keys of ${client.name}`]),
      ]);
      return wrong.length === 0;
    }).catch(() => {}); // the problems are the result
    return wrong;
  }
}

/** Returns true if a store has exactly these names and values. */
function isSame(
  content: ReadonlyMap<string, PastWrite>,
  held: readonly (readonly [name: string, value: string])[],
  prefix: string,
): boolean {
  return (
    content.size === held.length && held.every(([name, value]) => content.get(prefix + name)?.value === value)
  );
}
