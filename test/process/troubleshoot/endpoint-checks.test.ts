import { X509Certificate } from 'node:crypto';
import dns from 'node:dns';
import { readFileSync } from 'node:fs';
import { type AddressInfo, createServer as createTCPServer, type Server, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import { expect, it, onTestFinished, vi } from 'vitest';
import { checkClientCertificate, checkEndpoint } from '../../../src/process/troubleshoot/endpoint-checks.ts';
import { freePort } from '../../base/support/free-port.ts';
import { until } from '../../base/support/until.ts';
import { TestAuthority } from '../../kvstore/etcd/support/certificates.ts';

it.each(['http', 'https', 'https with an unknown authority'])(
  'the checks of an endpoint with %s close each of their connections',
  async (kind) => {
    const authority = new TestAuthority('test authority');
    const { certificate, key } = authority.issue('server', 100);
    const sockets = new Set<Socket>();
    const tls = { cert: readFileSync(certificate), key: readFileSync(key) };
    const server: Server =
      kind === 'http'
        ? createTCPServer((socket) => socket.resume())
        : createServer(tls, (socket) =>
            socket
              .on('error', () => {})
              .resume()
              .write('frame'),
          );
    let accepted = 0;
    server.on('connection', (socket) => {
      accepted++;
      sockets.add(socket.on('error', () => {}).on('close', () => sockets.delete(socket)));
    });
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `${kind.split(' ')[0]}://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const ca = kind === 'https' ? readFileSync(authority.ca) : undefined;
    const checks = await checkEndpoint(url, { ca }, Date.now());
    expect(checks.at(-1)?.status).toBe(kind.includes(' ') ? 'failed' : 'ok');
    await until('all connections are closed', () => accepted === checks.length && sockets.size === 0);
  },
);

it('an endpoint with an alias is checked at the addresses of the alias', async () => {
  const port = await freePort();
  const endpoint = `http://a.mesh.invalid:${port}`;
  const aliases = new Map([['a.mesh.invalid', ['127.0.0.1', '127.0.0.2']]]);
  expect(await checkEndpoint(endpoint, undefined, 0, aliases)).toMatchObject([
    { step: 'dns', status: 'ok', text: '127.0.0.1, 127.0.0.2 (alias)' },
    { step: 'tcp', text: `connection refused: 127.0.0.1:${port}; connection refused: 127.0.0.2:${port}` },
  ]);
});

it('an endpoint whose addresses all refuse the connection has the reason of each (regression: only a code)', async () => {
  const addresses = ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 }));
  const port = await freePort();
  type Done = (error: null, found: typeof addresses) => void;
  const resolve = (_name: string, _options: unknown, done: Done): void => done(null, addresses);
  vi.spyOn(dns, 'lookup').mockImplementation(resolve as never);
  const endpoint = `http://localhost:${port}`;
  const checks = await checkEndpoint(endpoint, undefined, 0);
  expect(checks.at(-1)).toEqual({
    step: 'tcp',
    subject: endpoint,
    status: 'failed',
    text: `connection refused: 127.0.0.1:${port}; connection refused: 127.0.0.2:${port}`,
    remedy: 'check the port, and that the server runs',
  });
});

it.each([0, 1])(
  'reports a client certificate whose date %i is invalid (regression: a RangeError)',
  (index) => {
    const { certificate: path } = new TestAuthority('test authority').issue('client', 100);
    const certificate = new X509Certificate(readFileSync(path)).raw;
    const [from, to] = [...certificate.toString('latin1').matchAll(/\d{12}Z/g)];
    certificate.write('99', ((index === 0 ? from : to)?.index ?? 0) + 2); // the month
    expect(checkClientCertificate({ certificate }, Date.now())).toMatchObject([
      { status: 'failed', text: 'has an invalid date: subject CN=client; issuer CN=test authority' },
    ]);
  },
);
