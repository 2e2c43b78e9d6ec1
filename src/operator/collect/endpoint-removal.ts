import { Supervisor } from '../../base/supervisor.ts';
import { CILIUM_ENDPOINTS } from '../../k8s/feed/kinds.ts';
import type { KubernetesObject } from '../../k8s/resource.ts';
import { ApiError } from '../../k8s/rest/api-error.ts';
import type { Duty, DutyStatus } from '../duty.ts';
import { type DutyContext, DutyReport } from '../duty-report.ts';
import { type ObjectAccess, performWrite, placeOfObject } from './perform-write.ts';
import { newCounts, type RoundReport, roundReport } from './rounds.ts';

export type EndpointRemovalOptions = ObjectAccess & DutyContext;

const BACKOFF = { baseMs: 1000, capMs: 60_000 };

/**
 * Deletes, once, every CiliumEndpoint that exists at the start of the duty, even if its pod exists (OPERATOR 25). It is
 * for clusters whose agents no longer maintain CiliumEndpoints. CiliumEndpoints created later are kept. The
 * duty retries until all are deleted. A second run lists no CiliumEndpoints again. The collectors of endpoints and
 * identities must be off, because they rely on CiliumEndpoints.
 */
export class EndpointRemoval implements Duty {
  readonly name = 'endpoint-removal';
  readonly #options: EndpointRemovalOptions;
  readonly #tasks: Supervisor;
  readonly #report: DutyReport;
  /** The CiliumEndpoints to delete, by uid. */
  readonly #pending = new Map<string, KubernetesObject>();
  #isListed = false;
  readonly #counts = newCounts();

  constructor(options: EndpointRemovalOptions) {
    const { clock, random, onFailure } = options;
    this.#options = options;
    this.#tasks = new Supervisor({ clock, random, onFailure });
    this.#report = new DutyReport(this.name, options);
  }

  status(): DutyStatus {
    const { failures, lastFailure } = this.#tasks.status();
    const { size: marked } = this.#pending;
    const rounds = { ...this.#counts, rounds: this.#isListed && marked === 0 ? 1 : 0, marked };
    return { ...this.#report.status(), failures, lastFailure, rounds };
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#report.state = 'running';
    const remove = (until: AbortSignal): Promise<void> => this.#removeAll(until);
    await this.#tasks.runWithRestart(this.name, remove, { signal, backoff: BACKOFF });
    this.#report.state = 'ended';
  }

  async #removeAll(signal: AbortSignal): Promise<void> {
    this.#counts.lastRoundAt ??= this.#options.clock.wallTime();
    if (!this.#isListed) await this.#list(signal);
    const rejected: Error[] = [];
    const addError = (error: Error): unknown => rejected.push(error);
    const report = { ...roundReport(this.#counts, this.#report), addError };
    for (const endpoint of this.#pending.values()) {
      if (signal.aborted) return;
      await this.#remove(endpoint, report, signal);
    }
    if (rejected[0] !== undefined) throw rejected[0];
  }

  async #list(signal: AbortSignal): Promise<void> {
    this.#pending.clear();
    try {
      for await (const page of this.#options.reader.list(CILIUM_ENDPOINTS, signal))
        for (const endpoint of page) this.#pending.set(endpoint.metadata.uid, endpoint);
    } catch (error) {
      // If the kind is not served, it has no objects.
      if (!(error instanceof ApiError) || error.code !== 'missing') throw error;
    }
    this.#isListed = true;
  }

  async #remove(endpoint: KubernetesObject, report: RoundReport, signal: AbortSignal): Promise<void> {
    const { writer } = this.#options;
    const { uid } = endpoint.metadata;
    const write = { verb: 'delete', place: placeOfObject(CILIUM_ENDPOINTS, endpoint), uid } as const;
    const reason = 'one-time deletion of all CiliumEndpoints';
    const outcome = await performWrite(writer, write, reason, report, signal);
    if (!signal.aborted && outcome !== 'invalid') this.#pending.delete(uid);
  }
}
