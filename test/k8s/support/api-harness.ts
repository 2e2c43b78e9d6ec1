import type { Clock } from '../../../src/base/clock.ts';
import type { ApiTransport } from '../../../src/k8s/rest/api-transport.ts';
import type { ClusterAccess } from '../../../src/k8s/rest/cluster-access.ts';

/** The API server under test, in this process or a real one. */
export interface ApiHarness {
  /** The clock of all clients. Default: the system's. */
  readonly clock?: Clock;
  /** Waits until the condition holds; fails with `what` if that takes too long. */
  readonly until: (what: string, isSo: () => boolean | Promise<boolean>) => Promise<void>;
  /** Access as an administrator. */
  readonly access: ClusterAccess | ApiTransport;
  readonly transport: ApiTransport;
  /** Access without any permission on config maps. */
  readonly powerless: ClusterAccess | ApiTransport;
  /** Access with an unknown token. */
  readonly unknown: ClusterAccess | ApiTransport;
  /** True if a watch may begin with all objects. */
  readonly offersStreams: boolean;
  /** Serves `widgets.contract.test/v1`, with a status subresource. */
  serveWidgets(): Promise<void>;
  /** Compacts the history of its store. */
  compact(): Promise<void>;
  /** Kills the server and starts it again. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  close(): Promise<void>;
}
