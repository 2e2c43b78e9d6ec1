import { createServer, type ServerHttp2Stream } from 'node:http2';
import { status } from '@grpc/grpc-js';
import { describe, expect, it, onTestFinished } from 'vitest';
import { keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { bytesField, message, numberField } from '../../../src/kvstore/codec/proto-writer.ts';
import { STREAM_ENDED } from '../../../src/kvstore/etcd/connection-failure.ts';
import { EtcdBackend } from '../../../src/kvstore/etcd/etcd-backend.ts';
import { etcdDeadlineError, etcdError } from '../../../src/kvstore/etcd/etcd-errors.ts';
import { EtcdTransport } from '../../../src/kvstore/etcd/etcd-transport.ts';
import { KvstoreError } from '../../../src/kvstore/session/errors.ts';
import { freePort } from '../../base/support/free-port.ts';
import { FakeServer } from './support/fake-server.ts';

const HOST = 'etcd.local:2379';
const SCHEME = 'check that etcd runs at the endpoint with this scheme (http or https)';
const CLIENT = 'check cert-file and key-file of the configuration';
const CA = 'check trusted-ca-file of the configuration';
const RENEW = 'renew it, or check the clock of this machine';
const NETWORK = 'check the network and the endpoint of the configuration';
const PROXY = 'check the endpoint of the configuration, and the proxy before etcd';
const DROPPED = `lost the connection to etcd at ${HOST}: connection closed by the peer; check the network and the log of etcd`;

/** An error with a status of grpc-js. */
function grpcError(code: status, details: string): Error {
  return Object.assign(new Error(details), { code });
}

/** What grpc-js reports if no address of an endpoint can be connected. */
function notConnected(lastError: string): Error {
  const details = `No connection established. Last error: ${lastError}. Resolution note: `;
  return grpcError(status.UNAVAILABLE, details);
}

/** An alert as OpenSSL 3 of Node.js reports it. */
function alert(number: number, name: string): string {
  return `80AC908C3F7F0000:error:0A000412:SSL routines:ssl3_read_bytes:${name}:../rec_layer_s3.c:1601:SSL alert number ${number}\n (2026-11-23T23:21:55.294Z)`;
}

describe('the message of a connection that failed', () => {
  it.each([
    [
      'Error: connect ECONNREFUSED 10.0.0.1:2379',
      `(10.0.0.1:2379): connection refused; check that etcd runs at the endpoint of the configuration`,
    ],
    ['Error: connect EHOSTUNREACH 2001:db8::1:2379', `([2001:db8::1]:2379): host unreachable; ${NETWORK}`],
    [
      'Error: connect ENETUNREACH 10.0.0.1:2379 - Local (0.0.0.0:0)',
      `(10.0.0.1:2379): network unreachable; ${NETWORK}`,
    ],
    ['Error: connect ETIMEDOUT 10.0.0.1:2379', `(10.0.0.1:2379): connection timed out; ${NETWORK}`],
    [
      'Error: connect EMFILE 10.0.0.1:2379 - Local (undefined:undefined)',
      '(10.0.0.1:2379): too many open files; raise the limit of open files',
    ],
    ['Error: connect EXOTIC 10.0.0.1:2379', `(10.0.0.1:2379): EXOTIC; ${NETWORK}`],
  ])('%s', (lastError, expected) => {
    expect(etcdError(notConnected(lastError), HOST)).toMatchObject({
      code: 'unavailable',
      message: `cannot connect to etcd at ${HOST} ${expected}`,
    });
  });

  it.each([
    [
      'Error: unable to verify the first certificate',
      `the server certificate is signed by an unknown CA; ${CA}`,
    ],
    ['Error: self-signed certificate', `the server certificate is signed by an unknown CA; ${CA}`],
    [
      'Error: self signed certificate in certificate chain',
      `the server certificate is signed by an unknown CA; ${CA}`,
    ],
    [
      'Error: unable to get local issuer certificate',
      `the server certificate is signed by an unknown CA; ${CA}`,
    ],
    ['Error: unable to get issuer certificate', `the server certificate is signed by an unknown CA; ${CA}`],
    ['Error: certificate has expired', `the server certificate has expired; ${RENEW}`],
    ['Error: certificate is not yet valid', `the server certificate is not yet valid; ${RENEW}`],
    [
      "Error [ERR_TLS_CERT_ALTNAME_INVALID]: Hostname/IP does not match certificate's altnames: Host: etcd.local. is not cert's CN: server",
      "the server certificate is for another name (Host: etcd.local. is not cert's CN: server); use a name of the certificate as the endpoint, or reissue it",
    ],
    [alert(42, 'sslv3 alert bad certificate'), `the server requires a valid client certificate; ${CLIENT}`],
    [alert(116, 'tlsv13 alert certificate required'), `the server requires a client certificate; ${CLIENT}`],
    [alert(45, 'sslv3 alert certificate expired'), `the client certificate has expired; ${CLIENT}`],
    [alert(48, 'tlsv1 alert unknown ca'), `the server rejects the client certificate; ${CLIENT}`],
    [
      'error:0A00010B:SSL routines:ssl3_get_record:wrong version number',
      `the server does not use TLS; ${SCHEME}`,
    ],
    [
      'Error: Client network socket disconnected before secure TLS connection was established',
      `the server closed the connection during the TLS handshake; ${SCHEME}`,
    ],
    ['Failed to connect (2026-11-23T23:21:55.395Z)', `the server closed the connection; ${SCHEME}`],
    // Regression: the endpoint was not named, and the time made each message different.
    ['Protocol error (2026-11-29T03:02:22.444Z)', `the server does not use HTTP/2; ${PROXY}`],
    ['Error: something new (2026-11-29T03:02:22.444Z)', `something new; ${NETWORK}`],
    [
      'No addresses resolved',
      'cannot resolve the host name; check DNS and the endpoint of the configuration',
    ],
  ])('%s', (lastError, expected) => {
    const thrown = notConnected(lastError);
    expect(etcdError(thrown, HOST)).toMatchObject({
      code: 'unavailable',
      cause: thrown,
      message: `cannot connect to etcd at ${HOST}: ${expected}`,
    });
  });

  it.each([
    ['127.0.0.1:2379', '127.0.0.1:2379'],
    ['[::1]:2379', '::1:2379'],
    ['[fe80::1]:2379', 'fe80::1:2379'],
  ])('names the endpoint %s once', (host, address) => {
    expect(etcdError(notConnected(`Error: connect ECONNREFUSED ${address}`), host).message).toMatch(
      `cannot connect to etcd at ${host}: connection refused; `,
    );
  });

  it('names the host that cannot be resolved', () => {
    const thrown = grpcError(status.UNAVAILABLE, `Name resolution failed for target dns:${HOST}`);
    expect(etcdError(thrown, HOST).message).toBe(
      `cannot connect to etcd at ${HOST}: cannot resolve the host name; check DNS and the endpoint of the configuration`,
    );
  });
});

describe('the message of a call that failed', () => {
  it.each([
    [
      status.UNAVAILABLE,
      'read ECONNRESET',
      'unavailable',
      `lost the connection to etcd at ${HOST}: connection reset by the peer; check the network and the log of etcd`,
    ],
    [status.UNAVAILABLE, 'Connection dropped', 'unavailable', DROPPED],
    // Regression: these counted as answers of etcd, and their endpoint was not named.
    [
      status.INTERNAL,
      'Received RST_STREAM with code 0 (Call ended without gRPC status)',
      'unavailable',
      DROPPED,
    ],
    [status.UNAVAILABLE, 'Stream refused by server', 'unavailable', DROPPED],
    ...[401, 403, 404, 503].map(
      (code) =>
        [
          status.UNAUTHENTICATED,
          `Received HTTP status code ${code}`,
          'unavailable',
          `no etcd at ${HOST}: the answer is HTTP status ${code}; ${PROXY}`,
        ] as const,
    ),
    [
      status.UNIMPLEMENTED,
      'unknown service etcdserverpb.KV',
      'unavailable',
      `no etcd at ${HOST}: the answer is unknown service etcdserverpb.KV; ${PROXY}`,
    ],
    [
      status.DEADLINE_EXCEEDED,
      'context deadline exceeded',
      'deadline',
      `no answer from etcd at ${HOST} in time; check the network and the load of etcd`,
    ],
    [
      status.INVALID_ARGUMENT,
      'etcdserver: authentication failed, invalid user ID or password',
      'forbidden',
      `etcd at ${HOST} rejects the user or the password; check username and password of the configuration`,
    ],
    [
      status.PERMISSION_DENIED,
      'etcdserver: permission denied',
      'forbidden',
      `permission denied by etcd at ${HOST}`,
    ],
    // Regression: the messages of etcd did not name the endpoint.
    [status.UNAVAILABLE, 'etcdserver: no leader', 'no-leader', `etcd at ${HOST}: no leader`],
    [status.UNAVAILABLE, 'something new', 'unavailable', `etcd at ${HOST}: something new`],
    [status.UNKNOWN, '', 'internal', `etcd at ${HOST} gave no reason for status 2`], // regression: an empty message
    // etcd 3.6; 3.4 and 3.5 answer with UNAVAILABLE.
    [
      status.FAILED_PRECONDITION,
      'etcdserver: rpc not supported for learner',
      'unavailable',
      `etcd at ${HOST}: rpc not supported for learner`,
    ],
    // The outcome of the call is unknown, because its answer is missing.
    [status.UNIMPLEMENTED, 'No message received', 'internal', `etcd at ${HOST}: No message received`],
    [
      status.RESOURCE_EXHAUSTED,
      'Received message that decompresses to a size larger than 65536',
      'too-large',
      `etcd at ${HOST}: Received message that decompresses to a size larger than 65536`,
    ],
    [status.INVALID_ARGUMENT, 'Failed to connect', 'invalid-request', `etcd at ${HOST}: Failed to connect`],
    [
      status.UNAVAILABLE,
      STREAM_ENDED,
      'unavailable',
      `lost the connection to etcd at ${HOST}: the server ended the stream; check the network and the log of etcd`,
    ],
  ] as const)('%i %s', (number, details, code, message) => {
    const thrown = grpcError(number, details);
    expect(etcdError(thrown, HOST)).toMatchObject({ code, message, cause: thrown });
  });

  it('names the endpoint without an answer', () => {
    expect(etcdDeadlineError(HOST)).toMatchObject({
      code: 'deadline',
      message: `no answer from etcd at ${HOST} in time; check the network and the load of etcd`,
    });
  });

  it('an error without a status keeps its text', () => {
    expect(etcdError(new RangeError('read ECONNRESET. Resolution note: '), HOST)).toMatchObject({
      code: 'internal',
      message: `etcd at ${HOST}: read ECONNRESET. Resolution note: `,
    });
  });
});

/** Returns a transport to an HTTP/2 server that answers each request in this way, and the server's host and port. */
async function transportTo(answer: (stream: ServerHttp2Stream) => void): Promise<[EtcdTransport, string]> {
  const server = createServer();
  server.on('stream', answer);
  const port = await freePort();
  server.listen(port, '127.0.0.1');
  const host = `127.0.0.1:${port}`;
  const transport = new EtcdTransport({ endpoints: [`http://${host}`] }, () => 0);
  onTestFinished(async () => {
    await transport.close();
    server.close();
  });
  return [transport, host];
}

it('an answer in an unknown grpc-encoding is named (regression: "undefined undefined: undefined", and nothing for a watch)', async () => {
  const [transport, host] = await transportTo((stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-encoding': 'zstd' });
    stream.write(Buffer.from([1, 0, 0, 0, 1, 7])); // compressed, 1 byte
  });
  const message = `etcd at ${host} sent an answer in an unknown grpc-encoding; check the proxy before etcd`;
  await expect(transport.range(keyRange('a'))).rejects.toMatchObject({ code: 'internal', message });
  await expect(transport.keepLeaseAlive('1')).rejects.toMatchObject({ code: 'internal', message });
});

it('an HTML page of a proxy is named (regression: "Received message larger than max (1752460652 vs 67108864)")', async () => {
  const [transport, host] = await transportTo((stream) => {
    stream.respond({ ':status': 200, 'content-type': 'text/html' });
    stream.end('<html>');
  });
  const message = `no etcd at ${host}: the answer is of type text/html; ${PROXY}`;
  await expect(transport.range(keyRange('a'))).rejects.toMatchObject({ code: 'unavailable', message });
  await expect(transport.keepLeaseAlive('1')).rejects.toMatchObject({ code: 'unavailable', message });
});

it('an endpoint with an alarm is unhealthy, and its alarm is named (regression: healthy)', async () => {
  const header = bytesField(1, message(numberField(2, 7), numberField(3, 20)));
  const alarm = 'memberID:7 alarm:NOSPACE ';
  const answer = message(header, numberField(4, 7), bytesField(8, Buffer.from(alarm)));
  const server = new FakeServer({ status: () => answer });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(async () => {
    await transport.close();
    server.stop();
  });
  expect(await transport.endpoints()).toMatchObject([
    { healthy: false, isLeader: true, error: alarm.trim() },
  ]);
});

it('long texts of a server are cut in errors and in the status of endpoints (regression: 64 KiB in each status and log line)', async () => {
  const long = 'x'.repeat(60_000);
  const [transport] = await transportTo((stream) => {
    stream.respond(
      {
        ':status': 200,
        'content-type': 'application/grpc',
        'grpc-status': status.UNAVAILABLE,
        'grpc-message': long,
      },
      { endStream: true },
    );
  });
  for (const call of [transport.range(keyRange('a')), transport.keepLeaseAlive('1')]) {
    const error = await call.catch((thrown: unknown) => thrown as KvstoreError);
    expect(error).toBeInstanceOf(KvstoreError);
    const { message: text, cause } = error as KvstoreError;
    expect(text.length).toBeLessThan(1_100);
    expect((cause as Error).message).toHaveLength(1_000);
  }
  const [{ error: shown = '' } = {}] = await transport.endpoints();
  expect(shown.length).toBeLessThan(1_100);
});

it('the version and the alarms of an endpoint are cut (regression: texts of 64 MiB in the status)', async () => {
  const long = Buffer.alloc(10_000, 'x');
  const answer = message(bytesField(2, long), numberField(4, 7), bytesField(8, long));
  const server = new FakeServer({ status: () => answer });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(async () => {
    await transport.close();
    server.stop();
  });
  const [{ version = '', error = '' } = {}] = await transport.endpoints();
  expect([version.length, error.length]).toEqual([1_000, 1_000]);
});

it('a status of more than 1 MiB is not decoded (regression: 64 MiB in one turn)', async () => {
  const server = new FakeServer({ status: () => message(bytesField(2, Buffer.alloc(1 << 20))) });
  const transport = new EtcdTransport({ endpoints: [await server.start()] }, () => 0);
  onTestFinished(async () => {
    await transport.close();
    server.stop();
  });
  const error = 'an answer to status of 1048580 bytes';
  expect(await transport.endpoints()).toMatchObject([{ healthy: false, error }]);
});

it.each(['127.0.0.1', '[::1]'])(
  'without an etcd at any endpoint on %s, each call names the one it used',
  async (ip) => {
    const hosts = [`${ip}:${await freePort()}`, `${ip}:${await freePort()}`];
    const backend = new EtcdBackend({ endpoints: hosts.map((host) => `http://${host}`) });
    onTestFinished(() => backend.close());
    const messages = new Set<string>();
    for (const _ of hosts) {
      const error: unknown = await backend.get('a').catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: 'unavailable', cause: { code: status.UNAVAILABLE } });
      messages.add((error as Error).message);
    }
    expect(messages).toEqual(
      new Set(
        hosts.map(
          (host) =>
            `cannot connect to etcd at ${host}: connection refused; check that etcd runs at the endpoint of the configuration`,
        ),
      ),
    );
  },
);
