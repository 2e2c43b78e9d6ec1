import type { KeyWrite, WatchEvent } from '../session/backend.ts';

/** A write that is about to be sent, or was sent. */
export interface Attempt extends KeyWrite {
  readonly row: number;
  /** Undefined if the key is deleted. */
  readonly value: Uint8Array | undefined;
  /** True if the kvstore may already have the value. */
  readonly mayBeEqual: boolean;
  /**
   * True if the watch has delivered the value that the kvstore may already have, so that no event of it will follow.
   * False after a failed write, which may have taken effect.
   */
  readonly wasDelivered: boolean;
  /** The last event that the watch has delivered since the start of the put. */
  watched: WatchEvent | undefined;
}
