import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { systemClock } from '../../src/base/system-clock.ts';
import { textOfBytes } from '../../src/kvstore/codec/bytes.ts';
import { resourcePrefix } from '../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { MAX_WRITES } from '../../src/kvstore/session/backend.ts';
import type { RecordedKey } from '../../src/recording/recorded-keys.ts';
import { RecordedMesh } from '../../src/recording/recorded-mesh.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';

async function load(lines: readonly object[]): Promise<RecordedMesh> {
  const text = lines.map((line) => JSON.stringify(line)).join('\n');
  const path = join(temporaryFolder({ 'mesh.jsonl': text }), 'mesh.jsonl');
  const mesh = new RecordedMesh(systemClock, Math.random);
  await mesh.load(path, {
    local: 'own',
    onReject: (rejection) => expect.fail(JSON.stringify(rejection)),
    signal: new AbortController().signal,
  });
  return mesh;
}

async function content(mesh: RecordedMesh, cluster: string): Promise<Readonly<Record<string, string>>> {
  const kvs = (await mesh.get(cluster)?.listPrefix('cilium/')) ?? [];
  return Object.fromEntries(kvs.map(({ key, value }) => [key, textOfBytes(value) ?? '']));
}

const ip = (i: number): string => `cilium/state/ip/v1/default/10.0.${i >> 8}.${i & 255}`;

describe('a recorded mesh', () => {
  it('has the last value of each key, in the kvstore of its cluster, whatever their order', async () => {
    const keys = [1, 2, 1, 3, 2].map(ip);
    const lines = keys.flatMap((key, i) => [
      { store: 'a', key, value: `a${i}` },
      ...(i % 2 === 0 ? [{ store: 'b', key, value: `b${i}` }] : []),
    ]);
    const repeated = ['c0', 'c1'].map((value) => ({ store: 'c', key: ip(1), value }));
    const mesh = await load([...lines, ...repeated]);
    expect(mesh.clusters).toEqual(['a', 'b', 'c']);
    expect(await content(mesh, 'a')).toEqual({ [ip(1)]: 'a2', [ip(2)]: 'a4', [ip(3)]: 'a3' });
    expect(await content(mesh, 'b')).toEqual({ [ip(1)]: 'b2', [ip(2)]: 'b4' });
    expect(await content(mesh, 'c')).toEqual({ [ip(1)]: 'c1' });
    await mesh.close();
  });

  it('lacks the keys of a tape that were deleted before the end of the initial sync (regression: they stayed)', async () => {
    const [kept, deleted, swept] = [ip(1), ip(2), ip(3)];
    const key = (name: string, ev?: string): string => {
      const event = ev === undefined ? '' : `"ev":"${ev}",`;
      const value = ev === undefined ? ',"value":"x"' : '';
      return `{"seq":8,"ms":5,${event}"store":"a","from":"ip","key":"${name}","rev":7${value}}`;
    };
    const lines = [
      ...[kept, deleted, swept].map((name) => key(name)),
      key(kept, 'delete'),
      ...[key(deleted, 'delete'), key(swept, 'sweep'), key(kept, 'ignored'), key(kept)],
      '{"seq":20,"ms":9,"ev":"complete"}',
      key(kept, 'delete'),
    ];
    const mesh = await load(lines.map((line) => JSON.parse(line)));
    expect(await content(mesh, 'a')).toEqual({ [kept]: 'x' });
    await mesh.close();
  });

  it('is loaded in transactions of many keys, without a loss at the end of the file (regression: one for each key)', async () => {
    const writeAll = vi.spyOn(MemoryBackend.prototype, 'writeAll');
    const mesh = await load(
      Array.from({ length: 1050 }, (_, i) => ({ store: 'a', key: ip(i), value: `${i}` })),
    );
    expect(Object.keys(await content(mesh, 'a'))).toHaveLength(1050);
    expect(writeAll).toHaveBeenCalledTimes(Math.ceil(1050 / MAX_WRITES));
    writeAll.mockRestore();
    await mesh.close();
  });

  it('stores no key that no reader would find, and names it with its line', async () => {
    const keys = [
      ['foo', 'unknown-key'],
      ['cilium/state/nodes/v1/b/n1', 'wrong-cluster'],
      ['cilium/state/services/v1/b/shop/cart', 'wrong-cluster'],
      ['cilium/state/ip/v1/other/10.0.0.1', 'unknown-address-space'],
      [ip(1), undefined],
      ['cilium/state/nodes/v1/a/n1', undefined],
      ['cilium/cache/nodes/v1/b/n1', undefined],
      ['cilium/kvstoremesh-lock/1f', undefined], // regression: unknown-key
      ['cilium/.heartbeat', undefined],
    ] as const;
    const lines = [...keys.map(([key]) => JSON.stringify({ store: 'a', key, value: 'x' })), '{'];
    const path = join(temporaryFolder({ 'mesh.jsonl': lines.join('\n') }), 'mesh.jsonl');
    const mesh = new RecordedMesh(systemClock, Math.random);
    const rejected: string[] = [];
    let progress = 0;
    await mesh.load(path, {
      local: 'own',
      onReject: ({ reason, message }) => rejected.push(`${reason} ${/mesh\.jsonl:\d+/.exec(message)}`),
      onProgress: () => progress++,
      signal: new AbortController().signal,
    });
    const stray = keys.flatMap(([, reason], i) =>
      reason === undefined ? [] : `${reason} mesh.jsonl:${i + 1}`,
    );
    expect(rejected).toEqual([...stray, expect.stringMatching(/ mesh\.jsonl:10$/)]);
    expect(progress).toBe(keys.length);
    const stored = keys.flatMap(([key, reason]) =>
      reason === undefined && key !== 'cilium/.heartbeat' ? key : [],
    );
    expect(Object.keys(await content(mesh, 'a')).sort()).toEqual(stored.toSorted());
    await mesh.close();
  });

  it.each([
    ['state', { syncedCanaries: true }, 'nodes services identities ip'],
    ['cache', { syncedCanaries: true, cached: true }, 'nodes services identities ip'],
    [
      'state',
      { syncedCanaries: true, endpointSlicesExportMode: 'endpointslices-only' },
      'nodes endpointslices identities ip',
    ],
    ['state', { syncedCanaries: false }, ''],
  ])(
    'gets the missing canaries below %s if its configuration has %j: %s',
    async (layout, capabilities, names) => {
      const value = JSON.stringify({ id: 1, capabilities });
      const canaries = names
        .split(' ')
        .flatMap((name) => (name === '' ? [] : `cilium/synced/a/cilium/${layout}/${name}/v1`));
      const [first = 'cilium/unrelated', ...others] = canaries; // the first one is recorded
      const mesh = await load([
        { store: 'a', key: 'cilium/cluster-config/a', value },
        ...(canaries.length === 0 ? [] : [{ store: 'a', key: first, value: 'x' }]),
      ]);
      const reported: string[] = [];
      await mesh.complete(({ reason, message }) => reported.push(`${reason} ${message}`));
      expect(reported).toEqual(
        others.map((key) => expect.stringMatching(`^missing-canary cluster a: .*${key}.* is missing`)),
      );
      expect(await content(mesh, 'a')).toMatchObject({
        ...(canaries.length === 0 ? {} : { [first]: 'x' }),
        ...Object.fromEntries(others.map((key) => [key, ''])),
      });
      expect(Object.keys(await content(mesh, 'a'))).toHaveLength(1 + canaries.length);
      await mesh.close();
    },
  );

  it.each(['state', 'cache'] as const)(
    'has canaries of a tape below %s, except of lists that were not complete (regression: each was reported as missing)',
    async (layout) => {
      const capabilities = {
        syncedCanaries: true,
        ...(layout === 'cache' ? { cached: true } : {}),
        endpointSlicesExportMode: 'services-and-endpointslices', // of which the agent followed only services
      };
      const config = {
        ev: 'config',
        store: 'a',
        key: 'cilium/cluster-config/a',
        value: JSON.stringify({ id: 1, capabilities }),
      };
      const followed = ['nodes', 'services', 'identities', 'ip'] as const;
      const entries = [
        config,
        { store: 'a', from: 'ip', key: ip(1), rev: 7, value: 'x' },
        ...followed.map((from) => ({
          ev: 'follow',
          store: 'a',
          from,
          prefix: resourcePrefix(from, 'a', layout),
          keeps: false,
        })),
        ...['nodes', 'services', 'ip'].map((from) => ({ ev: 'listed', store: 'a', from })),
        { ev: 'complete' },
        { ev: 'listed', store: 'a', from: 'identities' },
      ];
      const mesh = await load(entries.map((entry, i) => ({ seq: i + 1, ms: 0, ...entry })));
      const reported: string[] = [];
      await mesh.complete(({ reason, value }) => reported.push(`${reason} ${value}`));
      expect(reported).toEqual([`missing-canary "cilium/synced/a/cilium/${layout}/identities/v1"`]);
      await mesh.close();
    },
  );

  it('has an id of the local cluster: given, or recorded, or 0, and a configuration', async () => {
    const config = { store: 'own', key: 'cilium/cluster-config/own', value: '{"id": 5, "capabilities": {}}' };
    for (const [lines, given, id, stored] of [
      [[config], undefined, 5, 5],
      [[config], 7, 7, 5],
      [[], 7, 7, 7],
      [[], undefined, 0, 0],
    ] as const) {
      const mesh = await load(lines);
      const opened = await mesh.openLocal('own', given);
      expect([opened.id, opened.backend]).toEqual([id, mesh.get('own')]);
      const { [config.key]: text = '' } = await content(mesh, 'own');
      const { id: storedID = 0, capabilities } = JSON.parse(text);
      expect([storedID, capabilities]).toEqual([stored, {}]);
      await mesh.close();
    }
  });

  it('is unusable if all lines are invalid; keys of etcdctl belong to the local cluster', async () => {
    const response = JSON.stringify({ kvs: [{ key: btoa(ip(1)), value: btoa('x') }] });
    const folder = temporaryFolder({ bad: '{\n7', 'etcdctl.json': response });
    const mesh = new RecordedMesh(systemClock, Math.random);
    const options = { local: 'own', onReject: () => {}, signal: new AbortController().signal };
    await expect(mesh.load(join(folder, 'bad'), options)).rejects.toThrow('none of its 2 lines is valid');
    await mesh.load(join(folder, 'etcdctl.json'), options);
    expect(await content(mesh, 'own')).toEqual({ [ip(1)]: 'x' });
    await mesh.close();
  });

  it('is loaded no further when the signal fires', async () => {
    const stop = new AbortController();
    let read = 0;
    const keys = async function* (): AsyncGenerator<RecordedKey, void, void> {
      for (; read < 100; read++) {
        if (read === 3) stop.abort();
        yield { store: 'a', key: ip(read), value: new Uint8Array(), at: '' };
      }
    };
    const mesh = new RecordedMesh(systemClock, Math.random);
    expect(await mesh.store(keys(), { onReject: () => {}, signal: stop.signal })).toBe(3);
    expect(read).toBe(3);
    await mesh.close();
  });

  it.each([0, 1, 3])('closes each of its %i kvstores, and only once it is closed', async (count) => {
    const close = vi.spyOn(MemoryBackend.prototype, 'close');
    const names = ['a', 'b', 'c'].slice(0, count);
    const mesh = await load(names.map((store) => ({ store, key: ip(1), value: 'x' })));
    const stores = names.map((name) => mesh.get(name));
    expect(close).not.toHaveBeenCalled();
    await mesh.close();
    expect(close.mock.contexts).toEqual(stores);
    for (const store of stores) await expect(store?.get(ip(1))).rejects.toThrow('closed');
  });
});
