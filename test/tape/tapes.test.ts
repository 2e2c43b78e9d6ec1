import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { replayTape } from '../../src/tape/replay-tape.ts';

const FOLDER = new URL('../tapes/', import.meta.url).pathname;

/** The expected result at the end of each tape: the prefix and its identity. */
const EXPECTED: Readonly<Record<string, readonly (readonly [string, number | undefined])[]>> = {
  // Cluster `b` lost all keys, then cluster `a` claimed one of its addresses; the claim of `b` was considered lost.
  'overruled-claim-of-a-lost-cluster.jsonl.gz': [['10.0.0.1', 0x1_0100]],
  // The address of a deleted pod has a new pod; the late delete of the old one removed it (cilium/cilium #16565,
  // #19958).
  'late-delete-of-a-reused-ip.jsonl.gz': [['10.10.2.30', 4101]],
};

describe('the tape of a past bug', () => {
  it.each(readdirSync(FOLDER))('%s is replayed with equal digests to the right state', async (name) => {
    const { replay, difference, digests } = await replayTape(FOLDER + name);
    await replay.close();
    expect(difference).toBeUndefined();
    expect(digests).toBeGreaterThan(0);
    const expected = EXPECTED[name];
    expect(expected).toBeDefined();
    for (const [ip, identity] of expected ?? []) expect(replay.ipcache.get(ip)?.identity).toBe(identity);
  });
});
