import type { TCPCredentials } from '../api/server/api-server.ts';
import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/failure.ts';
import { sleep } from '../base/sleep.ts';
import type { Logger } from './log.ts';

/** Interval of reading. The kubelet replaces the files of a mounted secret about once a minute. */
const INTERVAL_MS = 10_000;

/**
 * Delay of the second attempt. A failure is reported only if the second attempt fails, too, because a certificate and
 * its key may be replaced one after the other.
 */
const RETRY_MS = 1_000;

export interface FollowCredentialsContext {
  /** Reads all credentials. Rejects if one cannot be read. */
  readonly read: () => Promise<TCPCredentials>;
  /** Replaces the credentials in use. If they cannot be used, throws and replaces nothing. */
  readonly renew: (credentials: TCPCredentials) => void;
  /** Called for each failed attempt from the second one on. */
  readonly onFailure: () => void;
  readonly log: Logger;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/**
 * Replaces the credentials of a server when their files change, until the signal fires. Compares contents, so any way
 * of replacing the files works. If the new credentials cannot be read or used, the former ones stay in use and the
 * reason is logged once.
 */
export async function followCredentials(
  { token, tls }: TCPCredentials,
  { read, renew, onFailure, log, clock, signal }: FollowCredentialsContext,
): Promise<void> {
  let current = JSON.stringify({ token, tls });
  /** Number of failed attempts since the last success. */
  let failures = 0;
  /** The last logged reason since the last success. */
  let reported: string | undefined;
  for (;;) {
    await sleep(clock, failures === 1 ? RETRY_MS : INTERVAL_MS, signal);
    if (signal.aborted) return;
    try {
      const credentials = await read();
      const content = JSON.stringify(credentials);
      if (content !== current) {
        renew(credentials);
        current = content;
        log.info('reloaded the credentials of --listen');
      }
      failures = 0;
      reported = undefined;
    } catch (error) {
      failures++;
      if (failures < 2) continue;
      onFailure();
      const reason = messageOf(error);
      if (reason !== reported)
        log.error(`cannot reload the credentials of --listen: ${reason}; the previous ones stay in use`);
      reported = reason;
    }
  }
}
