import { isIP, type Socket } from 'node:net';
import { type ConnectionOptions, connect, createSecureContext } from 'node:tls';
import { CallCredentials, ChannelCredentials } from '@grpc/grpc-js';
import { EtcdConfigError, type EtcdTLS } from './etcd-config.ts';

type SecureConnector = ReturnType<ChannelCredentials['_createSecureConnector']>;
type Connection = Awaited<ReturnType<SecureConnector['connect']>>;

/**
 * Returns the options of a TLS connection to a host; an IPv6 address has no brackets. For an IP address, no server name
 * is sent (RFC 6066, 3): Node.js 26 rejects the one that grpc-js would send. The certificate is verified for the host,
 * also if it is an IP address.
 */
export function tlsOptions(host: string, tls: EtcdTLS): ConnectionOptions {
  const { ca, key, certificate, insecureSkipVerify = false } = tls;
  if ((key === undefined) !== (certificate === undefined))
    throw new EtcdConfigError('certificate and key of TLS: set both or none');
  const pem = (bytes: Uint8Array | undefined): Buffer | undefined => bytes && Buffer.from(bytes);
  return {
    secureContext: createSecureContext({ ca: pem(ca), key: pem(key), cert: pem(certificate) }),
    ALPNProtocols: ['h2'],
    host,
    servername: isIP(host) === 0 ? host : '',
    rejectUnauthorized: !insecureSkipVerify,
    ...(insecureSkipVerify ? { checkServerIdentity: () => undefined } : {}),
  };
}

/** Resolves when the handshake is done and the server is verified. */
function handshake(socket: Socket, options: ConnectionOptions): Promise<Connection> {
  return new Promise((resolve, reject) => {
    const secure = connect({ ...options, socket }, () => resolve({ socket: secure, secure: true }));
    secure.on('error', reject);
  });
}

/**
 * Credentials of one endpoint that report the TCP socket of every connection before TLS, because grpc-js does not
 * expose it. If the socket is closed early, the attempt fails; grpc-js itself would wait indefinitely.
 */
export class EtcdCredentials extends ChannelCredentials {
  readonly #tls: ConnectionOptions | undefined;
  readonly #onSocket: (socket: Socket) => void;

  /** @param tls see {@link tlsOptions}; undefined for a connection without TLS */
  constructor(tls: ConnectionOptions | undefined, onSocket: (socket: Socket) => void) {
    super();
    this.#tls = tls;
    this.#onSocket = onSocket;
  }

  override _isSecure(): boolean {
    return this.#tls !== undefined;
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other;
  }

  override _createSecureConnector(): SecureConnector {
    const callCredentials = CallCredentials.createEmpty();
    return {
      connect: (tcp) => {
        const closed = new Promise<never>((_resolve, reject) => {
          tcp.once('close', () => reject(new Error('the connection was closed')));
        });
        this.#onSocket(tcp);
        const plain = { socket: tcp, secure: false };
        return Promise.race([this.#tls === undefined ? plain : handshake(tcp, this.#tls), closed]);
      },
      waitForReady: () => Promise.resolve(),
      getCallCredentials: () => callCredentials,
      destroy: () => {},
    };
  }
}
