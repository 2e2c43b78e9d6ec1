/**
 * The meaning of an error code of DNS, TCP or TLS. Each caller has its own remedies, because these name its options.
 */
export type ConnectionProblem =
  | 'unknown-host'
  | 'no-dns'
  | 'refused'
  | 'no-route'
  | 'forbidden'
  | 'reset'
  | 'no-tls'
  | 'unknown-ca'
  | 'expired'
  | 'not-yet-valid'
  | 'other-name';

/** Codes of Node.js and of OpenSSL (X509_verify_cert). */
const PROBLEMS: ReadonlyMap<string, ConnectionProblem> = new Map([
  ['ENOTFOUND', 'unknown-host'],
  ['EAI_AGAIN', 'no-dns'],
  ['ECONNREFUSED', 'refused'],
  ['EHOSTUNREACH', 'no-route'],
  ['ENETUNREACH', 'no-route'],
  ['EACCES', 'forbidden'],
  ['ECONNRESET', 'reset'],
  ['EPROTO', 'no-tls'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'unknown-ca'],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'unknown-ca'],
  ['UNABLE_TO_GET_ISSUER_CERT', 'unknown-ca'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'unknown-ca'],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', 'unknown-ca'],
  ['CERT_SIGNATURE_FAILURE', 'unknown-ca'],
  ['CERT_HAS_EXPIRED', 'expired'],
  ['CERT_NOT_YET_VALID', 'not-yet-valid'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'other-name'],
]);

export function connectionProblem(code: string): ConnectionProblem | undefined {
  return PROBLEMS.get(code);
}
