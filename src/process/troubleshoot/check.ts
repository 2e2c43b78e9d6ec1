/** The checks in the order of their execution. */
export type CheckStep =
  | 'file'
  | 'dns'
  | 'tcp'
  | 'tls'
  | 'auth'
  | 'cluster-id'
  | 'heartbeat'
  | 'cluster-config'
  | 'canaries'
  | 'read';

export interface CheckResult {
  readonly step: CheckStep;
  /** Object of the check: a path, a host, an endpoint, a key or a prefix. */
  readonly subject: string;
  /** `warning`: passed, but needs attention. */
  readonly status: 'ok' | 'warning' | 'failed';
  /** The finding, or the problem. */
  readonly text: string;
  /** What to do about a warning or a failure. */
  readonly remedy?: string;
  /** The id of the cluster in a valid configuration. */
  readonly clusterID?: number;
}

/** A check of one subject; its methods return the result. */
export class Check {
  readonly #step: CheckStep;
  readonly subject: string;

  constructor(step: CheckStep, subject: string) {
    this.#step = step;
    this.subject = subject;
  }

  ok(text: string): CheckResult {
    return { step: this.#step, subject: this.subject, status: 'ok', text };
  }

  warning(text: string, remedy: string): CheckResult {
    return { step: this.#step, subject: this.subject, status: 'warning', text, remedy };
  }

  failed(text: string, remedy: string): CheckResult {
    return { step: this.#step, subject: this.subject, status: 'failed', text, remedy };
  }
}

/** Time limit of each check. */
export const CHECK_TIMEOUT_MS = 5_000;

/** The text of a check after its time limit. */
export const NO_ANSWER: string = `no answer within ${CHECK_TIMEOUT_MS / 1000} s`;
