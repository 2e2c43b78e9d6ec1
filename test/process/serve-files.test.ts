import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import * as pageFiles from '../../src/process/page-files.ts';
import { readServeOptions, type ServeSource, serveContradictions } from '../../src/process/serve-files.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { TestAuthority } from '../kvstore/etcd/support/certificates.ts';

const NO_FILES: ServeSource['files'] = {
  token: undefined,
  cert: undefined,
  key: undefined,
  clientCA: undefined,
};
const LISTEN = { host: '127.0.0.1', port: 8080 };

function source(changes: Partial<ServeSource> = {}, files: Partial<ServeSource['files']> = {}): ServeSource {
  const base = { socket: '/run/a.sock', socketIsDefault: true, ui: false, listen: LISTEN, names: [] };
  return { ...base, ...changes, files: { ...NO_FILES, ...files } };
}

describe('contradictions of --listen', () => {
  const ELSEWHERE = { host: '10.0.0.1', port: 1 };
  const noListen = (option: string): string => `--listen-${option} requires --listen <address>`;
  const PAIR = '--listen-cert and --listen-key require each other';

  it.each([
    ['nothing', { listen: undefined }, {}, []],
    ['a loopback address', {}, {}, []],
    ['names without an address', { listen: undefined, names: ['a'] }, {}, [noListen('name')]],
    ['a token without an address', { listen: undefined }, { token: 't' }, [noListen('token')]],
    [
      'all of its files without an address (regression: --listen-… requires)',
      { listen: undefined },
      { token: 't', cert: 'c', key: 'k', clientCA: 'a' },
      ['token', 'cert', 'key', 'client-ca'].map(noListen),
    ],
    [
      'a page without an address',
      { listen: undefined, ui: true },
      {},
      ['--ui requires --listen <address>, because the page is served over TCP'],
    ],
    ['a certificate without a key', {}, { cert: 'c' }, [PAIR]],
    ['a key without a certificate, beside an authority', {}, { key: 'k', clientCA: 'a' }, [PAIR]],
    [
      'an authority without a certificate',
      {},
      { clientCA: 'a' },
      ['--listen-client-ca requires --listen-cert and --listen-key'],
    ],
    [
      'an open address',
      { listen: ELSEWHERE },
      {},
      [
        '--listen 10.0.0.1 requires --listen-token or --listen-client-ca, because other machines can reach this address',
      ],
    ],
    ['an open address with a token', { listen: ELSEWHERE }, { token: 't' }, []],
    ['an open address with an authority', { listen: ELSEWHERE }, { cert: 'c', key: 'k', clientCA: 'a' }, []],
  ])(
    'with %s',
    (_what, changes: Partial<ServeSource>, files: Partial<ServeSource['files']>, expected: string[]) => {
      expect(serveContradictions(source(changes, files))).toEqual(expected);
    },
  );

  it('are one error', async () => {
    await expect(readServeOptions(source({ listen: undefined, names: ['a'], ui: true }))).rejects.toThrow(
      `${noListen('name')}\ndpcache: --ui requires`,
    );
  });
});

describe('the options of --listen', () => {
  let authority: TestAuthority;
  let server: ReturnType<TestAuthority['issue']>;
  const text = (path: string): string => readFileSync(path, 'utf8');

  beforeAll(() => {
    authority = new TestAuthority('test authority');
    server = authority.issue('server', 100);
  });

  it('without an address have the socket only', async () => {
    expect(await readServeOptions(source({ listen: undefined }))).toEqual({
      socket: '/run/a.sock',
      socketIsDefault: true,
    });
  });

  it('have the contents of all files, and read them again', async () => {
    const page = [{ name: 'index.html', type: 'text/html', text: '' }];
    vi.spyOn(pageFiles, 'readPageFiles').mockResolvedValue(page);
    const token = join(temporaryFolder({ token: ' secret\n' }), 'token');
    const files = { token, cert: server.certificate, key: server.key, clientCA: authority.ca };
    const { credentials, ...options } = await readServeOptions(
      source({ names: ['node-b'], ui: true }, files),
    );
    const read = {
      token: 'secret',
      tls: { cert: text(server.certificate), key: text(server.key), clientCA: text(authority.ca) },
    };
    expect(options).toEqual({
      socket: '/run/a.sock',
      socketIsDefault: true,
      tcp: { ...LISTEN, names: ['node-b'], ...read },
      page,
    });
    expect(await credentials?.()).toEqual(read);
  });

  it('have a token without certificates', async () => {
    const token = join(temporaryFolder({ token: 'secret' }), 'token');
    expect((await readServeOptions(source({}, { token }))).tcp).toEqual({
      ...LISTEN,
      names: [],
      token: 'secret',
    });
  });

  it('have neither credentials nor a page by default', async () => {
    const { tcp, page } = await readServeOptions(source());
    expect([tcp, page]).toEqual([{ ...LISTEN, names: [], token: undefined }, undefined]);
  });

  it.each([
    ['an empty token', 'token', '\n', 'the file is empty'],
    // regression: an agent started with a token that no client can send
    ['a token of two lines', 'token', 'one\ntwo\n', 'the token must be one line of ASCII characters'],
    ['a token of 64 KiB and one byte', 'token', 'x'.repeat(65_537), 'the file is larger than 64 KiB'],
    ['an authority without a certificate', 'clientCA', 'none', 'no start line'],
  ] as const)('are rejected with %s', async (_what, file, content, reason) => {
    const path = join(temporaryFolder({ it: content }), 'it');
    const files = { cert: server.certificate, key: server.key, [file]: path };
    const option = file === 'token' ? '--listen-token' : '--listen-client-ca';
    const failed = readServeOptions(source({}, files));
    await expect(failed).rejects.toThrow(`${option} ${path}: `);
    await expect(failed).rejects.toThrow(reason);
  });

  it('are rejected with the key of another certificate, and with a missing file', async () => {
    const { key } = authority.issue('another', 100);
    await expect(readServeOptions(source({}, { cert: server.certificate, key }))).rejects.toThrow(
      `--listen-cert ${server.certificate}, --listen-key ${key}: the key does not match the certificate`,
    );
    await expect(readServeOptions(source({}, { token: '/nowhere/token' }))).rejects.toThrow(
      '--listen-token /nowhere/token: no such file or folder: check the path',
    );
  });
});
