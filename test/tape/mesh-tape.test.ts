import { expect, it } from 'vitest';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { MeshTape } from '../../src/tape/mesh-tape.ts';
import type { TapeLines } from '../../src/tape/tape-lines.ts';

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
