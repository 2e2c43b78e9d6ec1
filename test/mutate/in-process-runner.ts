import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { testsOf } from './folders.ts';
import { RunTimers } from './run-timers.ts';
import { TestBundle } from './test-bundle.ts';
import { type TestCase, TestTree, TookTooLong } from './test-tree.ts';

/** The interface of instrumented sources, `globalThis.__stryker__`. */
interface Instrumentation {
  activeMutant?: string;
  currentTestId?: string | undefined;
  hitCount?: number;
  hitLimit?: number;
  mutantCoverage?: object;
}

interface MutantRun {
  readonly activeMutant: { readonly id: string };
  readonly testFilter?: readonly string[];
  readonly hitLimit?: number;
}

/** Time without activity after which a test that has not ended is considered hung. */
const IDLE_MS = 20;
/**
 * CPU time that a test may use in addition to a multiple of its time without a mutant, because the machine
 * may be busy.
 */
const TEST_MS = 700;
const TEST_FACTOR = 10;

/** Slower tests are skipped unless every test is wanted, because a mutant that survives runs all tests. */
const SLOW_MS = 200;
const { WITHOUT_SLOW_TESTS } = process.env;

/** Factor of the time until a test must yield: a busy machine gives a process some tenths of a processor. */
const STEP_FACTOR = 6;

/**
 * File in the copy of the sources in which the first run stores the duration of each test for later
 * processes.
 */
const DURATIONS = 'durations.json';

/** Loads Vitest's `expect` and `vi`, which require a worker. */
async function loadVitest(): Promise<typeof import('vitest')> {
  const config = { snapshotOptions: {}, chaiConfig: {}, expect: {}, fakeTimers: {} };
  Object.assign(globalThis, { __vitest_worker__: { config, environment: { name: 'node' } } });
  return import('vitest');
}

/** Returns the CPU time of this process in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Returns the number of resources that keep the process busy, without timers, which a run counts itself. */
function resourcesInUse(): number {
  return process.getActiveResourcesInfo().filter((type) => type !== 'Timeout').length;
}

/** One evaluation of the bundle. */
class Run {
  readonly #timers = new RunTimers();
  readonly #tree = new TestTree();
  readonly #namespace: Instrumentation;
  readonly #baseline = resourcesInUse();
  #strayFailure: ((reason: unknown) => void) | undefined;

  constructor(bundle: TestBundle, files: readonly string[], vitest: object, namespace: Instrumentation) {
    this.#namespace = namespace;
    const ownGlobal = Object.assign(Object.create(globalThis), { __stryker__: namespace });
    const loaded = bundle.evaluate(
      { ...this.#timers.functions, globalThis: ownGlobal },
      { ...vitest, ...this.#tree.declarations },
    );
    for (const file of files) this.#tree.collect(file, () => loaded.load(file));
  }

  get tests(): readonly TestCase[] {
    return this.#tree.tests;
  }

  matchesFile(text: unknown, path: string): boolean {
    return this.#tree.matchesFile(text, path);
  }

  /**
   * Runs a test. Rejects if it fails, hangs, uses more than `limitMs` of CPU time or has an unhandled error.
   */
  async runTest(test: TestCase, limitMs: number): Promise<void> {
    this.#namespace.currentTestId = test.id;
    const used = cpuMs();
    let idleSince = performance.now();
    let watch: NodeJS.Timeout | undefined;
    const disturbed = new Promise<never>((_, reject) => {
      this.#strayFailure = reject;
      watch = setInterval(() => {
        const now = performance.now();
        if (this.#timers.pending > 0 || resourcesInUse() > this.#baseline) idleSince = now;
        if (now - idleSince > IDLE_MS) reject(new Error('the test hangs'));
        if (cpuMs() - used > limitMs) reject(new TookTooLong(limitMs));
      }, IDLE_MS / 2);
    });
    try {
      await Promise.race([this.#tree.run(test, STEP_FACTOR * limitMs), disturbed]);
    } finally {
      clearInterval(watch);
      this.#namespace.currentTestId = undefined;
    }
  }

  /** Records an unhandled error of the run's code. */
  strayed(reason: unknown): void {
    this.#strayFailure?.(reason);
  }

  async end(): Promise<void> {
    await this.#tree.end();
    // Unhandled rejections are reported in a later turn.
    await new Promise((resolve) => setImmediate(resolve));
    this.#timers.end();
  }
}

/**
 * A test runner for Stryker that keeps the compiled tests of a folder in its process. A mutant then costs
 * only the tests that cover it, not the start of a worker and the loading of all modules, which take ten
 * times as long.
 */
export class InProcessRunner {
  readonly #slowest = WITHOUT_SLOW_TESTS === 'yes' ? SLOW_MS : Infinity;
  #durations = new Map<string, number>();
  #bundle: TestBundle | undefined;
  #vitest: typeof import('vitest') | undefined;
  #current: Run | undefined;

  capabilities(): object {
    return { reloadEnvironment: true };
  }

  async init(): Promise<void> {
    const { MUTATED_ROOM = '', MUTATED_TESTS = '[]' } = process.env;
    const files = testsOf(MUTATED_ROOM);
    const wanted: readonly string[] = JSON.parse(MUTATED_TESTS);
    Error.stackTraceLimit = 5;
    const names = [...Object.keys(new RunTimers().functions), 'globalThis'];
    this.#bundle = await TestBundle.of(
      wanted.length === 0 ? files : files.filter((file) => wanted.some((text) => file.includes(text))),
      fileURLToPath(new URL('property-setup.ts', import.meta.url)),
      names,
    );
    this.#vitest = await loadVitest();
    this.#vitest.expect.extend({
      toMatchFileSnapshot: (received: unknown, path: string) => ({
        pass: this.#current?.matchesFile(received, path) ?? false,
        message: () => `differs from ${path}`,
      }),
    });
    const strayed = (reason: unknown): void => this.#current?.strayed(reason);
    process.on('unhandledRejection', strayed);
    process.on('uncaughtException', strayed);
    if (existsSync(DURATIONS)) this.#durations = new Map(JSON.parse(readFileSync(DURATIONS, 'utf8')));
  }

  #begin(files: readonly string[] | undefined, namespace: Instrumentation): Run {
    if (this.#bundle === undefined || this.#vitest === undefined) throw new Error('not initialized');
    this.#current = new Run(this.#bundle, files ?? this.#bundle.files, this.#vitest, namespace);
    return this.#current;
  }

  async dryRun(): Promise<object> {
    const namespace: Instrumentation = {};
    const run = this.#begin(undefined, namespace);
    const tests: object[] = [];
    for (const test of run.tests) {
      const begun = cpuMs();
      const { id, name, file: fileName } = test;
      let failureMessage: string | undefined;
      try {
        await run.runTest(test, 60_000);
      } catch (error) {
        failureMessage = String(error);
      }
      const timeSpentMs = cpuMs() - begun;
      this.#durations.set(id, timeSpentMs);
      const status = failureMessage === undefined ? 0 : 1;
      tests.push({ id, name, fileName, timeSpentMs, status, failureMessage });
    }
    await run.end();
    writeFileSync(DURATIONS, JSON.stringify([...this.#durations]));
    return { status: 'complete', tests, mutantCoverage: namespace.mutantCoverage };
  }

  async mutantRun({ activeMutant, testFilter, hitLimit: generous = Infinity }: MutantRun): Promise<object> {
    // Stryker allows a hundred times the hits without a mutant, which takes minutes with slow loops.
    const hitLimit = generous / 10 + 1_000;
    const namespace: Instrumentation = { activeMutant: activeMutant.id, hitCount: 0, hitLimit };
    const filter = testFilter === undefined ? undefined : new Set(testFilter);
    const files =
      testFilter === undefined ? undefined : [...new Set(testFilter.map((id) => id.replace(/#.*/s, '')))];
    const result = await this.#runUntilFailure(files, filter, namespace);
    if ((namespace.hitCount ?? 0) > hitLimit) {
      return { status: 'timeout', reason: `hit more than ${hitLimit} times` };
    }
    return result;
  }

  async #runUntilFailure(
    files: readonly string[] | undefined,
    filter: ReadonlySet<string> | undefined,
    namespace: Instrumentation,
  ): Promise<object> {
    let nrOfTests = 0;
    let killer = 'loading';
    let run: Run | undefined;
    const msOf = ({ id }: TestCase): number => this.#durations.get(id) ?? 0;
    try {
      run = this.#begin(files, namespace);
      const chosen = run.tests.filter(
        (test) => (filter?.has(test.id) ?? true) && msOf(test) <= this.#slowest,
      );
      for (const test of chosen.toSorted((a, b) => msOf(a) - msOf(b))) {
        nrOfTests += 1;
        killer = test.id;
        await run.runTest(test, TEST_MS + TEST_FACTOR * msOf(test));
      }
      await run.end();
      return { status: 'survived', nrOfTests };
    } catch (error) {
      if (error instanceof TookTooLong) return { status: 'timeout', reason: `${killer}: ${error.message}` };
      return { status: 'killed', killedBy: [killer], failureMessage: String(error), nrOfTests };
    } finally {
      await run?.end().catch(() => {});
      this.#vitest?.vi.restoreAllMocks();
    }
  }
}
