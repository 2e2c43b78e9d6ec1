import { isDeepStrictEqual } from 'node:util';
import { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { IPCacheEntry } from '../../../src/ipcache/types.ts';
import { isSource, type Source } from '../../../src/model/source.ts';
import { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import {
  FoldingListener,
  foldEqualsDump,
  identityIsInverse,
  longestPrefixWins,
} from '../../ipcache/support/invariants.ts';
import { FoldingHandler } from '../../nodemanager/support/folding-handler.ts';
import { addressesAreHeld, handlersKnowNodes } from '../../nodemanager/support/invariants.ts';
import { finalView, fromMetadata, toMetadata } from './ipcache-view.ts';
import {
  fromNode,
  type NodeScenario,
  type NodeStepTrace,
  type TraceNodeEvent,
  toSpec,
} from './node-trace.ts';
import { netChanges, RecordedIPCache, type Value } from './recorded-ipcache.ts';
import type { ReplayTally } from './report.ts';

/** A handler of the scenario: its calls since the last step, and their folded result. */
interface AttachedHandler {
  readonly name: string;
  readonly folded: FoldingHandler;
  unsubscribe(): void;
}

/** Why a step is not compared, in the words of the format page. */
type SkipReason = 'after firstBroken' | 'unknown source';

/** Replays one scenario on new engines in single-slot mode. */
class Replay {
  readonly #scenario: NodeScenario;
  readonly #tally: ReplayTally;
  readonly #ipcache = new IPCache({ retainOverruled: false });
  readonly #folded = new FoldingListener();
  readonly #manager: NodeManager;
  readonly #handlers = new Map<string, AttachedHandler>();
  readonly #recorded = new RecordedIPCache();
  #told: TraceNodeEvent[] = [];
  #skip: SkipReason | undefined;

  constructor(scenario: NodeScenario, tally: ReplayTally) {
    this.#scenario = scenario;
    this.#tally = tally;
    this.#ipcache.subscribe(this.#folded);
    this.#manager = new NodeManager({
      ...scenario.config,
      nodeName: scenario.config.localNodeName,
      ipcache: this.#ipcache,
      clock: new ManualClock(),
      retainOverruled: false,
      deleteOnClose: true,
    });
    this.#subscribe('H0');
  }

  run(): void {
    this.#tally.scenario();
    this.#scenario.steps.forEach((step, index) => {
      this.#skip ??= this.#reasonToSkip(step, index);
      const before = { recorded: this.#recorded.held(), ours: this.#view() };
      this.#recorded.follow(step);
      const returns = this.#apply(step);
      const told = this.#told.splice(0);
      if (this.#skip === undefined) this.#compare(step, index, before, returns, told);
      else this.#tally.skipped(this.#skip);
      this.#checkInvariants(index);
    });
    this.#compareFinal();
  }

  #reasonToSkip(step: NodeStepTrace, index: number): SkipReason | undefined {
    const { firstBroken } = this.#scenario;
    if (firstBroken !== null && index >= firstBroken) return 'after firstBroken';
    const source = step.node?.source ?? step.source;
    return source !== undefined && !isSource(source) ? 'unknown source' : undefined;
  }

  #apply(step: NodeStepTrace): unknown {
    const manager = this.#manager;
    switch (step.op) {
      case 'nodeUpdated':
        if (step.node !== undefined) manager.nodeUpdated(toSpec(step.node));
        return undefined;
      case 'nodeDeleted':
        if (step.node !== undefined) manager.nodeDeleted(toSpec(step.node));
        return undefined;
      case 'subscribe':
        this.#subscribe(step.handler ?? '');
        return undefined;
      case 'unsubscribe':
        this.#handlers.get(step.handler ?? '')?.unsubscribe();
        this.#handlers.delete(step.handler ?? '');
        return undefined;
      case 'deleteAllNodes':
        manager.deleteAllNodes();
        return undefined;
      case 'close':
        manager.close();
        return undefined;
      case 'exists':
        return manager.exists(`${step.cluster}/${step.name}`);
      case 'getNodeIdentities':
        return Array.from(manager.nodes(), ({ fullName }) => fullName).sort();
      case 'clusterSizeDependantInterval':
        return manager.clusterSizeDependantInterval(step.baseNs ?? 0);
      case 'ipcacheUpsert':
        return this.#upsertByOthers(step);
      case 'ipcacheDelete':
        this.#ipcache.delete(step.ip ?? '', { source: step.source as Source });
        return { namedPortsChanged: false };
      default:
        throw new Error(`${this.#scenario.name}: unknown op ${step.op}`);
    }
  }

  #subscribe(name: string): void {
    this.#handlers.get(name)?.unsubscribe(); // the original has one subscription for each handler
    const folded = new FoldingHandler();
    const tell = (event: Omit<TraceNodeEvent, 't' | 'handler'>): void => {
      this.#told.push({ t: 'node', handler: name, ...event });
    };
    const unsubscribe = this.#manager.subscribe({
      name,
      nodeAdd: (node) => {
        folded.nodeAdd(node);
        tell({ kind: 'add', node: fromNode(node) });
      },
      nodeUpdate: (old, node) => {
        folded.nodeUpdate(old, node);
        tell({ kind: 'update', old: fromNode(old), node: fromNode(node) });
      },
      nodeDelete: (node) => {
        folded.nodeDelete(node);
        tell({ kind: 'delete', node: fromNode(node) });
      },
    });
    this.#handlers.set(name, { name, folded, unsubscribe });
  }

  #upsertByOthers(step: NodeStepTrace): unknown {
    const outcome = this.#ipcache.upsert(step.ip ?? '', {
      identity: step.id ?? 0,
      source: step.source as Source,
      hostIP: step.hostIP ?? undefined,
      encryptKey: step.key,
      k8s: toMetadata(step.meta),
    });
    return { updated: outcome === 'applied' || outcome === 'unchanged', namedPortsChanged: false };
  }

  #compare(
    step: NodeStepTrace,
    index: number,
    before: { readonly recorded: ReadonlyMap<string, Value>; readonly ours: ReadonlyMap<string, Value> },
    returns: unknown,
    told: readonly TraceNodeEvent[],
  ): void {
    this.#tally.compared();
    this.#expect(index, `${step.op} returns`, step.returns, returns);
    this.#expect(
      index,
      `${step.op}: ipcache`,
      netChanges(before.recorded, this.#recorded.held()),
      netChanges(before.ours, this.#view()),
    );
    // If the recorded listener contradicts the content of its ipcache, the content is compared.
    const contradictions = this.#recorded.contradictions().length;
    if (contradictions > 0) this.#tally.skipped('ipcache event that contradicts its ipcache', contradictions);
    this.#expect(index, `${step.op}: handlers`, this.#expectedNodeEvents(step), comparable(told));
  }

  #expectedNodeEvents(step: NodeStepTrace): readonly unknown[] {
    const events = (step.events ?? []).filter((event) => event.t === 'node');
    const telling = events.filter(
      ({ kind, old, node }) => kind !== 'update' || !isDeepStrictEqual(old, node),
    );
    const silent = events.length - telling.length;
    if (silent > 0) this.#tally.skipped('node update without a change', silent);
    return comparable(telling);
  }

  #compareFinal(): void {
    if (this.#skip !== undefined) return;
    this.#tally.compared();
    const { nodes, ipcache } = this.#scenario.final;
    const ours = Array.from(this.#manager.nodes(), (node) => [node.fullName, fromNode(node)]);
    this.#expect(-1, 'final nodes', nodes, Object.fromEntries(ours));
    this.#expect(
      -1,
      'final ipcache',
      withoutHostlessKeys(ipcache),
      withoutHostlessKeys(finalView(this.#ipcache)),
    );
  }

  /** Our invariants hold at every step, also where the recording becomes inconsistent. */
  #checkInvariants(index: number): void {
    const problems = [
      ...this.#folded.complaints.splice(0),
      ...foldEqualsDump(this.#ipcache, this.#folded),
      ...identityIsInverse(this.#ipcache),
      ...longestPrefixWins(
        this.#ipcache,
        Array.from(this.#ipcache.entries(), ({ key }) => key.replace(/\/.*$/, '')),
      ),
      ...addressesAreHeld(this.#manager, this.#ipcache),
    ];
    for (const { name, folded } of this.#handlers.values()) {
      problems.push(...folded.complaints.splice(0).map((complaint) => `${name}: ${complaint}`));
      if (!this.#manager.closed) problems.push(...handlersKnowNodes(this.#manager, folded));
    }
    this.#expect(index, 'invariants', [], problems);
  }

  #view(): ReadonlyMap<string, Value> {
    return new Map([...this.#folded.view].map(([prefix, entry]) => [prefix, toValue(entry)]));
  }

  #expect(step: number, what: string, expected: unknown, actual: unknown): void {
    if (isDeepStrictEqual(actual, expected)) return;
    this.#tally.mismatch({ scenario: this.#scenario.name, step, what, expected, actual });
  }
}

function toValue({ identity, hostIP, encryptKey, k8s }: IPCacheEntry): Value {
  return { id: identity, hostIP: hostIP ?? null, key: encryptKey, meta: fromMetadata(k8s) };
}

/** Returns events sorted like the recording; of a delete, only the node's name. */
function comparable(events: readonly TraceNodeEvent[]): readonly unknown[] {
  const rank = ({ node, handler }: TraceNodeEvent): string => `${node.cluster}/${node.name}\n${handler}`;
  return [...events]
    .sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0))
    .map(({ handler, kind, old, node }) =>
      kind === 'delete'
        ? { handler, kind, node: `${node.cluster}/${node.name}` }
        : { handler, kind, old: old ?? null, node },
    );
}

/** The original stores no key if the host is unknown; we store it and notify listeners. */
function withoutHostlessKeys({ entries, identities, dump }: NodeScenario['final']['ipcache']): unknown {
  const rows = Object.entries(entries).map(([key, entry]) => [
    key,
    {
      ...entry,
      k8sMeta: fromMetadata(toMetadata(entry.k8sMeta)),
      key: entry.hostIP === null ? 0 : entry.key,
    },
  ]);
  return {
    entries: Object.fromEntries(rows),
    identities,
    dump: dump.map((event) => ({
      ...event,
      meta: fromMetadata(toMetadata(event.meta)),
      key: event.newHostIP === null ? 0 : event.key,
    })),
  };
}

/** Replays one nodemanager scenario and records every difference that the format page does not allow. */
export function replayNodeManager(scenario: unknown, tally: ReplayTally): void {
  new Replay(scenario as NodeScenario, tally).run(); // recordings are trusted
}
