import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { ConfigFollower } from '../../../src/clustermesh/config-follower.ts';
import { clusterConfigKey } from '../../../src/kvstore/codec/keys.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { ConfigFolder } from '../../../src/process/config-folder.ts';
import { runFolder } from '../../base/support/run-folder.ts';
import { until } from '../../base/support/until.ts';
import { ClusterEtcd } from './cluster-etcd.ts';
import {
  type Edit,
  type Happening,
  heldOf,
  mayTakeAway,
  REMOTE,
  type Remote,
  takenAway,
} from './mesh-laws.ts';
import { Agent, OWN } from './mesh-world.ts';

/** Actions and results until now. */
export interface MeshFigures {
  readonly writes: number;
  readonly faults: number;
  readonly edits: number;
  /** For each script: time from the end of its last fault until the engines equalled those of a new agent. */
  readonly healedMs: readonly number[];
  /** The largest number of claims and nodes in one comparison. */
  readonly compared: number;
  /** Number of checks that a cluster that had lost everything was unchanged. */
  readonly checks: number;
}

const QUIET_MS = 150;

/** The mesh of `mesh-laws.ts` over real etcds, in real time: three of them, a folder of configurations, an agent. */
export class EtcdMeshWorld {
  readonly #etcds: ReadonlyMap<string, ClusterEtcd>;
  readonly #folder = runFolder('mesh-test-');
  readonly #random: Random;
  readonly #agent = new Agent(systemClock);
  readonly #own: EtcdBackend;
  readonly #follower: ConfigFollower;
  readonly #added = new Set<Remote>();
  /** The current configuration files. */
  readonly #files = new Map<Remote, string>();
  /** The state of remote clusters when they lost everything. */
  readonly #heldAtLoss = new Map<string, ReadonlyMap<string, string>>();
  #checks = 0;
  #versions = 0;
  #writes = 0;
  #faults = 0;
  #edits = 0;
  #compared = 0;
  readonly #healedMs: number[] = [];

  private constructor(etcds: ReadonlyMap<string, ClusterEtcd>, random: Random) {
    this.#etcds = etcds;
    this.#random = random;
    this.#own = this.#client(OWN);
    const source = new ConfigFolder(this.#folder, (config) => new EtcdBackend(config));
    this.#follower = new ConfigFollower({ source, mesh: this.#agent.mesh, clock: systemClock });
  }

  static async start(random: Random): Promise<EtcdMeshWorld> {
    const ids = { a: 1, b: 2, [OWN]: 9 };
    const started = Object.entries(ids).map(
      async ([name, id]) => [name, await ClusterEtcd.start(name, id)] as const,
    );
    const world = new EtcdMeshWorld(new Map(await Promise.all(started)), random);
    world.#agent.followOwnOn(world.#own);
    for (const name of REMOTE) world.#configure(name);
    await world.#follower.start();
    return world;
  }

  get figures(): MeshFigures {
    return {
      writes: this.#writes,
      faults: this.#faults,
      edits: this.#edits,
      compared: this.#compared,
      checks: this.#checks,
      healedMs: [...this.#healedMs],
    };
  }

  /** Runs a step of the script. */
  async play(script: readonly Happening[]): Promise<void> {
    for (const what of script) {
      if (mayTakeAway(what)) this.#heldAtLoss.delete(what.cluster);
      await this.#happen(what);
      this.#checkHeld(what);
    }
  }

  /** The state of a cluster that lost everything is kept, whatever else happens. */
  #checkHeld(what?: Happening): void {
    for (const [name, held] of this.#heldAtLoss) {
      this.#checks++;
      const gone = takenAway(held, heldOf(this.#agent, name), true);
      if (gone.length > 0) throw new Error(`${gone} of ${name} taken away after ${JSON.stringify(what)}`);
    }
  }

  async #lose(fault: 'die' | 'replace', name: string): Promise<void> {
    const remote = REMOTE.find((each) => each === name);
    const isFollowed = this.#agent.mesh.statusOf(name)?.config !== undefined;
    const file = remote && this.#files.get(remote);
    const isToStay = isFollowed && file !== undefined && file !== '';
    const held = await this.#settledHeldOf(name);
    await this.#etcd(name).strike(fault, this.#random);
    const { lost } = this.#etcd(name);
    const isConfigured = lost.some(({ key }) => key === clusterConfigKey(name));
    const isLost = ([of]: readonly [string, string]): boolean =>
      lost.some(({ key }) => key.endsWith(`/${of}`));
    if (isToStay && isConfigured) this.#heldAtLoss.set(name, new Map([...held].filter(isLost)));
    if (fault === 'replace' && remote !== undefined && this.#added.has(remote)) this.#configure(remote);
  }

  /** Returns the state when nothing has changed for some time, so that no write is in transit to the agent. */
  async #settledHeldOf(name: string): Promise<ReadonlyMap<string, string>> {
    for (let held = heldOf(this.#agent, name); ; ) {
      await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
      const now = heldOf(this.#agent, name);
      if (JSON.stringify([...now]) === JSON.stringify([...held])) return now;
      held = now;
    }
  }

  async #happen(what: Happening): Promise<void> {
    switch (what.do) {
      case 'write':
        this.#writes++;
        return this.#etcd(what.cluster).write(what.key, what.value);
      case 'id':
        this.#writes++;
        return this.#etcd(what.cluster).claim(what.id);
      case 'pass': // real time
        return;
      case 'add':
      case 'touch':
      case 'remove':
      case 'tear':
      case 'break':
        this.#edits++;
        return this.#edit(what.do, what.cluster);
      case 'die':
      case 'replace':
        this.#faults++;
        return this.#lose(what.do, what.cluster);
      default:
        this.#faults++;
        return this.#etcd(what.cluster).strike(what.do, this.#random);
    }
  }

  #etcd(name: string): ClusterEtcd {
    const etcd = this.#etcds.get(name);
    if (etcd === undefined) throw new Error(name);
    return etcd;
  }

  #client(name: string): EtcdBackend {
    return new EtcdBackend({ endpoints: [this.#etcd(name).url] });
  }

  #edit(edit: Edit, name: Remote): void {
    if (edit === 'add') this.#configure(name);
    else if (edit === 'remove') {
      this.#added.delete(name);
      this.#files.delete(name);
      rmSync(join(this.#folder, name), { force: true });
    } else if (!this.#added.has(name)) return;
    else if (edit === 'touch') this.#writeConfig(name);
    else this.#writeFile(name, edit === 'tear' ? '' : 'endpoints: [');
  }

  /** A configuration that differs only in its bytes. */
  #configure(name: Remote): void {
    this.#added.add(name);
    this.#versions++;
    this.#writeConfig(name);
  }

  #writeConfig(name: Remote): void {
    this.#writeFile(name, `endpoints:\n- ${this.#etcd(name).url}\n# version ${this.#versions}\n`);
  }

  #writeFile(name: Remote, text: string): void {
    this.#files.set(name, text);
    writeFileSync(join(this.#folder, name), text);
  }

  /**
   * Ends every fault and waits until the agent equals a new one. Returns the differences if it never does.
   */
  async judge(): Promise<{ readonly held: unknown; readonly fresh: unknown }> {
    this.#checkHeld();
    this.#heldAtLoss.clear();
    for (const etcd of this.#etcds.values()) {
      etcd.heal();
      await etcd.publishAgain();
    }
    for (const name of this.#added) this.#writeConfig(name);
    const healed = Date.now();
    const fresh = await this.#coldStart();
    const wanted = JSON.stringify(fresh);
    const isSame = (): boolean => this.#isSettled && JSON.stringify(this.#agent.view()) === wanted;
    await until('the agent holds what a fresh one does', isSame).catch(() => {}); // the difference is more useful
    this.#healedMs.push(Date.now() - healed);
    this.#compared = Math.max(this.#compared, this.#agent.ipcache.size + this.#agent.nodes.size);
    return { held: this.#agent.view(), fresh };
  }

  /** Returns true if exactly the configured clusters are watched. */
  get #isSettled(): boolean {
    const { clusters } = this.#agent.mesh.status();
    return clusters.length === this.#added.size && clusters.every(({ state }) => state === 'ready');
  }

  async #coldStart(): Promise<unknown> {
    const agent = new Agent(systemClock);
    const backend = this.#client(OWN);
    const own = agent.followOwnOn(backend);
    for (const name of this.#added) await agent.mesh.add(name, () => this.#client(name));
    await own.synced();
    const missing = await agent.mesh.clustersSynced({ deadlineMs: 60_000 });
    if (missing.length > 0) throw new Error(`a fresh agent cannot read ${missing.join(', ')}`);
    const view = agent.view();
    await agent.stop();
    await backend.close();
    return view;
  }

  async close(): Promise<void> {
    await this.#follower.stop();
    await this.#agent.stop();
    await this.#own.close();
    await Promise.all([...this.#etcds.values()].map((etcd) => etcd.dispose()));
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
