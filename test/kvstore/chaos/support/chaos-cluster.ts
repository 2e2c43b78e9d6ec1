import { keyOfBytes, textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import type { EtcdConfig } from '../../../../src/kvstore/etcd/etcd-config.ts';
import { until } from '../../../base/support/until.ts';
import {
  type EtcdOptions,
  type EtcdProcess,
  startEtcd,
  waitHealthy,
} from '../../etcd/support/etcd-process.ts';
import { readHistory } from './history-reader.ts';
import { Past, type PastWrite } from './past.ts';

/** What a {@link ChaosCluster} is to be. */
export interface ClusterOptions extends EtcdOptions {
  /** Default 1. */
  readonly members?: number;
  /** Users, and tokens that live so many seconds. */
  readonly tokenSeconds?: number;
}

const ROOT = { username: 'root', password: 'root' };

/** A snapshot of the cluster, and the revision that it ends with. */
export interface ClusterBackup {
  readonly file: string;
  readonly revision: number;
}

/** A member's view, as `etcdctl endpoint status -w json` prints it; ids are rounded and still differ. */
interface PrintedStatus {
  readonly Status: { readonly header: { readonly member_id: number }; readonly leader: number };
}

interface PrintedRange {
  readonly header: { readonly revision: number };
  readonly kvs?: readonly { readonly key: string; readonly value?: string; readonly mod_revision: number }[];
}

/**
 * A real etcd cluster to which everything may happen. What is known of it comes from etcdctl, which shares no
 * code with what is tested: its history, its content.
 */
export class ChaosCluster {
  readonly members: readonly EtcdProcess[];
  /** Its histories: a restore begins another. The last one goes on. */
  readonly pasts: Past[] = [new Past()];
  readonly #prefix: string;
  readonly #hasUsers: boolean;
  #filled = 0;
  #marks = 0;
  #restores = 0;

  private constructor(members: readonly EtcdProcess[], prefix: string, hasUsers: boolean) {
    this.members = members;
    this.#prefix = prefix;
    this.#hasUsers = hasUsers;
  }

  /** @param prefix what its histories are of */
  static async start(prefix: string, options: ClusterOptions): Promise<ChaosCluster> {
    const { members: count = 1, tokenSeconds, tls, flags = [] } = options;
    const tokens = tokenSeconds === undefined ? [] : ['--auth-token-ttl', String(tokenSeconds)];
    const quick = ['--bcrypt-cost', '4'];
    const members = await startEtcd(count, {
      flags: [...flags, ...tokens, ...quick],
      ...(tls ? { tls } : {}),
    });
    const cluster = new ChaosCluster(members, prefix, tokenSeconds !== undefined);
    if (tokenSeconds !== undefined) await cluster.#addUsers();
    await cluster.#settle();
    return cluster;
  }

  /** What many a cluster is: a prefix to which nothing is written any more, and a history that ends after its last write. */
  async #settle(): Promise<void> {
    for (const name of ['a', 'b', 'c']) await this.witness.ctl(['put', `${this.#prefix}idle/${name}`, name]);
    await this.compact();
  }

  get past(): Past {
    const past = this.pasts.at(-1);
    if (past === undefined) throw new Error('a cluster without past');
    return past;
  }

  /** The user that clients are, if they have to be one. */
  get auth(): EtcdConfig['auth'] {
    return this.#hasUsers ? ROOT : undefined;
  }

  /** Somebody who answers. */
  get witness(): EtcdProcess {
    const alive = this.members.find((member) => member.isUp);
    if (alive === undefined) throw new Error('no member is up');
    return alive;
  }

  async #addUsers(): Promise<void> {
    const { username, password } = ROOT;
    await this.witness.ctl(['user', 'add', `${username}:${password}`]);
    await this.witness.ctl(['user', 'grant-role', username, 'root']);
    await this.enableAuthentication();
  }

  async enableAuthentication(): Promise<void> {
    await this.witness.ctl(['auth', 'enable']);
    for (const member of this.members) member.user = `${ROOT.username}:${ROOT.password}`;
  }

  async disableAuthentication(): Promise<void> {
    await this.witness.ctl(['auth', 'disable']);
    for (const member of this.members) member.user = undefined;
  }

  async leader(): Promise<EtcdProcess> {
    for (const member of this.members) {
      if (!member.isUp) continue;
      const [printed] = JSON.parse(await member.ctl(['endpoint', 'status', '-w', 'json'])) as PrintedStatus[];
      if (printed !== undefined && printed.Status.leader === printed.Status.header.member_id) return member;
    }
    throw new Error('the cluster has no leader');
  }

  /** Writes a mark below the prefix; gives its revision. */
  async mark(): Promise<number> {
    const printed = await this.witness.ctl([
      'put',
      `${this.#prefix}mark`,
      `mark ${++this.#marks}`,
      '-w',
      'json',
    ]);
    return (JSON.parse(printed) as PrintedRange).header.revision;
  }

  /** Learns what has happened up to now; gives the revision up to which that is. */
  async learn(): Promise<number> {
    await readHistory(this.witness, this.#prefix, this.past, await this.mark());
    return this.past.revision;
  }

  /** What it holds below the prefix, as of now. */
  async content(below = ''): Promise<Map<string, PastWrite>> {
    const printed = await this.witness.ctl(['get', '--prefix', `${this.#prefix}${below}`, '-w', 'json']);
    const { kvs = [] } = JSON.parse(printed) as PrintedRange;
    return new Map(
      kvs.map(({ key, value = '', mod_revision }) => [
        keyOfBytes(Buffer.from(key, 'base64')),
        { value: textOfBytes(Buffer.from(value, 'base64')), revision: mod_revision },
      ]),
    );
  }

  /** Forgets all history up to now. */
  async compact(): Promise<void> {
    await this.witness.ctl(['compact', String(await this.learn()), '--physical']);
  }

  async backup(): Promise<ClusterBackup> {
    const file = await this.witness.backup();
    const printed = await this.witness.ctl(['snapshot', 'status', file, '-w', 'json']);
    return { file, revision: (JSON.parse(printed) as { revision: number }).revision };
  }

  /**
   * Kills every member and starts the cluster as the backup has it. Nobody may write since the last `learn`: it
   * could be seen and not be known of.
   */
  async restore({ file, revision }: ClusterBackup, options: { newClusterID: boolean }): Promise<void> {
    const token = options.newClusterID ? `another ${++this.#restores}` : 'test';
    await Promise.all(this.members.map((member) => member.kill()));
    for (const member of this.members) await member.replaceData(file, token);
    this.pasts.push(this.past.upTo(revision));
    await this.startAll();
  }

  /** Kills every member and starts the cluster without anything. Nobody may write since the last `learn`. */
  async restartEmpty(options: { newClusterID: boolean }): Promise<void> {
    const token = options.newClusterID ? `another ${++this.#restores}` : undefined;
    await Promise.all(this.members.map((member) => member.empty(token)));
    for (const member of this.members) member.user = undefined;
    this.pasts.push(this.past.upTo(0));
    await this.startAll();
    if (this.#hasUsers) await this.#addUsers();
    await this.#settle();
  }

  /** Writes some keys over and over, with values that were never written, until the store has this revision. */
  async fillUpTo(revision: number): Promise<void> {
    for (let reached = 0; reached < revision; ) {
      const [key, value] = [`${this.#prefix}filler-${reached % 5}`, `filler ${++this.#filled}`];
      const printed = await this.witness.ctl(['put', key, value, '-w', 'json']);
      reached = (JSON.parse(printed) as PrintedRange).header.revision;
    }
  }

  /** Ends all leases, and deletes their keys. */
  async revokeLeases(): Promise<void> {
    const leases = (await this.witness.ctl(['lease', 'list']))
      .split('\n')
      .filter((line) => /^[0-9a-f]+$/.test(line));
    // One may have ended meanwhile.
    for (const lease of leases) await this.witness.ctl(['lease', 'revoke', lease]).catch(() => {});
  }

  /** Starts the members that are down, and waits until all are well. */
  async startAll(): Promise<void> {
    const down = this.members.filter((member) => !member.isUp);
    await Promise.all(down.map((member) => member.start({ waitHealthy: false })));
    await Promise.all(this.members.map((member) => waitHealthy(member)));
  }

  /** Takes their tokens from all clients: setting a password does. */
  async expireTokens(): Promise<void> {
    await this.witness.ctl(['user', 'passwd', ROOT.username, '--interactive=false'], `${ROOT.password}\n`);
  }

  /** Waits until nobody has a key below this part of the prefix. */
  async untilGone(below: string): Promise<void> {
    await until(`${below} is gone`, async () => (await this.content(below)).size === 0);
  }

  async dispose(): Promise<void> {
    await Promise.all(this.members.map((member) => member.dispose()));
  }
}
