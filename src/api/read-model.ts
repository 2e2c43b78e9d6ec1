import type { RejectionStatus } from '../base/rejection.ts';
import type { Labels } from '../identity/labels.ts';
import type { IPCache } from '../ipcache/ipcache.ts';
import type { NodeManager } from '../nodemanager/node-manager.ts';
import type { ServiceCache } from '../servicecache/service-cache.ts';
import type { StatusDocument } from './status-document.ts';

/** An identity that some cluster has allocated, or a reserved one. */
export interface KnownIdentity {
  readonly identity: number;
  readonly labels: Labels;
  /** Whose identity it is; '' for a reserved one. */
  readonly cluster: string;
}

/** What is where, and what identities are called. */
export interface Knowledge {
  readonly ipcache: IPCache;
  readonly services: ServiceCache;
  readonly nodes: NodeManager;
  /** The labels of an identity, where they are known. */
  readonly labelsOf: (identity: number) => Labels | undefined;
}

/** What the API shows: the agent, as far as it can be asked. Reads only; each is synchronous. */
export interface ReadModel extends Knowledge {
  /** Every identity whose labels are known, in no order that is promised. */
  identities(): Iterable<KnownIdentity>;
  status(): StatusDocument;
  rejections(): RejectionStatus;
}
