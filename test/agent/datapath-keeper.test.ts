import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { DatapathKeeper } from '../../src/agent/datapath-keeper.ts';
import { type KnownInputs, NOTHING_KNOWN } from '../../src/datapath/linux/known-inputs.ts';
import { LinuxDatapath } from '../../src/datapath/linux/linux-datapath.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { createLog } from '../../src/process/log.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { settle } from './support/fake-clock.ts';

/** A keeper of a datapath whose parts cannot run on this host, because no BPF file system is mounted. */
function keeperOf(
  clock: ManualClock,
  options: {
    readonly incompleteInputs?: () => readonly string[];
    readonly dryRun?: boolean;
    readonly logged?: string[];
    readonly knownInputs?: () => KnownInputs;
    readonly onRepairFailed?: (error: unknown) => void;
  },
): DatapathKeeper {
  const {
    incompleteInputs = () => [],
    dryRun = true,
    logged = [],
    knownInputs = () => NOTHING_KNOWN,
  } = options;
  const { onRepairFailed } = options;
  const ipcache = new IPCache();
  const nodes = new NodeManager({ ipcache, clock, clusterName: 'own', nodeName: 'here' });
  const engines = { ipcache, nodes, services: new ServiceCache({ clusterName: 'own' }) };
  const pinFolder = join(tmpdir(), 'no-bpf-file-system');
  return new DatapathKeeper({
    engines,
    clock,
    random: () => 0,
    nodeName: 'here',
    clusterName: 'own',
    incompleteInputs,
    log: createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) }),
    options: { pinFolder, routing: 'off', services: 'off', layout: '1.17', dryRun },
    knownInputs,
    onRepairFailed,
  });
}

function started(keeper: DatapathKeeper, signal: AbortSignal = new AbortController().signal): unknown {
  return keeper.step().start({ signal, progress: () => {} });
}

it('a datapath tests every second whether all inputs are complete, also if the first sync is reported twice', async () => {
  const clock = new ManualClock();
  let looks = 0;
  const incompleteInputs = (): readonly string[] => {
    looks++;
    return ['a cluster that does not answer'];
  };
  const keeper = keeperOf(clock, { incompleteInputs });
  await started(keeper);
  keeper.initialSyncDone();
  keeper.initialSyncDone();
  looks = 0;
  for (let second = 0; second < 3; second++) clock.advance(1_000);
  expect(looks).toBe(3);
  keeper.step().stop?.();
  clock.advance(1_000);
  expect([looks, clock.pending]).toEqual([3, 0]);
});

it('a datapath is closed if the agent is stopped while it opens', async () => {
  const clock = new ManualClock();
  const keeper = keeperOf(clock, { dryRun: false });
  const stop = new AbortController();
  const opening = started(keeper, stop.signal);
  stop.abort();
  await opening;
  expect([clock.pending, keeper.status().parts]).toEqual([0, []]);
});

it('a failed repair is logged, and the next one is tried (regression: unhandled rejection)', async () => {
  const clock = new ManualClock();
  const logged: string[] = [];
  const failures: unknown[] = [];
  const onRepairFailed = (error: unknown): void => void failures.push(error);
  const keeper = keeperOf(clock, { dryRun: false, logged, onRepairFailed });
  await started(keeper);
  logged.length = 0;
  let repairs = 0;
  vi.spyOn(LinuxDatapath.prototype, 'repair').mockImplementation(() => {
    repairs++;
    return Promise.reject(new Error('netlink is out of buffers'));
  });
  for (let round = 0; round < 2; round++) {
    clock.advance(10_000);
    await settle();
  }
  expect(repairs).toBe(2);
  const line = 'error --datapath linux: cannot repair the kernel; retrying: netlink is out of buffers';
  expect(logged).toEqual([line, line]);
  expect(failures).toHaveLength(2);
  keeper.step().stop?.();
  expect(clock.pending).toBe(0);
});

it('the kernel is compared ten seconds after the last comparison, later if a comparison takes long', async () => {
  const clock = new ManualClock();
  const keeper = keeperOf(clock, { dryRun: false });
  await started(keeper);
  const times: number[] = [];
  let end = (): void => {};
  vi.spyOn(LinuxDatapath.prototype, 'repair').mockImplementation(async () => {
    times.push(clock.now());
    await new Promise<void>((resolve) => {
      end = resolve;
    });
    return [];
  });
  /** Lets a comparison take `tookMs`, and returns the time from its end to the begin of the next one. */
  const pauseAfter = async (tookMs: number): Promise<number> => {
    clock.advance(tookMs);
    end();
    await settle();
    const ended = clock.now();
    const count = times.length;
    while (times.length === count) clock.advance(100);
    return clock.now() - ended;
  };
  clock.advance(9_999);
  expect(times).toEqual([]);
  clock.advance(1);
  expect(await pauseAfter(1)).toBe(10_000);
  expect(await pauseAfter(400)).toBe(80_000);
  expect(await pauseAfter(60_000)).toBe(300_000);
  keeper.step().stop?.();
  end();
  await settle();
  expect(clock.pending).toBe(0);
});

it('a datapath receives which services are complete, again when that changes, until all inputs are complete', async () => {
  const clock = new ManualClock();
  const received: KnownInputs[] = [];
  const set = LinuxDatapath.prototype.setInputs;
  vi.spyOn(LinuxDatapath.prototype, 'setInputs').mockImplementation(function (this: LinuxDatapath, inputs) {
    received.push(inputs);
    set.call(this, inputs);
  });
  let inputs: KnownInputs = NOTHING_KNOWN;
  const keeper = keeperOf(clock, { incompleteInputs: () => ['a cluster'], knownInputs: () => inputs });
  await started(keeper);
  keeper.initialSyncDone();
  received.length = 0;
  const isComplete = { ...NOTHING_KNOWN, isLocalComplete: true };
  inputs = isComplete;
  for (let second = 0; second < 3; second++) clock.advance(1_000);
  expect(received).toEqual([isComplete]);
  keeper.step().stop?.();
});

describe('a datapath whose inputs become complete', () => {
  it('may delete found items once, only after the first sync and without incompleteInputs', async () => {
    const allow = vi.spyOn(LinuxDatapath.prototype, 'allowDeletes').mockReturnValue();
    const clock = new ManualClock();
    let blocking: readonly string[] = [];
    const keeper = keeperOf(clock, { incompleteInputs: () => blocking });
    await started(keeper);
    clock.advance(5_000);
    expect(allow).not.toHaveBeenCalled();
    expect(keeper.status().waitsFor).toEqual(['the agent is starting']);
    blocking = ['the list of nodes is incomplete']; // the status named no input until the start had ended
    clock.advance(1_000);
    expect(keeper.status().waitsFor).toEqual(blocking);
    blocking = [];
    clock.advance(1_000);
    expect(allow).not.toHaveBeenCalled();
    expect(keeper.status().waitsFor).toEqual(['the agent is starting']);
    blocking = ['cluster far is incomplete'];
    keeper.initialSyncDone();
    clock.advance(1_000);
    expect(allow).not.toHaveBeenCalled();
    expect(keeper.status().waitsFor).toEqual(['cluster far is incomplete']);
    blocking = [];
    clock.advance(1_000);
    expect([allow.mock.calls.length, keeper.status().waitsFor, clock.pending]).toEqual([1, [], 0]);
    blocking = ['cluster far is incomplete'];
    keeper.initialSyncDone();
    expect([allow.mock.calls.length, keeper.status().waitsFor, clock.pending]).toEqual([1, [], 0]);
    keeper.step().stop?.();
  });

  it('that cannot be opened is reported, and the start continues', async () => {
    vi.spyOn(LinuxDatapath.prototype, 'adopt').mockRejectedValue(new Error('no memory'));
    const logged: string[] = [];
    const keeper = keeperOf(new ManualClock(), { logged });
    await started(keeper);
    expect(keeper.status().failures[0]).toBe('no memory');
    expect(logged.at(-1)).toMatch(/^error --datapath linux: no memory/);
    keeper.step().stop?.();
  });

  it('logs the found items of each part, and follows the engines after the adoption', async () => {
    const calls: string[] = [];
    vi.spyOn(LinuxDatapath.prototype, 'adopt').mockImplementation(async () => void calls.push('adopt'));
    vi.spyOn(LinuxDatapath.prototype, 'connect').mockImplementation(() => void calls.push('connect'));
    const found = [
      { name: 'ipcache', actual: 2 },
      { name: 'routes', actual: 1 },
    ];
    vi.spyOn(LinuxDatapath.prototype, 'found', 'get').mockReturnValue(found as never);
    const logged: string[] = [];
    const keeper = keeperOf(new ManualClock(), { logged });
    await started(keeper);
    expect(logged.slice(-2)).toEqual([
      'info  --datapath linux: ipcache: found 2 items, kept until the caches are complete',
      'info  --datapath linux: routes: found 1 item, kept until the caches are complete',
    ]);
    expect(calls).toEqual(['adopt', 'connect']);
    keeper.step().stop?.();
  });

  it('logs each unavailable part and each failure of the adoption as an error', async () => {
    const parts = [
      { name: 'nodes', state: 'running', missing: [] },
      { name: 'ipcache', state: 'unavailable', missing: ['no map', 'no memory'] },
      { name: 'services', state: 'off', missing: [] },
    ];
    let failures: readonly string[] = [];
    vi.spyOn(LinuxDatapath.prototype, 'status').mockImplementation(
      () => ({ parts, tables: [], failures }) as never,
    );
    vi.spyOn(LinuxDatapath.prototype, 'adopt').mockImplementation(async () => {
      failures = ['routes: cannot read', 'rules: cannot read'];
    });
    const logged: string[] = [];
    const keeper = keeperOf(new ManualClock(), { logged });
    await started(keeper);
    expect(logged).toEqual([
      'error --datapath linux: ipcache is unavailable: no map',
      'error --datapath linux: ipcache is unavailable: no memory',
      'error --datapath linux: routes: cannot read',
      'error --datapath linux: rules: cannot read',
    ]);
    keeper.step().stop?.();
  });

  it('answers from the kernel while it is open, and with nothing before and after', async () => {
    const step = { table: 'ipcache', key: 'a', cache: 'b' };
    vi.spyOn(LinuxDatapath.prototype, 'plan').mockResolvedValue([step] as never);
    const repair = vi.spyOn(LinuxDatapath.prototype, 'repair').mockResolvedValue([step, step] as never);
    const lookup = vi
      .spyOn(LinuxDatapath.prototype, 'lookupPrefix')
      .mockReturnValue({ kernel: 'x', cache: 'y', z: 1 } as never);
    const logged: string[] = [];
    const clock = new ManualClock();
    const keeper = keeperOf(clock, { dryRun: false, logged });
    const nothing = [[], [], undefined];
    const all = async (): Promise<unknown> => [
      await keeper.diff(),
      await keeper.repair(),
      keeper.kernelEntry('a'),
    ];
    keeper.initialSyncDone();
    expect([await all(), clock.pending]).toEqual([nothing, 0]);
    await started(keeper);
    expect(await all()).toEqual([[step], [step, step], { kernel: 'x', cache: 'y' }]);
    lookup.mockImplementation(() => {
      throw new Error('no map');
    });
    expect(keeper.kernelEntry('a')).toEqual({ failure: 'no map' });
    logged.length = 0;
    clock.advance(10_000);
    await settle();
    expect(logged).toEqual(['warn  --datapath linux: repaired 2 items of the kernel, first ipcache a']);
    repair.mockResolvedValue([]);
    clock.advance(10_000);
    await settle();
    expect(logged).toHaveLength(1);
    keeper.step().stop?.();
    expect(await all()).toEqual(nothing);
  });

  it('in a dry run is never repaired', async () => {
    const repair = vi.spyOn(LinuxDatapath.prototype, 'repair').mockResolvedValue([]);
    const clock = new ManualClock();
    const keeper = keeperOf(clock, { dryRun: true, incompleteInputs: () => ['x'] });
    await started(keeper);
    clock.advance(600_000);
    await settle();
    expect(repair).not.toHaveBeenCalled();
    expect(keeper.status()).toMatchObject({ kind: 'linux', layout: '1.17', dryRun: true });
    keeper.step().stop?.();
  });
});

it('the kernel is repaired every ten seconds although deletes wait', async () => {
  const clock = new ManualClock();
  const keeper = keeperOf(clock, { dryRun: false });
  let repairs = 0;
  vi.spyOn(LinuxDatapath.prototype, 'repair').mockImplementation(() => {
    repairs++;
    return Promise.resolve([]);
  });
  vi.spyOn(LinuxDatapath.prototype, 'flushed').mockReturnValue(new Promise(() => {}));
  await started(keeper);
  for (let second = 0; second < 30; second++) {
    clock.advance(1_000);
    await settle();
  }
  expect(repairs).toBe(3);
  keeper.step().stop?.();
});
