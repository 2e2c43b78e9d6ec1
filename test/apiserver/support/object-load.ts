import type { Random } from '../../../src/base/clock.ts';
import { isKubernetesObject } from '../../../src/k8s/reflector/known-objects.ts';
import type { KubernetesObject } from '../../../src/k8s/resource.ts';
import type { ApiUser } from '../../k8s/support/api-user.ts';
import { pick } from '../../kvstore/chaos/support/seeded-random.ts';
import { SteadyLoad } from '../../kvstore/chaos/support/steady-load.ts';

/** Number of the newest objects that are changed and deleted at random. Older ones are not changed. */
const RECENT = 60;
/** Number of older objects that are kept, so that a list can be cut in its middle. */
const KEPT = 400;
const FILLING = 'x'.repeat(600);

/** Returns the expected state of an object for a follower: its uid and resource version. */
export function stateOf({ metadata: { uid, resourceVersion } }: KubernetesObject): string {
  return `${uid} ${resourceVersion}`;
}

/** Writes objects of one kind continuously, directly to the server, and records the confirmed writes. */
export class ObjectLoad extends SteadyLoad {
  readonly #user: ApiUser;
  readonly #random: Random;
  readonly #recent: string[] = [];
  /**
   * The last confirmed state by name; `undefined` after a delete. Objects with unconfirmed writes are absent.
   */
  readonly #confirmed = new Map<string, string | undefined>();
  #names = 0;
  #retired = 0;

  constructor(user: ApiUser, random: Random) {
    super({ pauseMs: 1, failurePauseMs: 50 });
    this.#user = user;
    this.#random = random;
  }

  /** Returns the confirmed objects that the server lacks. `content`: name → state. */
  missingFrom(content: ReadonlyMap<string, string>): readonly string[] {
    return [...this.#confirmed].flatMap(([name, state]) => (content.get(name) === state ? [] : [name]));
  }

  /** Must be called when the server was restored to an earlier state: forgets the writes confirmed since. */
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
    if (kind < 0.85) await this.#put(name); // creates the object again, with another uid
  }

  #newName(): string {
    const name = `object-${++this.#names}`;
    this.#recent.push(name);
    if (this.#recent.length > RECENT) this.#recent.shift();
    return name;
  }

  /** Creates or changes an object. One in eight loses the label that selects it. */
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
