/**
 * The entry `datapath-cache/shared`: lookups on every core. One thread has an `IPCache`, and any number of worker
 * threads read its prefixes and identities from shared memory. Loads no module of Node and no other package.
 */

export { UsageError } from './base/arguments.ts';
export type { Unsubscribe } from './base/subscription.ts';
export type { AddressBytes, AddressList } from './ipcache/address-list.ts';
export type { EntryMirror } from './ipcache/change-journal.ts';
export type { IPCacheEntry, K8sMetadata, NamedPorts } from './ipcache/types.ts';
export type { NumericIdentity } from './model/numeric-identity.ts';
export type { AddressWords, Family } from './net/address-words.ts';
export type { PortProtocol } from './net/port.ts';
export type { KeyForm, PrefixRegister } from './net/prefix.ts';
export type {
  SharedLookupOptions,
  SharedLookupSource,
  SharedLookupStatus,
} from './sharedlookup/shared-lookup.ts';
export { SharedLookup } from './sharedlookup/shared-lookup.ts';
export { SharedMemoryError } from './sharedlookup/shared-memory.ts';
export type { SharedEntry, SharedLookupHandle, SharedReader } from './sharedlookup/shared-reader.ts';
export { openLookup } from './sharedlookup/shared-reader.ts';
