import { hostname } from 'node:os';
import type { Description, Sample } from '../api/metrics/description.ts';
import { assert } from '../base/assert.ts';
import { messageOf } from '../base/failure.ts';
import type { RateLimitOptions } from '../base/rate-limit.ts';
import { Supervisor } from '../base/supervisor.ts';
import { TurnGate } from '../base/turn-gate.ts';
import { KubernetesClient } from '../k8s/kubernetes-client.ts';
import type { KvstoreBackend } from '../kvstore/backend.ts';
import { MemoryBackend } from '../kvstore/memory/memory-backend.ts';
import { sharedSignal } from '../kvstore/shared-signal.ts';
import { type Deed, NotReadyError } from '../operator/collect/rounds.ts';
import { UnsafeSettingError } from '../operator/collect/unsafe-setting.ts';
import { DryRunBackend } from '../operator/dry-run-backend.ts';
import { type OperatorDuties, type OperatorDutiesOptions, operatorDuties } from '../operator/duties.ts';
import type { DutyStatus } from '../operator/duty.ts';
import {
  type ElectionTimes,
  electionIdentity,
  LeaderElection,
  type LeaderElectionStatus,
} from '../operator/leader-election.ts';
import { InputError } from './input-error.ts';
import { kubernetesAccess } from './kubernetes-access.ts';
import { openOwnEtcd, type ReachContext } from './own-etcd.ts';
import { RecordedKubernetes } from './recorded-kubernetes.ts';
import { RejectionReport } from './rejection-report.ts';
import type { RunContext } from './run-context.ts';
import type { ServeOptions } from './served-api.ts';
import {
  type ProcessContext,
  type ProcessDocument,
  runProcess,
  type ServedProcess,
} from './served-process.ts';
import type { Step } from './start-step.ts';
import type { Output } from './terminal.ts';

/** How `dpcache operator` is configured. */
export interface OperatorOptions
  extends Pick<
    OperatorDutiesOptions,
    | 'clusterName'
    | 'clusterID'
    | 'maxConnectedClusters'
    | 'identityAllocation'
    | 'endpoints'
    | 'publish'
    | 'intervals'
    | 'deleteAllEndpoints'
    | 'slicing'
  > {
  /** Etcd configuration of the own kvstore; `undefined`: one in this process. */
  readonly kvstoreConfig: string | undefined;
  readonly rateLimit: RateLimitOptions | undefined;
  /** Life of the keys that it publishes after its last sign of life. */
  readonly leaseSeconds: number;
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
  /** Objects, files or folders: an API server in this process serves them in place of a real one. */
  readonly load: readonly string[];
  /** Where the Lease of the election is. */
  readonly namespace: string;
  readonly electionTimes: ElectionTimes;
  /** Where each write is printed instead of being made. */
  readonly dryRun: Output | undefined;
}

/** How it stands. */
export interface OperatorDocument extends ProcessDocument {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  readonly kubernetes: string | undefined;
  readonly dryRun: boolean;
  /** Undefined: it runs alone. */
  readonly election: LeaderElectionStatus | undefined;
  readonly duties: readonly DutyStatus[];
  readonly rejected: { readonly total: number; readonly recent: readonly string[] };
}

/** Of reading files: a disk that says nothing for so long says nothing more. */
const READ_MS = 180_000;
/** All duties end in milliseconds, and the lease is given back. */
const STOP_MS = 10_000;

class OperatorProcess implements ServedProcess {
  readonly #options: OperatorOptions;
  readonly #context: ProcessContext;
  readonly #recorded: RecordedKubernetes | undefined;
  readonly #rejected: RejectionReport;
  readonly #tasks: Supervisor;
  #kvstore: KvstoreBackend | undefined;
  #kvstoreProblem: string | undefined;
  #kubernetes: KubernetesClient | undefined;
  #election: LeaderElection | undefined;
  #duties: OperatorDuties = { all: [], published: [] };

  constructor(options: OperatorOptions, context: ProcessContext) {
    const { log, clock, random } = context;
    this.#options = options;
    this.#context = context;
    this.#rejected = new RejectionReport(log, clock);
    this.#tasks = new Supervisor({ clock, random });
    if (options.load.length > 0) this.#recorded = new RecordedKubernetes(clock);
  }

  get stages(): readonly (readonly Step[])[] {
    return [[this.#readRecorded()], [this.#openKvstore()], [this.#reachKubernetes()], [this.#begin()]];
  }

  get metrics(): readonly Description[] {
    const duties = (value: (duty: DutyStatus) => number | undefined) => (): readonly Sample[] =>
      this.#statuses().flatMap((duty) => {
        const of = value(duty);
        return of === undefined ? [] : { value: of, labels: { duty: duty.name } };
      });
    const described = (
      [name, type]: readonly [string, Description['type']],
      help: string,
      value: (duty: DutyStatus) => number | undefined,
    ): Description => ({
      name: `dpcache_operator_${name}`,
      type,
      help,
      labels: ['duty'],
      samples: duties(value),
    });
    return [
      described(['duty_running', 'gauge'], 'Whether a duty is being done.', ({ state }) =>
        Number(state === 'running'),
      ),
      described(['failures_total', 'counter'], 'What of a duty has failed.', ({ failures }) => failures),
      described(
        ['keys', 'gauge'],
        'Keys that a duty keeps in the kvstore.',
        ({ published }) => published?.keys,
      ),
      described(
        ['pending_keys', 'gauge'],
        'Keys that the kvstore does not hold yet.',
        ({ published }) => published?.pending,
      ),
      described(['writes_total', 'counter'], 'Keys that were written.', ({ published }) => published?.writes),
      described(
        ['marked', 'gauge'],
        'What the next round of a duty deletes if it still finds it.',
        ({ rounds }) => rounds?.marked,
      ),
      described(['deleted_total', 'counter'], 'What a duty has deleted.', ({ rounds }) => rounds?.deleted),
      described(
        ['conflicts_total', 'counter'],
        'Deletes that another writer forestalled.',
        ({ rounds }) => rounds?.conflicts,
      ),
      {
        ...{ name: 'dpcache_operator_leader', type: 'gauge' },
        help: 'Whether this operator does the duties: it holds the lease, or is alone.',
        samples: () => [{ value: Number(this.#isLeader) }],
      },
    ];
  }

  status(): Omit<OperatorDocument, keyof ProcessDocument> {
    const { clusterName, clusterID, dryRun } = this.#options;
    const { total, recent } = this.#rejected.status();
    return {
      ...{ cluster: clusterName, clusterID, dryRun: dryRun !== undefined },
      kvstore: this.#kvstore?.status().kind ?? 'none',
      kubernetes: this.#kubernetes?.status().server,
      election: this.#election?.status(),
      duties: this.#statuses(),
      rejected: { total, recent: recent.map(({ message }) => message) },
    };
  }

  /** One that waits for the lease is ready: it is there for when it is given back. */
  blockers(): readonly string[] {
    const problems = this.#kvstoreProblem === undefined ? [] : [this.#kvstoreProblem];
    if (!this.#isLeader) return problems;
    const missing = this.#duties.published.flatMap((duty) => {
      const { name, published, lastFailure } = duty.status();
      if (published?.synced === true) return [];
      return `${name} is not complete${lastFailure === undefined ? '' : `: ${lastFailure.message}`}`;
    });
    return [...problems, ...missing];
  }

  /** Otherwise it is alone. */
  get #elects(): boolean {
    return this.#recorded === undefined && this.#options.dryRun === undefined;
  }

  get #isLeader(): boolean {
    return this.#election === undefined || this.#election.status().state === 'leader';
  }

  #statuses(): readonly DutyStatus[] {
    return this.#duties.all.map((duty) => duty.status());
  }

  #readRecorded(): Step {
    return {
      name: 'recorded objects',
      patienceMs: READ_MS,
      start: async ({ progress }) => {
        for (const path of this.#options.load)
          await this.#recorded?.load(path, (rejection) => this.#rejected.add(rejection), progress);
      },
      stop: () => this.#rejected.flush(),
    };
  }

  #openKvstore(): Step {
    const { kvstoreConfig, rateLimit, leaseSeconds } = this.#options;
    const { clock, random, log } = this.#context;
    return {
      name: 'kvstore',
      start: async ({ signal }) => {
        const onProblem = (why: string | undefined): void => {
          this.#kvstoreProblem = why && `--kvstore-config ${kvstoreConfig}: ${why}`;
          if (this.#kvstoreProblem !== undefined) log.warn(this.#kvstoreProblem);
        };
        this.#kvstore =
          kvstoreConfig === undefined
            ? new MemoryBackend({ clock, random })
            : await openOwnEtcd(kvstoreConfig, rateLimit, {
                ...{ clock, random, signal, onProblem, leaseSeconds, witnessLeases: true },
                ...this.#fence(),
              });
      },
      stop: () => this.#kvstore?.close({ keepLeases: true }), // another operator goes on with what is there
    };
  }

  /** A process that was stopped, and goes on where it was, must not overwrite what another says by now. */
  #fence(): Pick<ReachContext, 'mayWrite' | 'writeTimeoutMs'> {
    const { leaseMs, renewDeadlineMs } = this.#options.electionTimes;
    if (!this.#elects) return {};
    return {
      mayWrite: () => this.#election?.mayDelete() === true,
      writeTimeoutMs: leaseMs - renewDeadlineMs,
    };
  }

  #reachKubernetes(): Step {
    const { clock, random, log } = this.#context;
    return {
      name: 'Kubernetes',
      start: async () => {
        const onFault = (error: unknown): void => log.error({ err: error }, 'a duty has failed');
        const way = this.#recorded?.transport ?? (await kubernetesAccess(this.#options, clock));
        this.#kubernetes = new KubernetesClient(way, { clock, random, onFault });
      },
      stop: () => this.#kubernetes?.close(),
    };
  }

  #begin(): Step {
    return {
      name: 'duties',
      start: () => {
        const { namespace, electionTimes: times } = this.#options;
        const { clock, random, log } = this.#context;
        const client = this.#kubernetes;
        assert(client !== undefined, 'Kubernetes has been reached');
        if (this.#elects) {
          const identity = electionIdentity(hostname(), random);
          const onFailure = (error: unknown): void =>
            log.warn({ err: error }, 'the lease of the election cannot be had');
          this.#election = new LeaderElection({
            ...{ client, clock, random, identity, namespace, times, onFailure },
          });
        }
        this.#duties = this.#newDuties(client);
        this.#tasks
          .run('duties', (signal) => this.#run(signal))
          .catch((error: unknown) => this.#context.end(messageOf(error)));
      },
      stop: () => this.#tasks.stop(),
      stopMs: STOP_MS,
    };
  }

  /** One that has lost its lease ends: whoever starts it again begins anew (OPERATOR 1). */
  async #run(signal: AbortSignal): Promise<void> {
    const { log, end } = this.#context;
    const work = async (until: AbortSignal): Promise<void> => {
      if (this.#election !== undefined) log.info('this operator leads');
      sharedSignal(until);
      await Promise.all(this.#duties.all.map((duty) => duty.run(until)));
    };
    const how = this.#election === undefined ? await work(signal) : await this.#election.run(work, signal);
    if (how === 'lost') end('the lease was lost: another operator may lead by now');
  }

  #newDuties(kubernetes: KubernetesClient): OperatorDuties {
    const { dryRun } = this.#options;
    const { clock, random, log } = this.#context;
    assert(this.#kvstore !== undefined, 'the kvstore has been opened');
    const print = dryRun && ((line: string): void => void dryRun.write(`${line}\n`));
    try {
      return operatorDuties({
        ...{ ...this.#options, kubernetes, clock, random, dryRun: print, election: this.#election },
        backend: print === undefined ? this.#kvstore : new DryRunBackend(this.#kvstore, print),
        gate: new TurnGate({ clock, nextTurn: setImmediate }),
        onReject: (rejection) => this.#rejected.add(rejection),
        onFailure: (error, duty) => {
          // What a duty waits for at its start is in its status.
          const level = error instanceof NotReadyError ? 'info' : 'warn';
          log[level]({ err: error, duty }, `${duty} has failed, and is tried again`);
        },
        onDeed: (deed) => log.info({ deed }, deedText(deed)),
      });
    } catch (error) {
      if (error instanceof UnsafeSettingError) throw new InputError(error.message, { cause: error });
      throw error;
    }
  }
}

function deedText({ duty, what, why, outcome }: Deed): string {
  return `${duty}: ${what} (${outcome}): ${why}`;
}

/** Does what one process of a cluster does for all, until it is asked to end. */
export function runOperator(
  options: OperatorOptions,
  serve: ServeOptions,
  context: RunContext,
): Promise<void> {
  return runProcess((process) => new OperatorProcess(options, process), serve, context);
}
