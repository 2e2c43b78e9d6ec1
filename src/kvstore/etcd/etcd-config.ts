/** How to reach and enter an etcd cluster: the content of a Cilium etcd configuration, files already read. */
export interface EtcdConfig {
  /** `https://host:port`, or `http://`; all of one scheme. At least one. */
  readonly endpoints: readonly string[];
  /** For `https` endpoints. Without, the system's authorities are trusted and no certificate is shown. */
  readonly tls?: EtcdTLS | undefined;
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  /** How long a call may take to connect and be answered. Default 10 s. */
  readonly deadlineMs?: number | undefined;
  /** A connection that is silent for so long is pinged; default 15 s. Below 10 s servers may object. */
  readonly keepAliveTimeMs?: number | undefined;
  /** A ping that is not answered for so long ends the connection; default 10 s. */
  readonly keepAliveTimeoutMs?: number | undefined;
  /** Largest answer taken at once; larger ones come in parts. Default 64 MiB. */
  readonly maxMessageBytes?: number | undefined;
}

/** Certificates, PEM. */
export interface EtcdTLS {
  /** Authorities that are trusted. */
  readonly ca?: Uint8Array | undefined;
  readonly certificate?: Uint8Array | undefined;
  readonly key?: Uint8Array | undefined;
  /** Take any server for what it says it is. Dangerous. */
  readonly insecureSkipVerify?: boolean | undefined;
}

export const DEADLINE_MS = 10_000;

/** A configuration that cannot be used; the message names field and value. */
export class EtcdConfigError extends Error {
  override readonly name = 'EtcdConfigError';
}
