import type { Clock, Random } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import type { Source } from '../identity/source.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';
import type { NodeIPCache } from './node-addresses.ts';
import type { HandlerFault } from './node-handler.ts';

/** How a `NodeManager` is made. */
export interface NodeManagerOptions extends Partial<NodeConfiguration> {
  /** Where the nodes' addresses go. In single-slot mode it must be an IPCache in that mode. */
  readonly ipcache: NodeIPCache;
  readonly clock: Clock;
  /** Jitter of retries; `Math.random` by default. */
  readonly random?: Random | undefined;
  /** Which node is the local one. */
  readonly clusterName: string;
  readonly localNodeName: string;
  /**
   * Keep claims that a stronger source overrules, and promote them when it goes (the default). `false` gives the
   * classic single slot: a weaker update is ignored, a stronger or equal one replaces the node.
   */
  readonly retainOverruled?: boolean | undefined;
  /**
   * Call `nodeDelete` of handlers for every node when the manager is closed, once, as upstream does. By default
   * closing leaves the datapath as it is, so that traffic goes on while the agent is restarted.
   */
  readonly deleteOnClose?: boolean | undefined;
  /** Receives every rejected input, for logs. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives every handler call that failed, for logs. */
  readonly onHandlerFault?: ((fault: HandlerFault) => void) | undefined;
  /** Kubernetes has deleted the local node, and the manager has closed itself. */
  readonly onLocalNodeDeleted?: (() => void) | undefined;
}

/** How a handler wants to be called. */
export interface NodeSubscribeOptions {
  /** Asynchronous calls that may run at a time, each for another node; 16 by default. */
  readonly concurrency?: number | undefined;
  /**
   * What it has already: an equal node is not added again, one that differs is updated, and one that is not there is
   * deleted by `sweep`. By default nothing.
   */
  readonly had?: Iterable<Node> | undefined;
}

/** Which claims to withdraw: all of a source, or those of one cluster's nodes. */
export interface NodeWithdrawal {
  readonly source: Source;
  readonly cluster?: string | undefined;
}

/** The switches of the options; what is left out is off, but for remote-node identities (as upstream since 1.9). */
export function configurationOf(options: Partial<NodeConfiguration>): NodeConfiguration {
  return {
    remoteNodeIdentities: options.remoteNodeIdentities ?? true,
    encryption: options.encryption ?? false,
    nodeEncryption: options.nodeEncryption ?? false,
    hostFirewall: options.hostFirewall ?? false,
    underlay: options.underlay ?? 'ipv4',
  };
}
