import { messageOf } from '../../base/failure.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { ApiError } from './api-error.ts';

/** PEM certificates or a key: inline, or in a file read again for each connection because it may be rotated. */
export type Pem = { readonly data: Uint8Array } | { readonly file: string };

/** A client certificate and its key. */
export interface ClientCertificate {
  readonly certificate: Pem;
  readonly key: Pem;
}

/** The credentials of a client. */
export interface Credentials {
  /**
   * Resolves to the value of the header `Authorization`; `undefined` if there is none. Rejects with an ApiError if the
   * credentials cannot be read.
   */
  authorization(): Promise<string | undefined>;
  /** Resolves to the certificate for a new connection. */
  certificate(): Promise<ClientCertificate | undefined>;
  /**
   * Called when the server has rejected a request with this value of `authorization`, over a connection with this
   * `certificate`, so that both are no longer cached.
   */
  refused(authorization: string | undefined, certificate?: ClientCertificate): void;
}

/** Address and credentials of an API server. */
export interface ClusterAccess {
  /** `https://host:port`, optionally with a path. */
  readonly server: string;
  /** Trusted authorities; default: those of the system. */
  readonly ca: Pem | undefined;
  /** Expected name in the server certificate, if it differs from the host. */
  readonly serverName: string | undefined;
  /** If true, the server certificate is not verified. Dangerous. */
  readonly insecureSkipVerify: boolean;
  /**
   * If true, lists are not compressed, which is faster on a fast network. A compressed list has a tenth of the size.
   * Default: false.
   */
  readonly disableCompression?: boolean | undefined;
  readonly credentials: Credentials;
}

/** Reads a PEM. Rejects with an ApiError with the name of the file. */
export async function pemBytes(pem: Pem): Promise<Uint8Array> {
  if ('data' in pem) return pem.data;
  try {
    return await readRegularFile(pem.file);
  } catch (cause) {
    throw new ApiError('credentials', `cannot read ${pem.file}: ${messageOf(cause)}`, { cause });
  }
}

/** Returns true if a bearer token can be sent in a header: it has only visible ASCII characters. */
export function isBearerToken(token: string): boolean {
  return /^[!-~]+$/.test(token);
}

/** Returns constant credentials: a token, a certificate, or none. */
export function fixedCredentials(
  authorization: string | undefined,
  certificate: ClientCertificate | undefined,
): Credentials {
  return {
    authorization: () => Promise.resolve(authorization),
    certificate: () => Promise.resolve(certificate),
    refused: () => {},
  };
}
