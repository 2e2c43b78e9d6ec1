import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { StateFiles } from '../../../src/agent/state-files.ts';
import { assert } from '../../../src/base/assert.ts';
import { OPEN_GATE } from '../../../src/base/turn-gate.ts';
import { ClusterMesh } from '../../../src/clustermesh/cluster-mesh.ts';
import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import { parseService } from '../../../src/k8s/parse-service.ts';
import type { IdentityCache } from '../../../src/model/identity-cache.ts';
import { formatLabels } from '../../../src/model/labels.ts';
import type { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import type { ServiceCache } from '../../../src/servicecache/service-cache.ts';
import type { TapeReplay } from '../../../src/tape/replay.ts';
import { type ReplayOptions, type ReplayReport, replayTape } from '../../../src/tape/replay-tape.ts';
import { Tape, type TapeOptions } from '../../../src/tape/tape.ts';
import type { TapeSettings } from '../../../src/tape/tape-settings.ts';
import { type AnyHappening, World } from '../../clustermesh/support/mesh-laws.ts';
import { LOCAL_SERVICES, OWN } from '../../clustermesh/support/mesh-world.ts';
import { RecordingIPCacheListener, RecordingServiceListener } from '../../datapath/support/recording.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { plain } from '../../servicecache/support/plain.ts';

export const SETTINGS: TapeSettings = {
  clusterName: OWN,
  clusterID: 9,
  nodeName: 'me',
  maxConnectedClusters: 255,
  serviceV2: 'auto',
  network: {
    remoteNodeIdentities: true,
    encryption: false,
    nodeEncryption: false,
    hostFirewall: false,
    underlay: 'ipv4',
  },
};

export interface Engines {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
}

/** Returns the calls of listeners as lines. Changes of one call are sorted, because their order has no meaning. */
export function listen({ ipcache, services }: Engines): string[] {
  const log: string[] = [];
  let call: string[] = [];
  const flush = (): void => void log.push(...call.splice(0).sort());
  const changes = new RecordingIPCacheListener((record) => call.push(JSON.stringify(plain(record))));
  ipcache.subscribe({
    onChanges: (batch) => {
      changes.onChanges(batch);
      flush();
    },
  });
  const events = new RecordingServiceListener((record) => call.push(JSON.stringify(plain(record))));
  services.subscribe({
    onEvents: (batch) => {
      events.onEvents(batch);
      flush();
    },
  });
  call = [];
  log.length = 0;
  return log;
}

/** Returns the state of engines and identities as plain data. */
export function dumpOf(
  { ipcache, services, nodes }: Engines,
  identities: Iterable<readonly [string, IdentityCache]>,
): unknown {
  const entries = [...ipcache.entries({ includeShadowed: true })].sort((a, b) => (a.key < b.key ? -1 : 1));
  return plain({
    entries,
    claims: entries.map(({ key }) => ipcache.explain(key)?.claims),
    nodes: [...nodes.nodes()].map((node) => JSON.stringify(plain(node))).sort(),
    services: services.snapshot().toJS(),
    identities: [...identities]
      .map(
        ([name, cache]) =>
          [name, [...cache.entries()].map(([id, labels]) => `${id} ${formatLabels(labels)}`).sort()] as const,
      )
      .filter(([, known]) => known.length > 0)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  });
}

/** Runs a script of faults on a mesh with a tape. */
export async function tapeMesh(
  folder: string,
  script: readonly AnyHappening[],
  options: Partial<TapeOptions> = {},
): Promise<{ readonly dump: unknown; readonly log: readonly string[]; readonly tape: Tape }> {
  let tape: Tape | undefined;
  const world = new World((mesh) => {
    assert(mesh.ipcache, 'the mesh has all engines');
    tape = new Tape({
      folder: new StateFiles(folder),
      maxBytes: 1 << 30,
      settings: SETTINGS,
      version: '0.1.0',
      ipcache: mesh.ipcache as IPCache,
      clock: mesh.clock,
      gate: OPEN_GATE,
      onFailure: () => {},
      ...options,
    });
    return new ClusterMesh({ ...mesh, tap: tape.mesh });
  });
  assert(tape, 'the tape exists');
  const { agent } = world;
  const taped = tape;
  world.pass = async (ms) => {
    for (let left = ms; left >= 0; left -= 1000) {
      await advance(world.clock, Math.min(left, 1000));
      await taped.flush(); // a snapshot ends when the disk has it
    }
  };
  agent.tap = tape.mesh;
  tape.start();
  const log = listen(agent);
  await world.start();
  for (const what of script) await world.happen(what);
  await world.heal();
  const identities = agent.mesh.names.flatMap((name) => {
    const known = agent.mesh.identitiesOf(name);
    return known === undefined ? [] : [[name, known] as const];
  });
  const own = agent.ownIdentities;
  const dump = dumpOf(agent, [...identities, [OWN, own] as const]);
  await tape.stop();
  await world.stop();
  return { dump, log, tape };
}

/** Puts the services that no tape contains into the engines of a replay. */
export function addLocalServices(
  { services }: TapeReplay,
  objects: typeof LOCAL_SERVICES = LOCAL_SERVICES,
): void {
  for (const object of objects) {
    const { value } = parseService(object);
    if (value !== undefined) services.updateService(value);
  }
  services.markSynced();
}

/** Replays a tape of {@link tapeMesh}. */
export async function replayMesh(
  path: string,
  options: ReplayOptions = {},
  localServices: typeof LOCAL_SERVICES = LOCAL_SERVICES,
): Promise<{ readonly dump: unknown; readonly log: readonly string[]; readonly report: ReplayReport }> {
  let log: string[] = [];
  const onReplay = (replay: TapeReplay): void => {
    addLocalServices(replay, localServices);
    log = listen(replay);
  };
  const report = await replayTape(path, { ...options, onReplay });
  const { replay } = report;
  const identities = [...replay.clusters].map(([name, { identities: known }]) => [name, known] as const);
  const dump = dumpOf(replay, identities);
  await replay.close();
  return { dump, log, report };
}

/** Runs `use` with a folder that is removed afterwards. */
export async function withFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'tape-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
