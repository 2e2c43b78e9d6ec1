import { describe, expect, it } from 'vitest';
import { bytesOfText, textOfBytes } from '../../src/kvstore/codec/bytes.ts';
import { MemoryBackend } from '../../src/kvstore/memory/memory-backend.ts';
import { type PlayTarget, play } from '../../src/recording/play.ts';
import { parsePlayScript } from '../../src/recording/play-script.ts';
import { FakeClock, settle } from '../agent/support/fake-clock.ts';

interface Played {
  readonly store: MemoryBackend;
  readonly clock: FakeClock;
  readonly told: string[];
  readonly stop: AbortController;
  readonly done: Promise<void>;
}

async function start(script: string): Promise<Played> {
  const clock = new FakeClock();
  const store = new MemoryBackend({ clock });
  await store.update('k', bytesOfText('{"a":1,"b":{"c":2,"d":3}}'));
  const told: string[] = [];
  const target: PlayTarget = {
    kvstore: (cluster) => (cluster === 'a' ? store : undefined),
    leave: (cluster) => Promise.resolve(told.push(`leave ${cluster}`) > 0 && cluster === 'b'),
    join: (cluster) => Promise.resolve(told.push(`join ${cluster}`) > 0 && cluster === 'b'),
  };
  const listener = {
    onStep: (step: { text: string }): void => void told.push(step.text),
    onFailure: (action: { kind: string }, why: string): void => void told.push(`${action.kind}: ${why}`),
  };
  const stop = new AbortController();
  const done = play(parsePlayScript(script, 'script'), target, listener, clock, stop.signal);
  return { store, clock, told, stop, done };
}

async function storedText(store: MemoryBackend, key: string): Promise<string | undefined> {
  const found = await store.get(key);
  return found === undefined ? undefined : textOfBytes(found.value);
}

describe('playing a script', () => {
  it('waits before each step, prints it, runs it, and ends', async () => {
    const { store, clock, told, done } = await start(
      '- { after: 2, say: one, do: [{ put: x, store: a, value: 1 }] }\n- { after: 3, say: two, do: [{ leave: b }] }\n',
    );
    await clock.advance(1999);
    expect(told).toEqual([]);
    await clock.advance(1);
    expect(told).toEqual(['one']);
    expect(await storedText(store, 'x')).toBe('1');
    await clock.advance(3000);
    await done;
    expect(told).toEqual(['one', 'two', 'leave b']);
  });

  it('patches, replaces and deletes', async () => {
    const { store, clock, told, done } = await start(
      '- do: [{ patch: k, store: a, with: { a: null, b: { c: 4 } } }, { put: p/1, store: a, value: x1 },' +
        ' { put: p/2, store: a, value: x2 }, { put: q, store: a, value: x3 },' +
        ' { replace: x, with: $&y, under: p/, store: a }, { delete: p/2, store: a }]\n',
    );
    await clock.advance(0);
    await done;
    expect(await storedText(store, 'k')).toBe('{"b":{"c":4,"d":3}}');
    expect(await storedText(store, 'p/1')).toBe('$&y1');
    expect(await storedText(store, 'p/2')).toBeUndefined();
    expect(await storedText(store, 'q')).toBe('x3');
    expect(told).toEqual(['']);
  });

  it('reports impossible actions and continues', async () => {
    const { clock, told, done } = await start(
      '- do: [{ delete: missing, store: a }, { patch: missing, store: a, with: {} }, { put: x, store: z, value: 1 },' +
        ' { replace: nowhere, with: y, under: k, store: a }, { leave: z }, { join: z },' +
        ' { put: x, store: a, value: no JSON }, { patch: x, store: a, with: {} }]\n- say: end\n',
    );
    await clock.advance(0);
    await done;
    expect(told).toEqual([
      '',
      'delete: key missing does not exist',
      'patch: key missing does not exist',
      'put: cluster z does not exist',
      'replace: no value below k contains the text',
      'leave z',
      'leave: not a remote cluster',
      'join z',
      'join: not a remote cluster',
      'patch: the value of key x is not JSON',
      'end',
    ]);
  });

  it('ends immediately when it is stopped, and leaves no timer', async () => {
    const { clock, told, stop, done } = await start('- { after: 60, say: late }\n');
    const before = clock.pending;
    stop.abort();
    await done;
    await settle();
    expect(told).toEqual([]);
    expect(clock.pending).toBe(before - 1);
  });
});
