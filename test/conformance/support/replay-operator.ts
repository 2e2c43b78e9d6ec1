import { programOf } from './operator-programs.ts';
import { differenceRule } from './operator-rules.ts';
import { type OperatorScenario, type QuietPoint, scenarioOf, type TraceContent } from './operator-trace.ts';
import { type LeaseHolder, OperatorWorld, waitOf, withHolders } from './operator-world.ts';
import { nextKeys, type RecordedKeys, type Recording } from './recordings.ts';
import type { ReplayTally } from './report.ts';

/** A key that is not as recorded. */
export interface KeyDifference {
  readonly etcd: string;
  readonly key: string;
  readonly expected: Held | undefined;
  readonly actual: Held | undefined;
}

/** What a key has: its value, and whose lease. */
export interface Held {
  readonly v: string | undefined;
  readonly holder: LeaseHolder | undefined;
}

function isContent(etcd: QuietPoint['etcd']): etcd is TraceContent {
  return 'full' in etcd || 'set' in etcd;
}

/** What only collectors change: compared by `replayCollectors`. */
const COLLECTED = /^cilium\/state\/identities\//;

function sameHeld(a: Held | undefined, b: Held | undefined): boolean {
  return a?.v === b?.v && a?.holder === b?.holder;
}

/** Replays one scenario, and compares at each of its quiet points. */
class OperatorReplay {
  readonly #scenario: OperatorScenario;
  readonly #tally: ReplayTally;
  readonly #world: OperatorWorld;
  readonly #recorded = new Map<string, RecordedKeys>();
  /** By the name of a lease in the recording: the life of the program that showed it first. */
  readonly #lives = new Map<string, LeaseHolder>();
  /** Differences of the quiet point before: each is counted once while it lasts. */
  readonly #lasting = new Map<string, string>();

  constructor(scenario: OperatorScenario, world: OperatorWorld, tally: ReplayTally) {
    this.#scenario = scenario;
    this.#world = world;
    this.#tally = tally;
  }

  async run(): Promise<void> {
    const holderOf = (lease: string): LeaseHolder | undefined => this.#lives.get(lease);
    await this.#world.begin();
    for (const event of this.#scenario.events) {
      if (event.t === 'step') {
        if (event.op === 'etcd-put' && typeof event.lease === 'string')
          this.#lives.set(event.lease, event.lease);
        await this.#world.step(event, holderOf);
      } else {
        await this.#world.quiet(waitOf(event.note));
        this.#compare(event);
      }
    }
    await this.#world.stop();
  }

  #compare(quiet: QuietPoint): void {
    this.#tally.compared();
    const contents = isContent(quiet.etcd) ? { local: quiet.etcd } : quiet.etcd;
    for (const [etcd, content] of Object.entries(contents)) this.#compareEtcd(quiet, etcd, content);
    this.#compareWrites(quiet);
  }

  #compareEtcd({ n }: QuietPoint, etcd: string, content: TraceContent): void {
    const recorded = nextKeys(this.#recorded.get(etcd) ?? new Map(), content);
    this.#recorded.set(etcd, recorded);
    for (const { lease } of recorded.values())
      if (lease !== undefined && !this.#lives.has(lease)) this.#lives.set(lease, this.#world.lives);
    const expected = withHolders(recorded, (lease) => this.#lives.get(lease));
    const actual: ReadonlyMap<string, Held> = this.#world.etcds.get(etcd)?.content() ?? new Map();
    for (const key of new Set([...expected.keys(), ...actual.keys()])) {
      const difference = { etcd, key, expected: expected.get(key), actual: actual.get(key) };
      this.#judge(n, difference);
    }
  }

  #judge(step: number, difference: KeyDifference): void {
    const { etcd, key, expected, actual } = difference;
    if (key.startsWith('cilium/.initlock/')) return; // recorded without values
    if (COLLECTED.test(key) && this.#scenario.program.startsWith('cilium-operator')) return;
    const place = `${etcd} ${key}`;
    if (sameHeld(expected, actual)) {
      this.#lasting.delete(place);
      return;
    }
    const text = JSON.stringify([expected, actual]);
    if (this.#lasting.get(place) === text) return;
    this.#lasting.set(place, text);
    const rule = differenceRule(difference, this.#world);
    if (rule !== undefined) this.#tally.explained(rule);
    else this.#tally.mismatch({ scenario: this.#scenario.name, step, what: key, expected, actual });
  }

  /** Only collectors write to Kubernetes: `replayCollectors` compares what. */
  #compareWrites({ n }: QuietPoint): void {
    const [write] = this.#world.takeWrites();
    if (write === undefined) return;
    const what = 'a write to Kubernetes';
    this.#tally.mismatch({
      scenario: this.#scenario.name,
      step: n,
      what,
      expected: undefined,
      actual: write,
    });
  }
}

/** Replays a recorded scenario of an operator program: Kubernetes objects in, content of the kvstore out. */
export async function replayOperator(recording: Recording, tally: ReplayTally): Promise<void> {
  const scenario = scenarioOf(recording);
  const start = programOf(scenario.program);
  if (start === undefined) {
    tally.skipped(`no program: ${scenario.program}`);
    return;
  }
  tally.scenario();
  await new OperatorReplay(scenario, new OperatorWorld(scenario, start), tally).run();
}
