import { describe, expect, it } from 'vitest';
import {
  type ConfigFile,
  type DirectoryState,
  type DirectoryStep,
  EMPTY_DIRECTORY,
  GRACE_MS,
  stepDirectory,
} from '../../src/clustermesh/config-directory.ts';

const connect = (): never => {
  throw new Error('not in this test');
};
const config = (hash: string): ConfigFile => ({ kind: 'config', hash, connect });
const OTHER: ConfigFile = { kind: 'other' };
const broken = (reason: string): ConfigFile => ({ kind: 'unusable', reason });

function step(
  files: Readonly<Record<string, ConfigFile>>,
  state: DirectoryState = EMPTY_DIRECTORY,
  now = 0,
): DirectoryStep {
  const check = (name: string): 'local-cluster' | 'invalid-name' | undefined => {
    if (name === 'own') return 'local-cluster';
    return name.startsWith('-') ? 'invalid-name' : undefined;
  };
  return stepDirectory(state, new Map(Object.entries(files)), { now, check });
}

const did = ({ changes }: DirectoryStep): readonly string[] =>
  changes.map(({ type, name }) => `${type} ${name}`);

describe('a listing of the configuration directory', () => {
  it('adds, changes and removes clusters by the hash of their files', () => {
    const first = step({ a: config('1'), b: config('1') });
    expect(did(first)).toEqual(['add a', 'add b']);
    const second = step({ a: config('1'), b: config('2') }, first.state);
    expect(did(second)).toEqual(['add b']);
    const third = step({ b: config('2') }, second.state);
    expect(did(third)).toEqual(['remove a']);
    expect(did(step({ b: config('2') }, third.state))).toEqual([]);
  });

  it('ignores the local cluster and files that are not configurations', () => {
    const { changes, state, unsettled } = step({ own: config('1'), 'ca.crt': OTHER });
    expect([changes, [...state.problems], unsettled]).toEqual([[], [], false]);
    expect(step({ own: broken('a FIFO'), '-a': broken('a FIFO') }).state.problems.size).toBe(0);
  });

  it('rejects an invalid cluster name, with the reason', () => {
    const { changes, state } = step({ '-a': config('1'), '-b': OTHER });
    expect(changes).toEqual([]);
    expect([...state.problems.keys()]).toEqual(['-a']);
    expect(state.problems.get('-a')).toContain('is not a valid cluster name');
  });

  it('restarts the grace period of a file without a configuration after it was unusable (regression: its cluster was removed at once)', () => {
    const { state } = step({ a: config('1') });
    const torn = step({ a: OTHER }, state, 1000);
    const bad = step({ a: broken('no YAML') }, torn.state, 2000);
    const again = step({ a: OTHER }, bad.state, 3_600_000);
    expect(did(again)).toEqual([]);
    expect(did(step({ a: OTHER }, again.state, 3_600_000 + GRACE_MS))).toEqual(['remove a']);
  });

  it('keeps the last valid configuration of an unusable file, reports the reason, and reads the file again soon', () => {
    const { state } = step({ a: config('1') });
    const bad = step({ a: broken('may not be read'), b: broken('no YAML') }, state, 1e6);
    expect(did(bad)).toEqual([]);
    expect(bad.unsettled).toBe(true);
    expect([...bad.state.problems]).toEqual([
      ['a', 'may not be read'],
      ['b', 'no YAML'],
    ]);
    const good = step({ a: config('1'), b: config('1') }, bad.state, 2e6);
    expect(did(good)).toEqual(['add b']);
    expect(good.state.problems.size).toBe(0);
  });

  it('treats a file that lost its content as half-written, until its grace period ends', () => {
    const { state } = step({ a: config('1') });
    const torn = step({ a: OTHER }, state, 1000);
    expect([did(torn), torn.unsettled]).toEqual([[], true]);
    expect(did(step({ a: config('1') }, torn.state, 2000))).toEqual([]);
    expect(did(step({ a: config('2') }, torn.state, 2000))).toEqual(['add a']);
    expect(torn.nextScanAt).toBe(1000 + GRACE_MS);
    const still = step({ a: OTHER }, torn.state, 999 + GRACE_MS);
    expect(did(still)).toEqual([]);
    expect(still.nextScanAt).toBe(1000 + GRACE_MS);
    // Of several, the one that is due first.
    const both = step(
      { a: OTHER, b: OTHER },
      step({ a: OTHER, b: config('1') }, torn.state, 2000).state,
      3000,
    );
    expect(both.nextScanAt).toBe(1000 + GRACE_MS);
    expect(did(step({ a: OTHER }, still.state, 1000 + GRACE_MS))).toEqual(['remove a']);
  });
});
