import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import type { SettingsDocument } from '../../../src/api/routes/settings-routes.ts';
import { addAgentOptions } from '../../../src/cli/configuration.ts';
import { addOperatorOptions } from '../../../src/cli/operator-options.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';
import { dpcache } from '../support/run.ts';
import { startProcess } from '../support/start-process.ts';

const SECRET = 'pl4nted-S3cret';

async function settingsAt(socket: string): Promise<SettingsDocument> {
  const { status, stdout } = await dpcache('config', 'show', '-o', 'json', '--socket', socket);
  expect(status).toBe(0);
  return JSON.parse(stdout);
}

describe('the settings of a running process', () => {
  it('show the value and origin of each, without the secrets planted in a flag, the environment and the file', async () => {
    const folder = temporaryFolder({
      'm.yaml':
        'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n',
    });
    const file = (name: string): string => join(folder, name);
    const config = `manifests: ${file('m.yaml')}\nhistory-memory: 2MiB\nnode-name: token=${SECRET}\n`;
    writeFileSync(file('c.yaml'), config);
    const pathOfKeys = (user: string): string => `${folder}/https://${user}@proxy/keys.jsonl`;
    mkdirSync(dirname(pathOfKeys(`root:${SECRET}`)), { recursive: true });
    writeFileSync(pathOfKeys(`root:${SECRET}`), '');
    const agent = startProcess(
      [
        ...['agent', '--config', file('c.yaml'), '--socket', file('s.sock')],
        ...['--load', pathOfKeys(`root:${SECRET}`)],
      ],
      { DPCACHE_K8S_NODE_NAME: `Bearer ${SECRET}`, DPCACHE_CLUSTERMESH_CACHE_TTL: '10m' },
    );
    await agent.shows('Changes follow');
    const { file: path, settings } = await settingsAt(file('s.sock'));
    expect(path).toBe(file('c.yaml'));
    expect(settings).toMatchObject({
      socket: { value: file('s.sock'), from: 'flag' },
      load: { value: [pathOfKeys('[removed]')], from: 'flag' },
      'k8s-node-name': { value: 'Bearer [removed]', from: 'environment' },
      'clustermesh-cache-ttl': { value: 600_000, from: 'environment' },
      manifests: { value: [file('m.yaml')], from: 'file' },
      'history-memory': { value: 2 << 20, from: 'file' },
      'node-name': { value: 'token="[removed]"', from: 'file' },
      'log-level': { value: 'warn', from: 'default' },
      'state-dir': { value: null, from: 'default' },
      encryption: { value: false, from: 'default' },
    });
    expect(Object.keys(settings)).not.toContain('once');
    expect(JSON.stringify(settings)).not.toContain(SECRET);

    const { stdout } = await dpcache('config', 'show', '--socket', file('s.sock'));
    expect(stdout).toMatch(/^SETTING +VALUE +FROM\n/);
    expect(stdout).toMatch(/^clustermesh-cache-ttl +600000 +environment$/m);
    expect(stdout).toMatch(/^state-dir +- +default$/m);
    expect(stdout).not.toContain(SECRET);

    const out = file('bundle.tar.gz');
    const bundle = await dpcache('bundle', '--socket', file('s.sock'), '--out', out);
    expect(bundle.status).toBe(0);
    const packed = gunzipSync(readFileSync(out)).toString('latin1');
    expect(packed).toContain('settings.json');
    expect(packed).toContain('"clustermesh-cache-ttl"');
    expect(packed).not.toContain(SECRET);
  });

  it('show the reloaded values after SIGHUP, and the earlier ones of settings that need a restart', async () => {
    const folder = temporaryFolder({
      'm.yaml':
        'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n',
    });
    const file = (name: string): string => join(folder, name);
    const configure = (more: string): void =>
      writeFileSync(file('c.yaml'), `socket: ${file('s.sock')}\nmanifests: ${file('m.yaml')}\n${more}`);
    configure('cluster: atlantic\n');
    const agent = startProcess(['agent', '--config', file('c.yaml')]);
    await agent.shows('Changes follow');

    configure('cluster: baltic\nlog-level: error\n');
    agent.hangup();
    await agent.shows('Reloaded');
    expect((await settingsAt(file('s.sock'))).settings).toMatchObject({
      'log-level': { value: 'error', from: 'file' },
      cluster: { value: 'atlantic', from: 'file' },
    });

    configure('cluster: atlantic\n');
    agent.hangup();
    await agent.shows('Reloaded', 2);
    expect((await settingsAt(file('s.sock'))).settings).toMatchObject({
      'log-level': { value: 'warn', from: 'default' },
    });

    configure('log-level: silent\nmanifests: missing.yaml\n');
    agent.hangup();
    await agent.shows('cannot reload settings');
    expect((await settingsAt(file('s.sock'))).settings).toMatchObject({
      'log-level': { value: 'warn', from: 'default' },
    });
  });

  it('of an operator show its own settings', async () => {
    const folder = temporaryFolder({ 'nodes.yaml': 'apiVersion: v1\nkind: Node\nmetadata: {name: n}\n' });
    const socket = join(folder, 'o.sock');
    const operator = startProcess([
      ...[
        'operator',
        '--k8s-load',
        join(folder, 'nodes.yaml'),
        '--socket',
        socket,
        '--endpoint-gc-interval',
        '3m',
      ],
    ]);
    await operator.subscribed();
    await expect.poll(async () => (await dpcache('config', 'show', '--socket', socket)).status).toBe(0);
    const { file, settings } = await settingsAt(socket);
    expect(file).toBeUndefined();
    expect(settings).toMatchObject({
      'endpoint-gc-interval': { value: 180_000, from: 'flag' },
      'log-level': { value: 'info', from: 'default' },
      'cluster-id': { value: 0, from: 'default' },
    });
  });

  it('need a running process', async () => {
    const { status, stderr } = await dpcache('config', 'show', '--socket', '/nonexistent/s.sock');
    expect(status).toBe(1);
    expect(stderr).toContain('start one with dpcache agent');
  });
});

it('no setting holds a secret directly: tokens, passwords and keys are read from files', () => {
  const { options } = addOperatorOptions(new Command());
  const named = [...addAgentOptions(new Command()).options, ...options].filter(
    ({ required, long }) => required && /pass|token|secret|key|cred|auth/.test(long ?? ''),
  );
  expect(named.map(({ flags }) => flags)).toEqual([
    '--listen-token <file>',
    '--listen-key <file>',
    '--k8s-encrypt-key <number>', // an index
  ]);
});
