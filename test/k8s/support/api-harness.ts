import type { Clock } from '../../../src/base/clock.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import type { ClusterAccess } from '../../../src/k8s/rest/cluster-access.ts';

/** One API server under the contract, in this process or a real one. */
export interface ApiHarness {
  /** The time of all clients. Default: the system's. */
  readonly clock?: Clock;
  /** Waits until it is so; fails with `what` when that takes too long. */
  readonly until: (what: string, isSo: () => boolean | Promise<boolean>) => Promise<void>;
  /** As an administrator. */
  readonly access: ClusterAccess | ApiTransport;
  readonly transport: ApiTransport;
  /** As somebody who may do nothing with config maps. */
  readonly powerless: ClusterAccess | ApiTransport;
  /** With a token that nobody knows. */
  readonly unknown: ClusterAccess | ApiTransport;
  /** Whether a watch may begin with all objects. */
  readonly offersStreams: boolean;
  /** Serves `widgets.contract.test/v1`, with a status. */
  serveWidgets(): Promise<void>;
  /** Forgets the history of its store. */
  compact(): Promise<void>;
  /** Is killed at once, and starts again. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  close(): Promise<void>;
}
