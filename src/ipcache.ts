/**
 * The entry `datapath-cache/ipcache`: the IPCache alone, with identity, host and pod of each IP. Loads no module of
 * Node and no other package, so it runs in browsers and workers.
 */

export * from './engine-exports.ts';
export type { AddressBytes, AddressList } from './ipcache/address-list.ts';
export type { CacheReads } from './ipcache/cache-reads.ts';
export type { ReadOptions } from './ipcache/change-hub.ts';
export type { EntryMirror } from './ipcache/change-journal.ts';
export type { ChangeBatch } from './ipcache/change-reader.ts';
export type { ClaimTracker, RowReceiver } from './ipcache/claims/changed-rows.ts';
export type { ClaimObserver } from './ipcache/claims/claim-state.ts';
export { EFFECT } from './ipcache/claims/claim-state.ts';
export type { WaitingClaim } from './ipcache/claims/waiting-claims.ts';
export type { PrefixClaims } from './ipcache/ipcache.ts';
export { IPCache } from './ipcache/ipcache.ts';
export type { NamedPortSets } from './ipcache/named-port-index.ts';
export type { CompleteClaim } from './ipcache/row-reader.ts';
export { IPCacheSnapshot } from './ipcache/snapshot.ts';
export type { CountedOutcome, FamilyCounts, IPCacheOptions, IPCacheStatus } from './ipcache/status.ts';
export type {
  Claim,
  ClaimWriter,
  DecidingRule,
  DeleteOutcome,
  ExplainedClaim,
  Explanation,
  IPCacheChange,
  IPCacheEntry,
  IPCacheListener,
  K8sMetadata,
  KeyedEntry,
  NamedPorts,
  OwnerChange,
  OwnerListener,
  PrefixDeleteOptions,
  UpsertOutcome,
  Writer,
} from './ipcache/types.ts';
export type { KeyForm, PrefixRegister } from './net/prefix.ts';
