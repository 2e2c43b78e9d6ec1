import { isDeepStrictEqual } from 'node:util';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { KeyedEntry } from '../../../src/ipcache/types.ts';
import { isSource } from '../../../src/model/source.ts';
import { canonicalKey } from '../../../src/net/prefix.ts';
import {
  FoldingListener,
  foldEqualsDump,
  identityIsInverse,
  longestPrefixWins,
} from '../../ipcache/support/invariants.ts';
import type { IPCacheScenario, IPCacheStep, TraceEvent, TraceMetadata } from './ipcache-trace.ts';
import { dump, finalView, fromMetadata, sortEvents, toMetadata, toTraceEvent } from './ipcache-view.ts';
import type { ReplayTally } from './report.ts';

/** Why a step is not compared completely, in the words of the format page. */
type SkipReason = 'after firstBroken' | 'alias key' | 'unknown source';

/** Returns true if the text is a non-canonical spelling of a prefix, such as mask `032`. */
function isAlias(text: string | undefined): boolean {
  if (text === undefined) return false;
  const canonical = canonicalKey(text);
  if (canonical !== undefined) return canonical !== text;
  return canonicalKey(text.replace(/\/0+(?=\d)/, '/')) !== undefined;
}

/** Replays one scenario on a new engine in single-slot mode. */
class Replay {
  readonly #cache = new IPCache({ retainOverruled: false });
  readonly #told: TraceEvent[][] = [];
  readonly #folded = new FoldingListener();
  readonly #scenario: IPCacheScenario;
  readonly #tally: ReplayTally;
  #namedPortsChanged = false;
  #tracking = false;
  /** The folded recorded events, with empty metadata as none. */
  readonly #recordedFold = new Map<string, string>();
  #skip: SkipReason | undefined;

  constructor(scenario: IPCacheScenario, tally: ReplayTally) {
    this.#scenario = scenario;
    this.#tally = tally;
    this.#attach();
    this.#cache.subscribe(this.#folded);
  }

  run(): void {
    this.#tally.scenario();
    this.#scenario.steps.forEach((step, index) => {
      this.#skip ??= this.#reasonToSkip(step, index);
      const { returns, replayed } = this.#apply(step);
      const told = this.#takeTold();
      if (this.#skip === undefined) this.#compare(step, index, returns, replayed ?? told);
      else this.#tally.skipped(this.#skip);
      this.#checkInvariants(index, step.ip);
    });
    this.#compareFinal();
  }

  #reasonToSkip(step: IPCacheStep, index: number): SkipReason | undefined {
    if (this.#scenario.firstBroken !== null && index >= this.#scenario.firstBroken)
      return 'after firstBroken';
    if (step.source !== undefined && !isSource(step.source)) return 'unknown source';
    return isAlias(step.ip) || isAlias(step.prefix) ? 'alias key' : undefined;
  }

  #apply(step: IPCacheStep): { returns?: unknown; replayed?: readonly TraceEvent[] } {
    const ip = step.ip ?? '';
    switch (step.op) {
      case 'upsert':
        return { returns: this.#upsert(step) };
      case 'delete':
        // The engine rejects unknown sources. Scenarios are not compared from there on.
        this.#cache.delete(ip, { source: (step.source ?? '') as 'unspec' });
        return { returns: { namedPortsChanged: this.#takeNamedPortsChanged() } };
      case 'lookupByIP':
        return { returns: lookupView(this.#cache.get(ip)) };
      case 'lookupByPrefix':
        return { returns: lookupView(this.#cache.lookupByPrefix(step.prefix ?? '')) };
      case 'lookupByIdentity':
        return { returns: someSorted(this.#cache.lookupByIdentity(step.id ?? 0)) };
      case 'getNamedPorts':
        return { returns: this.#getNamedPorts() };
      case 'getK8sMetadata':
        return { returns: fromMetadata(this.#cache.getK8sMetadata(ip)) };
      case 'getHostIP':
        return { returns: this.#getHostIP(ip) };
      case 'addListener':
        return { replayed: this.#attach() };
      case 'dump':
        return { replayed: dump(this.#cache) };
      default:
        throw new Error(`${this.#scenario.name}: unknown op ${step.op}`);
    }
  }

  #upsert(step: IPCacheStep): unknown {
    const outcome = this.#cache.upsert(step.ip ?? '', {
      identity: step.id ?? 0,
      source: (step.source ?? '') as 'unspec', // see delete
      hostIP: step.hostIP ?? undefined,
      encryptKey: step.key,
      k8s: toMetadata(step.meta),
    });
    const updated = outcome === 'applied' || outcome === 'unchanged';
    return { updated, namedPortsChanged: this.#takeNamedPortsChanged() };
  }

  #getNamedPorts(): unknown {
    if (!this.#tracking) this.#cache.onNamedPortsChange(() => (this.#namedPortsChanged = true));
    this.#tracking = true;
    const sets = [...this.#cache.namedPorts()].map(([name, ports]) => [
      name,
      ports.map(({ port, protocol }) => ({ port, proto: protocol })),
    ]);
    return sets.length === 0 ? null : Object.fromEntries(sets);
  }

  #getHostIP(ip: string): unknown {
    const entry = this.#cache.get(ip);
    return { hostIP: entry?.hostIP ?? null, key: entry?.hostIP === undefined ? 0 : entry.encryptKey };
  }

  #takeNamedPortsChanged(): boolean {
    const changed = this.#namedPortsChanged;
    this.#namedPortsChanged = false;
    return changed;
  }

  /** Attaches a listener. Returns its immediate events. */
  #attach(): readonly TraceEvent[] {
    const told: TraceEvent[] = [];
    this.#cache.subscribe({ onChanges: (changes) => told.push(...changes.map(toTraceEvent)) });
    this.#told.push(told);
    return sortEvents(told.splice(0));
  }

  /** Returns the events of the first listener since the last call; all others must have received the same. */
  #takeTold(): readonly TraceEvent[] {
    const [first = [], ...others] = this.#told.map((told) => told.splice(0));
    for (const other of others) this.#expect(-2, 'all listeners are told the same', first, other);
    return first;
  }

  #compare(step: IPCacheStep, index: number, returns: unknown, told: readonly TraceEvent[]): void {
    this.#tally.compared();
    const { firstLatentShadow } = this.#scenario;
    const latent = firstLatentShadow !== null && index >= firstLatentShadow;
    let expectedReturns = step.op === 'getK8sMetadata' ? normalisedMetadata(step.returns) : step.returns;
    let actualReturns = returns;
    if (latent && step.op.startsWith('lookupBy') && step.op !== 'lookupByIdentity') {
      expectedReturns = withoutShadowed(step.returns);
      actualReturns = withoutShadowed(returns);
      this.#tally.skipped('shadowed flag after firstLatentShadow');
    }
    this.#expect(index, `${step.op} returns`, expectedReturns, actualReturns);
    if (step.events === undefined) return;
    this.#expect(index, `${step.op} events`, this.#expectedEvents(step, latent), told);
  }

  #expectedEvents(step: IPCacheStep, latent: boolean): readonly TraceEvent[] {
    const events = (step.events ?? []).map(normalised);
    if (step.op === 'dump' || step.op === 'addListener') return latent ? distinct(events) : events;
    const telling = events.filter((event) => this.#foldRecorded(event));
    this.#tally.skipped('redundant event', events.length - telling.length);
    const marked = (step.redundant?.length ?? 0) > 0;
    this.#expect(
      -3,
      'events that the recording marks redundant change nothing',
      marked ? [] : telling,
      telling,
    );
    return telling;
  }

  /** Folds a recorded event. Returns true if it changed anything. */
  #foldRecorded(event: TraceEvent): boolean {
    const { cidr, mod, newID, newHostIP, key, meta } = event;
    const before = this.#recordedFold.get(cidr);
    const after = mod === 'Delete' ? undefined : JSON.stringify([newID, newHostIP, key, meta]);
    if (after === undefined) this.#recordedFold.delete(cidr);
    else this.#recordedFold.set(cidr, after);
    return before !== after;
  }

  #compareFinal(): void {
    const { final, firstLatentShadow } = this.#scenario;
    if (this.#skip !== undefined) return;
    this.#tally.compared();
    const actual = finalView(this.#cache);
    const entries = Object.entries(final.entries).map(([key, entry]) => [
      key,
      { ...entry, k8sMeta: fromMetadata(toMetadata(entry.k8sMeta)) },
    ]);
    const expected = { ...final, entries: Object.fromEntries(entries), dump: final.dump.map(normalised) };
    if (firstLatentShadow === null) {
      this.#expect(-1, 'final state', expected, actual);
      return;
    }
    this.#tally.skipped('shadowed flag after firstLatentShadow');
    this.#expect(-1, 'final identities', expected.identities, actual.identities);
    this.#expect(-1, 'final dump', distinct(expected.dump), actual.dump);
    this.#expect(-1, 'final entries', unshadowed(expected.entries), unshadowed(actual.entries));
  }

  /** Our invariants hold at every step, also where the recording becomes inconsistent. */
  #checkInvariants(index: number, ip: string | undefined): void {
    const addresses = ip === undefined ? [] : [ip.replace(/\/.*$/, '')];
    const problems = [
      ...this.#folded.complaints.splice(0),
      ...foldEqualsDump(this.#cache, this.#folded),
      ...identityIsInverse(this.#cache),
      ...longestPrefixWins(this.#cache, addresses),
    ];
    this.#expect(index, 'invariants', [], problems);
  }

  #expect(step: number, what: string, expected: unknown, actual: unknown): void {
    if (isDeepStrictEqual(actual, expected)) return;
    this.#tally.mismatch({ scenario: this.#scenario.name, step, what, expected, actual });
  }
}

function lookupView(entry: KeyedEntry | undefined): unknown {
  if (entry === undefined) return { found: false };
  return { found: true, id: entry.identity, source: entry.source, shadowed: entry.shadowed };
}

function withoutShadowed(returns: unknown): unknown {
  return { ...(returns as object), shadowed: false }; // the result of lookupView in a trace
}

function unshadowed(entries: Readonly<Record<string, object>>): unknown {
  return Object.fromEntries(
    Object.entries(entries).map(([key, entry]) => [key, { ...entry, shadowed: false }]),
  );
}

function someSorted(keys: readonly string[]): readonly string[] | null {
  return keys.length === 0 ? null : [...keys].sort();
}

function normalisedMetadata(returns: unknown): unknown {
  return fromMetadata(toMetadata(returns as TraceMetadata | null)); // the result of getK8sMetadata in a trace
}

function normalised(event: TraceEvent): TraceEvent {
  return { ...event, meta: fromMetadata(toMetadata(event.meta)) };
}

function distinct(events: readonly TraceEvent[]): readonly TraceEvent[] {
  return [...new Map(events.map((event) => [JSON.stringify(event), event])).values()];
}

/**
 * Replays one ipcache scenario on our engine and records every difference that the format page does not
 * allow.
 */
export function replayIPCache(scenario: unknown, tally: ReplayTally): void {
  new Replay(scenario as IPCacheScenario, tally).run(); // recordings are trusted
}
