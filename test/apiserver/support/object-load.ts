import type { Random } from '../../../src/base/clock.ts';
import { isKubernetesObject } from '../../../src/k8s/reflector/known-objects.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import type { ApiUser } from '../../k8s/support/api-user.ts';
import { pick } from '../../kvstore/chaos/support/seeded-random.ts';
import { SteadyLoad } from '../../kvstore/chaos/support/steady-load.ts';

/** So many of the newest objects are changed and deleted at random; older ones stay as they are. */
const RECENT = 60;
/** So many older ones are kept: a list is long enough to be cut in its middle. */
const KEPT = 400;
const FILLING = 'x'.repeat(600);

/** Which object, in which life and version: what a follower must hold. */
export function stateOf({ metadata: { uid, resourceVersion } }: KubernetesObject): string {
  return `${uid} ${resourceVersion}`;
}

/** Writes objects of one kind without pause, straight to the server, and remembers what that has confirmed. */
export class ObjectLoad extends SteadyLoad {
  readonly #user: ApiUser;
  readonly #random: Random;
  readonly #recent: string[] = [];
  /** By name: the state that was confirmed last; `undefined` for a delete. What may be otherwise is not in it. */
  readonly #confirmed = new Map<string, string | undefined>();
  #names = 0;
  #retired = 0;

  constructor(user: ApiUser, random: Random) {
    super({ pauseMs: 1, failurePauseMs: 50 });
    this.#user = user;
    this.#random = random;
  }

  /** What the server has confirmed and does not have: `content` is name → state. */
  missingFrom(content: ReadonlyMap<string, string>): readonly string[] {
    return [...this.#confirmed].flatMap(([name, state]) => (content.get(name) === state ? [] : [name]));
  }

  /** The server has gone back to an earlier state: what it has confirmed since says nothing. */
  forget(): void {
    this.#confirmed.clear();
  }

  protected override async write(): Promise<void> {
    if (this.#names - this.#retired > KEPT) return this.#delete(`object-${++this.#retired}`);
    const kind = this.#random();
    if (kind < 0.5 || this.#recent.length === 0) return this.#put(this.#newName());
    const name = pick(this.#recent, this.#random);
    if (kind < 0.75) return this.#put(name);
    await this.#delete(name);
    if (kind < 0.85) await this.#put(name); // another life of it
  }

  #newName(): string {
    const name = `object-${++this.#names}`;
    this.#recent.push(name);
    if (this.#recent.length > RECENT) this.#recent.shift();
    return name;
  }

  /** Creates or changes it. One in eight is labelled so that it is not selected (any more). */
  async #put(name: string): Promise<void> {
    const chaos = this.#random() < 0.125 ? 'no' : 'yes';
    const content = { spec: { filling: FILLING, write: this.writes }, data: { filling: FILLING } };
    const body = { ...content, metadata: { name, labels: { chaos, write: String(this.writes) } } };
    this.#confirmed.delete(name);
    const created = await this.#user.ask({ method: 'POST', path: this.#user.path(), body });
    if (created.status !== 409) this.#confirm(name, created);
    else {
      const contentType = 'application/merge-patch+json';
      const path = this.#user.path(name);
      this.#confirm(name, await this.#user.ask({ method: 'PATCH', path, body, contentType }));
    }
  }

  async #delete(name: string): Promise<void> {
    this.#confirmed.delete(name);
    const { status, body } = await this.#user.ask({ method: 'DELETE', path: this.#user.path(name) });
    if (status !== 200 && status !== 404) throw new Error(`${status}: ${JSON.stringify(body)}`);
    this.#confirmed.set(name, undefined);
    this.confirmed();
  }

  #confirm(name: string, { status, body }: { readonly status: number; readonly body: unknown }): void {
    if (status >= 300 || !isKubernetesObject(body)) throw new Error(`${status}: ${JSON.stringify(body)}`);
    this.#confirmed.set(name, stateOf(body));
    this.confirmed();
  }
}
