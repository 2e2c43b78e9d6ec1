import { expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { MeshTape } from '../../src/tape/mesh-tape.ts';
import type { TapeEntry } from '../../src/tape/tape-line.ts';
import type { TapeLines } from '../../src/tape/tape-lines.ts';
import { TapeState } from '../../src/tape/tape-state.ts';

it('a snapshot begins with the configurations of the clusters that were not withdrawn', () => {
  const added: string[] = [];
  const lines = { add: (line: string) => added.push(line) } as unknown as TapeLines;
  const tape = new MeshTape(lines, new IPCache(), 'own');
  tape.onConfigured('baltic', { id: 2, capabilities: { syncedCanaries: false, cached: false } });
  tape.onConfigured('caspian', undefined);
  tape.onWithdrawn('caspian', 'everything');
  const [baltic] = added.splice(0);
  expect(baltic).toContain('"store":"baltic"');
  for (const _ of tape.snapshot());
  expect(added).toEqual([baltic]);
});

it('the keys of a tape have no canary of services that were withdrawn (regression: they had)', async () => {
  const state = new TapeState();
  const services = { store: 'baltic', from: 'services' } as const;
  const apply = (...entries: TapeEntry[]): void => {
    for (const entry of entries) state.apply({ seq: 1, ms: 0, ...entry });
  };
  const hasCanary = async (): Promise<boolean> => {
    for await (const { key } of state.keys())
      if (key === 'cilium/synced/baltic/cilium/state/services/v1') return true;
    return false;
  };
  apply({ ev: 'follow', ...services, prefix: 'cilium/state/services/v1/baltic/', keeps: false });
  apply({ ev: 'listed', ...services });
  expect(await hasCanary()).toBe(true);
  apply({ ev: 'withdrawn', store: 'baltic', scope: 'services' });
  expect(await hasCanary()).toBe(false);
});

it('the keys of a tape of a copy have all canaries below `cache` (regression: those of unfollowed resources were not)', async () => {
  const state = new TapeState();
  const nodes = { store: 'baltic', from: 'nodes' } as const;
  const entries: readonly TapeEntry[] = [
    { ev: 'follow', ...nodes, prefix: 'cilium/cache/nodes/v1/baltic/', keeps: false },
    { ev: 'listed', ...nodes },
  ];
  for (const entry of entries) state.apply({ seq: 1, ms: 0, ...entry });
  const keys: string[] = [];
  for await (const { key } of state.keys()) keys.push(key);
  expect(keys).toContain('cilium/synced/baltic/cilium/cache/nodes/v1');
  expect(keys).toContain('cilium/synced/baltic/cilium/cache/endpointslices/v1');
});
