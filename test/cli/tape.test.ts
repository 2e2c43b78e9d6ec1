import { describe, expect, it } from 'vitest';
import { dpcache } from './support/run.ts';

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
    expect(before.stderr).toContain('the tape begins at 2026-11-24T05:26:4');
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
