import { describe, expect, it, onTestFinished } from 'vitest';
import { RejectionLog } from '../../../src/base/rejection.ts';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { decodeClusterService } from '../../../src/kvstore/codec/cluster-service.ts';
import { decodeInPieces, type ValueDecoder } from '../../../src/kvstore/codec/value.ts';
import { MemoryBackend } from '../../../src/kvstore/memory/memory-backend.ts';
import { WatchStore } from '../../../src/kvstore/stores/watch-store.ts';
import { WATCH_LIMITS } from '../../../src/kvstore/watch/watch-limits.ts';
import type { ClusterService } from '../../../src/model/cluster-service.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { settle } from '../support/settle.ts';

const decode: ValueDecoder<ClusterService> = (name, value, at) =>
  decodeClusterService({ cluster: 'c', namespace: 'n', name }, value, at);

function service(name: string, backends = 0): Uint8Array {
  const ips = Array.from({ length: backends }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`);
  const ports = { http: { Protocol: 'TCP', Port: 80 } };
  const value = {
    cluster: 'c',
    namespace: 'n',
    name,
    backends: Object.fromEntries(ips.map((ip) => [ip, ports])),
  };
  return bytesOfText(JSON.stringify(value));
}

/** A kvstore, and stores over it that share a gate whose turns the test runs. */
class World {
  readonly clock = new ManualClock();
  readonly backend = new MemoryBackend({ clock: this.clock, random: () => 0.5 });
  readonly rejections = new RejectionLog();
  readonly #asked: (() => void)[] = [];
  readonly #gate = new TurnGate({
    clock: this.clock,
    nextTurn: (callback) => this.#asked.push(callback),
    weightPerTurn: 1, // one step per turn
  });
  readonly #stop = new AbortController();
  readonly #running: Promise<unknown>[] = [];

  /** Follows a prefix. Returns the content of the store, and the sizes of its batches. */
  follow(prefix: string): { readonly held: Map<string, ClusterService>; readonly batches: number[] } {
    const held = new Map<string, ClusterService>();
    const batches: number[] = [];
    const observer = {
      onUpdate: (name: string, value: ClusterService) => {
        held.set(name, value);
        batches.push((batches.pop() ?? 0) + 1);
      },
      onDelete: (name: string) => held.delete(name),
      batch: (apply: () => void) => {
        batches.push(0);
        apply();
      },
    };
    const { rejections } = this;
    const gate = this.#gate;
    const store = new WatchStore({ decode, decodeLarge: decodeInPieces(decode), observer, rejections, gate });
    this.#running.push(store.run({ backend: this.backend, prefix, signal: this.#stop.signal }));
    return { held, batches };
  }

  async turn(): Promise<void> {
    for (const callback of this.#asked.splice(0)) callback();
    await settle();
  }

  /** Runs turns until the condition holds. Returns their number. */
  async turnsUntil(isSo: () => boolean): Promise<number> {
    for (let turns = 0; turns < 1000; turns++) {
      if (isSo()) return turns;
      await this.turn();
    }
    throw new Error('never');
  }

  async end(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    await this.backend.close();
  }
}

async function world(): Promise<World> {
  const made = new World();
  onTestFinished(() => made.end());
  return made;
}

describe('a large value', () => {
  it('is decoded in turns, and small values of other stores are applied in between', async () => {
    const kvstore = await world();
    await kvstore.backend.update('large/s', service('s', 12_000));
    const large = kvstore.follow('large/');
    const small = kvstore.follow('small/');
    await kvstore.turnsUntil(() => large.batches.length > 0 || small.batches.length > 0);
    let turns = 0;
    for (; large.held.size === 0; turns++) {
      await kvstore.backend.update(`small/${turns}`, service(`${turns}`));
      await kvstore.turn();
      expect(small.held.size).toBeGreaterThanOrEqual(Math.floor(turns / 4));
    }
    expect(turns).toBeGreaterThan(15);
    const direct = decode('s', service('s', 12_000), 'large/s');
    expect(direct.ok && direct.value).toEqual(large.held.get('s'));
  });

  it('that is rejected is counted, and its siblings before and after it are applied', async () => {
    const kvstore = await world();
    const junk = `{"a":[${'1,'.repeat(50_000)}}`;
    await kvstore.backend.update('p/a', service('a'));
    await kvstore.backend.update('p/b', bytesOfText(junk));
    await kvstore.backend.update('p/c', bytesOfText(JSON.stringify({ labels: 'x'.repeat(50_000) })));
    await kvstore.backend.update('p/d', bytesOfText('{'.repeat(2_000_000)));
    await kvstore.backend.update('p/e', service('e', 1_000));
    const { held } = kvstore.follow('p/');
    await kvstore.turnsUntil(() => held.has('e'));
    expect([...held.keys()]).toEqual(['a', 'e']);
    expect(kvstore.rejections.status().byReason).toEqual({
      'invalid-json': 1,
      'missing-field': 1,
      'too-large': 1,
    });
  });

  it('does not give its value to another key of its batch (regression: to all that followed in its slice)', async () => {
    const kvstore = await world();
    await kvstore.backend.update('p/a', service('a', 1_000));
    for (const name of ['b', 'c']) await kvstore.backend.update(`p/${name}`, service(name, 1));
    const { held } = kvstore.follow('p/');
    await kvstore.turnsUntil(() => held.size === 3);
    expect([...held].map(([name, { backends }]) => [name, backends.size])).toEqual([
      ['a', 1_000],
      ['b', 1],
      ['c', 1],
    ]);
  });

  it('does not delay the end of its store', async () => {
    const kvstore = new World();
    await kvstore.backend.update('p/s', service('s', 12_000));
    const { held } = kvstore.follow('p/');
    for (let i = 0; i < 5; i++) await kvstore.turn();
    await kvstore.end();
    expect(held.size).toBe(0);
  });
});

describe('a batch', () => {
  it('is applied in slices by the bytes of its values, in order', async () => {
    const kvstore = await world();
    const names = Array.from({ length: 100 }, (_, i) => `s${String(i).padStart(3, '0')}`);
    for (const name of names) await kvstore.backend.update(`p/${name}`, service(name, 300));
    const { held, batches } = kvstore.follow('p/');
    await kvstore.turnsUntil(() => held.size === 100);
    const size = service('s000', 300).length;
    expect(Math.max(...batches)).toBe(Math.floor(1024 / (1 + Math.floor(size / 256))));
    expect([...held.keys()]).toEqual(names);
  });

  it('of small values is applied in one turn for each page', async () => {
    const kvstore = await world();
    for (let i = 0; i < 100; i++) await kvstore.backend.update(`p/${i}`, service(`${i}`));
    const { firstPageKeys } = WATCH_LIMITS;
    const { held, batches } = kvstore.follow('p/');
    await kvstore.turnsUntil(() => held.size === 100);
    expect(batches).toEqual([firstPageKeys, 100 - firstPageKeys]);
  });
});
