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

/** What a {@link ChaosWorld} is to be. */
export interface WorldOptions extends ClusterOptions {
  readonly random: Random;
  /** How clients show who they are, where the cluster has TLS. */
  readonly clientTLS?: EtcdConfig['tls'];
  /** See `ChaosClientOptions`; of the first client. */
  readonly tamper?: (watch: Watch) => Watch;
}

/** What was found so far. */
export interface Figures {
  readonly keys: number;
  readonly events: number;
  /** Keys that a watch should have told of and did not, and writes that the server has lost. */
  readonly lost: number;
  /** Keys that a watch still held and should not. */
  readonly phantom: number;
}

const PREFIX = 'chaos/';
const CONTRIBUTED_KEYS = 20;

/**
 * A cluster under write load, two clients that follow it and contribute to it, and the judgement: after any fault
 * what every one of them holds is what etcdctl reads, and what they told was legal, revision by revision.
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

  /** Breaks or opens the ways of all clients to all members. */
  links(mode: LinkMode): void {
    for (const client of this.clients) client.setLinks(mode);
  }

  /** Waits until every client has noticed that something is wrong. */
  async noticed(): Promise<void> {
    await until('the fault is noticed', () => this.clients.every(({ hasNoticed }) => hasNoticed));
  }

  /** Lets `strike` happen under load, and judges what came of it. */
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
   * Another store takes the place of this one while the clients are away: between the last look at the old history and its
   * end nobody may write.
   */
  async replace(replacement: () => Promise<void>): Promise<void> {
    await this.quiet();
    this.links('refuse');
    await this.cluster.learn();
    this.#wrong.push(...this.#judgeEvents(), ...this.#judgeWrites());
    await replacement();
    this.load.start();
  }

  /** Waits until everything is quiet, and says what is wrong. */
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

  /** Waits until what the clients contribute is there, and nothing else. */
  async landed(): Promise<void> {
    let shared: ReadonlyMap<string, PastWrite> = new Map();
    let unanswered: unknown;
    const wanted = this.clients.flatMap(({ contribution }) => [...contribution]);
    await until('contributions have landed', async () => {
      // A cluster that is still finding itself may give no answer, which says nothing of what has landed.
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

  /** Nobody writes, and every client has seen everything. */
  async quiet(): Promise<void> {
    await this.load.pause();
    await this.landed();
    // A lease that was given up late has its keys put again meanwhile: then there is more to be learnt.
    await until('everything is seen', async () => {
      const revision = await this.cluster.learn();
      await until('what is known is seen', () => this.clients.every(({ watch }) => watch.isPast(revision)));
      return this.clients.every(({ watch }) => watch.status().nextRevision === revision + 1);
    });
  }

  /** Ends everything; says what was left behind. Idempotent. */
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
    }).catch(() => {}); // what is left is the answer
    return [...leaked, ...streams.map(({ name }) => `streams of ${name}`)];
  }

  /** What was told was legal. */
  #judgeEvents(): readonly string[] {
    const { revision } = this.cluster.past;
    return this.clients.flatMap(({ name, watch }) =>
      watch.check(revision).map((breach) => `watch ${name}: ${breach}`),
    );
  }

  /** What was told amounts to what is there. */
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

  /** The server has kept what it has acknowledged, and holds nothing that nobody has written. */
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

  /** The stores have watches of their own, which may be behind. */
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
    }).catch(() => {}); // what is wrong is the answer
    return wrong;
  }
}

/** Whether a store holds exactly these names with these values. */
function isSame(
  content: ReadonlyMap<string, PastWrite>,
  held: readonly (readonly [name: string, value: string])[],
  prefix: string,
): boolean {
  return (
    content.size === held.length && held.every(([name, value]) => content.get(prefix + name)?.value === value)
  );
}
