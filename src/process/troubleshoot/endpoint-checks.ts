import { X509Certificate } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, isIP, type LookupFunction, type Socket } from 'node:net';
import { connect as connectTLS, type TLSSocket } from 'node:tls';
import { errorCode, messageOf } from '../../base/failure.ts';
import { onAbort } from '../../base/follow-signal.ts';
import { counted } from '../../base/show-value.ts';
import { isoTime } from '../../base/system-clock.ts';
import type { EtcdConfig, EtcdTLS } from '../../kvstore/etcd/etcd-config.ts';
import { tlsOptions } from '../../kvstore/etcd/etcd-credentials.ts';
import { withoutBrackets } from '../../net/url-host.ts';
import { CHECK_TIMEOUT_MS, Check, type CheckResult, NO_ANSWER } from './check.ts';
import { type ConnectionProblem, connectionProblem } from './connection-problem.ts';

/** A certificate with less time left gets a warning. */
const EXPIRY_WARNING_DAYS = 14;
const DAY_MS = 86_400_000;

/** The start of an HTTP/2 connection: the preface and empty settings (RFC 9113, 3.4). */
const HTTP2_START: Buffer = Buffer.concat([
  Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);

const CHECK_CA = 'set trusted-ca-file to the authority that signed the certificate of the server';

const CHECK_PORT = 'check that the port is that of an etcd with TLS, and that it answers';
const CHECK_CLIENT = 'check that the authority of the server has signed cert-file';

const REMEDIES: Readonly<Partial<Record<ConnectionProblem, string>>> = {
  'unknown-host': 'check the name, and the hostAliases or the DNS server of this host',
  'no-dns': 'check that the DNS server of this host is reachable',
  refused: 'check the port, and that the server runs',
  'no-route': 'check the route to the host',
  'no-tls': CHECK_PORT,
  reset: CHECK_PORT,
  expired: 'renew the certificate of the server',
  'not-yet-valid': 'check the clocks of this host and of the server',
  'other-name': 'add the host to the certificate of the server, or use a host that it names',
  'unknown-ca': CHECK_CA,
};

/** Returns the remedy for an error code of DNS, TCP or TLS; undefined if there is no specific one. */
function remedyOf(code: string): string | undefined {
  const problem = connectionProblem(code);
  return problem && REMEDIES[problem];
}

const CHECK_FIREWALL = 'check firewalls and the route to the host';

/** Returns the reason in an error of OpenSSL, whose message also has positions in its sources. */
function openSSLReason(error: unknown): string | undefined {
  return error instanceof Error && 'reason' in error && typeof error.reason === 'string'
    ? error.reason
    : undefined;
}

/**
 * Returns the check for an error. `defaultRemedy`: for errors that {@link remedyOf} does not know; `lateRemedy`: if no
 * answer arrived.
 */
function failedCheck(
  check: Check,
  error: unknown,
  defaultRemedy: string,
  lateRemedy: string = defaultRemedy,
): CheckResult {
  const code = String(errorCode(error) ?? '');
  if (code === 'ABORT_ERR') return check.failed(NO_ANSWER, lateRemedy);
  return check.failed(openSSLReason(error) ?? messageOf(error), remedyOf(code) ?? defaultRemedy);
}

/** Returns the subject or the issuer of a certificate in one line. */
function nameOf(lines: string | undefined): string {
  return (lines ?? '').split('\n').join(', ') || '(empty)';
}

/** Returns the check of the dates of a certificate. */
function validityCheck(
  check: Check,
  certificate: X509Certificate,
  now: number,
  renewal: string,
): CheckResult {
  const validFrom = Date.parse(certificate.validFrom);
  const validTo = Date.parse(certificate.validTo);
  const names = `subject ${nameOf(certificate.subject)}; issuer ${nameOf(certificate.issuer)}`;
  if (Number.isNaN(validFrom) || Number.isNaN(validTo))
    return check.failed(`has an invalid date: ${names}`, renewal);
  const text = `${names}; valid to ${isoTime(validTo)}`;
  const days = Math.floor((validTo - now) / DAY_MS);
  if (validTo <= now) return check.failed(`has expired: ${text}`, renewal);
  if (validFrom > now) return check.failed(`is not valid yet: ${text}`, 'check the clock of this host');
  if (days >= EXPIRY_WARNING_DAYS) return check.ok(text);
  return check.warning(`expires in ${counted(days, 'day')}: ${text}`, renewal);
}

/** Returns the check of the client certificate of a configuration; none if it has no client certificate. */
export function checkClientCertificate({ certificate }: EtcdTLS, now: number): readonly CheckResult[] {
  if (certificate === undefined) return [];
  return [
    validityCheck(new Check('tls', 'cert-file'), new X509Certificate(certificate), now, 'renew cert-file'),
  ];
}

/** Returns the checks of the way to an endpoint: DNS, TCP and TLS. The first failure is the last check. */
export async function checkEndpoint(
  endpoint: string,
  tls: EtcdTLS | undefined,
  now: number,
  aliases: EtcdConfig['hostAliases'] = new Map(),
): Promise<readonly CheckResult[]> {
  const { hostname, protocol } = new URL(endpoint);
  const host = withoutBrackets(hostname);
  const ips = aliases.get(host);
  // Endpoints of a configuration have a port, but `URL` drops it if it is the default one of its scheme.
  const port = Number(endpoint.slice(endpoint.lastIndexOf(':') + 1));
  const address = { host, port, ...(ips && { lookup: lookupOf(ips) }) };
  const checks: CheckResult[] = [];
  if (ips !== undefined) checks.push(new Check('dns', host).ok(`${ips.join(', ')} (alias)`));
  else if (isIP(host) === 0) checks.push(await checkName(host));
  if (checks.every(isPassed)) checks.push(await checkTCP(endpoint, address));
  if (checks.every(isPassed) && protocol === 'https:')
    checks.push(await checkTLS(endpoint, address, tls ?? {}, now));
  return checks;
}

export function isPassed({ status }: CheckResult): boolean {
  return status !== 'failed';
}

interface HostAndPort {
  readonly host: string;
  readonly port: number;
  /** Default: the DNS. */
  readonly lookup?: LookupFunction;
}

/** Returns a lookup with the given addresses for every host. */
function lookupOf(ips: readonly string[]): LookupFunction {
  const found = ips.map((address) => ({ address, family: isIP(address) }));
  return (_host, { all = false }, done) =>
    all ? done(null, found) : done(null, found[0]?.address ?? '', found[0]?.family);
}

async function checkName(host: string): Promise<CheckResult> {
  const check = new Check('dns', host);
  try {
    const addresses = await withinLimit(lookup(host, { all: true }));
    return check.ok(addresses.map(({ address }) => address).join(', '));
  } catch (error) {
    return failedCheck(check, error, 'check the DNS server of this host');
  }
}

async function checkTCP(endpoint: string, address: HostAndPort): Promise<CheckResult> {
  const check = new Check('tcp', endpoint);
  const socket = connect(address);
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(CHECK_TIMEOUT_MS) });
    return check.ok(`connected to ${socket.remoteAddress}`);
  } catch (error) {
    return failedCheck(check, error, CHECK_FIREWALL);
  } finally {
    close(socket);
  }
}

async function checkTLS(
  endpoint: string,
  { host, ...address }: HostAndPort,
  tls: EtcdTLS,
  now: number,
): Promise<CheckResult> {
  const check = new Check('tls', endpoint);
  const socket = connectTLS({
    ...tlsOptions(host, tls),
    ...address,
    rejectUnauthorized: false, // so that a rejected certificate can be described; nothing secret is sent
  });
  try {
    const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS);
    await once(socket, 'secureConnect', { signal });
    const result = certificateCheck(check, socket, tls, now);
    if (!isPassed(result)) return result;
    // With TLS 1.3 the server verifies the client certificate after the handshake of the client: wait for its first
    // frame.
    socket.write(HTTP2_START);
    const closed = once(socket, 'close', { signal }).then(() => {
      throw new Error('the server closed the connection after the TLS handshake');
    });
    await Promise.race([once(socket, 'data', { signal }), closed]);
    return result;
  } catch (error) {
    return failedCheck(check, error, CHECK_CLIENT, CHECK_PORT);
  } finally {
    close(socket);
  }
}

function certificateCheck(check: Check, socket: TLSSocket, tls: EtcdTLS, now: number): CheckResult {
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return check.failed('no certificate', 'check the server');
  const valid = validityCheck(check, certificate, now, 'renew the certificate of the server');
  if (tls.insecureSkipVerify === true)
    return check.warning(`not verified: ${valid.text}`, 'remove insecure-skip-tls-verify');
  if (socket.authorized || !isPassed(valid)) return valid;
  const code = String(socket.authorizationError);
  return check.failed(`certificate rejected (${code}): ${valid.text}`, remedyOf(code) ?? CHECK_CA);
}

/** Destroys a socket. Its late errors are ignored. */
function close(socket: Socket): void {
  socket.on('error', () => {});
  socket.destroy();
}

/** Rejects like an aborted call if the result takes too long. A lookup of Node cannot be cancelled. */
async function withinLimit<T>(result: Promise<T>): Promise<T> {
  const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS);
  const late = new Promise<never>((_resolve, reject) => {
    const error = Object.assign(new Error(NO_ANSWER), { code: 'ABORT_ERR' });
    onAbort(signal, () => reject(error));
  });
  return Promise.race([result, late]);
}
