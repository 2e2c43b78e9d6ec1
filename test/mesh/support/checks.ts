import { expect } from 'vitest';
import { diffAgents } from '../../../src/client/diff/agent-diff.ts';
import { answersOf, entryText } from './answers.ts';
import { type Answers, expectedAnswers } from './model.ts';
import { expectedKeys, keysOf } from './published.ts';
import type { RunningAgent, RunningMesh } from './running-mesh.ts';

/** The answers of the model at a moment, by agent. */
interface Moment {
  readonly at: number;
  readonly answers: ReadonlyMap<string, Answers>;
}

function nameOf({ cluster, node, mode }: RunningAgent): string {
  return `${cluster}/${node} (${mode})`;
}

/** Returns the differences of two records as sentences. */
function differences(who: string, actual: object, expected: object): readonly string[] {
  const values = [actual, expected].map((record) => new Map<string, unknown>(Object.entries(record)));
  const names = new Set(values.flatMap((record) => [...record.keys()]));
  return [...names].sort().flatMap((name) => {
    const [is, should] = values.map((record) => text(record.get(name)));
    return is === should ? [] : [`${who}: ${name} is ${is}, not ${should}`];
  });
}

function text(value: unknown): string {
  if (value === undefined) return 'nothing';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** The lines that the processes log if a server is away, and after it, or if a cluster has left the mesh. */
export const OUTAGE: readonly RegExp[] = [
  /(cluster \w+|Kubernetes): (unreachable|connected|no configuration)/,
  /Lease of the leader election|the Lease was lost|released the Lease/,
  /the kvstore (does not answer|answers again)/,
  /failed; retrying: connection refused$/,
  /its kvstore does not contain its configuration|(is|are) (incomplete|not complete)/,
  /cannot write its copy|its copy can be written again/,
];

/** Compares a mesh with the model when nothing changes any more. */
export class MeshChecks {
  readonly #mesh: RunningMesh;
  readonly #moments: Moment[] = [];

  constructor(mesh: RunningMesh) {
    this.#mesh = mesh;
  }

  /** Expects that the mesh is equal to the model, and that all logged lines match one of the patterns `logs`. */
  async expectEqual(step: string, logs: readonly RegExp[] = []): Promise<void> {
    const { world, agents, logged } = this.#mesh;
    const answers = new Map(agents.map((agent) => [nameOf(agent), expectedAnswers(world, agent)]));
    const found = [
      ...agents.flatMap((agent) => this.#answers(agent, answers.get(nameOf(agent)))),
      ...(await this.#keys()),
      ...(await this.#pairs()),
      ...(await this.#past()),
      ...logged.splice(0).filter((line) => !logs.some((pattern) => pattern.test(line))),
    ];
    expect(found, step).toEqual([]);
    this.#moments.push({ at: this.#mesh.clock.wallTime(), answers });
    this.#mesh.clock.advance(1000); // so that later changes have a later time
  }

  #answers(running: RunningAgent, expected: Answers | undefined): readonly string[] {
    const actual = answersOf(running.agent);
    const { total, recent } = running.agent.rejections();
    const rejected = total === 0 ? [] : [`${nameOf(running)}: ${total} rejected: ${recent[0]?.message}`];
    const kinds = ['prefixes', 'identities', 'nodes', 'services'] as const;
    const differing = kinds.flatMap((kind) =>
      differences(nameOf(running), actual[kind], expected?.[kind] ?? {}),
    );
    return [...rejected, ...differing];
  }

  /** Compares the keys that the operators and kvstoremeshes have written. */
  async #keys(): Promise<readonly string[]> {
    const found: string[] = [];
    for (const [name, { cluster, etcd }] of this.#mesh.clusters)
      found.push(
        ...differences(`etcd of ${name}`, await keysOf(etcd.server), expectedKeys(this.#mesh.world, cluster)),
      );
    return found;
  }

  /** Compares two agents of each cluster with each other, as `dpcache diff` does. */
  async #pairs(): Promise<readonly string[]> {
    const found: string[] = [];
    for (const name of this.#mesh.clusters.keys()) {
      const ofCluster = this.#mesh.agents.filter(({ cluster }) => cluster === name);
      const [a, b] = ['kubernetes', 'kvstoremesh'].map((wanted) =>
        ofCluster.find(({ mode }) => mode === wanted),
      );
      if (a === undefined || b === undefined) continue;
      const { writers, digestsOnly } = await this.#mesh.during(diffAgents(a.ask, b.ask));
      for (const difference of [...writers, ...digestsOnly])
        found.push(`${nameOf(a)} differs from ${nameOf(b)}: ${text(difference)}`);
    }
    return found;
  }

  /** Compares the history of each agent with what the model answered at the last moments. */
  async #past(): Promise<readonly string[]> {
    const found: string[] = [];
    for (const { at, answers } of this.#moments.slice(-3))
      for (const running of this.#mesh.agents) {
        const expected = answers.get(nameOf(running));
        if (expected !== undefined && running.startedAt < at)
          found.push(...(await this.#pastOf(running, at, expected)));
      }
    return found;
  }

  async #pastOf(running: RunningAgent, at: number, { prefixes }: Answers): Promise<readonly string[]> {
    const { history } = running.agent;
    const actual: Record<string, string> = {};
    for (const prefix of new Set([
      ...Object.keys(prefixes),
      ...Object.keys(answersOf(running.agent).prefixes),
    ])) {
      const moment = history?.at(prefix, at);
      if (moment?.effective !== undefined) actual[prefix] = entryText(running.agent, moment.effective);
    }
    // Node-local identities may have no labels any more.
    const isComparable = ([, answer]: readonly [string, string]): boolean => !answer.startsWith('{');
    const comparable = (record: Readonly<Record<string, string>>): object =>
      Object.fromEntries(Object.entries(record).filter(isComparable));
    return differences(
      `${nameOf(running)} at ${new Date(at).toISOString()}`,
      comparable(actual),
      comparable(prefixes),
    );
  }
}
