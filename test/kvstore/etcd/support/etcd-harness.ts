import { Etcd3 } from 'etcd3';
import { systemClock } from '../../../../src/base/system-clock.ts';
import { keyOfBytes, textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import { prefixEnd } from '../../../../src/kvstore/codec/key-range.ts';
import { EtcdBackend } from '../../../../src/kvstore/etcd/etcd-backend.ts';
import { until } from '../../../base/support/until.ts';
import type { ContractClient, ContractKvstore, Entry, OpenOptions } from '../../support/contract-harness.ts';
import { type EtcdProcess, startEtcd, waitHealthy } from './etcd-process.ts';
import { TcpProxy } from './tcp-proxy.ts';

const USER = { username: 'client', password: 'client' };
const ROOT = { username: 'root', password: 'root' };

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A real etcd under the contract, reached through a proxy that the test controls. */
class EtcdKvstore implements ContractKvstore {
  readonly name = 'etcd';
  readonly clock = systemClock;
  readonly #members: readonly EtcdProcess[];
  readonly #auth: boolean;
  readonly #isOwn: boolean;
  readonly #clients: EtcdClient[] = [];
  #admin: Etcd3;

  /** @param options.isOwn the server is used by this test only, and ends with it */
  constructor(members: readonly EtcdProcess[], options: { auth: boolean; isOwn: boolean }) {
    this.#members = members;
    this.#auth = options.auth;
    this.#isOwn = options.isOwn;
    this.#admin = this.#newAdmin();
  }

  #newAdmin(): Etcd3 {
    const hosts = this.#members.map(({ url }) => url);
    return new Etcd3({
      hosts,
      ...(this.#auth ? { auth: ROOT } : {}),
      grpcOptions: { 'grpc.max_receive_message_length': -1 },
    });
  }

  get #first(): EtcdProcess {
    const [first] = this.#members;
    if (first === undefined) throw new Error('no member');
    return first;
  }

  async client({ leaseSeconds = 60 } = {}): Promise<ContractClient> {
    const proxies = this.#members.map(({ clientPort }) => new TcpProxy(clientPort));
    await Promise.all(proxies.map((proxy) => proxy.start()));
    const client = new EtcdClient(proxies, leaseSeconds, {
      admin: this.#auth ? this.#admin : undefined,
      loseLeases: () => this.#revokeLeases(),
    });
    this.#clients.push(client);
    return client;
  }

  async load(entries: readonly Entry[]): Promise<void> {
    let batch: Entry[] = [];
    let bytes = 0;
    for (const entry of entries) {
      batch.push(entry);
      bytes += entry[1].length;
      // Maximum of a transaction: 128 operations; of a request: 1.5 MB.
      if (batch.length < 128 && bytes < 1_000_000) continue;
      await this.together(batch);
      batch = [];
      bytes = 0;
    }
    if (batch.length > 0) await this.together(batch);
  }

  async put(key: string, value: string): Promise<void> {
    await this.#admin.put(key).value(value);
  }

  async remove(key: string): Promise<void> {
    await this.#admin.delete().key(key);
  }

  async together(entries: readonly (readonly [string, string | undefined])[]): Promise<void> {
    const operations = entries.map(([key, value]) =>
      value === undefined ? this.#admin.delete().key(key) : this.#admin.put(key).value(value),
    );
    await this.#admin
      .if('never', 'Version', '==', 0)
      .then(...operations)
      .commit();
  }

  async content(prefix: string): Promise<Map<string, string>> {
    const { kvs } = await this.#admin.getAll().prefix(prefix).exec();
    return new Map(
      kvs.map(({ key, value }) => [keyOfBytes(key), textOfBytes(value) ?? value.toString('hex')]),
    );
  }

  async compact(): Promise<void> {
    const { header } = await this.#admin.get('any').exec();
    await this.#admin.kv.compact({ revision: header.revision, physical: true });
  }

  async backup(): Promise<() => Promise<void>> {
    const file = await this.#first.backup();
    return async () => {
      await this.#first.restore(file);
      this.#admin.close();
      this.#admin = this.#newAdmin();
    };
  }

  async restart(): Promise<void> {
    await this.#first.kill();
    await this.#first.start();
  }

  async #revokeLeases(): Promise<void> {
    const list = await this.#first.ctl(['lease', 'list']);
    const leases = list.split('\n').filter((line) => /^[0-9a-f]+$/.test(line));
    for (const lease of leases) await this.#first.ctl(['lease', 'revoke', lease]);
  }

  /** Kills all members but the first, which loses the quorum. */
  async loseLeader(): Promise<void> {
    await Promise.all(this.#members.slice(1).map((member) => member.kill()));
  }

  async electLeader(): Promise<void> {
    await Promise.all(this.#members.slice(1).map((member) => member.start({ waitHealthy: false })));
    await Promise.all(this.#members.map((member) => waitHealthy(member)));
  }

  until = until;
  pass = sleep;

  async dispose(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    if (this.#isOwn) await Promise.all(this.#members.map((member) => member.dispose()));
    else await this.#admin.delete().all();
    this.#admin.close();
  }
}

class EtcdClient implements ContractClient {
  readonly backend: EtcdBackend;
  readonly #proxies: readonly TcpProxy[];
  readonly #admin: Etcd3 | undefined;
  readonly loseLeases: () => Promise<void>;

  constructor(
    proxies: readonly TcpProxy[],
    leaseSeconds: number,
    { admin, loseLeases }: { admin: Etcd3 | undefined; loseLeases: () => Promise<void> },
  ) {
    this.#proxies = proxies;
    this.#admin = admin;
    this.loseLeases = loseLeases;
    this.backend = new EtcdBackend(
      {
        endpoints: proxies.map(({ port }) => `http://127.0.0.1:${port}`),
        ...(admin === undefined ? {} : { auth: USER }),
        deadlineMs: 4000,
        keepAliveTimeMs: 1000,
        // An etcd that is not scheduled for a while must not be treated as a black hole.
        keepAliveTimeoutMs: 4000,
      },
      { leaseSeconds },
    );
  }

  #each(act: (proxy: TcpProxy) => void): Promise<void> {
    for (const proxy of this.#proxies) act(proxy);
    return Promise.resolve();
  }

  cut(): Promise<void> {
    return this.#each((proxy) => proxy.cut());
  }

  down(): Promise<void> {
    return this.#each((proxy) => {
      proxy.mode = 'refuse';
    });
  }

  blackHole(): Promise<void> {
    return this.#each((proxy) => {
      proxy.mode = 'black-hole';
    });
  }

  up(): Promise<void> {
    return this.#each((proxy) => {
      proxy.mode = 'open';
    });
  }

  /** etcd begins a catch-up up to 100 ms after it has accepted the watch, so the trap can be set in time. */
  async cutNextCatchUp(): Promise<void> {
    this.#afterCreated(() => void this.#each((proxy) => proxy.cutAfter(30_000)));
    return Promise.resolve();
  }

  async cutAfterCreated(): Promise<void> {
    this.#afterCreated(() => void this.cut());
    return Promise.resolve();
  }

  #afterCreated(act: () => void): void {
    const look = (): void => {
      if (this.backend.status().watches.some(({ state }) => state === 'watching')) act();
      else setTimeout(look, 1); // checking in each turn would cost more than the watch
    };
    look();
  }

  /** Setting the password again invalidates the user's tokens. */
  async expireToken(): Promise<void> {
    await this.#admin?.user(USER.username).setPassword(USER.password);
    await this.cut();
  }

  async forbid(prefix: string): Promise<void> {
    await this.#revokeAll();
    await this.#grant('\0', prefix);
    await this.#grant(prefixEnd(prefix), '\0');
  }

  async allow(_prefix: string): Promise<void> {
    await this.#revokeAll();
    await this.#grant('\0', '\0');
  }

  async #revokeAll(): Promise<void> {
    const role = this.#admin?.role('all');
    for (const { range } of (await role?.permissions()) ?? []) {
      await this.#admin?.auth.roleRevokePermission({ role: 'all', key: range.start, range_end: range.end });
    }
  }

  async #grant(key: string, end: string): Promise<void> {
    await this.#admin?.auth.roleGrantPermission({
      name: 'all',
      perm: { permType: 'Readwrite', key: Buffer.from(key), range_end: Buffer.from(end) },
    });
  }

  openStreams(): number {
    return this.backend.openStreams;
  }

  async close(): Promise<void> {
    await this.backend.close();
    await Promise.all(this.#proxies.map((proxy) => proxy.close()));
  }
}

async function enableAuth(admin: Etcd3): Promise<void> {
  const root = await admin.role('root').create();
  await admin.user(ROOT.username).create(ROOT.password);
  await admin.user(ROOT.username).addRole(root);
  await admin.role('all').create();
  await admin.auth.roleGrantPermission({
    name: 'all',
    perm: { permType: 'Readwrite', key: Buffer.from('\0'), range_end: Buffer.from('\0') },
  });
  await admin.user(USER.username).create(USER.password);
  await admin.user(USER.username).addRole('all');
  await admin.auth.authEnable();
}

let shared: Promise<readonly EtcdProcess[]> | undefined;

/** Ends the shared server. */
export async function disposeSharedEtcd(): Promise<void> {
  for (const member of (await shared) ?? []) await member.dispose();
  shared = undefined;
}

/** Opens an empty etcd: the shared one, or a separate one for tests that need several members or auth. */
export async function etcdKvstore({ members = 1, auth = false }: OpenOptions = {}): Promise<ContractKvstore> {
  const isOwn = members > 1 || auth;
  if (!isOwn) {
    shared ??= startEtcd();
    return new EtcdKvstore(await shared, { auth, isOwn });
  }
  const started = await startEtcd(members);
  if (auth) {
    const admin = new Etcd3({ hosts: started.map(({ url }) => url) });
    await enableAuth(admin);
    admin.close();
  }
  return new EtcdKvstore(started, { auth, isOwn });
}
