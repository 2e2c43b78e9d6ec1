import fc from 'fast-check';
import { describe, it } from 'vitest';
import { happenings, I9_reconnectIsColdStart, I10_noOrphans } from './support/mesh-laws.ts';

describe('a mesh under faults, and under edits of its configuration directory', () => {
  it('I9 reconnect = cold start: after any faults, writes and edits the engines hold what a fresh agent would', async () => {
    await fc.assert(fc.asyncProperty(happenings, (script) => I9_reconnectIsColdStart(script)));
  });

  it('I10 no orphans: a removed cluster leaves nothing behind', async () => {
    await fc.assert(fc.asyncProperty(happenings, (script) => I10_noOrphans(script)));
  });
});
