import type { Ask } from '../src/api/api-client.ts';
import { parseAnswer } from '../src/api/api-client.ts';
import { TurnGate } from '../src/base/turn-gate.ts';
import { diffAgents } from '../src/client/diff/agent-diff.ts';
import { ClaimDigest } from '../src/compare/claim-digest.ts';
import { IPCache } from '../src/ipcache/ipcache.ts';
import type { Claim } from '../src/ipcache/types.ts';
import { whatIf } from '../src/whatif/what-if.ts';
import { testApp } from '../test/api/support/test-app.ts';
import { expect } from './expect.ts';
import { collectGarbage, median } from './meter.ts';
import { podAddress } from './pod-address.ts';
import { threadMs } from './thread-clock.ts';

/** Budgets of digests, a diff and what-if. */
const BUDGET = {
  digestUs: 0.15,
  diffMs: 1_000,
  diffBytes: 1_000_000,
  whatIfUs: 2,
  turnMs: 10,
  mib: 64,
} as const;

const ROUNDS = 5;
const DIFFERENCES = 10;
/** Every fourth prefix is of the cluster that leaves in the what-if. */
const LEAVING = 4;

/** The result of {@link benchAnswers}. */
export interface AnswersReport {
  readonly prefixes: number;
  /**
   * CPU microseconds that a digest adds to a change of a claim. `question`: CPU microseconds of the next question, per
   * changed key.
   */
  readonly digest: { readonly identity: number; readonly pod: number; readonly question: number };
  /** CPU milliseconds of the first question, and its longest step. */
  readonly first: { readonly ms: number; readonly longestMs: number };
  /** CPU milliseconds of both agents and the client if the sums were read before, and the bytes of the answers. */
  readonly diff: { readonly ms: number; readonly bytes: number };
  readonly whatIf: {
    readonly touched: number;
    readonly ms: number;
    readonly us: number;
    /** CPU of the longest turn. */
    readonly longestMs: number;
    readonly mib: number;
  };
}

function claimOf(i: number): Claim {
  const suffix = ((i * 2_654_435_761) >>> 0).toString(36).slice(0, 5);
  const k8s = { namespace: `ns-${i % 50}`, podName: `app-${i % 2000}-7d4b9c8f6d-${suffix}` };
  const hostIP = `192.168.${(i >> 6) % 20}.${i % 250}`;
  const owner = i % LEAVING === 0 ? 'baltic' : 'atlantic';
  return { identity: 65_536 + (i % 5000), source: 'clustermesh', owner, hostIP, k8s };
}

/** Runs all steps; returns their CPU milliseconds, and those of the longest one. */
function runSteps(steps: Iterator<unknown>): { readonly ms: number; readonly longestMs: number } {
  let [ms, longestMs] = [0, 0];
  for (let done: boolean | undefined = false; done !== true; ) {
    const begun = threadMs();
    done = steps.next().done;
    const spent = threadMs() - begun;
    ms += spent;
    longestMs = Math.max(longestMs, spent);
  }
  return { ms, longestMs };
}

/** Returns the cost that a digest adds to changes of a cache, and the cost of the next question. */
function digestCost(
  cache: IPCache,
  keys: readonly string[],
  claims: readonly Claim[],
): AnswersReport['digest'] {
  const changes = Math.min(keys.length, 200_000);
  const perChange = (ms: number): number => (ms * 1000) / changes;
  let edition = 0;
  const question: number[] = [];
  const cost = (edit: (claim: Claim) => Claim): number => {
    const without: number[] = [];
    const withDigest: number[] = [];
    for (let round = 0; round < 2 * ROUNDS; round++) {
      edition++;
      // Parsed, so that the strings are new and flat, as in decoded values.
      const changed = JSON.parse(JSON.stringify(claims.slice(0, changes).map(edit))) as Claim[];
      const digest = new ClaimDigest({ ipcache: cache });
      if (round % 2 === 1) runSteps(digest.read());
      const begun = threadMs();
      for (let i = 0; i < changes; i++) cache.upsert(keys[i] ?? '', changed[i] ?? claimOf(i));
      (round % 2 === 1 ? withDigest : without).push(perChange(threadMs() - begun));
      if (round % 2 === 1) question.push(perChange(runSteps(digest.read()).ms));
      digest.stop();
    }
    return Math.min(...withDigest) - Math.min(...without);
  };
  return {
    identity: cost((claim) => ({ ...claim, identity: claim.identity + edition })),
    pod: cost((claim) => ({
      ...claim,
      k8s: { namespace: `ns-${edition % 50}`, podName: claim.k8s?.podName ?? '' },
    })),
    question: Math.min(...question),
  };
}

/** Returns the cost of the first question, for which all keys are read. */
function firstCost(cache: IPCache): AnswersReport['first'] {
  const digest = new ClaimDigest({ ipcache: cache });
  collectGarbage();
  const cost = runSteps(digest.read());
  digest.stop();
  return cost;
}

function fill(cache: IPCache, keys: readonly string[], claims: readonly Claim[]): void {
  for (const [i, claim] of claims.entries()) cache.upsert(keys[i] as string, claim);
}

async function diffCost(keys: readonly string[], claims: readonly Claim[]): Promise<AnswersReport['diff']> {
  const [a, b] = [testApp(), testApp()];
  for (const { model } of [a, b]) fill(model.ipcache, keys, claims);
  for (let i = 0; i < DIFFERENCES; i++) {
    const at = Math.floor(((i + 0.5) * keys.length) / DIFFERENCES);
    b.model.ipcache.upsert(keys[at] ?? '', { ...claimOf(at), identity: 7 });
  }
  let bytes = 0;
  const asking =
    ({ app }: typeof a): Ask =>
    async (path) => {
      const answer = await app.request(path);
      const text = await answer.text();
      bytes += text.length;
      return parseAnswer(answer.headers.get('content-type') ?? undefined, text);
    };
  const asks = [asking(a), asking(b)] as const;
  await Promise.all(asks.map((ask) => ask('/v1/digest')));
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    bytes = 0;
    const begun = threadMs();
    const { differences } = await diffAgents(...asks);
    rounds.push(threadMs() - begun);
    expect('differences', differences.length, DIFFERENCES);
  }
  return { ms: median(rounds), bytes };
}

async function whatIfCost(cache: IPCache, n: number): Promise<AnswersReport['whatIf']> {
  const touched = Math.ceil(n / LEAVING);
  let longestMs = 0;
  // The CPU of a turn: from the callback of the gate to its return.
  const nextTurn = (callback: () => void): unknown =>
    setImmediate(() => {
      const begun = threadMs();
      callback();
      longestMs = Math.max(longestMs, threadMs() - begun);
    });
  const rounds: number[] = [];
  let mib = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const gate = new TurnGate({ clock: performance, nextTurn });
    const before = process.memoryUsage();
    const begun = threadMs();
    const { summary } = await whatIf({ ipcache: cache }, [{ edit: 'remove-cluster', cluster: 'baltic' }], {
      gate,
    });
    rounds.push(threadMs() - begun);
    const after = process.memoryUsage();
    const sum = (usage: NodeJS.MemoryUsage): number => usage.heapUsed + usage.external;
    mib = Math.max(mib, (sum(after) - sum(before)) / (1 << 20));
    expect('prefixes gone', summary.prefixes.gone, touched);
  }
  const ms = median(rounds);
  return { touched, ms, us: (ms * 1000) / touched, longestMs, mib };
}

/** Measures the cost of answers about differences: digests, the diff of two agents, and what-if. */
export async function benchAnswers({
  n = 1_000_000,
  json = false,
}: {
  readonly n?: number;
  readonly json?: boolean;
}): Promise<AnswersReport> {
  const keys = Array.from({ length: n }, (_, i) => podAddress(i));
  const claims = keys.map((_, i) => claimOf(i));
  const cache = new IPCache();
  fill(cache, keys, claims);
  const report = {
    prefixes: n,
    digest: digestCost(cache, keys, claims),
    first: firstCost(cache),
    diff: await diffCost(keys, claims),
    whatIf: await whatIfCost(cache, n),
  };
  if (!json) print(report);
  return report;
}

function print({ prefixes, digest, first, diff, whatIf: asked }: AnswersReport): void {
  const row = (what: string, text: string, isKept: boolean): void =>
    console.log(`${what.padEnd(22)} ${text}   ${isKept ? 'ok' : 'OVER'}`);
  console.log(`\nanswers about ${prefixes} prefixes (CPU of the thread)`);
  const { identity, pod, question } = digest;
  row(
    'digest',
    `${identity.toFixed(2)} µs a changed identity, ${pod.toFixed(2)} µs a changed pod; next question ${question.toFixed(2)} µs a changed key`,
    Math.max(identity, pod) <= BUDGET.digestUs,
  );
  row(
    'first digest',
    `${first.ms.toFixed(0)} ms, longest step ${first.longestMs.toFixed(1)} ms`,
    first.ms <= BUDGET.diffMs && first.longestMs <= BUDGET.turnMs,
  );
  row(
    'diff of two agents',
    `${diff.ms.toFixed(0)} ms, ${(diff.bytes / 1000).toFixed(0)} kB`,
    diff.ms <= BUDGET.diffMs && diff.bytes <= BUDGET.diffBytes,
  );
  const { touched, ms, us, longestMs, mib } = asked;
  row(
    'what-if',
    `${touched} prefixes gone: ${ms.toFixed(0)} ms, ${us.toFixed(2)} µs each, longest turn ${longestMs.toFixed(1)} ms, ${mib.toFixed(0)} MiB`,
    us <= BUDGET.whatIfUs && longestMs <= BUDGET.turnMs && mib <= BUDGET.mib,
  );
}
