import { readFile } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/failure.ts';
import { ApiError } from './api-error.ts';
import type { ClientCertificate, Credentials } from './cluster-access.ts';

/** A token may be used for so long after it was read: kubelets renew theirs long before they expire. */
const FRESH_MS = 10_000;

/**
 * A bearer token in a file that somebody renews, as a kubelet does those of service accounts. One that cannot be read, or
 * is empty, because it is being written, does not replace the last one.
 */
export class TokenFile implements Credentials {
  readonly #path: string;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #certificate: ClientCertificate | undefined;
  #token: string | undefined;
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
      const token = (await readFile(this.#path, 'utf8')).trim();
      if (token === '') throw new Error('it is empty');
      this.#token = token;
      this.#readAt = this.#clock.now();
    } catch (cause) {
      if (this.#token !== undefined) return;
      throw new ApiError('credentials', `no token in ${this.#path}: ${messageOf(cause)}`, { cause });
    }
  }
}
