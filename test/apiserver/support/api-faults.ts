import { until } from '../../base/support/until.ts';
import { pick } from '../../kvstore/chaos/support/seeded-random.ts';
import type { ApiChaos } from './api-chaos.ts';

/** A fault under load. When it resolves, the fault is over. */
type Strike = (chaos: ApiChaos) => Promise<void>;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const killAndRestart: Strike = async ({ server }) => {
  await server.kill();
  await server.restart();
};

/** Suspends a process until connections break, and continues it. */
async function standStill(chaos: ApiChaos, pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  if (chaos.random() < 0.5) chaos.cut();
  await pause(1000 + 3000 * chaos.random());
  process.kill(pid, 'SIGCONT');
}

const compactWhileAway: Strike = async (chaos) => {
  chaos.links('refuse');
  await chaos.noticed();
  await chaos.more(40);
  await chaos.server.compact();
  chaos.links('open');
};

/** The server also loses its memory, which lets watches survive a compaction: 410. */
const restartAndCompactWhileAway: Strike = async (chaos) => {
  chaos.links('refuse');
  await chaos.noticed();
  await chaos.server.kill();
  await chaos.server.restart();
  await chaos.more(40);
  await chaos.server.compact();
  chaos.links('open');
};

/** Breaks each connection after a number of bytes, repeatedly, in the middle of lists and events. */
const cuts: Strike = async (chaos) => {
  for (let round = 0; round < 5; round++) {
    for (const { link } of chaos.followers) link.cutAfter(5_000 + Math.floor(chaos.random() * 100_000));
    await chaos.more(20);
  }
  for (const { link } of chaos.followers) link.cutAfter(Number.POSITIVE_INFINITY);
};

/** Slow bodies: lists take seconds, and watches lag until the server closes them. */
const slowBodies: Strike = async (chaos) => {
  const rate = 30_000 + Math.floor(chaos.random() * 100_000);
  for (const { link } of chaos.followers) link.bytesPerSecond = rate;
  if (chaos.random() < 0.5) chaos.cut();
  await chaos.more(60);
  for (const { link } of chaos.followers) link.bytesPerSecond = Number.POSITIVE_INFINITY;
};

const stall: Strike = async (chaos) => {
  const { link } = pick(chaos.followers, chaos.random);
  link.mode = 'stalled';
  await chaos.more(60);
  link.mode = 'open';
};

const blackHole: Strike = async (chaos) => {
  chaos.links('black-hole');
  await chaos.more(60);
  chaos.links('open');
};

/** The token in the file changes while watches continue, which need no new token. */
const renewToken: Strike = async (chaos) => {
  chaos.useToken(await chaos.newToken());
  chaos.cut();
};

/** The token in the file becomes invalid, and the next one is late. */
const refusedToken: Strike = async (chaos) => {
  const token = await chaos.newToken();
  await until('the last one is refused', async () => {
    chaos.cut();
    await pause(1000);
    return chaos.followers.every(({ followed }) =>
      followed.some((resource) => resource.status().lastFailure?.code === 'unauthorized'),
    );
  });
  chaos.useToken(token);
};

/**
 * The memory of the server is ahead of its restored history, which then grows, possibly beyond the known
 * revision.
 */
const restore: Strike = async (chaos) => {
  await chaos.replace(async () => {
    const backup = await chaos.server.backup();
    for (const load of chaos.loads) load.start();
    await chaos.more(40);
    await Promise.all(chaos.loads.map((load) => load.pause()));
    await chaos.server.restore(backup);
  });
  if (chaos.random() < 0.5) await chaos.more(80);
};

/** All faults by name. */
export const API_FAULTS: Readonly<Record<string, Strike>> = {
  'kill -9 and restart': killAndRestart,
  'kill -9 of server and store': ({ server }) => server.killAll(),
  'a server that stands still': (chaos) => standStill(chaos, chaos.server.pid),
  'a store that stands still, and memory that lags': (chaos) => standStill(chaos, chaos.server.etcdPid),
  'a compaction while away': compactWhileAway,
  'a restart and a compaction while away': restartAndCompactWhileAway,
  'cuts in the middle of bodies': cuts,
  'slow bodies': slowBodies,
  'a stalled link': stall,
  'a black hole': blackHole,
  'a token that is renewed': renewToken,
  'a token that is refused before it is renewed': refusedToken,
  'a store restored to an older revision': restore,
};
