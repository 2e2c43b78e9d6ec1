import { programOf } from './operator-programs.ts';
import {
  differenceRule,
  type Held,
  isLeasedAsRecorded,
  type KeyDifference,
  meantNow,
  type RecordedPast,
} from './operator-rules.ts';
import { type OperatorScenario, type QuietPoint, scenarioOf, type TraceContent } from './operator-trace.ts';
import { type LeaseHolder, OperatorWorld, waitOf, withHolders } from './operator-world.ts';
import { nextKeys, type RecordedKeys, type Recording } from './recordings.ts';
import type { ReplayTally } from './report.ts';

function isContent(etcd: QuietPoint['etcd']): etcd is TraceContent {
  return 'full' in etcd || 'set' in etcd;
}

/** Keys that only collectors change. `replayCollectors` compares them. */
const COLLECTED = /^cilium\/state\/identities\//;

function sameHeld(a: Held | undefined, b: Held | undefined): boolean {
  return a?.v === b?.v && a?.holder === b?.holder;
}

/** Invented changes of recorded values, which test the replay itself. */
export interface RecordedChanges {
  /** Returns values to be judged instead of the recorded one; `undefined`: the key is not recorded. */
  of(difference: KeyDifference): readonly (Held | undefined)[];
  onJudged(changed: KeyDifference, isNoticed: boolean): void;
}

/** Replays one scenario, and compares at each quiet point. */
class OperatorReplay {
  readonly #scenario: OperatorScenario;
  readonly #tally: ReplayTally;
  readonly #world: OperatorWorld;
  readonly #recorded = new Map<string, RecordedKeys>();
  /** Lives of the program by the recorded name of the lease under which each first wrote. */
  readonly #lives = new Map<string, LeaseHolder>();
  /** Lives of the program, by etcd, whose lease is known, and the next lease if it was revoked. */
  readonly #leases = new Set<string>();
  /** The content of the previous quiet point, by etcd. */
  readonly #before = new Map<string, ReadonlyMap<string, Held>>();
  /** Why a key is no longer recorded, by etcd and key. */
  readonly #gone = new Map<string, 'with its lease' | 'by another client'>();
  /** All values that the objects required so far, by key. */
  readonly #meant = new Map<string, Set<string>>();
  /** Differences of the previous quiet point. A lasting difference is counted once. */
  readonly #lasting = new Map<string, string>();

  readonly #changes: RecordedChanges | undefined;

  constructor(
    scenario: OperatorScenario,
    world: OperatorWorld,
    tally: ReplayTally,
    changes: RecordedChanges | undefined,
  ) {
    this.#changes = changes;
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
    for (const [key, value] of meantNow(this.#world))
      this.#meant.set(key, (this.#meant.get(key) ?? new Set()).add(value));
    const contents = isContent(quiet.etcd) ? { local: quiet.etcd } : quiet.etcd;
    for (const [etcd, content] of Object.entries(contents)) this.#compareEtcd(quiet, etcd, content);
    this.#compareWrites(quiet);
  }

  #compareEtcd({ n }: QuietPoint, etcd: string, content: TraceContent): void {
    const recorded = nextKeys(this.#recorded.get(etcd) ?? new Map(), content);
    this.#recorded.set(etcd, recorded);
    for (const { lease } of recorded.values()) if (lease !== undefined) this.#learn(etcd, lease);
    const expected = withHolders(recorded, (lease) => this.#lives.get(lease));
    const actual: ReadonlyMap<string, Held> = this.#world.etcds.get(etcd)?.content() ?? new Map();
    const before = this.#before.get(etcd) ?? new Map<string, Held>();
    for (const key of new Set([...before.keys(), ...expected.keys(), ...actual.keys()])) {
      const difference = { etcd, key, expected: expected.get(key), actual: actual.get(key) };
      this.#follow(difference, before.get(key));
      this.#judge(n, difference, before.get(key));
      if (difference.expected !== undefined && this.#isCompared(key))
        this.#doubt(difference, before.get(key));
    }
    this.#before.set(etcd, expected);
  }

  /** A new lease belongs to this life, if the life has no known lease yet. */
  #learn(etcd: string, lease: string): void {
    if (this.#lives.has(lease)) return;
    const { lives, revoked } = this.#world;
    const life = `${etcd} ${lives} ${revoked.has(lives)}`;
    if (this.#leases.has(life)) return;
    this.#leases.add(life);
    this.#lives.set(lease, lives);
  }

  /** Records why a key is no longer recorded. */
  #follow({ etcd, key, expected }: KeyDifference, before: Held | undefined): void {
    const place = `${etcd} ${key}`;
    const { revoked, deleted } = this.#world;
    if (expected !== undefined) {
      this.#gone.delete(place);
      if (before === undefined || !deleted.has(place)) return;
      deleted.delete(place);
    } else if (before?.holder !== undefined && revoked.has(before.holder))
      this.#gone.set(place, 'with its lease');
    else if (deleted.delete(place)) this.#gone.set(place, 'by another client');
  }

  #judge(step: number, difference: KeyDifference, before: Held | undefined): void {
    const { etcd, key, expected, actual } = difference;
    if (!this.#isCompared(key)) return;
    const place = `${etcd} ${key}`;
    if (this.#isEqual(difference)) {
      this.#lasting.delete(place);
      return;
    }
    const text = JSON.stringify([expected, actual]);
    if (this.#lasting.get(place) === text) return;
    this.#lasting.set(place, text);
    const rule = differenceRule(difference, this.#pastOf(difference, before), this.#world);
    if (rule !== undefined) this.#tally.explained(rule);
    else this.#tally.mismatch({ scenario: this.#scenario.name, step, what: key, expected, actual });
  }

  /** Judges invented values instead of the recorded one: each must be a mismatch. */
  #doubt(difference: KeyDifference, before: Held | undefined): void {
    for (const expected of this.#changes?.of(difference) ?? []) {
      const changed = { ...difference, expected };
      const isNoticed =
        !this.#isEqual(changed) &&
        differenceRule(changed, this.#pastOf(changed, before), this.#world) === undefined;
      this.#changes?.onJudged(changed, isNoticed);
    }
  }

  #isEqual(difference: KeyDifference): boolean {
    return sameHeld(difference.expected, difference.actual) && isLeasedAsRecorded(difference, this.#world);
  }

  #pastOf({ etcd, key }: KeyDifference, before: Held | undefined): RecordedPast {
    return { before, gone: this.#gone.get(`${etcd} ${key}`), meant: this.#meant.get(key) ?? new Set() };
  }

  /** Locks were recorded without values, and `replayCollectors` compares the changes of collectors. */
  #isCompared(key: string): boolean {
    const isCollected = COLLECTED.test(key) && this.#scenario.program.startsWith('cilium-operator');
    return !key.startsWith('cilium/.initlock/') && !isCollected;
  }

  /** Only collectors write to Kubernetes. `replayCollectors` compares these writes. */
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

/**
 * Replays a recorded scenario of an operator program: Kubernetes objects in, content of the kvstore out.
 *
 * @param changes are judged as well, and do not count as mismatches
 */
export async function replayOperator(
  recording: Recording,
  tally: ReplayTally,
  changes?: RecordedChanges,
): Promise<void> {
  const scenario = scenarioOf(recording);
  const start = programOf(scenario.program);
  if (start === undefined) {
    tally.skipped(`no program: ${scenario.program}`);
    return;
  }
  tally.scenario();
  await new OperatorReplay(scenario, new OperatorWorld(scenario, start), tally, changes).run();
}
