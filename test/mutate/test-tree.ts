import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { format } from 'node:util';
import { Script } from 'node:vm';

type Body = (...row: readonly unknown[]) => unknown;

interface Suite {
  readonly name: string;
  readonly before: Body[];
  readonly after: Body[];
  readonly beforeEach: Body[];
  readonly afterEach: Body[];
  begun: boolean;
}

/** A test of a file, with the suites around it, outermost first. */
export interface TestCase {
  readonly id: string;
  readonly name: string;
  readonly file: string;
  readonly body: Body;
  readonly suites: readonly Suite[];
}

/** A test did not end in its time, and may never end. */
export class TookTooLong extends Error {
  constructor(limitMs: number) {
    super(`takes longer than ${limitMs} ms`);
  }
}

const STEP = new Script('globalThis.__step__()');

/** Calls `step`, and interrupts it after the limit, so that an endless loop does not block the process. */
function callForATime(step: Body, limitMs: number): unknown {
  Object.assign(globalThis, { __step__: step });
  try {
    return STEP.runInThisContext({ timeout: Math.ceil(limitMs) });
  } catch (error) {
    const ended = error instanceof Error && 'code' in error && error.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
    throw ended ? new TookTooLong(limitMs) : error;
  }
}

function newSuite(name: string): Suite {
  return { name, before: [], after: [], beforeEach: [], afterEach: [], begun: false };
}

function titleOf(title: string, row: readonly unknown[]): string {
  const [first] = row;
  const named = title.replaceAll(/\$(\w+)/g, (_, key: string) => String(Object(first)[key]));
  return format(named, ...row.slice(0, named.match(/%[sdifjoO]/g)?.length ?? 0));
}

/** Declares one test for each row of a table. */
function eachOf(declare: (title: string, body: Body, ...more: readonly unknown[]) => void) {
  return (rows: readonly unknown[]) =>
    (title: string, body: Body): void => {
      for (const row of rows) {
        const values = Array.isArray(row) ? row : [row];
        declare(titleOf(title, values), () => body(...values));
      }
    };
}

/**
 * The declared tests of some files: the used part of Vitest's interface, run in this process any number of
 * times. Tests declared once can be run once, because hooks and tests share the variables of their files.
 */
export class TestTree {
  readonly tests: TestCase[] = [];
  readonly #ids = new Map<string, number>();
  #file = '';
  #suites: readonly Suite[] = [];
  #finished: Body[] = [];

  /** Records the tests that a file declares while `load` runs. */
  collect(file: string, load: () => void): void {
    this.#file = file;
    this.#suites = [newSuite('')];
    load();
  }

  /** The exports of `vitest` for test files, without `expect` and `vi`. */
  get declarations(): object {
    const describe = (name: string, body: Body): void => {
      const outer = this.#suites;
      this.#suites = [...outer, newSuite(name)];
      body();
      this.#suites = outer;
    };
    const it = (title: string, ...more: readonly unknown[]): void => {
      const body = more.find((value): value is Body => typeof value === 'function');
      if (body !== undefined) this.#add(title, body);
    };
    const hook = (kind: 'before' | 'after' | 'beforeEach' | 'afterEach') => (body: Body) => {
      this.#suites.at(-1)?.[kind].push(body);
    };
    return {
      describe: Object.assign(describe, { each: eachOf(describe) }),
      it: Object.assign(it, { each: eachOf(it) }),
      beforeAll: hook('before'),
      afterAll: hook('after'),
      beforeEach: hook('beforeEach'),
      afterEach: hook('afterEach'),
      onTestFinished: (body: Body) => this.#finished.push(body),
    };
  }

  #add(title: string, body: Body): void {
    const name = [...this.#suites.map((suite) => suite.name), title].join(' ').trim();
    const seen = (this.#ids.get(`${this.#file}#${name}`) ?? 0) + 1;
    this.#ids.set(`${this.#file}#${name}`, seen);
    const id = `${this.#file}#${name}${seen > 1 ? ` (${seen})` : ''}`;
    this.tests.push({ id, name, file: this.#file, body, suites: this.#suites });
  }

  /** Runs a test with its hooks, each of which must yield within `stepMs`. Rejects with the first error. */
  async run({ file, body, suites }: TestCase, stepMs: number): Promise<void> {
    this.#file = file;
    this.#finished = [];
    const inward = [...suites];
    const outward = inward.toReversed();
    const failures: unknown[] = [];
    const attempt = async (steps: readonly Body[]): Promise<void> => {
      for (const step of steps) {
        try {
          await callForATime(step, stepMs);
        } catch (error) {
          failures.push(error);
        }
      }
    };
    for (const suite of inward.filter(({ begun }) => !begun)) {
      suite.begun = true;
      await attempt(suite.before);
    }
    await attempt(inward.flatMap((suite) => suite.beforeEach));
    if (failures.length === 0) await attempt([body]);
    await attempt(outward.flatMap((suite) => suite.afterEach.toReversed()));
    await attempt(this.#finished);
    if (failures.length > 0) throw failures[0];
  }

  /** Runs the hooks after the last test. */
  async end(): Promise<void> {
    const begun = new Set(
      this.tests.flatMap(({ suites }) => suites.toReversed()).filter((suite) => suite.begun),
    );
    for (const suite of begun) for (const step of suite.after) await step();
  }

  /** Compares a text with a file beside the running test. */
  matchesFile(text: unknown, path: string): boolean {
    return text === readFileSync(resolve(dirname(this.#file), path), 'utf8');
  }
}
