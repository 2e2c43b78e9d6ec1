import { KubernetesClient } from '../../../src/k8s/kubernetes-client.ts';
import type { ServedAnswer, ServedRequest } from '../../../src/k8s/memory/faults.ts';
import { MemoryApiServer } from '../../../src/k8s/memory/memory-api-server.ts';
import { MemoryApiTransport } from '../../../src/k8s/memory/memory-api-transport.ts';
import { CLUSTER_TYPES, type ResourceType } from '../../../src/k8s/memory/resource-types.ts';
import { ApiError } from '../../../src/k8s/rest/api-error.ts';
import type { ApiRequest } from '../../../src/k8s/rest/api-transport.ts';
import { resourcePath } from '../../../src/k8s/rest/resource-path.ts';
import { bytesOfText, textOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { nodeKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { collectors } from '../../../src/operator/collect/collectors.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
import {
  nextKeys,
  type RecordedKeys,
  type RecordedQuiet,
  type RecordedStep,
  type Recording,
} from './recordings.ts';
import type { ReplayTally } from './report.ts';

interface ObjectBody {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly status?: unknown;
}

interface RecordedWrite {
  readonly verb: string;
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  readonly code: number;
  readonly body: unknown;
}

const COLLECTED = 'cilium/state/identities/v1/';
const MINUTE = 60_000;
/** The time of the recording, with which entries of a status are compared. */
const RECORDED_AT = Date.parse('2026-11-22T05:26:30Z');
/** Maximum duration of all rounds of a scenario's collectors; the recorded ones have shorter intervals. */
const ROUNDS_MS: readonly (readonly [RegExp, number])[] = [
  [/^cnp-/, 7 * MINUTE],
  [/^cep-/, 21 * MINUTE],
  [/^identity-/, 50 * MINUTE],
  [/^locks-/, 4 * MINUTE],
];

/** Returns each effective write as one text per removed object or status entry. */
function effects({ verb, resource, namespace = '', name, code, body }: RecordedWrite): readonly string[] {
  if (code !== 200) return [];
  const plural = resource
    .replace(/\/status$/, '')
    .split('/')
    .at(-1);
  const place = `${plural} ${namespace}/${name}`;
  if (verb !== 'patch' || !Array.isArray(body)) return [`${verb} ${place}`];
  return body.flatMap(({ op, path }: { readonly op: string; readonly path: string }) =>
    op === 'remove' ? [`patch ${place} ${path.replaceAll('~1', '/').replaceAll('~0', '~')}`] : [],
  );
}

/** An API server with objects, a kvstore, and our collectors over both. */
class World {
  readonly clock = new ManualClock(RECORDED_AT);
  readonly backend = new MemoryBackend({ clock: this.clock, random: () => 0.5 });
  readonly done = new Set<string>();
  /** Number of deletes without a precondition on the uid. */
  unconditional = 0;
  readonly nodes = new Set<string>();
  readonly #api = new MemoryApiServer({ clock: this.clock });
  readonly #user = new MemoryApiTransport(this.#api);
  #stop: (() => Promise<void>) | undefined;

  async apply({ op, object, stored, ...step }: RecordedStep): Promise<void> {
    if (op === 'etcd-put') await this.backend.update(String(step['key']), bytesOfText(String(step['value'])));
    else if (op === 'etcd-delete') await this.backend.delete(String(step['key']));
    else if (op === 'create' || op === 'update') await this.#put(op, (stored ?? object) as ObjectBody);
    else if (op === 'delete') await this.#delete(object as ObjectBody);
  }

  async #ask(request: Omit<ApiRequest, 'signal'>): Promise<number> {
    const { signal } = new AbortController();
    return (await this.#user.send({ ...request, signal })).status;
  }

  #pathOf({ apiVersion, kind, metadata: { namespace } }: ObjectBody, name?: string): string | undefined {
    const type = CLUSTER_TYPES.find((one) => one.kind === kind && apiVersion === groupVersion(one));
    return type && resourcePath(type, { namespace, name });
  }

  async #put(op: string, object: ObjectBody): Promise<void> {
    const { name } = object.metadata;
    const [all, one] = [this.#pathOf(object), this.#pathOf(object, name)];
    if (all === undefined || one === undefined) return;
    await (op === 'create'
      ? this.#ask({ method: 'POST', path: all, body: object })
      : this.#ask({ method: 'PUT', path: one, body: object }));
    const contentType = 'application/merge-patch+json';
    const body = { status: object.status };
    if (object.status !== undefined)
      await this.#ask({ method: 'PATCH', path: `${one}/status`, body, contentType });
    if (object.kind === 'CiliumNode') await this.#node(name, true);
  }

  async #delete(object: ObjectBody): Promise<void> {
    const path = this.#pathOf(object, object.metadata.name);
    if (path !== undefined) await this.#ask({ method: 'DELETE', path });
    if (object.kind === 'CiliumNode') await this.#node(object.metadata.name, false);
  }

  /** Does the work of an operator's node sync. */
  async #node(name: string, isThere: boolean): Promise<void> {
    if (isThere) this.nodes.add(name);
    else this.nodes.delete(name);
    if (this.#stop === undefined) return;
    if (isThere) await this.backend.update(nodeKey({ cluster: 'atlantic', name }), bytesOfText('{}'));
    else await this.backend.delete(nodeKey({ cluster: 'atlantic', name }));
  }

  /** Starts an operator. Returns false if it refuses the flags. */
  async start(flags: readonly string[]): Promise<boolean> {
    const isOff = (flag: string): boolean => flags.some((one) => new RegExp(`^--${flag}=0s?$`).test(one));
    if (isOff('cilium-endpoint-gc-interval')) return false; // Cilium would delete all CiliumEndpoints
    const client = new KubernetesClient(
      new MemoryApiTransport({ handle: (request) => this.#handle(request) }),
      {
        clock: this.clock,
        random: () => 0,
      },
    );
    const duties = collectors({
      clock: this.clock,
      kubernetes: client,
      kvstore: { backend: this.backend, cluster: 'atlantic', identities: { min: 256, max: 65_535 } },
      intervals: {
        identities: 0,
        nodes: 0,
        policyStatus: 2 * MINUTE,
        ...(isOff('identity-gc-interval') ? { kvstoreIdentities: 0 } : {}),
      },
    });
    const ended = new AbortController();
    const running = duties.map((duty) => duty.run(ended.signal));
    this.#stop = async () => {
      ended.abort();
      await advance(this.clock, 1000);
      await Promise.all(running);
      await client.close();
    };
    for (const name of this.nodes) await this.#node(name, true);
    return true;
  }

  async stop(): Promise<void> {
    await this.#stop?.();
    this.#stop = undefined;
  }

  async #handle(request: ServedRequest): Promise<ServedAnswer> {
    const answer = await this.#api.handle(request);
    const verb = { DELETE: 'delete', PATCH: 'patch' }[request.method];
    if (verb === undefined) return answer;
    const body: unknown = JSON.parse(request.body);
    const parts = /\/v\d\w*\/(?:namespaces\/([^/]+)\/)?([^/]+)\/([^/]+)/.exec(request.path) ?? [];
    const [, namespace = '', resource = '', name = ''] = parts;
    for (const effect of effects({ verb, resource, namespace, name, code: answer.status, body }))
      this.done.add(effect);
    if (verb === 'delete' && !request.body.includes('"uid"')) this.unconditional++;
    return answer;
  }

  async collectedKeys(): Promise<ReadonlyMap<string, string>> {
    const keys = await this.backend.listPrefix(COLLECTED);
    return new Map(keys.map(({ key, value }) => [key, textOfBytes(value) ?? '']));
  }
}

function groupVersion({ group, version }: ResourceType): string {
  return group === '' ? version : `${group}/${version}`;
}

const REFUSED = 'OPERATOR 25: all endpoints are never deleted';
const GONE =
  'OPERATOR 30: a CiliumNode that is gone is not deleted once more, which hits one that was made again';
const ESCAPED = 'OPERATOR 32: names are escaped in pointers';
const LIVE = 'OPERATOR 32: the entry of a node that lives stays, also while the kvstore is still empty';
const RANGE = 'OPERATOR 18: only numbers of the local range are collected';
const UID = 'OPERATOR 27: deletes name the life that they are for';

/**
 * Compares the deletes of a recorded operator 1.8, of Kubernetes objects, identities and locks, with those of
 * our collectors. They are compared before each next step, when the rounds of both are over. Times are not
 * compared, because intervals differ.
 */
class CollectorReplay {
  readonly #recording: Recording;
  readonly #tally: ReplayTally;
  readonly #world = new World();
  readonly #theirs = new Set<string>();
  readonly #told = new Set<string>();
  #keys: RecordedKeys = new Map();
  #isRefused = false;

  constructor(recording: Recording, tally: ReplayTally) {
    this.#recording = recording;
    this.#tally = tally;
  }

  async run(): Promise<void> {
    const { events, scenario } = this.#recording;
    const [, roundsMs] = ROUNDS_MS.find(([name]) => name.test(scenario.name)) ?? [];
    for (const [index, event] of events.entries()) {
      if (event.t === 'step') await this.#step(event);
      else {
        this.#read(event);
        if (events[index + 1]?.t !== 'quiet') {
          if (roundsMs !== undefined || index === events.length - 1)
            await advance(this.#world.clock, roundsMs ?? MINUTE);
          await this.#compare(event.n);
        }
      }
    }
    await this.#world.stop();
    await this.#world.backend.close();
  }

  async #step(step: RecordedStep): Promise<void> {
    if (step.op === 'stop') await this.#world.stop();
    else if (step.op !== 'start') await this.#world.apply(step);
    else if (!(await this.#world.start(this.#recording.scenario['flags'] as readonly string[])))
      this.#isRefused = true;
  }

  #read(quiet: RecordedQuiet): void {
    this.#keys = nextKeys(this.#keys, quiet['etcd']);
    for (const write of (quiet['k8sWrites'] ?? []) as readonly RecordedWrite[]) {
      for (const effect of effects(write)) this.#theirs.add(effect);
      if (write.resource.endsWith('/ciliumnodes')) this.#tally.explained(GONE);
      else if (write.code === 422) this.#tally.explained(ESCAPED);
      else if (write.verb === 'delete' && !this.#isRefused) this.#tally.explained(UID);
      else if (write.code !== 200) this.#mismatch(quiet.n, 'a write that failed', write, undefined);
    }
  }

  async #compare(step: number): Promise<void> {
    this.#tally.compared();
    const { done, unconditional } = this.#world;
    for (const effect of new Set([...this.#theirs, ...done]))
      if (this.#theirs.has(effect) !== done.has(effect)) this.#judge(step, effect, done.has(effect));
    if (unconditional > 0) this.#mismatch(step, 'deletes without a precondition', 0, unconditional);
    const ours = await this.#world.collectedKeys();
    const theirs = new Map([...this.#keys].filter(([key]) => key.startsWith(COLLECTED)));
    for (const key of new Set([...theirs.keys(), ...ours.keys()]))
      if (theirs.get(key)?.v !== ours.get(key)) this.#judgeKey(step, key, theirs.get(key)?.v, ours.get(key));
  }

  #judge(step: number, effect: string, isOurs: boolean): void {
    const rule = this.#ruleOf(effect, isOurs);
    if (rule === undefined) this.#mismatch(step, effect, !isOurs, isOurs);
    else if (!this.#told.has(effect)) this.#tally.explained(rule);
    this.#told.add(effect);
  }

  #ruleOf(effect: string, isOurs: boolean): string | undefined {
    const node = effect.split('/status/nodes/')[1];
    if (isOurs) return node !== undefined && /[/~]/.test(node) ? ESCAPED : undefined;
    if (effect.startsWith('delete ciliumnodes ')) return GONE;
    if (this.#isRefused && effect.startsWith('delete ciliumendpoints ')) return REFUSED;
    return node !== undefined && this.#world.nodes.has(node) ? LIVE : undefined;
  }

  #judgeKey(step: number, key: string, theirs: string | undefined, ours: string | undefined): void {
    const id = Number(key.slice(`${COLLECTED}id/`.length));
    const isOutside = key.startsWith(`${COLLECTED}id/`) && !(id >= 256 && id <= 65_535);
    if (!isOutside || theirs !== undefined) this.#mismatch(step, key, theirs, ours);
    else if (!this.#told.has(key)) this.#tally.explained(RANGE);
    this.#told.add(key);
  }

  #mismatch(step: number, what: string, expected: unknown, actual: unknown): void {
    this.#tally.mismatch({ scenario: this.#recording.scenario.name, step, what, expected, actual });
  }
}

/** Replays the collectors of a recorded operator. The scenario is counted with its published keys. */
export async function replayCollectors(recording: Recording, tally: ReplayTally): Promise<void> {
  try {
    await new CollectorReplay(recording, tally).run();
  } catch (error) {
    if (error instanceof ApiError) throw new Error(`${recording.scenario.name}: ${error.message}`);
    throw error;
  }
}
