import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ConfigFolder } from '../../src/agent/config-folder.ts';
import type { EtcdConfig } from '../../src/kvstore/etcd/etcd-config.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

function folderOf(path: string): { folder: ConfigFolder; connected: EtcdConfig[] } {
  const connected: EtcdConfig[] = [];
  const folder = new ConfigFolder(path, (config) => {
    connected.push(config);
    throw new Error('no kvstore in this test');
  });
  return { folder, connected };
}

async function hashOf(folder: ConfigFolder, name: string): Promise<string | undefined> {
  const file = (await folder.list()).get(name);
  return file?.kind === 'config' ? file.hash : undefined;
}

const YAML = 'endpoints:\n- https://east:2379\n';

/** A folder as Kubernetes mounts a secret: `a` → `..data/a`, `..data` → `..1/`. */
function mounted(content: string): { path: string; swap: (content: string) => void } {
  const path = temporaryFolder({ '..1/a': content });
  symlinkSync('..1', join(path, '..data'));
  symlinkSync(join('..data', 'a'), join(path, 'a'));
  let version = 1;
  const swap = (next: string): void => {
    const name = `..${++version}`;
    mkdirSync(join(path, name));
    writeFileSync(join(path, name, 'a'), next);
    symlinkSync(name, join(path, '..data_tmp'));
    renameSync(join(path, '..data_tmp'), join(path, '..data'));
    rmSync(join(path, `..${version - 1}`), { recursive: true });
  };
  return { path, swap };
}

describe('a folder of configurations', () => {
  it('shows files that say endpoints, through links, without what is hidden or a folder', async () => {
    const { path } = mounted(YAML);
    mkdirSync(join(path, 'sub'));
    writeFileSync(join(path, 'ca.crt'), 'CERTIFICATE');
    const listing = await folderOf(path).folder.list();
    expect([...listing].map(([name, { kind }]) => [name, kind])).toEqual([
      ['a', 'config'],
      ['ca.crt', 'other'],
    ]);
  });

  it('tells of a secret that was swapped, which only changes ..data (trap of 1.8: edits are missed)', async () => {
    const { path, swap } = mounted(YAML);
    const { folder } = folderOf(path);
    const onChange = vi.fn();
    const off = folder.watch(onChange);
    onTestFinished(() => off());
    const before = await hashOf(folder, 'a');
    swap('endpoints:\n- https://west:2379\n');
    await vi.waitFor(() => expect(onChange).toHaveBeenCalled());
    const after = await hashOf(folder, 'a');
    expect(after).toBeDefined();
    expect(after).not.toBe(before);
  });

  it('is unchanged when the same content is mounted anew', async () => {
    const { path, swap } = mounted(YAML);
    const { folder } = folderOf(path);
    const before = await hashOf(folder, 'a');
    swap(YAML);
    expect(await hashOf(folder, 'a')).toBe(before);
  });

  it('has changed when a certificate that a configuration names was renewed', async () => {
    const path = temporaryFolder({ 'ca.crt': '-----BEGIN CERTIFICATE-----\nold' });
    writeFileSync(join(path, 'a'), `${YAML}trusted-ca-file: ${join(path, 'ca.crt')}\n`);
    const { folder, connected } = folderOf(path);
    const before = await hashOf(folder, 'a');
    writeFileSync(join(path, 'ca.crt'), '-----BEGIN CERTIFICATE-----\nnew');
    expect(await hashOf(folder, 'a')).not.toBe(before);
    const file = (await folder.list()).get('a');
    expect(() => file?.kind === 'config' && file.connect(new AbortController().signal)).toThrow();
    expect(connected[0]?.tls?.ca?.toString()).toContain('new');
  });

  it.each([
    ['endpoints: [', 'no YAML'],
    ['endpoints: []', 'endpoints []: must be a list'],
    ['endpoints: [ftp://x]', 'must be a URL of http or https'],
    ['endpoints: [https://x, http://y]', 'all be http or all be https'],
    [`${YAML}ca-file: /nowhere/ca.crt`, 'ca-file "/nowhere/ca.crt": ENOENT'],
    [`${YAML}dial-timeout: soon`, 'dial-timeout "soon": must be a duration'],
    [`${YAML}insecure-transport: maybe`, 'insecure-transport "maybe": must be true or false'],
  ])('says of %j what is wrong with it', async (content, why) => {
    const file = (await folderOf(temporaryFolder({ a: content })).folder.list()).get('a');
    expect(file).toMatchObject({ kind: 'unusable', why: expect.stringContaining(why) });
  });

  it('says of a link that leads nowhere that it does, and does not take it for removed', async () => {
    const path = temporaryFolder({});
    symlinkSync('nowhere', join(path, 'a'));
    expect((await folderOf(path).folder.list()).get('a')).toMatchObject({ kind: 'unusable' });
  });

  it('reads names, durations and scheme as the original does', async () => {
    const content =
      'endpoints: [east:2379]\nusername: u\npassword: p\ndial-timeout: 1m30s\nkeep-alive-time: 5000000000\n';
    const { folder, connected } = folderOf(temporaryFolder({ a: content }));
    const file = (await folder.list()).get('a');
    expect(() => file?.kind === 'config' && file.connect(new AbortController().signal)).toThrow();
    expect(connected[0]).toMatchObject({
      endpoints: ['http://east:2379'],
      auth: { username: 'u', password: 'p' },
      deadlineMs: 90_000,
      keepAliveTimeMs: 5000,
      tls: undefined,
    });
  });
});
