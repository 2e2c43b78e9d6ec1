import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { hangingAgent } from './support/hanging-agent.ts';
import { dpcache } from './support/run.ts';

describe('dpcache bundle without an agent', () => {
  it('names the reason once, and the remedy, and writes what there is', async () => {
    const folder = temporaryFolder({});
    const socket = join(folder, 'none.sock');
    const out = join(folder, 'bundle.tar.gz');
    const { status, stdout, stderr } = await dpcache('bundle', '--socket', socket, '--out', out);
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr.match(/no process listens on this socket/g)).toHaveLength(1);
    expect(stderr).toContain('start one with dpcache agent, or set its socket with --socket\n');
    expect(existsSync(out)).toBe(true);
  });

  it('says so as JSON', async () => {
    const folder = temporaryFolder({});
    const out = join(folder, 'bundle.tar.gz');
    const { status, stdout } = await dpcache(
      ...['bundle', '--socket', join(folder, 'none.sock'), '--out', out, '-o', 'json'],
    );
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toEqual({
      path: out,
      bytes: expect.any(Number),
      files: ['about.txt', 'errors.txt'],
      cut: [],
      errors: [expect.stringMatching(/^\/v1\/status, .*: no process listens on this socket$/)],
    });
  });

  it('has the settings of --config without secrets', async () => {
    const settings =
      'cluster: atlantic\n# password: pl4nted\nsocket: none.sock # https://root:pl4nted@etcd\n';
    const folder = temporaryFolder({ 'agent.yaml': settings });
    const out = join(folder, 'bundle.tar.gz');
    await dpcache('bundle', '--config', join(folder, 'agent.yaml'), '--out', out);
    const text = gunzipSync(readFileSync(out)).toString('latin1');
    expect(text).toContain('settings.yaml');
    expect(text).toContain('cluster: atlantic');
    expect(text).not.toContain('pl4nted');
  });

  it('omits the first line of a log that is cut, because the word before a secret may be missing', async () => {
    const folder = temporaryFolder({ log: `password: ${'x'.repeat(1 << 20)}\nthe last line\n` });
    const out = join(folder, 'bundle.tar.gz');
    await dpcache(
      ...['bundle', '--socket', join(folder, 'none.sock'), '--out', out, '--log-file', join(folder, 'log')],
    );
    const text = gunzipSync(readFileSync(out)).toString('latin1');
    expect(text).toContain('the last line');
    expect(text).not.toContain('xxx');
  });

  it('omits a last line longer than the limit (regression: its beginning was cut, with the word before a secret)', async () => {
    const folder = temporaryFolder({ log: `password: ${'x'.repeat(1 << 20)}` });
    const out = join(folder, 'bundle.tar.gz');
    await dpcache(
      ...['bundle', '--socket', join(folder, 'none.sock'), '--out', out, '--log-file', join(folder, 'log')],
    );
    expect(gunzipSync(readFileSync(out)).toString('latin1')).not.toContain('xxx');
  });

  it('has the limit in its errors if the agent hangs', async () => {
    const socket = await hangingAgent();
    const out = join(temporaryFolder({}), 'bundle.tar.gz');
    const { status, stdout } = await dpcache('bundle', '--socket', socket, '--out', out, '-o', 'json');
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      errors: [expect.stringMatching(/^\/v1\/status, .*: no answer for 30 s$/)],
    });
  });
});
