import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import { readRegularFile } from '../../base/files/regular-file.ts';
import { ApiError } from './api-error.ts';
import { type ClientCertificate, type Credentials, isBearerToken } from './cluster-access.ts';

/** Lifetime of a cached token. Kubelets renew tokens long before they expire. */
const FRESH_MS = 10_000;

/**
 * A bearer token in a file that is renewed, for example by the kubelet for service accounts. If the file is unreadable
 * or empty, for example during a write, the last token is used.
 */
export class TokenFile implements Credentials {
  readonly #path: string;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #certificate: ClientCertificate | undefined;
  #token: string | undefined;
  /** Monotonic time at which the token was read. */
  #readAt = 0;

  constructor(path: string, clock: Pick<Clock, 'now'>, certificate?: ClientCertificate) {
    this.#path = path;
    this.#clock = clock;
    this.#certificate = certificate;
  }

  async authorization(): Promise<string> {
    if (this.#token === undefined || this.#clock.now() - this.#readAt >= FRESH_MS) await this.#read();
    return `Bearer ${this.#token}`;
  }

  certificate(): Promise<ClientCertificate | undefined> {
    return Promise.resolve(this.#certificate);
  }

  refused(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  async #read(): Promise<void> {
    try {
      const token = (await readRegularFile(this.#path)).toString('utf8').trim();
      if (token === '') throw new Error('the file is empty');
      if (!isBearerToken(token)) throw new Error('the token has an invalid character');
      this.#token = token;
      this.#readAt = this.#clock.now();
    } catch (cause) {
      if (this.#token !== undefined) return;
      throw new ApiError('credentials', `cannot read a token from ${this.#path}: ${messageOf(cause)}`, {
        cause,
      });
    }
  }
}
