import { hostname } from 'node:os';
import type { Metrics } from '../../api/metrics/metric.ts';
import type { Scrape } from '../../api/metrics/scrape.ts';
import type { HealthProblem } from '../../api/problems.ts';
import { assert } from '../../base/assert.ts';
import { messageOf } from '../../base/failure.ts';
import { EitherSignal } from '../../base/follow-signal.ts';
import type { RateLimitOptions } from '../../base/rate-limit.ts';
import type { RejectionStatus } from '../../base/rejection.ts';
import { counted } from '../../base/show-value.ts';
import { Supervisor } from '../../base/supervisor.ts';
import type { TurnGate } from '../../base/turn-gate.ts';
import type { RemoteClusterStatus } from '../../clustermesh/cluster-status.ts';
import type { ConfigSource } from '../../clustermesh/config-follower.ts';
import { KubernetesClient } from '../../k8s/kubernetes-client.ts';
import { clusterConfigKey } from '../../kvstore/codec/keys.ts';
import { MemoryBackend } from '../../kvstore/memory/memory-backend.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import { DryRunBackend } from '../../operator/dry-run-backend.ts';
import {
  NO_MESH,
  type OperatorDuties,
  type OperatorDutiesOptions,
  operatorDuties,
} from '../../operator/duties.ts';
import type { Action, DutyStatus } from '../../operator/duty.ts';
import { NotReadyError } from '../../operator/duty-report.ts';
import {
  type ElectionTimes,
  electionIdentity,
  LeaderElection,
  type LeaderElectionStatus,
} from '../../operator/elect/leader-election.ts';
import { KvstoreReach, reachText } from '../../operator/kvstore-reach.ts';
import type { McsStatus } from '../../operator/mcs/mcs-duty.ts';
import type { GlobalNamespacesStatus } from '../../operator/publish/global-namespaces.ts';
import { namespaceOfKey } from '../../operator/publish/namespace-of-key.ts';
import { type LocalEtcdContext, openLocalEtcd } from '../../process/local-etcd.ts';
import { loggedGate } from '../../process/logged-gate.ts';
import { RejectionReport } from '../../process/rejection-report.ts';
import { remoteEtcds } from '../../process/remote-etcds.ts';
import type { RunContext } from '../../process/run-context.ts';
import {
  type ProcessContext,
  type ProcessDocument,
  type RunOptions,
  runProcess,
  type ServedProcess,
} from '../../process/served-process.ts';
import { READ_MS, type Step } from '../../process/start-step.ts';
import type { Output } from '../../process/terminal.ts';
import { RecordedKubernetes } from '../../recording/recorded-kubernetes.ts';
import { ClusterReport, remoteClusters } from '../cluster-report.ts';
import { clusterDocument } from '../followed-clusters.ts';
import { kubernetesAccess } from '../kubernetes-access.ts';
import { operatorMetrics } from './operator-metrics.ts';

/** Configuration of `dpcache operator`. */
export interface OperatorOptions
  extends Pick<
    OperatorDutiesOptions,
    | 'clusterName'
    | 'clusterID'
    | 'maxConnectedClusters'
    | 'identityAllocation'
    | 'endpoints'
    | 'publish'
    | 'globalByDefault'
    | 'serviceFormats'
    | 'intervals'
    | 'deleteAllEndpoints'
    | 'slicing'
    | 'serviceTTLMs'
    | 'endpointSliceSync'
    | 'mcs'
  > {
  /**
   * Path of the etcd configuration of the local kvstore. If undefined, the kvstore is in the memory of this process,
   * for a dry run or recorded objects.
   */
  readonly kvstoreConfig: string | undefined;
  readonly rateLimit: RateLimitOptions | undefined;
  /** Folder with an etcd configuration for each remote cluster. Undefined: no duty reads remote clusters. */
  readonly clustermeshConfig: string | undefined;
  /** Time after the last keepalive until the published keys expire. */
  readonly leaseSeconds: number;
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
  /** Files or folders with objects. If not empty, an API server in this process serves them instead of a real one. */
  readonly load: readonly string[];
  /** Namespace of the Lease of the election. */
  readonly namespace: string;
  readonly electionTimes: ElectionTimes;
  /** Time after which a leader releases the Lease if its kvstore does not answer. */
  readonly kvstoreDeadlineMs: number;
  /** If set, writes are printed to this output and not performed. */
  readonly dryRun: Output | undefined;
}

export interface OperatorDocument extends ProcessDocument {
  readonly cluster: string;
  readonly clusterID: number;
  readonly kvstore: string;
  readonly kubernetes: string | undefined;
  readonly dryRun: boolean;
  /** Undefined if the operator runs without an election. */
  readonly election: LeaderElectionStatus | undefined;
  readonly duties: readonly DutyStatus[];
  /** The namespaces whose objects are published. Undefined if all namespaces are published. */
  readonly namespaces: GlobalNamespacesStatus | undefined;
  /** Counts of the multi-cluster services API. Undefined if it is off. */
  readonly mcs: McsStatus | undefined;
  /** The followed remote clusters; empty if no duty reads them. */
  readonly clusters: readonly Pick<
    RemoteClusterStatus,
    'name' | 'state' | 'ready' | 'servicesExpired' | 'lastFailure'
  >[];
  readonly rejected: {
    readonly total: number;
    readonly recent: readonly string[];
    /** Time of the last rejection, ISO 8601. Undefined if there is none. */
    readonly lastAt: string | undefined;
  };
}

/** Maximum duration of stopping the duties. Usually they end and release the Lease in milliseconds. */
const STOP_MS = 10_000;

class OperatorProcess implements ServedProcess {
  readonly #options: OperatorOptions;
  readonly #context: ProcessContext;
  readonly #gate: TurnGate;
  readonly #recorded: RecordedKubernetes | undefined;
  readonly #rejected: RejectionReport;
  readonly #tasks: Supervisor;
  #kvstore: KvstoreBackend | undefined;
  /** The problem of the etcd configuration; undefined while it is usable. */
  #kvstoreProblem: string | undefined;
  #kubernetes: KubernetesClient | undefined;
  /** Undefined without an election. */
  #reach: KvstoreReach | undefined;
  #election: LeaderElection | undefined;
  /** Why the Lease cannot be read or renewed; undefined since the last success. */
  #electionProblem: string | undefined;
  #duties: OperatorDuties = { all: [], published: [] };
  #clusterReport: ClusterReport | undefined;

  constructor(options: OperatorOptions, context: ProcessContext) {
    const { log, clock, random } = context;
    this.#options = options;
    this.#context = context;
    this.#gate = loggedGate(context);
    this.#rejected = new RejectionReport(log, clock);
    this.#tasks = new Supervisor({ clock, random });
    if (options.load.length > 0) this.#recorded = new RecordedKubernetes(clock);
  }

  get stages(): readonly (readonly Step[])[] {
    return [[this.#readRecorded()], [this.#openKvstore()], [this.#openKubernetes()], [this.#startDuties()]];
  }

  metrics(scrape: Scrape): readonly Metrics[] {
    const { clusterName } = this.#options;
    const duties = (): OperatorDuties => this.#duties;
    const rejections = (): RejectionStatus => this.#rejected.status();
    return operatorMetrics({ clusterName, duties, isLeader: () => this.#isLeader, rejections }, scrape);
  }

  status(): Omit<OperatorDocument, keyof ProcessDocument> {
    const { clusterName, clusterID, dryRun } = this.#options;
    const { total, recent, lastAt } = this.#rejected.status();
    return {
      cluster: clusterName,
      clusterID,
      dryRun: dryRun !== undefined,
      kvstore: this.#kvstore?.status().kind ?? 'none',
      kubernetes: this.#kubernetes?.status().server,
      election: this.#election?.status(),
      duties: this.#duties.all.map((duty) => duty.status()),
      namespaces: this.#duties.namespaces?.counts(),
      mcs: this.#duties.mcs?.counts(),
      clusters: (this.#duties.clusters?.clusters() ?? []).map(
        ({ name, state, ready, servicesExpired, lastFailure }) => ({
          name,
          state,
          ready,
          servicesExpired,
          lastFailure,
        }),
      ),
      rejected: { total, recent: recent.map(({ message }) => message), lastAt },
    };
  }

  /**
   * Returns the reasons why this process is not ready. A candidate is ready if its kvstore answers, because it could
   * lead then.
   */
  blockers(): readonly string[] {
    const { problem } = this.#reach ?? {};
    const problems: string[] = [];
    if (this.#kvstoreProblem !== undefined) problems.push(this.#kvstoreProblem);
    if (problem !== undefined) problems.push(reachText(problem));
    if (!this.#isLeader) return problems;
    const { namespaces, published } = this.#duties;
    const incomplete = published.filter((duty) => duty.status().published?.synced !== true);
    // All producers wait for the namespaces.
    const duties = namespaces === undefined || namespaces.complete ? incomplete : [namespaces, ...incomplete];
    const missing = duties.map((duty) => {
      const { name, lastFailure, waitsFor = lastFailure?.message } = duty.status();
      return `${name} is incomplete${waitsFor === undefined ? '' : `: ${waitsFor}`}`;
    });
    return [...problems, ...missing];
  }

  problemSource(): ReturnType<ServedProcess['problemSource']> {
    const clusters = this.#duties.clusters?.clusters() ?? [];
    return {
      clusters: clusters.map((cluster) => clusterDocument(cluster)),
      problems: [...this.#electionProblems(), ...this.#dutyProblems()],
    };
  }

  #electionProblems(): readonly HealthProblem[] {
    if (this.#electionProblem === undefined) return [];
    const text = `Cannot read or renew the Lease: ${this.#electionProblem}`;
    const remedy = 'Check that the API server answers, and the rights to get, create and update leases.';
    return [{ severity: 'warning', subject: 'leader election', text, remedy }];
  }

  /**
   * Returns a problem for each duty that waits, and for each one whose writes fail: its keys in the kvstore are old,
   * although it is complete. A wait that delays the readiness is a blocker instead.
   */
  #dutyProblems(): readonly HealthProblem[] {
    if (!this.#isLeader) return [];
    const { all, namespaces, published: publishers } = this.#duties;
    return all.flatMap((duty) => {
      const { name, state, published, lastFailure, waitsFor = lastFailure?.message } = duty.status();
      const delaysReadiness = duty === namespaces || publishers.includes(duty);
      const texts: string[] = [];
      if (state === 'waiting' && waitsFor !== undefined && !delaysReadiness)
        texts.push(`waiting: ${waitsFor}`);
      if (published?.isFailing === true) {
        const keys = counted(published.pending, 'key is', 'keys are');
        texts.push(`cannot write to the kvstore: ${keys} pending: ${lastFailure?.message}`);
      }
      return texts.map((text) => ({ severity: 'warning', subject: name, text }));
    });
  }

  /** True if this operator runs with an election: not in a dry run or with recorded objects. */
  get #hasElection(): boolean {
    return this.#recorded === undefined && this.#options.dryRun === undefined;
  }

  /**
   * True while this operator holds a valid Lease or runs without an election. False as soon as the Lease may have
   * expired, even if the duties have not ended yet.
   */
  get #isLeader(): boolean {
    return !this.#hasElection || this.#election?.mayWrite() === true;
  }

  #readRecorded(): Step {
    return {
      name: 'recorded objects',
      progressTimeoutMs: READ_MS,
      start: async ({ progress }) => {
        for (const path of this.#options.load)
          await this.#recorded?.load(path, (rejection) => this.#rejected.add(rejection), progress);
        await this.#recorded?.addNamespaces();
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
        const onProblem = (problem: string | undefined): void => {
          this.#kvstoreProblem = problem;
          if (problem !== undefined) log.warn(problem);
        };
        this.#kvstore =
          kvstoreConfig === undefined
            ? new MemoryBackend({ clock, random, gate: this.#gate })
            : await openLocalEtcd(kvstoreConfig, rateLimit, {
                clock,
                random,
                signal,
                onProblem,
                leaseSeconds,
                witnessLeases: true,
                gate: this.#gate,
                ...this.#leaseFence(),
              });
      },
      stop: () => this.#kvstore?.close({ keepLeases: true }), // the next operator reuses the keys
    };
  }

  /**
   * Returns the options that make the kvstore client reject writes without a valid Lease, because a process that
   * continues after a suspension must not overwrite the keys of the next leader.
   */
  #leaseFence(): Pick<LocalEtcdContext, 'mayWrite' | 'writeTimeoutMs'> {
    const { leaseMs, renewDeadlineMs } = this.#options.electionTimes;
    if (!this.#hasElection) return {};
    return {
      mayWrite: () => this.#election?.mayWrite() === true,
      writeTimeoutMs: leaseMs - renewDeadlineMs,
    };
  }

  #openKubernetes(): Step {
    const { clock, random, log } = this.#context;
    return {
      name: 'Kubernetes',
      start: async () => {
        const onFault = (error: unknown): void => log.error({ err: error }, 'a duty failed');
        const access = this.#recorded?.transport ?? (await kubernetesAccess(this.#options, clock));
        this.#kubernetes = new KubernetesClient(access, { clock, random, gate: this.#gate, onFault });
      },
      stop: () => this.#kubernetes?.close(),
    };
  }

  #startDuties(): Step {
    return {
      name: 'duties',
      start: () => {
        const { clock, log } = this.#context;
        const client = this.#kubernetes;
        assert(client !== undefined, 'the Kubernetes client exists');
        if (this.#hasElection) this.#createElection(client);
        this.#duties = this.#newDuties(client);
        const { clusters } = this.#duties;
        this.#clusterReport = clusters && new ClusterReport(remoteClusters(clusters), log, clock);
        this.#clusterReport?.start();
        this.#tasks
          .run('duties', (signal) => this.#run(signal))
          .catch((error: unknown) => this.#context.end(messageOf(error)));
      },
      stop: () => {
        this.#clusterReport?.stop();
        return this.#tasks.stop();
      },
      stopMs: STOP_MS,
    };
  }

  /** Creates the election. This operator is a candidate for the Lease only while its kvstore answers. */
  #createElection(client: KubernetesClient): void {
    const { clusterName, namespace, electionTimes: times } = this.#options;
    const { clock, random, log } = this.#context;
    const backend = this.#kvstore;
    assert(backend !== undefined, 'the kvstore is open');
    const key = clusterConfigKey(clusterName);
    const onChange = (problem: string | undefined): void => log.warn(reachText(problem));
    const reach = new KvstoreReach({ backend, clock, key, onChange });
    this.#reach = reach;
    this.#election = new LeaderElection({
      client,
      clock,
      random,
      namespace,
      times,
      identity: electionIdentity(hostname(), random),
      isCandidate: () => reach.isAnswering,
      onFailure: (error) => {
        this.#electionProblem = messageOf(error);
        log.warn({ err: error }, 'cannot acquire or renew the Lease of the leader election');
      },
      onRecovered: () => {
        this.#electionProblem = undefined;
        log.warn('the API server accepts requests for the Lease of the leader election again');
      },
    });
  }

  /**
   * Runs the duties, if required after an election. When the Lease is lost or released, the process ends, so that its
   * restart begins with fresh state (OPERATOR 1).
   */
  async #run(signal: AbortSignal): Promise<void> {
    const { log, end } = this.#context;
    const { kvstoreDeadlineMs } = this.#options;
    const election = this.#election;
    const reach = this.#reach;
    if (election === undefined || reach === undefined) return await this.#runDuties(signal);
    const ended = new AbortController();
    const outage = new AbortController();
    using either = new EitherSignal(signal, ended.signal);
    const checks = reach.run(either.signal);
    try {
      const outcome = await election.run(async (until) => {
        log.info('this operator is the leader');
        using leading = new EitherSignal(until, outage.signal);
        await Promise.all([
          this.#runDuties(leading.signal).finally(() => ended.abort()),
          reach.outageOf(kvstoreDeadlineMs, either.signal).then((isOut) => {
            if (isOut) outage.abort();
          }),
        ]);
      }, signal);
      if (outcome === 'lost') end(this.#lostText(election.status()));
      else if (outage.signal.aborted)
        end(`released the Lease, because the kvstore has not answered for ${kvstoreDeadlineMs / 1000} s`);
    } finally {
      ended.abort();
      await checks;
    }
  }

  /** Returns why the Lease was lost. */
  #lostText({ holder, identity }: LeaderElectionStatus): string {
    if (holder !== undefined && holder !== identity) return `the Lease was lost: ${holder} is the leader`;
    const { renewDeadlineMs } = this.#options.electionTimes;
    const reason = this.#electionProblem === undefined ? '' : `: ${this.#electionProblem}`;
    return `the Lease was lost: it could not be renewed for ${renewDeadlineMs / 1000} s, so another operator may be the leader${reason}`;
  }

  async #runDuties(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#duties.all.map((duty) => duty.run(signal)));
  }

  #remoteConfigs(): ConfigSource | undefined {
    const { clustermeshConfig: path, rateLimit } = this.#options;
    const { clock, random } = this.#context;
    return path === undefined ? undefined : remoteEtcds(path, { clock, random, gate: this.#gate, rateLimit });
  }

  /** Returns the reason why a dry run would delete a key. */
  #reasonOf(key: string, value: Uint8Array): string | undefined {
    const namespace = namespaceOfKey(key, value);
    return namespace === undefined ? undefined : this.#duties.namespaces?.reasonNotGlobal(namespace);
  }

  #newDuties(kubernetes: KubernetesClient): OperatorDuties {
    const { dryRun, clusterName, clusterID, publish } = this.#options;
    const { clock, random, log } = this.#context;
    assert(this.#kvstore !== undefined, 'the kvstore is open');
    if (publish.clusterConfig && clusterID !== 0 && clusterName === NO_MESH)
      log.warn(
        `--cluster ${clusterName}: no cluster configuration is published, because a cluster of this name is in no mesh; set another name`,
      );
    const print = dryRun && ((line: string): void => void dryRun.write(`${line}\n`));
    return operatorDuties({
      ...this.#options,
      remotes: this.#remoteConfigs(),
      kubernetes,
      clock,
      random,
      dryRun: print,
      election: this.#election,
      backend:
        print === undefined
          ? this.#kvstore
          : new DryRunBackend(this.#kvstore, print, (key, value) => this.#reasonOf(key, value)),
      gate: this.#gate,
      onReject: (rejection) => this.#rejected.add(rejection),
      onFailure: (error, duty) => {
        // A duty waiting at its start is no failure, and the status shows the reason.
        if (error instanceof NotReadyError) log.info({ duty }, `${duty} waits: ${error.message}`);
        else log.warn({ err: error, duty }, `${duty} failed; retrying`);
      },
      // A dry run has already printed the action.
      onAction: (action) =>
        log[action.outcome === 'dry-run' ? 'debug' : 'info']({ action }, actionText(action)),
    });
  }
}

function actionText({ duty, action, reason, outcome }: Action): string {
  return `${duty}: ${action} (${outcome}): ${reason}`;
}

/** Runs the duties of an operator until the signal fires. */
export function runOperator(options: OperatorOptions, run: RunOptions, context: RunContext): Promise<void> {
  return runProcess((process) => new OperatorProcess(options, process), run, context);
}
