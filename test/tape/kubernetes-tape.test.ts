import { expect, it } from 'vitest';
import { StateFiles } from '../../src/agent/state-files.ts';
import { OPEN_GATE, TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { KubernetesTape } from '../../src/tape/kubernetes-tape.ts';
import { Tape } from '../../src/tape/tape.ts';
import { TapeLines } from '../../src/tape/tape-lines.ts';
import type { TapedKubernetes } from '../../src/tape/tape-settings.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { FeedWorld } from '../k8s/feed/support/feed-world.ts';
import { ciliumEndpointSlice, sliced } from '../k8s/feed/support/objects.ts';
import { replayMesh, SETTINGS, withFolder } from './support/taped-mesh.ts';

const ENDPOINTS = 'ciliumendpointslices';
const KUBERNETES: TapedKubernetes = {
  watch: ['endpoints'],
  endpoints: ENDPOINTS,
  identities: 'kvstore',
  headlessServices: false,
  nodeAnnotations: false,
  encryptKey: 0,
};

it('an endpoint that moves to another slice while the objects missing in a list are deleted has the same entry in a replay', async () => {
  await withFolder(async (folder) => {
    const cache = new IPCache();
    const tape = new Tape({
      folder: new StateFiles(folder),
      maxBytes: 1 << 24,
      settings: { ...SETTINGS, kubernetes: KUBERNETES },
      version: '0.1.0',
      clock: new ManualClock(),
      gate: OPEN_GATE,
      ipcache: cache,
      onFailure: () => {},
    });
    tape.start();
    tape.kubernetes.begin(1);
    const turns: (() => void)[] = [];
    const nextTurn = (turn: () => void): void => void turns.push(turn);
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 1 });
    const world = new FeedWorld({ endpoints: ENDPOINTS, gate, cache, tap: tape.kubernetes.tap });
    const put = (slice: string, createdAt: number, ...endpoints: readonly object[]): void =>
      world.cluster.put(ENDPOINTS, ciliumEndpointSlice(slice, endpoints, { createdAt }));
    put('s1', 1);
    put('s2', 2, sliced('web', { identity: 2000 }));
    await world.started();
    put('s1', 1, sliced('web', { identity: 1000 }));
    for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
      turn();
      for (let tick = 0; tick < 8; tick++) await Promise.resolve();
    }
    const live = [...cache.entries()];
    expect(live).toMatchObject([{ identity: 1000 }]);
    await tape.stop();
    const { report } = await replayMesh(folder);
    expect([...report.replay.ipcache.entries()]).toEqual(live);
    expect(report).toMatchObject({ digests: 1, difference: undefined });
  });
});

it('has no annotations that the agent does not read (regression: it had the last applied configuration, with its secrets)', () => {
  const written: string[] = [];
  const addToBatch = (line: string): void => void written.push(line);
  const lines = Object.assign(Object.create(TapeLines.prototype), { addToBatch });
  const read = {
    'service.cilium.io/global': 'true',
    'io.cilium/shared-service': 'false',
    'network.cilium.io/wg-pub-key': 'key',
    'io.cilium.network.ipv4-health-ip': '10.0.0.1',
    'io.cilium.heartbeat': 'now',
    'service.kubernetes.io/topology-mode': 'auto',
  };
  const other = {
    'kubectl.kubernetes.io/last-applied-configuration': '{"password":"hidden"}',
    'notcilium.io/x': 'hidden',
    'io.ciliumx/y': 'hidden',
  };
  const metadata = { name: 'a', uid: 'u', resourceVersion: '7', annotations: { ...read, ...other } };
  const tape = new KubernetesTape(lines);
  const tap = tape.tap('services');
  for (const type of ['put', 'delete'] as const) tap.onEvent({ type, object: { metadata, spec: {} } });
  tap.onEvent({ type: 'put', object: { metadata: { ...metadata, annotations: 'text' } } });
  const objects = written.map((line) => JSON.parse(`{${line}}`).object);
  expect(objects.slice(0, 2)).toEqual(
    Array(2).fill({ metadata: { ...metadata, annotations: read }, spec: {} }),
  );
  expect(objects[2].metadata.annotations).toBe('text');
  tape.tap('ciliumnodes').onEvent({ type: 'put', object: { metadata } });
  expect(written[3]).toContain('hidden'); // the annotations of a CiliumNode are fields of the node
});
