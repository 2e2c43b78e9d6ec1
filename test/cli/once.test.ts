import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ATLANTIC, dpcache, example } from './support/run.ts';

const EXPECTED = readFileSync(new URL('../fixtures/mesh.expected.json', import.meta.url), 'utf8');

describe('dpcache agent --once -o json', () => {
  it('prints byte for byte the state of the original after following the same mesh', async () => {
    const manifests = ['--manifests', example('services.yaml')];
    const run = await dpcache(
      'agent',
      '--kvstore',
      'memory',
      ...ATLANTIC,
      ...manifests,
      '--once',
      '-o',
      'json',
    );
    expect(run.stderr).toBe('');
    expect(run.status).toBe(0);
    expect(run.stdout).toBe(EXPECTED);
  });

  it('without a source ends with status 2 and the options that set one (regression: it reported ready)', async () => {
    for (const words of [['--once'], [], ['--kvstore', 'memory'], ['--datapath', 'linux']]) {
      const { status, stdout, stderr } = await dpcache('agent', '--no-socket', ...words);
      expect({ words, status, stdout }).toEqual({ words, status: 2, stdout: '' });
      expect(stderr).toContain(
        'dpcache: no source: add --kvstore etcd, --clustermesh-config, --load, --manifests, ' +
          '--kubeconfig, --k8s on, --k8s-load or --play, or start without one with --follow-nothing\n',
      );
    }
  });

  it('with --follow-nothing is empty, and rejects a source', async () => {
    const { status, stdout, stderr } = await dpcache('agent', '--once', '-o', 'json', '--follow-nothing');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual({ ipcache: {}, nodes: [], services: {} });
    const both = await dpcache('agent', '--once', '--follow-nothing', ...ATLANTIC);
    expect(both.status).toBe(2);
    expect(both.stderr).toContain('--follow-nothing cannot be combined with a source: remove it');
  });
});
