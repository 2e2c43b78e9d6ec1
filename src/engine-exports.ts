/**
 * The exports that all engines share: errors, rejections, time, sources, identities, ports. The entry point of each
 * engine exports them.
 */

export type { Optional } from './base/arguments.ts';
export { UsageError } from './base/arguments.ts';
export { AssertionError } from './base/assert.ts';
export type { Clock, Random, Timer } from './base/clock.ts';
export type { Failure } from './base/failure.ts';
export type { CallbackGuard, FaultListener } from './base/guard.ts';
export type { Rejection, RejectionStatus } from './base/rejection.ts';
export { RejectionLog, rejection } from './base/rejection.ts';
export type { ListenerResult, Unsubscribe } from './base/subscription.ts';
export { systemClock } from './base/system-clock.ts';
export type {
  IdentityRange,
  MaxConnectedClusters,
  NumericIdentity,
  ReservedIdentityName,
} from './model/numeric-identity.ts';
export {
  clusterIdentityRange,
  RESERVED_IDENTITIES,
  reservedIdentityName,
} from './model/numeric-identity.ts';
export type { Source } from './model/source.ts';
export { SOURCES } from './model/source.ts';
export type { AddressWords, Family } from './net/address-words.ts';
export type { PortProtocol } from './net/port.ts';
export { PROTOCOL_NUMBERS, protocolName, protocolNumber } from './net/port.ts';
export { Prefix } from './net/prefix.ts';
