import { readFile } from 'node:fs/promises';
import { messageOf } from '../../base/failure.ts';
import { ApiError } from './api-error.ts';

/** Certificates or a key, PEM: as they are, or in a file that is read again for each connection, as it is rotated. */
export type Pem = { readonly data: Uint8Array } | { readonly file: string };

/** A certificate that a client shows, and its key. */
export interface ClientCertificate {
  readonly certificate: Pem;
  readonly key: Pem;
}

/** Who a client is. */
export interface Credentials {
  /** Of the header `Authorization`; `undefined` for none. Rejects with an ApiError where there is none to be had. */
  authorization(): Promise<string | undefined>;
  /** Shown when a connection is made. */
  certificate(): Promise<ClientCertificate | undefined>;
  /** The server did not accept them: what is remembered is to be fetched anew. */
  refused(): void;
}

/** How to reach and enter an API server. */
export interface ClusterAccess {
  /** `https://host:port`, a path may follow. */
  readonly server: string;
  /** Authorities that are trusted; default those of the system. */
  readonly ca: Pem | undefined;
  /** What the server's certificate must be for, if not the host. */
  readonly serverName: string | undefined;
  /** Take any server for what it says it is. Dangerous. */
  readonly insecureSkipVerify: boolean;
  /**
   * Lists come as they are. Where the network is no limit, that costs server and client less time; compressed, a list is a
   * tenth as long. Default false.
   */
  readonly disableCompression?: boolean | undefined;
  readonly credentials: Credentials;
}

/** Rejects with an ApiError that names the file. */
export async function readPem(pem: Pem): Promise<Uint8Array> {
  if ('data' in pem) return pem.data;
  try {
    return await readFile(pem.file);
  } catch (cause) {
    throw new ApiError('credentials', `cannot read ${pem.file}: ${messageOf(cause)}`, { cause });
  }
}

/** Credentials that stay as they are: a token, a certificate, none. */
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
