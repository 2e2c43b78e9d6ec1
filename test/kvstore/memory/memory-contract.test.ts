import { expect, it } from 'vitest';
import { MemoryServer } from '../../../src/kvstore/memory/memory-server.ts';
import { MemoryTransport } from '../../../src/kvstore/memory/memory-transport.ts';
import { backendContract } from '../support/contract.ts';
import { memoryKvstore } from '../support/memory-harness.ts';

backendContract('memory', memoryKvstore);

it('the shipped server has no fault hooks (regression: they were methods of the memory transport)', () => {
  const methods = [MemoryTransport, MemoryServer].flatMap((each) =>
    Object.getOwnPropertyNames(each.prototype),
  );
  expect(
    methods.filter((name) => /^(cut|down|up|blackHole|stall|lose|elect|forbid|allow|limit|break)/.test(name)),
  ).toEqual([]);
});
