import { isIP } from 'node:net';
import { requireArgument } from '../../base/arguments.ts';
import { showValue } from '../../base/show-value.ts';
import { withoutUser } from '../../net/url-host.ts';

/** Address and credentials of an etcd cluster: the content of a Cilium etcd configuration, with its files read. */
export interface EtcdConfig {
  /** At least one `https://host:port` or `http://host:port`, all with one scheme. */
  readonly endpoints: readonly string[];
  /** IP addresses of hosts, by name in lower case. These hosts are not looked up in the DNS. */
  readonly hostAliases?: ReadonlyMap<string, readonly string[]> | undefined;
  /** For `https` endpoints. Default: the authorities of the system, and no client certificate. */
  readonly tls?: EtcdTLS | undefined;
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  /** Maximum time to connect and receive the answer of a call, extended while the answer arrives. Default 10 s. */
  readonly deadlineMs?: number | undefined;
  /**
   * A connection that is silent for this time is pinged. Default 15 s. Below 10 s, servers may treat the pings as
   * abuse.
   */
  readonly keepAliveTimeMs?: number | undefined;
  /** The connection is closed if a ping is not answered within this time; default 10 s. */
  readonly keepAliveTimeoutMs?: number | undefined;
  /** Maximum size of one answer. If an answer is larger, it is requested in parts. Default 64 MiB. */
  readonly maxMessageBytes?: number | undefined;
}

/** Certificates, PEM. */
export interface EtcdTLS {
  /** Trusted authorities. */
  readonly ca?: Uint8Array | undefined;
  readonly certificate?: Uint8Array | undefined;
  readonly key?: Uint8Array | undefined;
  /** Skips the verification of the server certificate. Dangerous. */
  readonly insecureSkipVerify?: boolean | undefined;
}

export const DEADLINE_MS = 10_000;

/** Invalid configuration file or certificates. The message names the field and the value. */
export class EtcdConfigError extends Error {
  override readonly name = 'EtcdConfigError';
  readonly code = 'invalid-etcd-config';
}

const ENDPOINT = /^https?:\/\/[^/?#@]+:\d+$/;
const NUMBERS = ['deadlineMs', 'keepAliveTimeMs', 'keepAliveTimeoutMs', 'maxMessageBytes'] as const;

/**
 * Throws a `UsageError`, which names the value, if a program passes
 * - an endpoint without scheme or port: grpc-js would use port 443
 * - endpoints of both schemes: the password would be sent in clear text to some of them
 * - an alias without an IP address
 * - a time or size of 0: grpc-js would ping without a pause
 */
export function checkEtcdConfig(config: EtcdConfig): void {
  const { endpoints } = config;
  requireArgument(endpoints.length > 0, 'endpoints must contain at least one URL, such as http://etcd:2379');
  for (const url of endpoints)
    requireArgument(
      ENDPOINT.test(url) && URL.canParse(url),
      `endpoint ${showValue(withoutUser(url))} must be an http or https URL with a port, such as http://etcd:2379`,
    );
  for (const [host, ips] of config.hostAliases ?? [])
    requireArgument(
      ips.length > 0 && ips.every(isIP),
      `hostAliases of ${showValue(host)} must be IP addresses`,
    );
  const schemes = new Set(endpoints.map((url) => url.split(':', 1)[0]));
  requireArgument(schemes.size === 1, 'endpoints must use one scheme: http or https');
  for (const name of NUMBERS) {
    const value = config[name] ?? Number.POSITIVE_INFINITY;
    requireArgument(value > 0, `${name} must be more than 0: ${value}`);
  }
}
