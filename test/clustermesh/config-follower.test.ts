import { beforeEach, describe, expect, it } from 'vitest';
import type { ConfigFile, NameCheck } from '../../src/clustermesh/config-directory.ts';
import { ConfigFollower } from '../../src/clustermesh/config-follower.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { FakeDirectory } from './support/fake-directory.ts';

let clock: ManualClock;
let directory: FakeDirectory;
let follower: ConfigFollower;
let did: string[];
let problems: string[];

const config = (hash: string): ConfigFile => ({ kind: 'config', hash, connect: () => Promise.reject() });

function followerWith(
  check: NameCheck,
  record = (change: string): void => void did.push(change),
): ConfigFollower {
  return new ConfigFollower({
    source: directory,
    clock,
    mesh: {
      check,
      add: async (name) => {
        record(`add ${name}`);
        return 'added';
      },
      remove: async (name) => {
        record(`remove ${name}`);
        return true;
      },
    },
    onProblem: (name, why) => problems.push(`${name}: ${why}`),
  });
}

beforeEach(() => {
  clock = new ManualClock();
  directory = new FakeDirectory();
  did = [];
  problems = [];
  follower = followerWith(() => undefined);
});

describe('a configuration directory that is followed', () => {
  it('is listed once for many changes at the same time', async () => {
    directory.write('a', config('1'));
    await follower.start();
    expect(did).toEqual(['add a']);
    for (let i = 0; i < 20; i++) directory.write(`c${i}`, config('1'));
    directory.write('a', undefined);
    await advance(clock, 1000);
    expect(directory.listings).toBe(2);
    expect(did).toHaveLength(22);
    expect(did).toContain('remove a');
    await follower.stop();
  });

  it('has no problem if the end interrupts a listing (regression: the abort was its problem)', async () => {
    await follower.start();
    directory.list = () => new Promise(() => {});
    directory.write('a', config('1'));
    await advance(clock, 1000);
    await follower.stop();
    expect(follower.status().problems).toEqual({});
  });

  it('is not listed again after the end if it notifies as soon as it is watched (regression: it was)', async () => {
    const watch = directory.watch.bind(directory);
    directory.watch = (onChange) => {
      onChange();
      return watch(onChange);
    };
    await follower.start();
    await follower.stop();
    await advance(clock, 120_000);
    expect([directory.listings, clock.pending]).toEqual([1, 0]);
  });

  it('is listed periodically in case notifications are lost', async () => {
    await follower.start();
    directory.write('a', config('1'), { told: false });
    await advance(clock, 1000);
    expect(did).toEqual([]);
    await advance(clock, 60_000);
    expect(did).toEqual(['add a']);
    await follower.stop();
  });

  it('changes nothing while it is unreadable, is retried, and the reason is reported once', async () => {
    directory.write('a', config('1'));
    await follower.start();
    directory.unreadable = 'EACCES';
    directory.write('a', undefined);
    await advance(clock, 20_000);
    expect(did).toEqual(['add a']);
    expect(problems).toEqual([': EACCES']);
    expect(follower.status().problems).toEqual({ '': 'EACCES' });
    directory.unreadable = undefined;
    await advance(clock, 5000);
    expect(did).toEqual(['add a', 'remove a']);
    expect(follower.status().problems).toEqual({});
    await follower.stop();
  });

  it('is listed only after a successful read, not after a failed start', async () => {
    directory.write('a', config('1'));
    directory.unreadable = 'EACCES';
    let listed = false;
    void follower.listed.then(() => {
      listed = true;
    });
    await follower.start();
    await advance(clock, 1000);
    expect([listed, follower.status().listed, did]).toEqual([false, false, []]);
    directory.unreadable = undefined;
    await advance(clock, 5000);
    expect([listed, follower.status().listed, did]).toEqual([true, true, ['add a']]);
    await follower.stop();
  });

  it('is read again soon if a file is unusable', async () => {
    directory.write('a', { kind: 'unusable', reason: 'no YAML' });
    await follower.start();
    expect(problems).toEqual(['a: no YAML']);
    directory.write('a', config('1'), { told: false });
    await advance(clock, 2000);
    expect(did).toEqual(['add a']);
    await follower.stop();
  });

  it.each([3_600_000, -3_600_000])(
    'keeps a cluster whose file is being rewritten while the clock is set by %i ms (regression: set forward, it was removed)',
    async (ms) => {
      directory.write('a', config('1'));
      await follower.start();
      directory.write('a', { kind: 'other' });
      await advance(clock, 3000);
      clock.setWallTimeBy(ms);
      await advance(clock, 5000);
      directory.write('a', config('1'));
      await advance(clock, 3000);
      expect(did).toEqual(['add a']);
      await follower.stop();
    },
  );

  it('keeps a cluster whose file is being rewritten, even if the clock is set (freeze: dropped)', async () => {
    directory.write('a', config('1'));
    await follower.start();
    directory.write('a', { kind: 'other' });
    await advance(clock, 3000);
    clock.setWallTimeBy(3_600_000);
    await advance(clock, 3000);
    clock.setWallTimeBy(-7_200_000);
    await advance(clock, 3000);
    expect(did).toEqual(['add a']);
    expect(follower.status().problems).toEqual({
      a: 'does not contain "endpoints:" any more; the cluster is removed if this does not change',
    });
    await advance(clock, 2000);
    expect(did).toEqual(['add a', 'remove a']);
    await follower.stop();
  });

  it('is read less and less often if the problem stays the same', async () => {
    directory.write('a', { kind: 'unusable', reason: 'no YAML' });
    await follower.start();
    await advance(clock, 600_000);
    expect(directory.listings).toBeLessThan(65);
    expect(problems).toHaveLength(1);
    directory.write('b', { kind: 'unusable', reason: 'no YAML' }, { told: false });
    while (problems.length < 2) await advance(clock, 100);
    const before = directory.listings;
    await advance(clock, 2_000);
    expect(directory.listings).toBe(before + 1);
    await follower.stop();
  });

  it('ends while the directory does not answer (freeze: stop never resolved), and reports nothing afterwards', async () => {
    await follower.start();
    directory.list = () => new Promise(() => {});
    directory.write('a', config('1'));
    await advance(clock, 1000);
    expect(directory.isWatched).toBe(true);
    await follower.stop();
    expect([did, problems, clock.pending, directory.isWatched]).toEqual([[], [], 0, false]);
  });

  it.each([
    ['of a new file', undefined, config('1'), ['add a', 'add a', 'add b']],
    ['of a changed file', config('1'), config('2'), ['add a', 'add a', 'add a', 'add b']],
    ['of a deleted file', config('1'), undefined, ['add a', 'add b', 'remove a', 'remove a']],
  ])(
    'has a problem with a file if a change %s fails, and tries it again (regression: reported as unreadable, not tried again)',
    async (_, before, after, expected) => {
      let failures = 0;
      const record = (change: string): void => {
        did.push(change);
        if (change.endsWith(' a') && failures-- > 0) throw new Error('no memory');
      };
      follower = followerWith(() => undefined, record);
      directory.write('a', before);
      await follower.start();
      failures = 1;
      directory.write('b', config('1'));
      directory.write('a', after);
      await advance(clock, 1000);
      expect(follower.status().problems).toEqual({ a: 'could not be applied: no memory' });
      expect(problems).toEqual(['a: could not be applied: no memory']);
      await advance(clock, 2000);
      expect(did.toSorted()).toEqual(expected);
      expect(follower.status()).toMatchObject({ listed: true, problems: {} });
      await follower.stop();
    },
  );

  it('removes a cluster whose addition failed if its file is deleted', async () => {
    follower = followerWith(
      () => undefined,
      (change) => {
        did.push(change);
        if (change === 'add a') throw new Error('no memory');
      },
    );
    directory.write('a', config('1'));
    await follower.start();
    expect(follower.status().listed).toBe(false);
    directory.write('a', undefined);
    await advance(clock, 1000);
    expect(did).toEqual(['add a', 'remove a']);
    expect(follower.status()).toMatchObject({ listed: true, clusters: 0, problems: {} });
    await follower.stop();
  });

  it('continues if the report callback throws', async () => {
    follower = new ConfigFollower({
      source: directory,
      clock,
      mesh: {
        check: () => undefined,
        add: () => Promise.resolve('added'),
        remove: () => Promise.resolve(true),
      },
      onProblem: () => {
        throw new Error('a broken report');
      },
    });
    directory.write('a', { kind: 'unusable', reason: 'no YAML' });
    await follower.start();
    directory.write('a', config('1'), { told: false });
    await advance(clock, 2000);
    expect(follower.status()).toMatchObject({ clusters: 1, problems: {} });
    await follower.stop();
  });

  it('is not read after the end', async () => {
    await follower.start();
    await follower.stop();
    directory.write('a', config('1'));
    await advance(clock, 200_000);
    await settle();
    expect([did, clock.pending]).toEqual([[], 0]);
  });

  it('is read once a minute without a problem', async () => {
    directory.write('a', config('1'));
    await follower.start();
    await advance(clock, 59_000);
    expect(directory.listings).toBe(1);
    await advance(clock, 1000);
    expect([directory.listings, follower.status().scans]).toEqual([2, 2]);
    await follower.stop();
  });

  it('is retried after 2, 4 and 8 s, and then every 10 s, while it is unreadable', async () => {
    directory.unreadable = 'EACCES';
    await follower.start();
    const looks: number[] = [];
    for (let second = 1; second <= 34; second++) {
      const before = directory.listings;
      await advance(clock, 1000);
      if (directory.listings > before) looks.push(second);
    }
    expect(looks).toEqual([2, 6, 14, 24, 34]);
    directory.unreadable = undefined;
    await advance(clock, 10_000);
    expect(Object.keys(follower.status().problems)).toEqual([]);
    await follower.stop();
  });

  it('is read soon, even if it keeps changing', async () => {
    await follower.start();
    for (let i = 0; i < 10; i++) {
      directory.write('a', config(String(i)));
      await advance(clock, 100);
    }
    expect(directory.listings).toBe(6);
    await follower.stop();
  });

  it('is read again if it changes during a read', async () => {
    await follower.start();
    const list = directory.list.bind(directory);
    let answer: (() => void) | undefined;
    directory.list = async () => {
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      return list();
    };
    directory.write('a', config('1'));
    await advance(clock, 1000);
    directory.write('b', config('1'));
    await advance(clock, 1000);
    expect(follower.status().scans).toBe(2);
    directory.list = list;
    answer?.();
    await advance(clock, 1000);
    expect([follower.status().scans, did]).toEqual([3, ['add a', 'add b']]);
    await follower.stop();
  });

  it('is not read after the end, even if it changed while it did not answer', async () => {
    await follower.start();
    directory.list = () => new Promise(() => {});
    directory.write('a', config('1'));
    await advance(clock, 1000);
    directory.write('b', config('1'));
    await follower.stop();
    await settle();
    expect(clock.pending).toBe(0);
  });

  it('can be started once, and stopped without a start', async () => {
    await follower.stop();
    follower = followerWith(() => undefined);
    await follower.start();
    await expect(follower.start()).rejects.toThrow('start must be called once');
    await follower.stop();
  });

  it('has no cluster whose name the mesh rejects', async () => {
    follower = followerWith((name) => (name === 'own' ? 'local-cluster' : undefined));
    for (const name of ['own', 'a']) directory.write(name, config('1'));
    await follower.start();
    expect(did).toEqual(['add a']);
    await follower.stop();
  });
});
