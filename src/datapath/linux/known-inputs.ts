/** States which inputs are known, and therefore which items of an earlier process may be changed. */
export interface KnownInputs {
  /** True if the nodes and prefixes of the local cluster are complete, or the wait for them has ended. */
  readonly areLocalEntriesKnown: boolean;
  /** True if services and endpoints of the local cluster are complete. */
  readonly isLocalComplete: boolean;
  /** True if the services of each remote cluster are complete, or restored from a checkpoint. */
  readonly areClustersKnown: boolean;
  /** True if the cache has announced all its services. */
  readonly isSynced: boolean;
}

/** Inputs before the first list was read. */
export const NOTHING_KNOWN: KnownInputs = {
  areLocalEntriesKnown: false,
  isLocalComplete: false,
  areClustersKnown: false,
  isSynced: false,
};

/**
 * Lets found prefixes and paths be written when the local cluster is complete, because a weaker claim may be known
 * before the effective one. For example, an API server has the identity of its node until its slice is read.
 */
export class KnownEntries {
  #areKnown = false;

  readonly set = ({ areLocalEntriesKnown }: KnownInputs): void => {
    this.#areKnown = areLocalEntriesKnown;
  };

  readonly mayBeWritten = (_key: string, isDesired: boolean): boolean => isDesired && this.#areKnown;
}
