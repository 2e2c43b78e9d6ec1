import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { bytesOfText } from '../../../src/kvstore/codec/bytes.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { until } from '../../base/support/until.ts';
import { WatchRecorder } from '../support/watch-recorder.ts';
import { TestAuthority } from './support/certificates.ts';
import { type EtcdProcess, startEtcd } from './support/etcd-process.ts';

let authority: TestAuthority;
let stranger: TestAuthority;
let etcd: EtcdProcess;
const folder = mkdtempSync(join(tmpdir(), 'etcd-config-'));
const open: EtcdBackend[] = [];

beforeAll(async () => {
  authority = new TestAuthority('test authority');
  stranger = new TestAuthority('another authority');
  const tls = { ca: authority.ca, ...authority.issue('server', 2, 'IP:127.0.0.1,DNS:a.mesh.invalid') };
  const [started] = await startEtcd(1, { tls, flags: ['--client-cert-auth'] });
  if (started === undefined) throw new Error('no etcd');
  etcd = started;
});

afterAll(async () => {
  for (const backend of open) await backend.close();
  await etcd.dispose();
  for (const path of [folder, authority.folder, stranger.folder]) rmSync(path, { recursive: true });
});

/** Writes a configuration, and beside it the certificates that it names, so that they can be replaced. */
function configFile(
  name: string,
  ca: string,
  files: { certificate: string; key: string },
  more = '',
): string {
  const path = join(folder, name);
  exchange(name, files);
  copyFileSync(ca, `${path}.ca`);
  writeFileSync(
    path,
    `endpoints:\n- ${etcd.url}\ntrusted-ca-file: '${path}.ca'\ncert-file: '${path}.cert'\nkey-file: '${path}.key'\n${more}`,
  );
  return path;
}

function exchange(name: string, files: { certificate: string; key: string }): void {
  copyFileSync(files.certificate, join(folder, `${name}.cert`));
  copyFileSync(files.key, join(folder, `${name}.key`));
}

async function opened(
  path: string,
  options: Parameters<typeof EtcdBackend.open>[1] = {},
): Promise<EtcdBackend> {
  const backend = await EtcdBackend.open(path, options);
  open.push(backend);
  return backend;
}

const failure = (call: Promise<unknown>): Promise<{ code?: string; message?: string }> =>
  call.then(
    () => ({}),
    (error: { code: string; message: string }) => error,
  );

describe('etcd over TLS', () => {
  it('with a certificate of the right authority', async () => {
    const backend = await opened(configFile('right', authority.ca, authority.issue('client')));
    await backend.update('a/b', bytesOfText('1'));
    expect((await backend.get('a/b'))?.key).toBe('a/b');
  });

  it('a server of an untrusted authority is rejected, and the reason is reported', async () => {
    const backend = await opened(configFile('wrong-ca', stranger.ca, authority.issue('client')));
    const { code, message } = await failure(backend.get('a/b'));
    expect([code, message]).toEqual([
      'unavailable',
      `cannot connect to etcd at ${new URL(etcd.url).host}: the server certificate is signed by an unknown CA; check trusted-ca-file of the configuration`,
    ]);
  });

  it('an expired certificate of a server is rejected, and the reason is reported', async () => {
    const files = authority.issue('server');
    const [expired] = await startEtcd(1, { tls: { ca: authority.ca, ...files } });
    if (expired === undefined) throw new Error('no etcd');
    // etcd reads the files at each handshake. With these certificates it is not reported as healthy.
    const late = authority.issue('expired', -1);
    copyFileSync(late.key, files.key);
    copyFileSync(late.certificate, files.certificate);
    const path = configFile('expired', authority.ca, authority.issue('client'));
    writeFileSync(path, readFileSync(path, 'utf8').replace(etcd.url, expired.url));
    const backend = await opened(path);
    expect(await failure(backend.get('a/b'))).toMatchObject({
      code: 'unavailable',
      message: `cannot connect to etcd at ${new URL(expired.url).host}: the server certificate has expired; renew it, or check the clock of this machine`,
    });
    await expired.dispose();
  });

  it('a server whose certificate is for another name is rejected, and the error shows both names', async () => {
    const path = configFile('name', authority.ca, authority.issue('client'));
    const { port } = new URL(etcd.url);
    writeFileSync(path, readFileSync(path, 'utf8').replace(etcd.url, `https://localhost:${port}`));
    const { message } = await failure((await opened(path)).get('a/b'));
    expect(message).toMatch(
      /^cannot connect to etcd at localhost:\d+: .* for another name \(Host: localhost\. .*\); use /,
    );
  });

  it('a host in cilium-host-aliases is not looked up, and the certificate is verified for its name', async () => {
    const path = configFile('aliases', authority.ca, authority.issue('client'));
    const { port } = new URL(etcd.url);
    const text = readFileSync(path, 'utf8');
    const aliased = (host: string): string =>
      `${text.replace(etcd.url, `https://${host}:${port}`)}cilium-host-aliases:\n- hostname: ${host}\n  ips: ["::1", 127.0.0.1]\n`;
    writeFileSync(path, aliased('A.mesh.invalid'));
    const backend = await opened(path);
    const calls = await Promise.all([1, 2].map(async () => failure(backend.get('a/b'))));
    expect(calls.concat(await failure(backend.get('a/b')))).toContainEqual({});
    writeFileSync(path, aliased('b.mesh.invalid'));
    const other = await opened(path);
    const errors = [await failure(other.get('a/b')), await failure(other.get('a/b'))];
    expect(errors.map(({ message }) => message)).toContainEqual(
      expect.stringMatching(/ at b\.mesh\.invalid:\d+: .* for another name \(Host: b\.mesh\.invalid\./),
    );
  });

  it('a client of an authority that the server does not trust is refused by it', async () => {
    const backend = await opened(configFile('wrong-client', authority.ca, stranger.issue('client')));
    const { code, message } = await failure(backend.get('a/b'));
    expect(code).toBe('unavailable');
    expect(message).toMatch(/: the server requires a valid client certificate; check cert-file and key-file/);
  });

  it('insecure-skip-tls-verify accepts any server', async () => {
    const files = authority.issue('client');
    const backend = await opened(configFile('skip', stranger.ca, files, 'insecure-skip-tls-verify: true\n'));
    expect(await failure(backend.get('a/b'))).toEqual({});
  });

  it('a renewed certificate is used, and a watch continues with it', async () => {
    const path = configFile('rotated', authority.ca, stranger.issue('client'));
    let reloads = 0;
    const backend = await opened(path, { reloadIntervalMs: 50, onReload: () => void reloads++ });
    const recorder = new WatchRecorder(backend.watch('r/'));
    await until('it is refused', () => recorder.status().state === 'waiting');
    exchange('rotated', authority.issue('client'));
    await until('it is listed', () => recorder.listed);
    expect(reloads).toBe(1);
    exchange('rotated', authority.issue('client'));
    await until('it is taken over', () => reloads === 2);
    await backend.update('r/a', bytesOfText('1'));
    await until('it is seen', () => recorder.content.size === 1);
    expect(recorder.breaches).toEqual([]);
    await backend.close();
    await recorder.done;
  });

  it('files that became unusable are reported once, and change nothing', async () => {
    const path = configFile('broken', authority.ca, authority.issue('client'));
    const complaints: string[] = [];
    const clock = new ManualClock();
    const onUnusable = (why: string): unknown => complaints.push(why);
    const backend = await opened(path, { clock, reloadIntervalMs: 20, onUnusable });
    await backend.update('a/b', bytesOfText('1'));
    writeFileSync(`${path}.cert`, '');
    for (let read = 0; read < 3; read++) {
      clock.advance(20);
      await until('the files were read', () => clock.pending > 0);
      expect(complaints).toHaveLength(1);
    }
    expect(complaints[0]).toContain('cert-file');
    expect(await failure(backend.get('a/b'))).toEqual({});
  });

  it('a handshake that begins before a change of the CA file and ends after it is repeated with the new CA', async () => {
    // The first connection is held between its start and its handshake.
    let held = 0;
    const { promise: released, resolve: release } = deferred();
    const { hostname, port } = new URL(etcd.url);
    const link = createServer((client) => {
      held++;
      client.on('error', () => {});
      void released.then(() => {
        const server = connect(Number(port), hostname);
        server.on('error', () => client.destroy());
        server.on('close', () => client.destroy());
        client.on('close', () => server.destroy());
        client.pipe(server).pipe(client);
      });
    });
    link.listen(0, '127.0.0.1');
    await once(link, 'listening');
    const at = link.address();
    const url = `https://127.0.0.1:${at !== null && typeof at === 'object' ? at.port : 0}`;
    const path = configFile('handshake', stranger.ca, authority.issue('client'));
    writeFileSync(path, readFileSync(path, 'utf8').replace(etcd.url, url));
    let reloads = 0;
    const backend = await opened(path, { reloadIntervalMs: 20, onReload: () => void reloads++ });
    const recorder = new WatchRecorder(backend.watch('h/'));
    await until('the connection is open', () => held > 0);
    copyFileSync(authority.ca, `${path}.ca`);
    await until('the file is read', () => reloads === 1);
    release();
    await until('it is listed', () => recorder.listed);
    expect(await failure(backend.get('a/b'))).toEqual({});
    await backend.close();
    await recorder.done;
    link.close();
  });

  it('a CA file that is read while it is written is reported, and read again when it is complete', async () => {
    const path = configFile('half-written', stranger.ca, authority.issue('client'));
    const ca = readFileSync(authority.ca, 'utf8');
    const complaints: string[] = [];
    const events: string[] = [];
    const backend = await opened(path, {
      reloadIntervalMs: 20,
      onUnusable: (why) => complaints.push(why),
      onUsable: () => events.push('usable'),
      onReload: () => events.push('reload'),
    });
    expect((await failure(backend.get('a/b'))).code).toBe('unavailable');
    writeFileSync(`${path}.ca`, ca.slice(0, ca.length / 2));
    // More than once if the file was also read while it was empty.
    await until('it is reported', () => complaints.length > 0);
    expect(complaints[0]).toContain('trusted-ca-file');
    writeFileSync(`${path}.ca`, ca);
    await until('it is read', () => events.length === 2);
    expect(events).toEqual(['usable', 'reload']);
    const recorder = new WatchRecorder(backend.watch('h/'));
    await until('it is listed', () => recorder.listed);
    await backend.close();
    await recorder.done;
  });
});
