/**
 * The entry `datapath-cache/nodemanager`: the NodeManager, which tracks nodes and how to reach them, and the IPCache
 * into which it writes their addresses. Loads no module of Node.js, so it runs in browsers and workers. Its collections
 * are those of the package `immutable`.
 */

export type {
  List as ImmutableList,
  Map as ImmutableMap,
  ValueObject as ImmutableValue,
} from 'immutable';
export type { LatencyStatus } from './base/latency-histogram.ts';
export { LATENCY_BOUNDS_MS } from './base/latency-histogram.ts';
export * from './ipcache.ts';
export type { ClusterNode, NodeAddress, NodeName } from './model/cluster-node.ts';
export type { AddressClaim, NodeConfiguration } from './nodemanager/address-claims.ts';
export { tunnelEndpoint } from './nodemanager/address-claims.ts';
export type { AppliedOutcome } from './nodemanager/handler-feeds.ts';
export type { Node } from './nodemanager/node.ts';
export type { LostAddress, NodeIPCache } from './nodemanager/node-addresses.ts';
export type { NodeCheckpoint } from './nodemanager/node-checkpoint.ts';
export type {
  HandlerFailure,
  HandlerFault,
  HandlerResult,
  HandlerStatus,
  NodeCall,
  NodeHandler,
  SweepOutcome,
} from './nodemanager/node-handler.ts';
export type { NodeClaimObserver } from './nodemanager/node-manager.ts';
export { NodeManager } from './nodemanager/node-manager.ts';
export type {
  NodeManagerOptions,
  NodeSubscribeOptions,
  NodeWithdrawal,
} from './nodemanager/node-manager-options.ts';
export type { NodeFields, NodeSpec, PlainNode } from './nodemanager/node-spec.ts';
export { nodeFullName } from './nodemanager/node-spec.ts';
export type {
  CountedNodeOutcome,
  NodeDeleteOutcome,
  NodeExplanation,
  NodeHandlerState,
  NodeManagerStatus,
  NodeUpdateOutcome,
} from './nodemanager/node-status.ts';
export { parseNode } from './nodemanager/parse-node.ts';
