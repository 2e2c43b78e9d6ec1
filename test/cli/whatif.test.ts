import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runFolder } from '../base/support/run-folder.ts';
import { ATLANTIC, type CommandResult, dpcache, example } from './support/run.ts';
import { type RunningAgent, startAgent } from './support/running-agent.ts';

const folder = runFolder('dpcache-');
const SOCKET = ['--socket', join(folder, 'dpcache.sock')];
const stop = new AbortController();
let agent: RunningAgent;

beforeAll(async () => {
  agent = await startAgent([...ATLANTIC, '--manifests', example('services.yaml'), ...SOCKET], stop.signal);
});

afterAll(async () => {
  stop.abort();
  expect(await agent.ended).toBe(0);
});

function whatif(...words: readonly string[]): Promise<CommandResult> {
  return dpcache('whatif', ...words, ...SOCKET);
}

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('dpcache whatif', () => {
  it('exits with 3 and prints what would be lost', async () => {
    const { status, stdout } = await whatif('remove-cluster', 'baltic');
    expect(status).toBe(3);
    expect(stdout).toMatch(/^prefixes {3}113 deleted\n/);
    const json = await whatif('remove-cluster', 'baltic', '-o', 'json');
    expect([json.status, JSON.parse(json.stdout).summary.prefixes.gone]).toEqual([3, 113]);
  });

  it('prints an address of a node in the singular', async () => {
    const { stdout } = await whatif('remove-node', 'baltic/baltic-node-1');
    expect(stdout).not.toContain(' 1 addresses');
    expect(stdout).toMatch(/nodes {6}1 deleted: \d+ address/);
  });

  // A drained node loses its pods, too; the answer for remove-node has only the prefixes of the node itself.
  it('prints that the pods of a removed node stay', async () => {
    const stays = /^Only the node is removed. Its pods and their backends stay/m;
    expect((await whatif('remove-node', 'baltic/baltic-node-1')).stdout).toMatch(stays);
    const { stdout } = await whatif('remove-cluster', 'baltic');
    expect(stdout).not.toMatch(/stays?/);
    const drained = await whatif('drain-node', 'baltic/baltic-node-1');
    expect(drained.stdout).toMatch(/^prefixes {3}[1-9]\d* deleted/);
    expect(drained.stdout).toMatch(/^nodes {6}no changes$/m);
    expect(drained.stdout).toMatch(/^The node stays, and so do backends whose node is unknown/m);
  });

  it('exits with 0 if nothing is lost, and with 1 for an unknown name with the nearest one', async () => {
    expect((await whatif('upsert', '10.10.0.12', '--source', 'k8s', '--identity', '7')).status).toBe(0);
    const { status, stderr } = await whatif('remove-cluster', 'baltik');
    expect([status, stderr]).toEqual([1, 'dpcache: no remote cluster "baltik"; did you mean baltic?\n']);
    // regression: no remote cluster "atlantic"
    const local = await whatif('remove-cluster', 'atlantic');
    expect([local.status, local.stderr]).toEqual([
      1,
      'dpcache: "atlantic" is the local cluster: only remote clusters can be removed\n',
    ]);
  });

  it('accepts encryption keys to 255, and no larger ones', async () => {
    const upsert = ['upsert', '10.10.0.12', '--source', 'k8s', '--identity', '7'];
    expect((await whatif(...upsert, '--encrypt-key', '255')).status).toBe(0);
    const { status, stderr } = await whatif(...upsert, '--encrypt-key', '256');
    expect([status, stderr]).toEqual([2, expect.stringContaining('It must be a number from 0 to 255.')]);
  });

  it('refuses the rank of a source above itself', async () => {
    const { status, stderr } = await whatif('rank', 'k8s', 'above', 'k8s');
    expect([status, stderr.split('\n')[0]]).toEqual([
      2,
      "dpcache: invalid rank 'k8s above k8s': name two different sources",
    ]);
  });

  it('refuses a manifest without objects, which would seem to change nothing', async () => {
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    for (const path of [empty, file('nothing.yaml', '# a comment\n')]) {
      const { status, stdout, stderr } = await whatif('manifest', path);
      expect([status, stdout]).toEqual([1, '']);
      expect(stderr).toContain(`manifest ${path}: contains no objects`);
    }
  });

  it('names the file and line of an object that the agent rejects', async () => {
    const service =
      'apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\nspec: {clusterIP: 10.1.1.1}\n';
    const path = file('pod.yaml', `${service}---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n`);
    const { status, stderr } = await whatif('manifest', path);
    expect(status).toBe(1);
    expect(stderr).toContain(`dpcache: ${path}:6: `);
    expect(stderr).toContain('must be Service, Endpoints or EndpointSlice');
  });

  it('does not advise sources, which it does not have, if no agent runs', async () => {
    const { status, stderr } = await dpcache(
      'whatif',
      'remove-cluster',
      'a',
      '--socket',
      join(folder, 'none'),
    );
    expect(status).toBe(1);
    expect(stderr).toContain('start one with dpcache agent, or set its socket with --socket\n');
  });
});
