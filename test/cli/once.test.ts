import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ATLANTIC, dpcache, example } from './support/run.ts';

const EXPECTED = readFileSync(new URL('../fixtures/mesh.expected.json', import.meta.url), 'utf8');

describe('dpcache agent --once -o json', () => {
  it('prints byte for byte what the original held after following the same mesh', async () => {
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

  it('knows nothing without inputs', async () => {
    const { status, stdout, stderr } = await dpcache('agent', '--once', '-o', 'json');
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual({ ipcache: {}, nodes: [], services: {} });
  });
});
