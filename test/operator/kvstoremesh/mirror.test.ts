import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { prefixRange } from '../../../src/kvstore/codec/key-range.ts';
import { resourcePrefix, syncedKey } from '../../../src/kvstore/codec/keys.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { IdentityCache } from '../../../src/model/identity-cache.ts';
import { Mirror } from '../../../src/operator/kvstoremesh/mirror.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../../kvstore/support/settle.ts';

const PREFIX = resourcePrefix('ip', 'c1', 'cache');
const CANARY = syncedKey('c1', 'ip', 'cache');

describe('a mirror of a resource', () => {
  const clock = new ManualClock();
  const ended = new AbortController();
  const turns: (() => void)[] = [];
  let local: MemoryBackend;
  let mirror: Mirror;
  beforeEach(() => {
    local = new MemoryBackend({ clock, random: () => 0.5 });
    const gate = new TurnGate({ clock, nextTurn: (turn) => turns.push(turn) });
    mirror = new Mirror({
      cluster: 'c1',
      resource: 'ip',
      local,
      clock,
      random: () => 0.5,
      gate,
      rejections: new RejectionLog(),
      identities: new IdentityCache(),
      onApplied: () => {},
      onFault: () => {},
    });
  });
  afterEach(async () => {
    ended.abort();
    await local.close();
  });

  const keys = (): number => local.server.range(prefixRange(PREFIX)).count;

  it('deletes 20,000 inherited keys over many turns, and writes its canary after them (regression: in one turn)', async () => {
    const value = bytesOfText('1');
    const lease = local.server.grantLease(900);
    for (let i = 0; i < 20; i++) {
      const writes = Array.from(
        { length: 1000 },
        (_, k) => ({ op: 'put', key: `${PREFIX}${1000 * i + k}`, value, lease }) as const,
      );
      local.server.txn({ compare: [], writes });
    }
    const running = mirror.run(ended.signal);
    const inherited = mirror.inherit(ended.signal);
    const until = async (isOver: () => boolean): Promise<number> => {
      let taken = 0;
      while (!isOver()) {
        taken += turns.length;
        turns.shift()?.();
        await settle();
      }
      return taken;
    };
    let isTaken = false;
    void inherited.then(() => {
      isTaken = true;
    });
    await until(() => isTaken);
    expect(mirror.status().keys).toBe(20_000);
    const before = mirror.status().keys;
    void mirror.markListed();
    const atOnce = before - mirror.status().keys;
    expect(atOnce).toBeLessThanOrEqual(4096); // keys per turn
    let keysAtCanary = -1;
    const taken = await until(() => {
      const hasCanary = local.server.range(prefixRange(CANARY)).count > 0;
      if (hasCanary) keysAtCanary = keys();
      return hasCanary;
    });
    expect([keysAtCanary, mirror.status().keys, mirror.isSynced]).toEqual([0, 0, true]);
    expect(taken).toBeGreaterThanOrEqual(5);
    ended.abort();
    await running;
  });
});
