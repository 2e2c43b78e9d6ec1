import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import * as runAgent from '../../src/agent/run-agent.ts';
import { systemClock } from '../../src/base/system-clock.ts';
import { slowProgress } from '../../src/cli/diagnose/progress.ts';
import { runCommand } from '../../src/cli/program.ts';
import * as serving from '../../src/cli/serve-options.ts';
import { localTimeText } from '../../src/process/terminal.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { dpcache, nothing } from './support/run.ts';

const TAPE = new URL('../tapes/late-delete-of-a-reused-ip.jsonl.gz', import.meta.url).pathname;

describe('dpcache tape and replay', () => {
  it('check a tape and print its times, events, cuts and clusters', async () => {
    const { status, stdout } = await dpcache('tape', 'check', TAPE);
    expect(stdout).toMatch(/^.*\d\d:\d\d:\d\d.* to .*, 66 events, 0 cuts, \d+ clusters?\n$/);
    expect(status).toBe(0);
  });

  it('replay it to its end, or to a time of it; a time before it is an error that names its beginning', async () => {
    const whole = await dpcache('replay', TAPE, '--ignore-version');
    expect(whole).toMatchObject({ status: 0, stderr: '' });
    expect(whole.stdout).toMatch(/^replayed to .*, 66 events, 2 digests equal\n$/);
    const part = await dpcache('replay', TAPE, '--ignore-version', '--at', '2026-11-24T05:26:50Z');
    expect(part.stdout).toMatch(/, 1 digest equal\n$/);
    const before = await dpcache('replay', TAPE, '--ignore-version', '--at', '2026-11-24T05:00:00Z');
    expect(before).toMatchObject({ status: 1, stdout: '' });
    expect(before.stderr).toContain(`the tape begins at ${localTimeText('2026-11-24T05:26:44.913Z')}`);
  });

  it('check and replay a tape with the result as JSON', async () => {
    const check = await dpcache('tape', 'check', TAPE, '-o', 'json');
    expect(check).toMatchObject({ status: 0, stderr: '' });
    expect(JSON.parse(check.stdout)).toEqual({
      from: '2026-11-24T05:26:44.913Z',
      to: '2026-11-24T05:26:58.941Z',
      events: 66,
      files: 1,
      cuts: [],
      clusters: ['default'],
      scrubbed: false,
    });
    const whole = await dpcache('replay', TAPE, '--ignore-version', '-o', 'json');
    expect(whole).toMatchObject({ status: 0, stderr: '' });
    expect(JSON.parse(whole.stdout)).toEqual({
      to: '2026-11-24T05:26:58.941Z',
      events: 66,
      digests: 2,
      cuts: [],
      complete: true,
      scrubbed: false,
    });
  });

  it('scrub a tape into another folder; a check and a replay of the copy say so', async () => {
    const out = join(temporaryFolder({}), 'copy');
    const scrub = await dpcache('tape', 'scrub', TAPE, '--out', out);
    expect(scrub).toMatchObject({
      status: 0,
      stderr: '',
      stdout: `${out}: 66 events in 1 file, with other names and addresses\n`,
    });
    expect((await dpcache('tape', 'check', out)).stdout).toMatch(
      /, 66 events, 0 cuts, 1 cluster, scrubbed\n$/,
    );
    const replay = await dpcache('replay', out, '--ignore-version');
    expect(replay).toMatchObject({ status: 0, stderr: '' });
    expect(replay.stdout).toMatch(/, 66 events, scrubbed, without digests\n$/);
    const other = join(temporaryFolder({}), 'other');
    const asJson = await dpcache('tape', 'scrub', TAPE, '--out', other, '-o', 'json');
    expect(JSON.parse(asJson.stdout)).toEqual({ path: other, files: 1, events: 66 });
    const again = await dpcache('tape', 'scrub', TAPE, '--out', out);
    expect(again).toMatchObject({ status: 1, stdout: '' });
    expect(again.stderr).toContain('--out: the folder is not empty: tape-000001.jsonl.gz');
  });

  it('replay a tape with a digest that differs: the JSON names its line, its sums and the changed keys', async () => {
    const text = gunzipSync(readFileSync(TAPE)).toString().replace('"k8s":"0b49b4b90f39e651"', '"k8s":"0"');
    const path = join(temporaryFolder({}), 'tape-000001.jsonl.gz');
    writeFileSync(path, gzipSync(text));
    const { status, stdout, stderr } = await dpcache('replay', path, '--ignore-version', '-o', 'json');
    expect([status, stderr]).toEqual([1, '']);
    expect(JSON.parse(stdout)).toMatchObject({
      events: 59,
      digests: 0,
      complete: true,
      difference: { at: `${path}:59`, writer: 'k8s', recorded: '0', replayed: '0b49b4b90f39e651' },
    });
    expect(JSON.parse(stdout).difference.keys).toHaveLength(10);
    const lines = (await dpcache('replay', path, '--ignore-version')).stdout.split('\n');
    expect(lines[1]).toBe(`${path}:59: the digest of k8s is 0b49b4b90f39e651, but the agent had 0`);
    expect(lines[2]).toMatch(
      /^changed since the last equal digest: endpointslices shop\/checkout-fx9wd, .*, ciliumnodes node-3$/,
    );
  });

  it('replay a tape with lost lines: the cut is named with their number', async () => {
    const text = gunzipSync(readFileSync(TAPE)).toString();
    const later = text.replaceAll(/^\{"seq":(\d+)/gm, (_, seq: string) => `{"seq":${Number(seq) + 70}`);
    const folder = temporaryFolder({});
    for (const [index, part] of [text, later].entries())
      writeFileSync(join(folder, `tape-00000${index + 1}.jsonl.gz`), gzipSync(part));
    const { status, stdout } = await dpcache('replay', folder, '--ignore-version');
    const check = await dpcache('tape', 'check', folder);
    // regression: only the number of cuts was printed
    expect(check.stdout).toContain(
      `, 1 cut, 1 cluster\n${join(folder, 'tape-000002.jsonl.gz')}:1: 4 lines missing`,
    );
    const [, cut, incomplete] = stdout.split('\n');
    expect(cut).toBe(`${join(folder, 'tape-000002.jsonl.gz')}:1: 4 lines missing before it`);
    expect(incomplete).toMatch(/^the state is incomplete: /);
    expect(status).toBe(1);
  });

  it('replay no tape of another version of the program, unless --ignore-version', async () => {
    const text = gunzipSync(readFileSync(TAPE))
      .toString()
      .replace(/"version":"[^"]+"/, '"version":"0.0.0"');
    const path = join(temporaryFolder({}), 'tape-000001.jsonl.gz');
    writeFileSync(path, gzipSync(text));
    const refused = await dpcache('replay', path);
    expect(refused).toMatchObject({ status: 1, stdout: '' });
    expect(refused.stderr).toContain('0.0.0 has written the tape');
    expect(await dpcache('replay', path, '--ignore-version')).toMatchObject({ status: 0, stderr: '' });
  });

  it('replay a tape and serve its state until the signal', async () => {
    const { serveOptions } = serving;
    // Without the page, which the tests do not build.
    vi.spyOn(serving, 'serveOptions').mockImplementation(({ ui: _, ...flags }, env) =>
      serveOptions(flags, env),
    );
    const follow = vi.spyOn(runAgent, 'followMesh');
    const stop = new AbortController();
    let shown = '';
    const output = {
      write: (text: string): void => {
        shown += text;
      },
    };
    const words = ['replay', TAPE, '--ignore-version', '--serve', '127.0.0.1:0'];
    const io = { stdout: output, stderr: output, stdin: nothing(), env: {}, signal: stop.signal };
    const ended = runCommand(words, io);
    await vi.waitFor(() => expect(shown).toContain('Ctrl-C stops.'), 60_000);
    expect(shown).not.toContain('Changes follow');
    expect(shown).toContain('\n  16 prefixes, 3 nodes, 2 services with 5 backends; 0 rejected\n');
    expect(shown).toMatch(/\nAPI: http:\/\/127\.0\.0\.1:\d+\/v1\/status/);
    const [options] = follow.mock.calls[0] ?? [];
    expect(options).toMatchObject({
      clusterName: 'default',
      clusterID: undefined,
      kubernetes: { ifInCluster: false, hostIPs: false, dualStack: false },
    });
    stop.abort();
    expect(await ended).toBe(0);
  });

  it('replay a tape whose beginning is lost: without a complete snapshot, the state is incomplete', async () => {
    const text = gunzipSync(readFileSync(TAPE)).toString();
    const later = text.replaceAll(/^\{"seq":(\d+)/gm, (_, seq: string) => `{"seq":${Number(seq) + 1}`);
    const path = join(temporaryFolder({}), 'tape-000002.jsonl.gz');
    writeFileSync(path, gzipSync(later));
    const { status, stdout, stderr } = await dpcache('replay', path, '--ignore-version');
    expect(stdout).toMatch(/, 66 events, 0 digests equal\nthe state is incomplete: .*\n$/);
    expect([status, stderr]).toEqual([1, '']);
  });

  it('replay a tape with digests of another version: they are not compared, and the result says so', async () => {
    const text = gunzipSync(readFileSync(TAPE)).toString();
    const other = text.replace('"k8s":"0b49b4b90f39e651"', '"k8s":"0"').replace('"digests":5', '"digests":1');
    const path = join(temporaryFolder({}), 'tape-000001.jsonl.gz');
    writeFileSync(path, gzipSync(other));
    const { status, stdout } = await dpcache('replay', path, '--ignore-version');
    expect(stdout).toMatch(/, 66 events, digests of version 1 not compared\n$/);
    expect(status).toBe(0);
    const json = JSON.parse((await dpcache('replay', path, '--ignore-version', '-o', 'json')).stdout);
    expect(json).toMatchObject({ digests: 0, skippedDigestVersion: 1, complete: true });
    expect(json).not.toHaveProperty('difference');
  });

  it('print their progress on stderr if they take longer than 5 s, unless -q', async () => {
    let now = 0;
    vi.spyOn(systemClock, 'now').mockImplementation(() => (now += 5_000));
    onTestFinished(() => void vi.restoreAllMocks());
    const file = 'late-delete-of-a-reused-ip.jsonl.gz, file 1 of 1, line 66';
    const out = (): string => join(temporaryFolder({}), 'copy');
    for (const [words, stderr] of [
      [['tape', 'check', TAPE], `checking ${file}\n`],
      [['tape', 'scrub', TAPE, '--out', out()], `reading ${file}\ncopying ${file}\n`],
      [['replay', TAPE, '--ignore-version'], `replaying ${file}\n`],
    ] as const) {
      expect((await dpcache(...words)).stderr).toBe(stderr);
      const quiet = words.map((word) => (word.endsWith('/copy') ? out() : word));
      expect(await dpcache(...quiet, '-q')).toMatchObject({ status: 0, stderr: '' });
    }
  });

  it('print no progress before 5 s, and then a line every 5 s', () => {
    const clock = new ManualClock();
    const lines: string[] = [];
    const progress = slowProgress({ write: (text) => lines.push(text) }, clock);
    for (let second = 0; second <= 11; second++) {
      progress(`second ${second}`);
      clock.advance(1_000);
    }
    expect(lines).toEqual(['second 5\n', 'second 10\n']);
  });

  it.each([
    [['replay', TAPE, '--at', 'noon'], 2, "invalid --at 'noon'"],
    [['replay', '/nowhere'], 1, 'tape /nowhere: no such file or folder: check the path'],
    [['tape', 'check', new URL('../tapes', import.meta.url).pathname], 1, 'contains no tape'],
    [['record', '--kvstore-config', '/x', '--follow'], 2, '--follow requires --out <folder>'],
    [['record', '--kvstore-config', '/x', '--out', '/y'], 2, '--out requires --follow'],
    [['agent', '--follow-nothing', '--tape', '/x', '--tape-size', '1MiB'], 2, 'at least 16MiB'],
  ])('refuse %j', async (words, status, why) => {
    const refused = await dpcache(...words);
    expect(refused.stderr).toContain(why);
    expect(refused.status).toBe(status);
  });
});
