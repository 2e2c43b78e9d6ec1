import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { bytesOfText } from '../../src/kvstore/codec/bytes.ts';
import { IDENTITY_LOCKS_PREFIX } from '../../src/kvstore/codec/keys.ts';
import * as etcd from '../../src/kvstore/etcd/etcd-backend.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { KvstoreError } from '../../src/kvstore/session/errors.ts';
import * as localEtcd from '../../src/process/local-etcd.ts';
import { createLog } from '../../src/process/log.ts';
import { recordMesh } from '../../src/recording/record-mesh.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';

const CONFIG = 'endpoints: ["http://127.0.0.1:1"]\n';

/** Records two remote clusters and, if there is an `own` configuration, the local one, over kvstores in memory. */
async function record(
  files: Readonly<Record<string, string>>,
  change: {
    readonly own?: string;
    readonly fails?: string;
    readonly signal?: AbortSignal;
    readonly keys?: Readonly<Record<string, Uint8Array>>;
    readonly isEmpty?: true;
    readonly closed?: number[];
    readonly localFailure?: Error;
  } = {},
) {
  const { own, fails, signal = new AbortController().signal, keys = {}, isEmpty = false } = change;
  const { closed = [], localFailure } = change;
  const runtime = { clock: new ManualClock(), random: () => 0.5 };
  const stores: MemoryBackend[] = [];
  const newStore = (): MemoryBackend => {
    const store = new MemoryBackend(runtime);
    const number = stores.push(store) - 1;
    const filled = Promise.all([
      ...(isEmpty
        ? []
        : [store.update('cilium/state/ip/v1/default/10.0.0.1', bytesOfText(`store ${number}`))]),
      ...Object.entries(keys).map(([key, value]) => store.update(key, value)),
    ]);
    const get = store.get.bind(store);
    vi.spyOn(store, 'get').mockImplementation(async (...given) => {
      await filled;
      if (fails === String(number)) throw new KvstoreError('unavailable', 'refused');
      return get(...given);
    });
    vi.spyOn(store, 'close').mockImplementation(async () => void closed.push(number));
    return store;
  };
  const opened = vi.spyOn(localEtcd, 'openLocalEtcd').mockImplementation(async () => {
    if (localFailure !== undefined) throw localFailure;
    return newStore() as never;
  });
  spyOnConstructor(etcd, 'EtcdBackend', newStore);
  const folder = temporaryFolder(files);
  const written: string[] = [];
  const logged: string[] = [];
  const complete = await recordMesh(
    {
      clusterName: 'own',
      kvstoreConfig: own,
      clustermeshConfig: Object.keys(files).length > 0 ? folder : undefined,
    },
    {
      ...runtime,
      log: createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) }),
      write: async (lines) => void written.push(lines),
      signal,
    },
  );
  const lines = written.join('').split('\n').filter(Boolean);
  return { complete, lines: lines.map((line) => JSON.parse(line)), logged, closed, opened, folder };
}

const line = (store: string, number: number): object => ({
  store,
  key: 'cilium/state/ip/v1/default/10.0.0.1',
  value: `store ${number}`,
});

describe('a recorded mesh', () => {
  it('has the local kvstore first, then those of the remote clusters, and closes all of them', async () => {
    const files = { near: CONFIG, far: CONFIG, own: CONFIG, readme: 'no configuration' };
    const { complete, lines, logged, closed, opened } = await record(files, { own: '/etcd' });
    expect(complete).toBe(true);
    expect(opened.mock.calls[0]?.[0]).toBe('/etcd');
    // The remote ones are opened first.
    expect(lines).toEqual([line('own', 2), line('far', 0), line('near', 1)]);
    expect(logged).toEqual([
      'info  cluster own: recorded 1 key',
      'info  cluster far: recorded 1 key',
      'info  cluster near: recorded 1 key',
    ]);
    expect(closed.toSorted()).toEqual([0, 1, 2]);
  });

  it('warns of a kvstore without keys (regression: the output was empty without a reason)', async () => {
    const { complete, lines, logged } = await record({ far: CONFIG }, { isEmpty: true });
    expect([complete, lines]).toEqual([true, []]);
    expect(logged).toEqual(['warn  cluster far: its kvstore has no keys']);
  });

  it('is incomplete if a kvstore does not answer, and has the others', async () => {
    const { complete, lines, logged, closed } = await record({ far: CONFIG, near: CONFIG }, { fails: '0' });
    expect([complete, lines]).toEqual([false, [line('near', 1)]]);
    expect(logged[0]).toBe('error cluster far: the recording is incomplete: refused');
    expect(closed.toSorted()).toEqual([0, 1]);
  });

  it('is incomplete if a file is unusable, and has the others', async () => {
    const { complete, lines, logged, folder } = await record({ far: 'endpoints: 7\n', near: CONFIG });
    expect([complete, lines]).toEqual([false, [line('near', 0)]]);
    expect(logged[0]).toContain(`--clustermesh-config ${join(folder, 'far')}: `);
  });

  it('ends when it is interrupted, without an error, and closes all kvstores', async () => {
    const { complete, logged, closed } = await record(
      { far: CONFIG, near: CONFIG },
      { fails: '0', signal: AbortSignal.abort() },
    );
    expect([complete, logged, closed.toSorted()]).toEqual([false, [], [0, 1]]);
  });

  it('closes the remote kvstores if the local one cannot be opened (regression: their connections stayed)', async () => {
    const closed: number[] = [];
    const change = { own: '/etcd', closed, localFailure: new Error('/etcd: no such file') };
    await expect(record({ far: CONFIG, near: CONFIG }, change)).rejects.toThrow('/etcd: no such file');
    expect(closed.toSorted()).toEqual([0, 1]);
  });

  it('needs at least one configuration', async () => {
    await expect(record({ readme: 'no configuration' })).rejects.toThrow('no kvstore to record');
  });

  it('needs its folder', async () => {
    const missing = { clusterName: 'own', kvstoreConfig: undefined, clustermeshConfig: '/no/folder' };
    await expect(recordMesh(missing, {} as never)).rejects.toThrow(
      '--clustermesh-config /no/folder: no such file or folder',
    );
  });

  it('has each prefix of a mesh, bytes in base64, and no locks', async () => {
    const text = bytesOfText('x');
    const keys = {
      'cilium/.heartbeat': text,
      'cilium/cluster-config/far': text,
      'cilium/cache/ip/v1/far/10.0.0.2': new Uint8Array([255]),
      'cilium/synced/far/x': text,
      'cilium/other/key': text,
      [`${IDENTITY_LOCKS_PREFIX}a/b`]: text,
    };
    const { lines, logged } = await record({ far: CONFIG }, { keys });
    expect(lines).toEqual([
      { store: 'far', key: 'cilium/.heartbeat', value: 'x' },
      { store: 'far', key: 'cilium/cluster-config/far', value: 'x' },
      line('far', 0),
      { store: 'far', key: 'cilium/cache/ip/v1/far/10.0.0.2', value64: '/w==' },
      { store: 'far', key: 'cilium/synced/far/x', value: 'x' },
    ]);
    expect(logged).toEqual(['info  cluster far: recorded 5 keys']);
  });
});
