import { until } from '../../../base/support/until.ts';
import type { ChaosWorld } from './chaos-world.ts';
import { pick } from './seeded-random.ts';

/** A fault under load. When it resolves, the fault is over. */
export type Strike = (world: ChaosWorld) => Promise<void>;

/** A fault, and its requirements on the cluster. */
export interface Fault {
  readonly needs?: 'three members' | 'users';
  readonly strike: Strike;
}

const anyClient = ({ clients, random }: ChaosWorld) => pick(clients, random);

/**
 * One member is killed under load, and starts again. If it is the only member, all writes fail until then.
 */
const killAndRestart: Strike = async ({ cluster, load, random }) => {
  const { members } = cluster;
  await pick(members, random).kill();
  if (members.length > 2) await load.more(50);
  await cluster.startAll();
};

const killAll: Strike = async ({ cluster }) => {
  await Promise.all(cluster.members.map((member) => member.kill()));
  await cluster.startAll();
};

const compactWhileAway: Strike = async (world) => {
  world.links('refuse');
  await world.noticed();
  await world.load.more(200);
  await world.cluster.compact();
  await world.load.more(50);
  world.links('open');
};

const compactUnderSlowReader: Strike = async (world) => {
  const release = anyClient(world).watch.hold();
  await world.load.more(300);
  await world.cluster.compact();
  await world.load.more(50);
  release();
};

/** The store grows again beyond its old end before the clients reconnect, or not. Both must be noticed. */
const restore =
  (newClusterID: boolean): Strike =>
  async (world) => {
    const backup = await world.cluster.backup();
    await world.load.more(200);
    await world.replace(() => world.cluster.restore(backup, { newClusterID }));
    if (world.random() < 0.5) await world.load.more(500);
    world.links('open');
  };

const loseLeader: Strike = async ({ cluster, load }) => {
  await (await cluster.leader()).kill();
  await load.more(100);
  await cluster.startAll();
};

const loseQuorum: Strike = async (world) => {
  const { cluster, random } = world;
  const survivor = pick(cluster.members, random);
  await Promise.all(cluster.members.filter((member) => member !== survivor).map((member) => member.kill()));
  await world.noticed();
  await cluster.startAll();
};

/** A member is suspended until clients notice, and then continues. */
const freezeLeader: Strike = async ({ cluster, load }) => {
  const leader = await cluster.leader();
  leader.freeze();
  await load.more(50);
  leader.thaw();
};

const blackHole: Strike = async (world) => {
  world.links('black-hole');
  await world.noticed();
  await world.load.more(100);
  world.links('open');
};

/** Requests in progress arrive late, but arrive. */
const stall: Strike = async (world) => {
  const client = anyClient(world);
  client.setLinks('stalled');
  await world.load.more(300);
  client.setLinks('open');
};

/**
 * A client is cut off for longer than the life of its lease. Its keys are deleted, and it writes them again.
 */
const leaseExpiry: Strike = async (world) => {
  await world.landed();
  const client = anyClient(world);
  client.setLinks('stalled');
  await world.cluster.untilGone(`shared/${client.name}-`);
  client.setLinks('open');
};

/** Each connection breaks after some more bytes, repeatedly: catch-ups are cut in their middle. */
const cutCatchUps: Strike = async (world) => {
  world.links('refuse');
  await world.noticed();
  await world.load.more(500);
  world.links('open');
  for (let cuts = 0; cuts < 5; cuts++) {
    for (const client of world.clients) for (const link of client.links) link.cutAfter(10_000);
    await world.load.more(40);
  }
  for (const client of world.clients)
    for (const link of client.links) link.cutAfter(Number.POSITIVE_INFINITY);
};

const expireTokens: Strike = async (world) => {
  await world.cluster.expireTokens();
  for (const client of world.clients) for (const link of client.links) link.cut();
  await world.load.more(50);
};

/**
 * Two faults at a time: the cluster is killed while one client is disconnected, and compacted when it starts
 * again.
 */
const killCompactWhileAway: Strike = async (world) => {
  const client = anyClient(world);
  client.setLinks('refuse');
  await until('it notices', () => client.hasNoticed);
  await killAll(world);
  await world.load.more(50);
  await world.cluster.compact();
  client.setLinks('open');
};

/** Compacts the last write of the watches repeatedly: while they follow, and while they reconnect. */
const compactIdle: Strike = async (world) => {
  await world.cluster.compact();
  await world.load.more(50);
  for (let round = 0; round < 3; round++) {
    world.links('refuse');
    await world.noticed();
    await world.cluster.compact();
    world.links('open');
  }
};

/** Like an upgrade of the chart: the store starts empty, and the configuration files are rewritten. */
const restartEmpty =
  (newClusterID: boolean): Strike =>
  async (world) => {
    await world.replace(() => world.cluster.restartEmpty({ newClusterID }));
    if (world.random() < 0.5) await world.load.more(200);
    for (const client of world.clients) client.rewriteConfig();
    world.links('open');
  };

/**
 * Another history with the same keys that has grown to the same revisions; its beginning may be compacted.
 */
const restoreToEqualRevision: Strike = async (world) => {
  const { cluster } = world;
  await world.quiet();
  const backup = await cluster.backup();
  await cluster.fillUpTo(backup.revision + 8);
  await world.replace(async () => {
    const { revision } = cluster.past;
    await cluster.restore(backup, { newClusterID: false });
    await cluster.fillUpTo(revision);
    if (world.random() < 0.5) await cluster.compact();
    world.links('open');
    await until('they are back', () => world.clients.every(({ hasNoticed }) => !hasNoticed));
  });
};

/**
 * Links that carry less than is written, and whose first bytes are late. No connection may be considered
 * dead.
 */
const slowLinks: Strike = async (world) => {
  const bytesPerSecond = 50_000 + Math.floor(world.random() * 150_000);
  for (const client of world.clients) client.setSpeed(bytesPerSecond);
  if (world.random() < 0.5) for (const client of world.clients) for (const link of client.links) link.cut();
  await world.load.more(1500);
  for (const client of world.clients) client.setSpeed(Number.POSITIVE_INFINITY);
};

/** Clients reconnect to a cluster with other authentication. */
const switchAuthentication: Strike = async ({ cluster, load, clients }) => {
  await cluster.disableAuthentication();
  await load.more(50);
  for (const client of clients) for (const link of client.links) link.cut();
  await load.more(50);
  await cluster.enableAuthentication();
  await load.more(50);
};

const revokeLeases: Strike = async (world) => {
  await world.landed();
  await world.cluster.revokeLeases();
};

const HOUR_MS = 3_600_000;

/** The system's time jumps ahead and back, and two hours in the other direction. */
const setClock: Strike = async ({ load, random }) => {
  const { now } = Date;
  const ahead = random() < 0.5 ? HOUR_MS : -HOUR_MS;
  try {
    for (const jump of [ahead, 0, -ahead]) {
      Date.now = () => now() + jump;
      await load.more(500);
    }
  } finally {
    Date.now = now;
  }
};

/** Connections are accepted but then silent: clients must give up waiting. */
const hungConnects: Strike = async (world) => {
  world.links('refuse');
  await world.noticed();
  world.links('black-hole');
  const before = world.clients.map(({ failures }) => failures);
  await until('connects are given up', () =>
    world.clients.every(({ failures }, i) => failures > (before[i] ?? 0) + 1),
  );
  world.links('open');
};

/** All faults by name. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  'kill -9 and restart': { strike: killAndRestart },
  'kill -9 of all members': { strike: killAll },
  'a compaction while away': { strike: compactWhileAway },
  'a compaction before a slow reader': { strike: compactUnderSlowReader },
  'a restart and a compaction while away': { strike: killCompactWhileAway },
  'a restore of an older snapshot': { strike: restore(false) },
  'a restore of an older snapshot under another cluster id': { strike: restore(true) },
  'a black hole': { strike: blackHole },
  'a stalled link': { strike: stall },
  'a stalled link that outlasts the lease': { strike: leaseExpiry },
  'cuts in the middle of catch-ups': { strike: cutCatchUps },
  'compactions of an idle prefix': { strike: compactIdle },
  'an empty restart with a rewritten configuration': { strike: restartEmpty(false) },
  'an empty restart under another cluster id': { strike: restartEmpty(true) },
  'a restore that has grown to equal revisions': { strike: restoreToEqualRevision },
  'slow links': { strike: slowLinks },
  'leases that are revoked': { strike: revokeLeases },
  'a clock that is set': { strike: setClock },
  'connects that hang': { strike: hungConnects },
  'authentication that is switched off and on': { needs: 'users', strike: switchAuthentication },
  'tokens that expire': { needs: 'users', strike: expireTokens },
  'a leader that is lost': { needs: 'three members', strike: loseLeader },
  'a quorum that is lost': { needs: 'three members', strike: loseQuorum },
  'a leader that stands still': { needs: 'three members', strike: freezeLeader },
};
