import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Random } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import { isKubernetesObject } from '../../../src/k8s/reflector/known-objects.ts';
import type { FollowedResource, ResourceKind } from '../../../src/k8s/resource.ts';
import { TokenFile } from '../../../src/k8s/rest/token-file.ts';
import { runFolder } from '../../base/support/run-folder.ts';
import { until } from '../../base/support/until.ts';
import { ApiUser } from '../../k8s/support/api-user.ts';
import { RecordingSink } from '../../k8s/support/recording-sink.ts';
import { type LinkMode, TcpProxy } from '../../kvstore/etcd/support/tcp-proxy.ts';
import { ObjectLoad, stateOf } from './object-load.ts';
import { RealApiServer } from './real-apiserver.ts';

const NAMESPACE = 'chaos';
/** One built-in kind, selected by a label, and one custom kind without a selector. */
const KINDS: readonly ResourceKind[] = [
  { group: '', version: 'v1', plural: 'configmaps', labelSelector: 'chaos=yes' },
  { group: 'contract.test', version: 'v1', plural: 'widgets' },
];
const CORE = { group: '', version: 'v1' } as const;
const BINDINGS: ResourceKind = {
  group: 'rbac.authorization.k8s.io',
  version: 'v1',
  plural: 'clusterrolebindings',
};

/** Follows both kinds over a separate link. */
class Follower {
  readonly link: TcpProxy;
  readonly client: KubernetesClient;
  readonly sinks: readonly RecordingSink[] = KINDS.map(() => new RecordingSink());
  readonly followed: readonly FollowedResource[];
  readonly faults: unknown[] = [];

  constructor(server: RealApiServer, link: TcpProxy, token: string) {
    this.link = link;
    const credentials = new TokenFile(token, systemClock);
    const access = { ...server.access, server: `https://127.0.0.1:${link.port}`, credentials };
    this.client = new KubernetesClient(access, { onFault: (fault) => this.faults.push(fault) });
    this.followed = KINDS.map((kind, i) => this.client.follow(kind, this.sinks[i] ?? new RecordingSink()));
  }

  get hasNoticed(): boolean {
    return this.followed.some((resource) => resource.status().state === 'waiting');
  }
}

/** Results so far. */
export interface ChaosFigures {
  readonly writes: number;
  readonly events: number;
  readonly lists: number;
  readonly watches: number;
  /** Number of objects that a follower lacked, and of writes that the server lost. */
  readonly lost: number;
  /** Number of objects that a follower had although they did not exist. */
  readonly phantom: number;
}

/**
 * A kube-apiserver under write load, with two followers. After any fault, each follower must have exactly the
 * objects of a fresh list, and must have received only legal events.
 */
export class ApiChaos {
  readonly server: RealApiServer;
  readonly random: Random;
  readonly loads: readonly ObjectLoad[];
  readonly followers: readonly Follower[];
  readonly #users: readonly ApiUser[];
  readonly #folder: string;
  #accounts = 0;
  #lost = 0;
  #phantom = 0;

  private constructor(server: RealApiServer, random: Random, links: readonly TcpProxy[], folder: string) {
    this.server = server;
    this.random = random;
    this.#folder = folder;
    this.#users = KINDS.map((kind) => new ApiUser(server.transport, kind, NAMESPACE));
    this.loads = this.#users.map((user) => new ObjectLoad(user, random));
    this.followers = links.map((link) => new Follower(server, link, join(folder, 'token')));
  }

  static async start(random: Random): Promise<ApiChaos> {
    const server = await RealApiServer.start();
    await server.serveWidgets();
    const user = (kind: ResourceKind): ApiUser => new ApiUser(server.transport, kind);
    await user({ ...CORE, plural: 'namespaces' }).create(NAMESPACE);
    const role = { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' };
    const subject = { kind: 'Group', name: `system:serviceaccounts:${NAMESPACE}` };
    await user(BINDINGS).create('chaos', { roleRef: role, subjects: [subject] });
    const links = [new TcpProxy(server.port), new TcpProxy(server.port)];
    for (const link of links) await link.start();
    const folder = runFolder('dpcache-chaos-');
    const chaos = new ApiChaos(server, random, links, folder);
    chaos.useToken(await chaos.newToken());
    return chaos;
  }

  get figures(): ChaosFigures {
    const all = this.followers.flatMap(({ followed }) => followed.map((resource) => resource.status()));
    const sum = (of: (status: (typeof all)[number]) => number): number =>
      all.reduce((total, status) => total + of(status), 0);
    return {
      writes: this.loads.reduce((total, { writes }) => total + writes, 0),
      events: sum(({ events }) => events),
      lists: sum(({ lists }) => lists),
      watches: sum(({ watches }) => watches),
      lost: this.#lost,
      phantom: this.#phantom,
    };
  }

  /** Sets the mode of the links between followers and server. */
  links(mode: LinkMode): void {
    for (const { link } of this.followers) link.mode = mode;
  }

  cut(): void {
    for (const { link } of this.followers) link.cut();
  }

  async noticed(): Promise<void> {
    await until('the fault is noticed', () => this.followers.every(({ hasNoticed }) => hasNoticed));
  }

  async more(writes: number): Promise<void> {
    await Promise.all(this.loads.map((load) => load.more(writes)));
  }

  /**
   * Returns a token of a new service account. Deletes the previous account, so that its token soon becomes
   * invalid.
   */
  async newToken(): Promise<string> {
    const accounts = new ApiUser(this.server.transport, { ...CORE, plural: 'serviceaccounts' }, NAMESPACE);
    const name = `follower-${++this.#accounts}`;
    await accounts.create(name);
    const { status, body } = await accounts.ask({
      method: 'POST',
      path: `${accounts.path(name)}/token`,
      body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} },
    });
    const token = (body as { readonly status?: { readonly token?: string } }).status?.token;
    if (status !== 201 || token === undefined) throw new Error(`${status}: ${JSON.stringify(body)}`);
    if (this.#accounts > 1) await accounts.delete(`follower-${this.#accounts - 1}`);
    return token;
  }

  /** Sets the token that the followers use from their next read of the file on. */
  useToken(token: string): void {
    writeFileSync(join(this.#folder, 'token'), token);
  }

  /** Replaces the history of the server by another one. */
  async replace(replacement: () => Promise<void>): Promise<void> {
    await Promise.all(this.loads.map((load) => load.pause()));
    await replacement();
    for (const load of this.loads) load.forget();
    for (const load of this.loads) load.start();
  }

  /** Runs `strike` under load. Returns the problems found afterwards. */
  async cycle(strike: (chaos: ApiChaos) => Promise<void>): Promise<readonly string[]> {
    for (const load of this.loads) load.start();
    await this.more(30);
    await strike(this);
    await this.more(30);
    await Promise.all(this.loads.map((load) => load.pause()));
    const wrong = await Promise.all(KINDS.map((_, i) => this.#judge(i)));
    const faults = this.followers.flatMap((follower) => follower.faults.splice(0));
    return [...wrong.flat(), ...faults.map((fault) => `a fault: ${String(fault)}`)];
  }

  async close(): Promise<void> {
    await Promise.all(this.loads.map((load) => load.pause()));
    for (const { client, link } of this.followers) {
      await client.close();
      await link.close();
    }
    await this.server.close();
    rmSync(this.#folder, { recursive: true });
  }

  /** Name → state, read from etcd in pages: a list of all may be longer than an answer that is read as a text. */
  async #content(i: number, selector = ''): Promise<ReadonlyMap<string, string>> {
    const content = new Map<string, string>();
    let token = '';
    do {
      const page = await this.#page(i, selector, token);
      for (const item of page.items)
        if (isKubernetesObject(item)) content.set(item.metadata.name, stateOf(item));
      token = page.metadata.continue ?? ''; // lists of custom resources have an empty one
    } while (token !== '');
    return content;
  }

  async #page(i: number, labelSelector: string, token: string): Promise<Page> {
    const user = this.#users[i];
    const query = new URLSearchParams({ labelSelector, limit: '200', continue: token });
    const { status, body } = (await user?.ask({ path: `${user.path()}?${query}` })) ?? {};
    if (status === 200 && typeof body === 'object') return body as Page;
    throw new Error(`${status}: ${JSON.stringify(body).slice(0, 500)}`);
  }

  async #judge(i: number): Promise<readonly string[]> {
    const kind = KINDS[i]?.plural;
    const unsaved = this.loads[i]?.missingFrom(await this.#content(i)) ?? [];
    this.#lost += unsaved.length;
    const wrong = unsaved.map((name) => `the server has lost a write of ${kind} ${name}`);
    const content = await this.#content(i, KINDS[i]?.labelSelector);
    for (const [n, { sinks, followed }] of this.followers.entries()) {
      const { objects = new Map(), breaches = [] } = sinks[i] ?? {};
      const held = (): ReadonlyMap<string, string> =>
        new Map(
          [...objects.values()].flatMap((object) => {
            const { namespace, name } = object.metadata;
            return namespace === NAMESPACE ? [[name, stateOf(object)]] : [];
          }),
        );
      const lost = (): readonly string[] =>
        [...content.keys()].filter((k) => held().get(k) !== content.get(k));
      const phantom = (): readonly string[] => [...held().keys()].filter((k) => !content.has(k));
      // An event may be late. A difference that remains is a problem.
      await until('it holds what there is', () => isSame(held(), content)).catch(() => {});
      const who = `follower ${n}, ${kind}, ${JSON.stringify(followed[i]?.status())}`;
      this.#lost += lost().length;
      this.#phantom += phantom().length;
      wrong.push(...lost().map((name) => `${who}: lost ${name}`));
      wrong.push(...phantom().map((name) => `${who}: still has ${name}`));
      wrong.push(...breaches.splice(0).map((breach) => `${who}: ${breach}`));
    }
    return wrong;
  }
}

/** The used fields of a page of a list. */
interface Page {
  readonly items: readonly unknown[];
  readonly metadata: { readonly continue?: string };
}

function isSame(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  return a.size === b.size && [...a].every(([name, state]) => b.get(name) === state);
}
