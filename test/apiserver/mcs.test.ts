import { afterAll, beforeAll, expect, it } from 'vitest';
import { until } from '../base/support/until.ts';
import { pick, seededRandom } from '../kvstore/chaos/support/seeded-random.ts';
import { exampleRules, type OneOperator, RealCluster, type SentWrite } from './support/mcs-cluster.ts';

/** `MCS_SEED` runs the changes and faults of another run again; the timing of real servers is its own. */
const { MCS_SEED = Math.floor(Math.random() * 2 ** 31), MCS_CYCLES = 10 } = process.env;
const SEED = Number(MCS_SEED);
const CYCLES = Number(MCS_CYCLES);
const CYCLE_MS = 120_000;
const NAMES = ['cart', 'pay', 'ship', 'find', 'mail'];

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

let clusters: readonly RealCluster[];
/** Operators that have ended, kept because of their recorded writes. */
const ended: OneOperator[] = [];

beforeAll(async () => {
  clusters = await Promise.all([
    RealCluster.start('a', 1, ['v1beta1', 'v1alpha1']),
    RealCluster.start('b', 2, ['v1alpha1']),
  ]);
  for (const cluster of clusters) for (const other of clusters) if (other !== cluster) cluster.follow(other);
  for (const cluster of clusters) for (let count = 0; count < 2; count++) cluster.operate();
});
afterAll(() => Promise.all(clusters.map((cluster) => cluster.close())));

/** Returns the maximum number of writes of one operator in a second. */
function mostPerSecond(writes: readonly SentWrite[]): number {
  let most = 0;
  let from = 0;
  for (let to = 0; to < writes.length; to++) {
    while ((writes[to]?.at ?? 0) - (writes[from]?.at ?? 0) >= 1000) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}

async function replace(cluster: RealCluster, operator: OneOperator | undefined): Promise<void> {
  if (operator === undefined) return;
  await operator.stop();
  ended.push(operator);
  cluster.operate();
}

const FAULTS: Readonly<Record<string, (cluster: RealCluster) => Promise<unknown>>> = {
  none: () => Promise.resolve(),
  'the leader ends': (cluster) => replace(cluster, cluster.leader),
  'the leader is cut off from its API server': async (cluster) => {
    const { leader } = cluster;
    if (leader === undefined) return;
    leader.link.isCut = true;
    leader.link.reset();
    await pause(4000);
    leader.link.isCut = false;
    await replace(cluster, leader);
  },
  'the API server is killed': async (cluster) => {
    await cluster.server.kill();
    await cluster.server.restart();
    for (const operator of [...cluster.operators]) await replace(cluster, operator); // they have lost the Lease
    await until('one of them leads', () => cluster.leader !== undefined);
    // The server refuses requests until it has read the roles.
    for (const { link } of [...ended, ...cluster.operators]) link.forbidden.length = 0;
  },
  'the kvstore of the other cluster does not answer': async (cluster) => {
    for (const { remotes } of cluster.operators) for (const { link } of remotes) link.down();
    await pause(2000);
    for (const { remotes } of cluster.operators) for (const { link } of remotes) link.up();
  },
};

/** The exporters of each service, oldest first. */
const exporters = new Map<string, { readonly cluster: RealCluster; readonly port: number }[]>();

async function change(random: () => number): Promise<void> {
  const [name, cluster] = [pick(NAMES, random), pick(clusters, random)];
  const known = exporters.get(name) ?? [];
  const rest = known.filter((one) => one.cluster !== cluster);
  if (rest.length < known.length && random() < 0.4) await cluster.move(name);
  else if (rest.length < known.length) {
    await cluster.unexport(name);
    exporters.set(name, rest);
  } else {
    const port = 80 + Math.floor(random() * 3);
    await cluster.export(name, random() < 0.3, port);
    exporters.set(name, [...known, { cluster, port }]);
  }
}

/** Returns the expected imports of a cluster. */
function expected(of: RealCluster): Readonly<Record<string, string>> {
  const texts = [...exporters].flatMap(([name, known]): [string, string][] => {
    // All ports have one name, so that only the oldest is used.
    const [oldest] = known;
    if (oldest === undefined) return [];
    const who = known
      .map(({ cluster }) => cluster.name)
      .sort()
      .join('+');
    const own = known.find(({ cluster }) => cluster === of);
    return [[name, `${who} ${oldest.port}${own?.port === oldest.port ? ' own backend' : ''}`]];
  });
  return Object.fromEntries(texts);
}

it(
  `${CYCLES} cycles of exports and faults on two real kube-apiservers with RBAC: nothing lost, nothing invented`,
  async () => {
    say(`seed ${SEED}`);
    const random = seededRandom(SEED);
    for (let cycle = 1; cycle <= CYCLES; cycle++) {
      const begun = Date.now();
      const [name, strike] = pick(Object.entries(FAULTS), random);
      for (let count = 0; count < 3; count++) {
        await change(random);
        await pause(1100); // exports are ordered by whole seconds
      }
      await strike(pick(clusters, random));
      await change(random);
      await pause(1100);
      for (const cluster of clusters) {
        let found: unknown;
        const isEqual = async (): Promise<boolean> => {
          found = await cluster.imported().catch(String);
          return JSON.stringify(sorted(found)) === JSON.stringify(sorted(expected(cluster)));
        };
        await until(`${cluster.name} has its imports`, isEqual).catch(() => {
          expect(found, `cycle ${cycle}, ${name}, cluster ${cluster.name}, seed ${SEED}`).toEqual(
            expected(cluster),
          );
        });
      }
      say(`${cycle}/${CYCLES} ${name}: ${Date.now() - begun} ms`);
    }
    const operators = [...ended, ...clusters.flatMap((cluster) => cluster.operators)];
    const writes = operators.reduce((sum, { link }) => sum + link.writes.length, 0);
    const rate = Math.max(...operators.map(({ link }) => mostPerSecond(link.writes)));
    say(`${CYCLES} cycles: ${writes} writes of ${operators.length} operators, at most ${rate} a second`);
    expect(rate).toBeLessThanOrEqual(20);
    expect(operators.flatMap(({ link }) => link.forbidden)).toEqual([]);
    const used = new Set(operators.flatMap(({ link }) => [...link.used]));
    const granted = exampleRules('--mcs-api').optional.flatMap(({ resources, verbs }) =>
      resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}`)),
    );
    // An object is read again only after a conflict.
    expect(granted.filter((right) => !right.startsWith('get ') && !used.has(right))).toEqual([]);
    const before = operators.map(({ link }) => link.writes.length);
    await pause(12_000); // longer than an operator believes its own writes
    expect(operators.map(({ link }) => link.writes.length)).toEqual(before);
  },
  CYCLES * CYCLE_MS + 60_000,
);

function sorted(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? Object.entries(value).sort() : value;
}
