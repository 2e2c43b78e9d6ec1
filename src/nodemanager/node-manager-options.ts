import type { Optional } from '../base/arguments.ts';
import type { Clock, Random } from '../base/clock.ts';
import type { Rejection } from '../base/rejection.ts';
import type { Source } from '../model/source.ts';
import type { NodeConfiguration } from './address-claims.ts';
import type { Node } from './node.ts';
import type { NodeIPCache } from './node-addresses.ts';
import type { HandlerFault } from './node-handler.ts';

/** Options of a `NodeManager`. */
export interface NodeManagerOptions extends Optional<NodeConfiguration> {
  /** The IPCache for the nodes' addresses. If `retainOverruled` is false, the IPCache's must be false, too. */
  readonly ipcache: NodeIPCache;
  /** Default: the system clock. */
  readonly clock?: Clock | undefined;
  /** Source of jitter; default `Math.random`. */
  readonly random?: Random | undefined;
  /** Name of the local cluster. */
  readonly clusterName: string;
  /** Name of the local node. */
  readonly nodeName: string;
  /**
   * If true, the addresses of the local node have identity `host` and source `local`, whichever source announces the
   * node, as in Cilium 1.17. By default only those of source `local` do, as in Cilium 1.8.
   */
  readonly localNodeIsHost?: boolean | undefined;
  /**
   * If true (the default), overruled claims are kept, and promoted when the stronger one is deleted. If false, a node
   * has one claim: a weaker update is ignored, a stronger or equal one replaces it.
   */
  readonly retainOverruled?: boolean | undefined;
  /**
   * If true, `close` calls `nodeDelete` once for every node that a handler has, as Cilium does. If a call for the
   * node is running, its signal is aborted and `nodeDelete` is called when it has ended. By default the datapath is
   * left as it is, so that traffic continues while the agent restarts.
   */
  readonly deleteOnClose?: boolean | undefined;
  /** Receives every rejection, for logs. */
  readonly onReject?: ((rejection: Rejection) => void) | undefined;
  /** Receives every failed handler call, for logs. */
  readonly onHandlerFault?: ((fault: HandlerFault) => void) | undefined;
  /** Called when Kubernetes deleted the local node and the manager closed itself. */
  readonly onLocalNodeDeleted?: (() => void) | undefined;
}

/** Options of a subscription. */
export interface NodeSubscribeOptions {
  /** Maximum number of concurrent asynchronous calls, each for another node; at least 1, default 16. */
  readonly concurrency?: number | undefined;
  /**
   * The nodes that the handler already has, such as the result of {@link parseNode} for each stored node. Equal nodes
   * are not added again, changed nodes are updated, and `sweep` deletes those that are not announced.
   */
  readonly previous?: Iterable<Node> | undefined;
}

/** The claims to withdraw: all of a source, or those on the nodes of one cluster. */
export interface NodeWithdrawal {
  readonly source: Source;
  readonly cluster?: string | undefined;
}

/** The default settings: all off except remote-node identities (as in Cilium since 1.9). */
const DEFAULTS: NodeConfiguration = {
  remoteNodeIdentities: true,
  encryption: false,
  nodeEncryption: false,
  hostFirewall: false,
  underlay: 'ipv4',
};

/** Returns the settings, with those of `base` for omitted and undefined ones. */
export function configurationOf(
  options: Optional<NodeConfiguration>,
  base: NodeConfiguration = DEFAULTS,
): NodeConfiguration {
  return {
    remoteNodeIdentities: options.remoteNodeIdentities ?? base.remoteNodeIdentities,
    encryption: options.encryption ?? base.encryption,
    nodeEncryption: options.nodeEncryption ?? base.nodeEncryption,
    hostFirewall: options.hostFirewall ?? base.hostFirewall,
    underlay: options.underlay ?? base.underlay,
  };
}
