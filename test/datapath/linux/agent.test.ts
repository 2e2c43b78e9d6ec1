import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ProbeAnswer } from '../../../src/datapath/linux/probe.ts';
import type { TestKey } from '../../agent/support/agent-under-test.ts';
import { config, ip } from '../../agent/support/test-keys.ts';
import { until } from '../../base/support/until.ts';
import { PROGRAM } from '../../cli/support/program.ts';
import { dpcache, example } from '../../cli/support/run.ts';
import { AgentHere, AgentProcess, type AskedAgent } from './support/agent-process.ts';
import { dumpPrefixes, listedPrefix } from './support/bpftool.ts';
import { describeOnLinux } from './support/requirements.ts';
import { exec, Scratch } from './support/scratch.ts';

/** Runs a command in a network namespace. */
function runIn(namespace: string, words: readonly string[]): SpawnSyncReturns<string> {
  const node = [process.execPath, PROGRAM, ...words];
  return spawnSync('ip', ['netns', 'exec', namespace, ...node], { encoding: 'utf8' });
}

/** `10.1.0.0`, `10.1.0.1` and so on. */
function addresses(net: number, count: number): readonly string[] {
  return Array.from({ length: count }, (_, at) => `10.${net}.${at >> 8}.${at & 255}`);
}

describeOnLinux('without privilege', ['user-namespaces'], () => {
  it('the missing requirements of each part are reported: capabilities of a user namespace do not count', () => {
    const words = ['datapath', 'status', '-o', 'json', '--socket', '/nowhere/agent.sock'];
    const node = [process.execPath, PROGRAM, ...words];
    const within = (...flags: readonly string[]) => {
      const run = spawnSync('unshare', [...flags, ...node], { encoding: 'utf8' });
      expect(run.stderr).toBe('');
      const { pieces } = JSON.parse(run.stdout) as ProbeAnswer;
      return Object.fromEntries(pieces.map(({ piece, missing }) => [piece, missing.join()]));
    };
    expect(within('--user', '--map-root-user', '--net')).toMatchObject({
      maps: expect.stringContaining('CAP_BPF has no effect in a user namespace'),
      routes: '',
    });
    expect(within('--user')).toMatchObject({
      maps: expect.stringContaining('CAP_BPF is missing'),
      routes: expect.stringContaining('CAP_NET_ADMIN is missing'),
      sockets: expect.stringContaining('CAP_NET_ADMIN is missing'),
    });
  });
});

describeOnLinux('an agent with --datapath linux', ['maps', 'bpftool', 'namespaces', 'ip'], () => {
  let scratch = new Scratch();
  let pins = '';
  beforeEach(() => {
    scratch = new Scratch();
    pins = join(scratch.bpffs(), 'dpcache');
  });
  const running: AskedAgent[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((agent) => agent.stop()));
    scratch[Symbol.dispose]();
  });

  const only = ['--datapath-services', 'off', '--datapath-routing', 'off'];
  const here = (...words: readonly string[]): AgentHere => {
    const agent = new AgentHere(scratch, words);
    running.push(agent);
    return agent;
  };
  const datapath = (): readonly string[] => ['--datapath', 'linux', '--datapath-pins', pins, ...only];
  const steering = (...words: readonly string[]): AgentHere => here(...datapath(), ...words);
  const apart = (...words: readonly string[]): AgentProcess =>
    new AgentProcess(scratch, [...datapath(), ...words]);
  const recorded = (keys: readonly TestKey[]): string => {
    const lines = keys.map(([store, key, value]) =>
      JSON.stringify({ store, key, value: JSON.stringify(value) }),
    );
    const path = join(scratch.folder(), 'mesh.jsonl');
    writeFileSync(path, lines.join('\n'));
    return path;
  };
  const command = (agent: AskedAgent, ...words: readonly string[]) =>
    dpcache('datapath', ...words, '--socket', agent.socket);

  it('writes the recorded mesh into a pinned map, verified with bpftool', async () => {
    const agent = steering('--cluster', 'atlantic', '--load', example('mesh.jsonl'));
    await agent.settled();
    const { items } = (await agent.ask('/v1/ipcache?limit=1000')) as {
      items: readonly Parameters<typeof listedPrefix>[0][];
    };
    expect(items.length).toBeGreaterThan(300);
    const dumped = dumpPrefixes(join(pins, 'ipcache'));
    expect([...dumped].sort()).toEqual(items.map(listedPrefix).sort());
    expect(statSync(pins).mode & 0o077).toBe(0);

    const diff = await command(agent, 'diff');
    expect(diff).toMatchObject({ status: 0, stdout: 'No differences.\n' });
    const status = await command(agent, 'status');
    expect(status.stdout).toMatch(/ipcache +in-sync +339 /);
    await agent.stop();
    expect(dumpPrefixes(join(pins, 'ipcache')).size).toBe(dumped.size);
  });

  it('reports changes by other programs, and repairs them', async () => {
    const agent = steering('--load', recorded([config('default', 1), ip('default', '10.1.0.1', 7)]));
    await agent.settled();
    const path = join(pins, 'ipcache');
    const key = (last: number): readonly string[] =>
      `40 0 0 0 0 0 0 1 a 1 0 ${last} 0 0 0 0 0 0 0 0 0 0 0 0`.split(' ').map((byte) => `0x${byte}`);
    const value = '9 0 0 0 0 0 0 0 0 0 0 0'.split(' ');
    exec('bpftool', 'map', 'delete', 'pinned', path, 'key', ...key(1));
    exec('bpftool', 'map', 'update', 'pinned', path, 'key', ...key(2), 'value', ...value);
    const lines = ['ipcache + 10.1.0.1/32 identity 7 via 192.168.0.1', 'ipcache - 10.1.0.2/32 identity 9'];
    const diff = await command(agent, 'diff');
    expect([diff.status, diff.stderr, ...diff.stdout.trim().split('\n')]).toEqual([1, '', ...lines]);
    const repair = await command(agent, 'repair');
    expect([repair.status, ...repair.stdout.trim().split('\n')]).toEqual([0, ...lines, 'Repaired 2 items.']);
    expect(dumpPrefixes(path)).toEqual(new Map([['10.1.0.1/32', '7 via 192.168.0.1']]));
    const json = await command(agent, 'status', '-o', 'json');
    expect(JSON.parse(json.stdout).tables[0]).toMatchObject({ name: 'ipcache', repairs: 2, actual: 1 });
    expect((await command(agent, 'repair')).stdout).toBe('No differences: nothing was written.\n');
  });

  it('takes over the items of a killed agent, and repairs a thousand missed changes', async () => {
    const [own, other] = [addresses(1, 2_000), addresses(2, 500)];
    const baltic = [config('baltic', 2), ...other.map((address, at) => ip('baltic', address, 131_500 + at))];
    const before = [
      config('own', 1),
      ...own.map((address, at) => ip('own', address, 66_000 + at)),
      ...baltic,
    ];
    const first = apart('--cluster', 'own', '--load', recorded(before));
    await first.settled();
    const path = join(pins, 'ipcache');
    const there = dumpPrefixes(path);
    expect(there.size).toBe(2_500);
    await first.kill('SIGKILL');
    expect(dumpPrefixes(path)).toEqual(there);

    // 500 are deleted, 500 change, and the other cluster is unreachable.
    const changed = own.flatMap((address, at) =>
      at < 500 ? [] : [ip('own', address, at < 1_000 ? 77_000 + at : 66_000 + at)],
    );
    const after = [config('own', 1), ...changed];
    const unreached = scratch.folder();
    writeFileSync(join(unreached, 'baltic'), 'endpoints:\n- http://127.0.0.1:1\n');
    const second = apart('--cluster', 'own', '--load', recorded(after), '--clustermesh-config', unreached);
    await second.until(
      ({ waitsFor, tables: [table] }) =>
        waitsFor.some((why) => why.includes('cluster baltic')) &&
        table?.pending === 0 &&
        table.unconfirmed === 1_000,
    );
    // A naive reconciler, which makes the kernel equal to its own state, would delete these now.
    const { stdout: naive } = await command(second, 'diff', '-o', 'json');
    const { total, steps } = JSON.parse(naive);
    expect([total, steps[0]]).toEqual([1_000, expect.not.objectContaining({ cache: expect.anything() })]);
    const kept = dumpPrefixes(path);
    expect(other.filter((address) => !kept.has(`${address}/32`))).toEqual([]);
    expect(kept.get('10.1.2.0/32')).toBe(`${77_000 + 512} via 192.168.0.1`);
    expect((await command(second, 'status')).stdout).toMatch(
      /Not yet confirmed by a cache: 1000 items found at the start, kept until:\n +cluster baltic is incomplete/,
    );
    await second.kill('SIGKILL');

    const third = steering('--cluster', 'own', '--load', recorded([...after, ...baltic]));
    await third.settled();
    expect((await third.table('ipcache')).deletes).toBe(500);
    const expected = [...changed, ...baltic.slice(1)].map(([, key, value]) => [
      `${key.split('/').at(-1)}/32`,
      `${(value as { ID: number }).ID} via 192.168.0.1`,
    ]);
    expect([...dumpPrefixes(path)].sort()).toEqual(expected.sort());
  });

  it.each(['1.8', '1.18'])('writes the layout of %s into a map of its own', async (layout) => {
    const mesh = recorded([config('default', 1), ip('default', '10.1.0.1', 7)]);
    const agent = steering('--datapath-layout', layout, '--load', mesh);
    await agent.settled();
    const name = `ipcache-${layout.replace('.', '_')}`;
    expect(readdirSync(pins)).toEqual([name]);
    expect(dumpPrefixes(join(pins, name)).get('10.1.0.1/32')).toBe('7 via 192.168.0.1');
  });

  it('fills a new map beside one of another layout or size, and replaces it', async () => {
    const mesh = recorded([config('default', 1), ip('default', '10.1.0.1', 7)]);
    const after = async (...words: readonly string[]): Promise<readonly string[]> => {
      const agent = steering('--load', mesh, ...words);
      await agent.settled();
      await agent.until(({ parts }) => parts.every(({ missing }) => missing.length === 0));
      await agent.stop();
      return readdirSync(pins);
    };
    const size = (name: string): number =>
      JSON.parse(exec('bpftool', '-j', 'map', 'show', 'pinned', join(pins, name))).max_entries;
    expect(await after('--datapath-capacity', '10')).toEqual(['ipcache']);
    expect(size('ipcache')).toBe(10);
    expect(await after('--datapath-capacity', '20')).toEqual(['ipcache']);
    expect([size('ipcache'), [...dumpPrefixes(join(pins, 'ipcache')).keys()]]).toEqual([20, ['10.1.0.1/32']]);
    expect(await after('--datapath-layout', '1.18')).toEqual(['ipcache-1_18']);
    expect(await after('--datapath-layout', '1.8')).toEqual(['ipcache-1_8']);
    // An agent that was killed while it filled a map, and then gets another size.
    const half = 'type lpm_trie key 24 value 12 entries 30 name half flags 1'.split(' ');
    for (const name of ['ipcache_new', 'ipcache-1_8_new'])
      exec('bpftool', 'map', 'create', join(pins, name), ...half);
    expect(await after('--datapath-layout', '1.8')).toEqual(['ipcache-1_8']);
  });

  it('writes nothing in a dry run, and prints the writes', async () => {
    const agent = steering(
      ...['--load', recorded([config('default', 1), ip('default', '10.1.0.1', 7)])],
      '--datapath-dry-run',
    );
    await agent.until(({ waitsFor }) => waitsFor.length === 0);
    const diff = await command(agent, 'diff');
    expect([diff.status, diff.stdout]).toEqual([1, 'ipcache + 10.1.0.1/32 identity 7 via 192.168.0.1\n']);
    expect(() => statSync(pins)).toThrow(/ENOENT/);
    expect((await command(agent, 'status')).stdout).toContain('dry run, nothing is written');
  });

  it('continues without a datapath if there is no BPF file system, and names the remedy', async () => {
    const elsewhere = scratch.folder();
    const mesh = recorded([config('default', 1), ip('default', '10.1.0.1', 7)]);
    const words = ['--datapath', 'linux', '--datapath-pins', elsewhere, ...only, '--load', mesh];
    const agent = here(...words);
    await agent.until(({ waitsFor }) => waitsFor.length === 0);
    const status = await command(agent, 'status');
    expect(status.status).toBe(1);
    expect(status.stdout).toMatch(/ipcache +unavailable +no BPF file system at .*: run mount -t bpf/);
    expect(agent.said).toMatch(/ipcache is unavailable: no BPF file system/);
    expect(await agent.ask('/v1/ipcache/lookup/10.1.0.1')).toMatchObject({ identity: 7 });
  });

  it('keeps the strongest and most specific entries in a full map, and counts those without room', async () => {
    const keys = [
      config('default', 1),
      ...addresses(1, 12).map((address, at) => ip('default', address, 100 + at)),
    ];
    const agent = steering('--load', recorded(keys), '--datapath-capacity', '10');
    const { tables } = await agent.until(
      ({ tables: [table] }) => table?.state === 'degraded' && table.pending === 0,
    );
    expect(tables[0]).toMatchObject({ capacity: 10, actual: 10, noRoom: 2, pressure: 1, failing: 0 });
    const status = await command(agent, 'status');
    expect([status.status, status.stdout]).toEqual([
      1,
      expect.stringMatching(/ipcache +degraded +10 +12 +10 +100 %/),
    ]);
    expect(dumpPrefixes(join(pins, 'ipcache')).size).toBe(10);
  });

  it('keeps a foreign map at the path of its own, and names the remedy', async () => {
    exec('mkdir', pins);
    const path = join(pins, 'ipcache');
    exec('bpftool', ...`map create ${path} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    const agent = steering('--load', recorded([config('default', 1), ip('default', '10.1.0.1', 7)]));
    await agent.until(({ waitsFor }) => waitsFor.length === 0);
    const { stdout, status } = await command(agent, 'status');
    expect([status, stdout]).toEqual([
      1,
      expect.stringMatching(/ipcache +unavailable .*ipcache is a different map/),
    ]);
    expect(exec('bpftool', 'map', 'show', 'pinned', path)).toContain('name foreign');
  });

  it('is removed by clean once no agent manages it; foreign items remain, and are named', async () => {
    const agent = steering('--load', recorded([config('default', 1), ip('default', '10.1.0.1', 7)]));
    await agent.settled();
    const refused = await command(agent, 'clean', '--datapath-pins', pins);
    expect([refused.status, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/the agent with pid \d+ uses this datapath .*: stop the agent first/),
    ]);
    await agent.stop();
    const foreign = join(pins, 'foreign');
    exec('bpftool', ...`map create ${foreign} type hash key 4 value 4 entries 5 name foreign`.split(' '));
    const old = join(pins, 'ipcache-1_8');
    exec('bpftool', ...`map create ${old} type hash key 4 value 4 entries 5 name other`.split(' '));
    const host = scratch.namespace('host');
    for (const added of [
      'link add up0 type veth peer name up1',
      'link set up1 up',
      'address add 192.168.9.1/24 dev up0',
      'link set up0 up',
      'route add 10.9.1.0/24 via 192.168.9.2 proto 201',
      'route add 10.9.2.0/24 via 192.168.9.2 proto static',
    ])
      host.run('ip', ...added.split(' '));
    const words = ['datapath', 'clean', '--datapath-pins', pins, '--socket', join(pins, '../none')];
    const run = runIn(host.name, words);
    expect([run.status, run.stderr]).toEqual([
      1,
      `dpcache: not removed: ${foreign} is foreign\ndpcache: not removed: ${old} is a foreign map\n`,
    ]);
    expect(run.stdout).toMatch(/paths - route 10\.9\.1\.0\/24 /);
    expect(run.stdout).toContain(`${join(pins, 'ipcache')}\n`);
    expect(readdirSync(pins)).toEqual(['foreign', 'ipcache-1_8']);
    expect(host.run('ip', 'route', 'show', 'proto', '201')).toBe('');
    expect(host.run('ip', 'route', 'show', 'proto', 'static')).toMatch(
      /^10\.9\.2\.0\/24 via 192\.168\.9\.2 /,
    );
  });

  it('reports without an agent which parts are available', async () => {
    const { status, stdout } = await dpcache(
      'datapath',
      'status',
      '--socket',
      join(scratch.folder(), 'none'),
      '--datapath-pins',
      pins,
    );
    expect([status, stdout]).toEqual([
      0,
      expect.stringMatching(/^No agent is running at .*maps +available/s),
    ]);
    const nowhere = await dpcache('datapath', 'diff', '--socket', join(scratch.folder(), 'none'));
    expect([nowhere.status, nowhere.stderr]).toEqual([
      1,
      expect.stringContaining('no process listens on this socket'),
    ]);
  });

  it('reports that another agent has no datapath', async () => {
    const agent = here('--load', recorded([config('default', 1)]));
    await until('it answers', () =>
      agent.ask('/readyz').then(
        () => true,
        () => false,
      ),
    );
    for (const question of ['status', 'diff', 'repair']) {
      const { status, stderr } = await command(agent, question);
      expect([question, status, stderr]).toEqual([question, 1, expect.stringContaining('--datapath linux')]);
    }
    expect(readFileSync('/proc/self/mounts', 'utf8')).toContain(pins.slice(0, -'/dpcache'.length));
  });
});
