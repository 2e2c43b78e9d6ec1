import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { EMPTY_DIRECTORY, stepDirectory } from '../../src/clustermesh/config-directory.ts';
import type { EtcdConfig } from '../../src/kvstore/etcd/etcd-config.ts';
import { ConfigFolder } from '../../src/process/config-folder.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { leastCpuTime } from '../base/support/cpu-time.ts';
import { until } from '../base/support/until.ts';
import { TestAuthority } from '../kvstore/etcd/support/certificates.ts';

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

function newAuthority(name: string): TestAuthority {
  const authority = new TestAuthority(name);
  onTestFinished(() => rmSync(authority.folder, { recursive: true }));
  return authority;
}

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
  it('calls nobody after its watch has ended, even if a listing ends later', async () => {
    const { path } = mounted(YAML);
    const { folder } = folderOf(path);
    let calls = 0;
    const unwatch = folder.watch(() => calls++);
    const listing = folder.list();
    unwatch();
    await listing;
    await folder.list();
    writeFileSync(join(path, 'b'), YAML);
    const other = folderOf(path);
    let others = 0;
    onTestFinished(other.folder.watch(() => others++));
    writeFileSync(join(path, 'c'), YAML);
    await until('another watch has an event', () => others > 0);
    expect(calls).toBe(0);
  });

  it('releases its watch in the kernel when the watch has ended', () => {
    const { path } = mounted(YAML);
    const ino = `ino:${statSync(path).ino.toString(16)} `;
    const isWatched = (): boolean =>
      readdirSync('/proc/self/fd').some((fd) => {
        const info = join('/proc/self/fdinfo', fd);
        return existsSync(info) && readFileSync(info, 'utf8').includes(ino);
      });
    const unwatch = folderOf(path).folder.watch(() => {});
    expect(isWatched()).toBe(true);
    unwatch();
    expect(isWatched()).toBe(false);
  });

  it('lists files with endpoints, through links, without hidden ones', async () => {
    const { path } = mounted(YAML);
    writeFileSync(join(path, 'ca.crt'), 'CERTIFICATE');
    const listing = await folderOf(path).folder.list();
    expect([...listing].map(([name, { kind }]) => [name, kind])).toEqual([
      ['a', 'config'],
      ['ca.crt', 'other'],
    ]);
  });

  it.each([
    'endpoints: [a:1]',
    '  endpoints  : [a:1]',
    '"endpoints": [a:1]',
    "username: u\n'endpoints': [a:1]",
    '# a comment: with a colon\r\nendpoints:\r\n- a:1\r\n',
  ])('reads %j as a configuration', async (content) => {
    const listing = await folderOf(temporaryFolder({ a: content })).folder.list();
    expect(listing.get('a')?.kind).toBe('config');
  });

  it.each([
    '',
    'endpoints',
    '- endpoints: [a:1]',
    'my-endpoints: [a:1]',
    'x endpoints: [a:1]',
    'a: endpoints: b',
  ])('reads %j as another file', async (content) => {
    const listing = await folderOf(temporaryFolder({ a: content })).folder.list();
    expect(listing.get('a')?.kind).toBe('other');
  });

  it('does not read an unchanged configuration and its certificates again', async () => {
    const { folder } = folderOf(temporaryFolder({ a: YAML }));
    const file = (await folder.list()).get('a');
    expect((await folder.list()).get('a')).toBe(file);
  });

  it('is read quickly for any content (freeze: 100,000 newlines took 39 s)', async () => {
    const path = temporaryFolder({
      newlines: '\n'.repeat(200_000),
      blanks: ' \n'.repeat(100_000),
      keys: `${YAML}${Array.from({ length: 7000 }, (_, i) => `k${i}: 1\n`).join('')}`,
      large: `${YAML}${'# x\n'.repeat(30_000)}`,
    });
    const { folder } = folderOf(path);
    expect(await leastCpuTime(() => folderOf(path).folder.list(), 1000)).toBeLessThan(1000);
    expect(
      [...(await folder.list())].map(([name, file]) => [
        name,
        file.kind === 'unusable' ? file.reason : file.kind,
      ]),
    ).toEqual([
      ['blanks', 'other'],
      ['keys', 'has more than 4096 words'],
      ['large', 'the file is larger than 64 KiB'],
      ['newlines', 'other'],
    ]);
  });

  it('does not report folders and links to folders, such as `certs` of a projected volume (regression: unusable)', async () => {
    const path = temporaryFolder({ '..1/certs/ca.crt': 'CERTIFICATE', '..1/a': YAML, 'folder/b': YAML });
    symlinkSync('..1', join(path, '..data'));
    for (const name of ['a', 'certs']) symlinkSync(join('..data', name), join(path, name));
    const listing = await folderOf(path).folder.list();
    expect([...listing].map(([name, { kind }]) => [name, kind])).toEqual([
      ['a', 'config'],
      ['certs', 'other'],
      ['folder', 'other'],
    ]);
  });

  it('reports the kind of an entry that is not a file, and neither opens it nor treats it as removed (freeze: withdrawn)', async () => {
    const path = temporaryFolder({});
    execFileSync('mkfifo', [join(path, 'fifo')]);
    symlinkSync('/dev/zero', join(path, 'device'));
    const listing = await folderOf(path).folder.list();
    expect([...listing]).toEqual([
      ['device', { kind: 'unusable', reason: 'is a device, not a file' }],
      ['fifo', { kind: 'unusable', reason: 'is a FIFO, not a file' }],
    ]);
  });

  it.each(['.', './', '../', 'absolute'])(
    'is watched on when it was replaced by another one, however its path is written: %s (regression)',
    async (written) => {
      const parent = temporaryFolder({ 'cfg/b': YAML });
      const before = process.cwd();
      onTestFinished(() => process.chdir(before));
      process.chdir(written === '../' ? join(parent, 'cfg') : parent);
      const path =
        { '.': 'cfg', './': './cfg/', '../': '../cfg', absolute: join(parent, 'cfg') }[written] ?? '';
      const { folder } = folderOf(path);
      process.chdir(before);
      const onChange = vi.fn();
      const off = folder.watch(onChange);
      onTestFinished(() => off());
      await folder.list();
      renameSync(join(parent, 'cfg'), join(parent, 'old'));
      mkdirSync(join(parent, 'cfg'));
      await until('it is told', () => onChange.mock.calls.length > 0);
      await folder.list();
      onChange.mockClear();
      writeFileSync(join(parent, 'cfg', 'a'), YAML);
      await until('it is told', () => onChange.mock.calls.length > 0);
      expect([...(await folder.list()).keys()]).toEqual(['a']);
    },
  );

  it('reports a secret that was swapped, which only changes ..data (trap of 1.8: edits are missed)', async () => {
    const { path, swap } = mounted(YAML);
    const { folder } = folderOf(path);
    const onChange = vi.fn();
    const off = folder.watch(onChange);
    onTestFinished(() => off());
    const before = await hashOf(folder, 'a');
    swap('endpoints:\n- https://west:2379\n');
    await until('it is told', () => onChange.mock.calls.length > 0);
    const after = await hashOf(folder, 'a');
    expect(after).toBeDefined();
    expect(after).not.toBe(before);
  });

  it('changes each cluster once during an update of a secret, whenever it is listed', async () => {
    const path = temporaryFolder({ '..1/a': YAML, '..1/b': YAML, '..1/c': YAML });
    symlinkSync('..1', join(path, '..data'));
    const link = (name: string): void => symlinkSync(join('..data', name), join(path, name));
    for (const name of ['a', 'b', 'c']) link(name);
    const { folder } = folderOf(path);
    let state = EMPTY_DIRECTORY;
    const changes = async (): Promise<readonly string[]> => {
      const step = stepDirectory(state, await folder.list(), { now: 0, check: () => undefined });
      state = step.state;
      return step.changes.map(({ type, name }) => `${type} ${name}`);
    };
    expect(await changes()).toEqual(['add a', 'add b', 'add c']);
    // The steps of the kubelet: it removes a, changes b and adds d.
    const steps = [
      () => {
        for (const [name, host] of Object.entries({ b: 'west', c: 'east', d: 'north' })) {
          mkdirSync(join(path, '..2'), { recursive: true });
          writeFileSync(join(path, '..2', name), `endpoints:\n- https://${host}:2379\n`);
        }
      },
      () => symlinkSync('..2', join(path, '..data_tmp')),
      () => renameSync(join(path, '..data_tmp'), join(path, '..data')),
      () => link('d'),
      () => rmSync(join(path, 'a')),
      () => rmSync(join(path, '..1'), { recursive: true }),
    ];
    const seen: (readonly string[])[] = [];
    for (const step of steps) {
      step();
      seen.push(await changes());
    }
    expect(seen).toEqual([[], [], ['add b'], ['add d'], ['remove a'], []]);
    expect(state.problems.size).toBe(0);
  });

  it('is unchanged if the same content is mounted again', async () => {
    const { path, swap } = mounted(YAML);
    const { folder } = folderOf(path);
    const before = await hashOf(folder, 'a');
    swap(YAML);
    expect(await hashOf(folder, 'a')).toBe(before);
  });

  it('has changed if a certificate that a configuration names was renewed', async () => {
    const authority = newAuthority('old');
    const path = temporaryFolder({});
    const ca = join(path, 'ca.crt');
    copyFileSync(authority.ca, ca);
    writeFileSync(join(path, 'a'), `${YAML}trusted-ca-file: ${ca}\n`);
    const { folder, connected } = folderOf(path);
    const before = await hashOf(folder, 'a');
    expect(await hashOf(folder, 'a')).toBe(before);
    copyFileSync(newAuthority('new').ca, ca);
    expect(await hashOf(folder, 'a')).not.toBe(before);
    const file = (await folder.list()).get('a');
    expect(() => file?.kind === 'config' && file.connect(new AbortController().signal)).toThrow();
    expect(connected[0]?.tls?.ca).toEqual(readFileSync(ca));
  });

  it('rejects a certificate and key that are renewed one after the other until both match (freeze: connection dropped)', async () => {
    const authority = newAuthority('mesh');
    const [old, renewed] = [authority.issue('client'), authority.issue('client')];
    const path = temporaryFolder({});
    const [cert, key] = [join(path, 'c.crt'), join(path, 'c.key')];
    writeFileSync(join(path, 'a'), `${YAML}cert-file: ${cert}\nkey-file: ${key}\n`);
    copyFileSync(old.certificate, cert);
    copyFileSync(old.key, key);
    const { folder } = folderOf(path);
    const before = await hashOf(folder, 'a');
    expect(before).toBeDefined();
    copyFileSync(renewed.certificate, cert);
    expect((await folder.list()).get('a')).toMatchObject({
      kind: 'unusable',
      reason: expect.stringContaining('the key does not match the certificate'),
    });
    copyFileSync(renewed.key, key);
    const after = await hashOf(folder, 'a');
    expect(after).toBeDefined();
    expect(after).not.toBe(before);
    rmSync(key);
    expect((await folder.list()).get('a')).toMatchObject({
      kind: 'unusable',
      reason: expect.stringMatching(/^key-file .*c\.key": no such file or folder/),
    });
  });

  it.each([
    ['endpoints: [', 'is not YAML'],
    ['endpoints: []', 'endpoints []: must contain'],
    ['endpoints: [ftp://x]', 'must be an http or https URL'],
    ['endpoints: [https://x:2379, http://y:2379]', 'one scheme: http or https'],
    [`${YAML}ca-file: /nowhere/ca.crt`, 'ca-file "/nowhere/ca.crt": no such file or folder'],
    [`${YAML}dial-timeout: soon`, 'dial-timeout "soon": must be a duration'],
    [`${YAML}insecure-transport: maybe`, 'insecure-transport "maybe": must be true or false'],
  ])('reports the problem of %j', async (content, why) => {
    const file = (await folderOf(temporaryFolder({ a: content })).folder.list()).get('a');
    expect(file).toMatchObject({ kind: 'unusable', reason: expect.stringContaining(why) });
  });

  it('reports a dangling link, and does not treat it as removed', async () => {
    const path = temporaryFolder({});
    symlinkSync('nowhere', join(path, 'a'));
    expect((await folderOf(path).folder.list()).get('a')).toMatchObject({ kind: 'unusable' });
  });

  it('reads names, durations and scheme like the original', async () => {
    const content =
      'endpoints: [east:2379]\nusername: u\npassword: p\ndial-timeout: 1m30s\nkeep-alive-time: 15000000000\n';
    const { folder, connected } = folderOf(temporaryFolder({ a: content }));
    const file = (await folder.list()).get('a');
    expect(() => file?.kind === 'config' && file.connect(new AbortController().signal)).toThrow();
    expect(connected[0]).toMatchObject({
      endpoints: ['http://east:2379'],
      auth: { username: 'u', password: 'p' },
      deadlineMs: 90_000,
      keepAliveTimeMs: 15_000,
      tls: undefined,
    });
  });
});
