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

/** Options of a {@link ChaosCluster}. */
export interface ClusterOptions extends EtcdOptions {
  /** Default 1. */
  readonly members?: number;
  /** Enables users, with tokens of this lifetime in seconds. */
  readonly tokenSeconds?: number;
}

const ROOT = { username: 'root', password: 'root' };

/** A snapshot of the cluster, and its last revision. */
export interface ClusterBackup {
  readonly file: string;
  readonly revision: number;
}

/**
 * The status of a member, as printed by `etcdctl endpoint status -w json`. Ids are rounded but still differ.
 */
interface PrintedStatus {
  readonly Status: { readonly header: { readonly member_id: number }; readonly leader: number };
}

interface PrintedRange {
  readonly header: { readonly revision: number };
  readonly kvs?: readonly { readonly key: string; readonly value?: string; readonly mod_revision: number }[];
}

/**
 * A real etcd cluster under faults. Its history and content are read by etcdctl, which shares no code with
 * the tested client.
 */
export class ChaosCluster {
  readonly members: readonly EtcdProcess[];
  /** Its histories: a restore begins another one. Only the last one grows. */
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

  /** @param prefix prefix of the histories */
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

  /**
   * Makes the cluster like many real ones: a prefix without new writes, and a history that is compacted after
   * the last write.
   */
  async #settle(): Promise<void> {
    for (const name of ['a', 'b', 'c']) await this.witness.ctl(['put', `${this.#prefix}idle/${name}`, name]);
    await this.compact();
  }

  get past(): Past {
    const past = this.pasts.at(-1);
    if (past === undefined) throw new Error('a cluster without past');
    return past;
  }

  /** The user of clients, if the cluster requires one. */
  get auth(): EtcdConfig['auth'] {
    return this.#hasUsers ? ROOT : undefined;
  }

  /** A member that answers. */
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

  /** Writes a mark below the prefix. Returns its revision. */
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

  /** Reads the history until now. Returns its last revision. */
  async learn(): Promise<number> {
    await readHistory(this.witness, this.#prefix, this.past, await this.mark());
    return this.past.revision;
  }

  /** Returns the current content below the prefix. */
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

  /** Compacts all history until now. */
  async compact(): Promise<void> {
    await this.witness.ctl(['compact', String(await this.learn()), '--physical']);
  }

  async backup(): Promise<ClusterBackup> {
    const file = await this.witness.backup();
    const printed = await this.witness.ctl(['snapshot', 'status', file, '-w', 'json']);
    return { file, revision: (JSON.parse(printed) as { revision: number }).revision };
  }

  /**
   * Kills every member and starts the cluster from the backup. No one may write after the last `learn`,
   * because clients could see a write that is missing in the history.
   */
  async restore({ file, revision }: ClusterBackup, options: { newClusterID: boolean }): Promise<void> {
    const token = options.newClusterID ? `another ${++this.#restores}` : 'test';
    await Promise.all(this.members.map((member) => member.kill()));
    for (const member of this.members) await member.replaceData(file, token);
    this.pasts.push(this.past.upTo(revision));
    await this.startAll();
  }

  /** Kills every member and starts the cluster empty. No one may write after the last `learn`. */
  async restartEmpty(options: { newClusterID: boolean }): Promise<void> {
    const token = options.newClusterID ? `another ${++this.#restores}` : undefined;
    await Promise.all(this.members.map((member) => member.empty(token)));
    for (const member of this.members) member.user = undefined;
    this.pasts.push(this.past.upTo(0));
    await this.startAll();
    if (this.#hasUsers) await this.#addUsers();
    await this.#settle();
  }

  /** Overwrites some keys with new values until the store has this revision. */
  async fillUpTo(revision: number): Promise<void> {
    for (let reached = 0; reached < revision; ) {
      const [key, value] = [`${this.#prefix}filler-${reached % 5}`, `filler ${++this.#filled}`];
      const printed = await this.witness.ctl(['put', key, value, '-w', 'json']);
      reached = (JSON.parse(printed) as PrintedRange).header.revision;
    }
  }

  /** Revokes all leases, which deletes their keys. */
  async revokeLeases(): Promise<void> {
    const leases = (await this.witness.ctl(['lease', 'list']))
      .split('\n')
      .filter((line) => /^[0-9a-f]+$/.test(line));
    // A lease may have expired during this time.
    for (const lease of leases) await this.witness.ctl(['lease', 'revoke', lease]).catch(() => {});
  }

  /** Starts stopped members, and waits until all are healthy. */
  async startAll(): Promise<void> {
    const down = this.members.filter((member) => !member.isUp);
    await Promise.all(down.map((member) => member.start({ waitHealthy: false })));
    await Promise.all(this.members.map((member) => waitHealthy(member)));
  }

  /** Invalidates the tokens of all clients by setting a password. */
  async expireTokens(): Promise<void> {
    await this.witness.ctl(['user', 'passwd', ROOT.username, '--interactive=false'], `${ROOT.password}\n`);
  }

  /** Waits until no key exists below this part of the prefix. */
  async untilGone(below: string): Promise<void> {
    await until(`${below} is gone`, async () => (await this.content(below)).size === 0);
  }

  async dispose(): Promise<void> {
    await Promise.all(this.members.map((member) => member.dispose()));
  }
}
