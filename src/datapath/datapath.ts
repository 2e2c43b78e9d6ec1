import {
  atLeast,
  checkArgument,
  FUNCTION,
  OBJECT,
  objectWith,
  optional,
  optionsWith,
} from '../base/arguments.ts';
import { disposeOnError } from '../base/dispose-on-error.ts';
import { CallbackGuard, type FaultListener } from '../base/guard.ts';
import { deferred } from '../base/sleep.ts';
import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import { OPEN_GATE, type TurnGate } from '../base/turn-gate.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { IPCacheEntry, IPCacheListener } from '../ipcache/types.ts';
import type { Node } from '../nodemanager/node.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { NodeSubscribeOptions } from '../nodemanager/node-manager-options.ts';
import type { AnnouncedService } from '../servicecache/announcement.ts';
import type { ServiceEvent, ServiceListener } from '../servicecache/events.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import { formatServiceID } from '../servicecache/service-id.ts';
import { PREFIXES, type ReconciledListener, Reconciler, SERVICES } from './reconciler.ts';

/** The parts of a datapath, each a listener of an engine. Omitted parts are not connected. */
export interface Datapath {
  readonly ipcache?: IPCacheListener | undefined;
  readonly services?: ServiceListener | undefined;
  readonly nodes?: NodeHandler | undefined;
}

/** The engines of a connected datapath. All are needed, even if the datapath lacks the part of an engine. */
export interface DatapathEngines {
  readonly ipcache: Pick<IPCache, 'subscribe'>;
  /** Its `markSynced` states that the inputs of all engines are complete, so stale content may be deleted. */
  readonly services: Pick<ServiceCache, 'subscribe'>;
  readonly nodes: Pick<NodeManager, 'subscribe' | 'sweep'>;
}

/** The present content of a datapath. */
export interface DatapathContent {
  /** Entries by prefix, written as in `IPCacheChange`: `10.1.2.3/32`. */
  readonly ipcache?: Iterable<readonly [prefix: string, entry: IPCacheEntry]> | undefined;
  readonly services?: Iterable<AnnouncedService> | undefined;
  readonly nodes?: Iterable<Node> | undefined;
}

/** Options of {@link connectDatapath}. `concurrency` limits the calls of `nodes`. */
export interface ConnectDatapathOptions extends Pick<NodeSubscribeOptions, 'concurrency'> {
  /** The present content of the datapath; default none. Read once, before the first call. */
  readonly previous?: DatapathContent | undefined;
  /** Splits the deletes of stale content into short turns. Default: not split. */
  readonly gate?: TurnGate | undefined;
  /**
   * Receives the exceptions that `ipcache` and `services` throw while their stale content is deleted, because no engine
   * makes these calls. The node manager deletes stale nodes, and reports exceptions of `nodes` itself.
   */
  readonly onListenerFault?: FaultListener | undefined;
}

/**
 * Outcome of `DatapathConnection.synced`. `synced`: the datapath has the state of the engines, except for nodes whose
 * call failed and is retried. `ended`: the connection or the node manager ended before, or a part of the connection
 * ended because its replay failed.
 */
export type DatapathSyncOutcome = 'synced' | 'ended';

/** Ends the connection when called. Idempotent. Does not change the datapath. */
export interface DatapathConnection extends Unsubscribe {
  /** Resolves when the inputs are complete and stale content has been deleted. Never rejects. */
  readonly synced: Promise<DatapathSyncOutcome>;
}

/**
 * Connects a datapath to the engines. Each part receives the current state, then every change. Nodes are delivered
 * first, because entries and backends refer to their tunnels. Ending the connection does not change the datapath.
 *
 * With `previous` (SEMANTICS 9), equal content is not written again. Different content is delivered as a change whose
 * `old` is the datapath's content. Stale content is deleted when the inputs are complete, in steps of the gate:
 * services first, nodes last. The first step runs in a microtask after `markSynced` of `services`.
 */
export function connectDatapath(
  datapath: Datapath,
  engines: DatapathEngines,
  options: ConnectDatapathOptions = {},
): DatapathConnection {
  checkArgument('connectDatapath: datapath', datapath, DATAPATH);
  checkArgument('connectDatapath: engines', engines, ENGINES);
  checkArgument('connectDatapath: options', options, OPTIONS);
  const { previous = {}, gate = OPEN_GATE, onListenerFault, concurrency } = options;
  const guard = new CallbackGuard(onListenerFault);
  const { nodes, ipcache, services } = datapath;
  const inputsComplete = deferred();
  const parts: Part[] = [];
  let endNodes: Unsubscribe | undefined;
  let endInputs: Unsubscribe | undefined;
  let isOver = false;
  const end = unsubscribeOnce(() => {
    isOver = true;
    endInputs?.();
    for (const part of parts.toReversed()) part.end();
    endNodes?.();
    inputsComplete.resolve();
  });
  disposeOnError([end], () => {
    if (nodes !== undefined)
      endNodes = engines.nodes.subscribe(nodes, { concurrency, previous: previous.nodes });
    if (ipcache !== undefined) parts.push(connectIPCache(ipcache, engines.ipcache, previous.ipcache, guard));
    if (services !== undefined)
      parts.push(connectServices(services, engines.services, previous.services, guard));
    endInputs = engines.services.subscribe({ onEvents: () => {}, onInputsComplete: inputsComplete.resolve });
  });
  const sweep = async (): Promise<DatapathSyncOutcome> => {
    if (isOver) return 'ended';
    endInputs?.();
    for (const part of parts.toReversed()) await part.sweep(gate);
    const outcome = nodes && !isOver ? await engines.nodes.sweep(nodes) : 'swept';
    return isOver || outcome === 'ended' || parts.some(({ ended }) => ended) ? 'ended' : 'synced';
  };
  return Object.assign(end, { synced: inputsComplete.promise.then(sweep) });
}

/** The common interface of both kinds of {@link Reconciler}. */
type Part = Pick<Reconciler<unknown, unknown>, 'ended' | 'sweep' | 'end'>;

function connectIPCache(
  listener: IPCacheListener,
  engine: DatapathEngines['ipcache'],
  previous: DatapathContent['ipcache'] = [],
  guard: CallbackGuard,
): Part {
  return new Reconciler(PREFIXES, previous, listener, guard).connect((part) =>
    engine.subscribe({
      onChanges: (changes) => part.onChanges(changes),
      onSynced: () => listener.onSynced?.(),
      onEnded: () => part.onEnded(),
    }),
  );
}

function connectServices(
  listener: ServiceListener,
  engine: DatapathEngines['services'],
  previous: DatapathContent['services'] = [],
  guard: CallbackGuard,
): Part {
  const byID = [...previous].map((announced) => [formatServiceID(announced.service.id), announced] as const);
  const reconciled: ReconciledListener<ServiceEvent> = {
    onChanges: (events) => listener.onEvents(events),
    onEnded: () => listener.onEnded?.(),
  };
  return new Reconciler(SERVICES, byID, reconciled, guard).connect((part) =>
    engine.subscribe({
      onEvents: (events) => part.onChanges(events),
      onSynced: () => listener.onSynced?.(),
      onEnded: () => part.onEnded(),
      onInputsComplete: () => listener.onInputsComplete?.(),
    }),
  );
}

const DATAPATH = objectWith({
  ipcache: optional(objectWith({ onChanges: FUNCTION })),
  services: optional(objectWith({ onEvents: FUNCTION })),
  nodes: optional(OBJECT), // the node manager checks the handler
});
const OPTIONS = optionsWith({ previous: optional(OBJECT), concurrency: optional(atLeast(1)) });
const ENGINES = objectWith({
  ipcache: objectWith({ subscribe: FUNCTION }),
  services: objectWith({ subscribe: FUNCTION }),
  nodes: objectWith({ subscribe: FUNCTION }),
});
