import { type Unsubscribe, unsubscribeOnce } from '../base/subscription.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { IPCacheListener } from '../ipcache/types.ts';
import type { NodeHandler } from '../nodemanager/node-handler.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { NodeSubscribeOptions } from '../nodemanager/node-manager-options.ts';
import type { ServiceListener } from '../servicecache/events.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';

/** Carries services into a datapath: the same contract as any listener of the service cache. */
export type ServiceHandler = ServiceListener;

/** The parts of a datapath, each a listener of an engine; a part that is left out receives nothing. */
export interface Datapath {
  readonly ipcache?: IPCacheListener | undefined;
  readonly services?: ServiceHandler | undefined;
  readonly nodes?: NodeHandler | undefined;
  /** How many calls of `nodes` may run at a time. */
  readonly nodeOptions?: NodeSubscribeOptions | undefined;
}

/** The engines that a datapath is connected to. */
export interface DatapathEngines {
  readonly ipcache: Pick<IPCache, 'subscribe'>;
  readonly services: Pick<ServiceCache, 'subscribe'>;
  readonly nodes: Pick<NodeManager, 'subscribe'>;
}

/**
 * Connects a datapath to the engines: each part receives what is there, then every change. Nodes come first, so that
 * the tunnels are there to which entries and backends point. Ending it leaves the datapath as it is.
 */
export function connectDatapath(datapath: Datapath, engines: DatapathEngines): Unsubscribe {
  const subscriptions = [
    datapath.nodes && engines.nodes.subscribe(datapath.nodes, datapath.nodeOptions),
    datapath.ipcache && engines.ipcache.subscribe(datapath.ipcache),
    datapath.services && engines.services.subscribe(datapath.services),
  ];
  return unsubscribeOnce(() => {
    for (const unsubscribe of subscriptions.toReversed()) unsubscribe?.();
  });
}
