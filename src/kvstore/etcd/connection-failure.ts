import { systemErrorText } from '../../base/failure.ts';

const CHECK_SERVER = 'check that etcd runs at the endpoint of the configuration';
const CHECK_NETWORK = 'check the network and the endpoint of the configuration';
const CHECK_SCHEME = 'check that etcd runs at the endpoint with this scheme (http or https)';
const CHECK_PROXY = 'check the endpoint of the configuration, and the proxy before etcd';
const CHECK_CA = 'check trusted-ca-file of the configuration';
const CHECK_CLIENT_CERTIFICATE = 'check cert-file and key-file of the configuration';
const RENEW_SERVER_CERTIFICATE = 'renew it, or check the clock of this machine';

/** The problem and the remedy for an error text of OpenSSL, Node.js or grpc-js within a message of grpc-js. */
const CAUSES: readonly (readonly [part: RegExp, problem: string, remedy: string])[] = [
  [
    /name resolution failed|no addresses resolved/i,
    'cannot resolve the host name',
    `check DNS and the endpoint of the configuration`,
  ],
  [/certificate has expired/, 'the server certificate has expired', RENEW_SERVER_CERTIFICATE],
  [/certificate is not yet valid/, 'the server certificate is not yet valid', RENEW_SERVER_CERTIFICATE],
  // The verification errors of OpenSSL 1.1 to 3 for a chain without a trusted root; 1.1 writes `self signed`.
  [
    /self.signed certificate|unable to verify the first certificate/,
    'the server certificate is signed by an unknown CA',
    CHECK_CA,
  ],
  [
    /unable to get (local )?issuer certificate/,
    'the server certificate is signed by an unknown CA',
    CHECK_CA,
  ],
  // Alerts of RFC 8446, section 6. A server in Go sends 42 for a missing, an untrusted and an expired certificate.
  [/SSL alert number 42\b/, 'the server requires a valid client certificate', CHECK_CLIENT_CERTIFICATE],
  [/SSL alert number 116\b/, 'the server requires a client certificate', CHECK_CLIENT_CERTIFICATE],
  [/SSL alert number 45\b/, 'the client certificate has expired', CHECK_CLIENT_CERTIFICATE],
  [/SSL alert number (43|44|46|48)\b/, 'the server rejects the client certificate', CHECK_CLIENT_CERTIFICATE],
  [/wrong version number/, 'the server does not use TLS', CHECK_SCHEME],
  [/Protocol error|SSL alert number 120\b/, 'the server does not use HTTP/2', CHECK_PROXY],
  [
    /disconnected before secure TLS/,
    'the server closed the connection during the TLS handshake',
    CHECK_SCHEME,
  ],
  [
    /Failed to connect|the connection was closed|Socket closed/,
    'the server closed the connection',
    CHECK_SCHEME,
  ],
];

const REMEDIES: ReadonlyMap<string, string> = new Map([
  ['ECONNREFUSED', CHECK_SERVER],
  ['EMFILE', 'raise the limit of open files'],
]);

/** A system error in the text of an error of Node.js: `connect ECONNREFUSED ::1:2379`. The address is optional. */
const SYSTEM_ERROR =
  /\b(?<call>connect|read|write) (?<code>E[A-Z]+)\b(?: (?<ip>[\da-fA-F.:]+):(?<port>\d+))?/;

/** The details of `ERR_TLS_CERT_ALTNAME_INVALID`. */
const NAME_MISMATCH = /does not match certificate's altnames: (?<detail>.*)/;

/** A connection that broke while a call was active (grpc-js 1.14). */
const DROPPED = /^(Connection dropped|Received RST_STREAM|Stream refused|.*GOAWAY)/;

/** The text for a stream that the server ended without an error. */
export const STREAM_ENDED = 'the server ended the stream';

/** An answer of a proxy, or of a gRPC server that is not etcd (grpc-js 1.14). */
const FOREIGN = /^(?:Received )?(HTTP status|unknown service)(?: code)? (.*)/;

/** The message of grpc-js 1.14 if all attempts to connect failed. Its end is the time of the last attempt. */
const LAST_ERROR = /^No connection established\. Last error: (?:Error: )?(.*?)(?: \([\dT:.-]+Z\))?$/s;

/**
 * Returns the message for a failed or lost connection: problem, endpoint, remedy. Returns `undefined` for an unknown
 * text.
 *
 * @param text the details of the status of grpc-js
 * @param server `etcd at` and the configured endpoint, without its scheme
 */
export function connectionFailure(text: string, server: string): string | undefined {
  const { call, code, ip, port } = SYSTEM_ERROR.exec(text)?.groups ?? {};
  if (code !== undefined) {
    const problem = systemErrorText(code) ?? code;
    if (call !== 'connect') return lost(server, problem);
    return cannotConnect(withAddress(server, ip, port), problem, REMEDIES.get(code) ?? CHECK_NETWORK);
  }
  const mismatch = NAME_MISMATCH.exec(text)?.groups;
  if (mismatch !== undefined) {
    const problem = `the server certificate is for another name (${mismatch['detail']})`;
    return cannotConnect(server, problem, 'use a name of the certificate as the endpoint, or reissue it');
  }
  const cause = CAUSES.find(([part]) => part.test(text));
  if (cause !== undefined) return cannotConnect(server, cause[1], cause[2]);
  if (DROPPED.test(text)) return lost(server, 'connection closed by the peer');
  if (text === STREAM_ENDED) return lost(server, STREAM_ENDED);
  const foreign = FOREIGN.exec(text);
  if (foreign !== null) return foreignAnswer(server, `${foreign[1]} ${foreign[2]}`);
  const lastError = LAST_ERROR.exec(text)?.[1];
  return lastError === undefined ? undefined : cannotConnect(server, lastError, CHECK_NETWORK);
}

/** Returns the message for an answer that is not from etcd. */
export function foreignAnswer(server: string, answer: string): string {
  return `no ${server}: the answer is ${answer}; ${CHECK_PROXY}`;
}

function cannotConnect(server: string, problem: string, remedy: string): string {
  return `cannot connect to ${server}: ${problem}; ${remedy}`;
}

function lost(server: string, problem: string): string {
  return `lost the connection to ${server}: ${problem}; check the network and the log of etcd`;
}

/** If the endpoint is a name, appends the IP address of the failed attempt. */
function withAddress(server: string, ip: string | undefined, port: string | undefined): string {
  if (ip === undefined) return server;
  const address = `${ip.includes(':') ? `[${ip}]` : ip}:${port}`;
  return server.endsWith(` ${address}`) ? server : `${server} (${address})`;
}
