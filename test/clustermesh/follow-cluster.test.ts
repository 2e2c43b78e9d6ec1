import { describe, expect, it } from 'vitest';
import { isReplaced, readHandshake } from '../../src/clustermesh/follow-cluster.ts';
import type { KeyRead, KvstoreBackend } from '../../src/kvstore/backend.ts';
import { bytesOfText } from '../../src/kvstore/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';

function read(clusterID: string, revision: number, createRevision?: number): KeyRead {
  const kv =
    createRevision === undefined
      ? undefined
      : { key: 'k', value: bytesOfText('v'), createRevision, modRevision: createRevision };
  return { header: { clusterID, revision, raftTerm: 1 }, kv } as unknown as KeyRead;
}

describe('a kvstore that is read again', () => {
  it.each<readonly [string, KeyRead | undefined, KeyRead, boolean]>([
    ['that was not read before is none other', undefined, read('one', 5, 3), false],
    ['as it was is the same', read('one', 5, 3), read('one', 5, 3), false],
    ['that has grown is the same', read('one', 5, 3), read('one', 6, 3), false],
    ['of another id is another one', read('one', 5, 3), read('two', 6, 3), true],
    ['that has gone back is another past', read('one', 5, 3), read('one', 4, 3), true],
    ['whose key was made anew is another past', read('one', 5, 3), read('one', 9, 8), true],
    ['whose key is gone is the same', read('one', 5, 3), read('one', 9), false],
    ['whose key has come is the same', read('one', 5), read('one', 9, 8), false],
    ['without the key is the same', read('one', 5), read('one', 9), false],
  ])('%s', (_, before, now, replaced) => {
    expect(isReplaced(before, now)).toBe(replaced);
  });
});

describe('a handshake', () => {
  const signal = new AbortController().signal;

  async function kvstore(entries: Readonly<Record<string, string>>): Promise<KvstoreBackend> {
    const backend = new MemoryBackend();
    for (const [key, value] of Object.entries(entries)) await backend.update(key, bytesOfText(value));
    return backend;
  }

  it('reads the configuration, and no other then', async () => {
    const backend = await kvstore({
      'cilium/cluster-config/a': '{"id":3}',
      'cilium/cluster-config/b': '{"id":4}',
    });
    const { read, config, others } = await readHandshake(backend, 'a', signal);
    expect([config, others]).toMatchObject([{ ok: true, value: { id: 3 } }, []]);
    expect(read.kv?.key).toBe('cilium/cluster-config/a');
    await backend.close();
  });

  it('names the clusters that are configured instead', async () => {
    const backend = await kvstore({
      'cilium/cluster-config/b': '{}',
      'cilium/cluster-config/c': '{}',
      x: '',
    });
    const { read, config, others } = await readHandshake(backend, 'a', signal);
    expect([read.kv, config, others]).toEqual([undefined, undefined, ['b', 'c']]);
    await backend.close();
  });

  it('does not name the cluster itself, whose configuration has come meanwhile', async () => {
    const backend = await kvstore({});
    const listed = { key: 'cilium/cluster-config/a' };
    const late = { read: () => backend.read('cilium/cluster-config/a'), listPrefix: async () => [listed] };
    const { others } = await readHandshake(late as unknown as KvstoreBackend, 'a', signal);
    expect(others).toEqual([]);
    await backend.close();
  });
});
