import { byteLengthOf, charactersIn, charactersOf } from '../codec/bytes.ts';
import type { WatchEvent } from './backend.ts';
import type { KeyTable } from './key-table.ts';
import { bytesOf, WireKeyValue } from './wire-key-value.ts';

/** A put of a key, with its row in the `KeyTable` that the watch and its reader share. */
export class TableEvent implements WatchEvent {
  readonly type: 'create' | 'modify';
  readonly kv: Pick<WatchEvent, 'key' | 'value' | 'modRevision' | 'lease'>;
  /** The row at the time of the event. It belongs to another key if the key was deleted since. */
  readonly row: number;

  constructor(type: TableEvent['type'], kv: TableEvent['kv'], row: number) {
    this.type = type;
    this.kv = kv;
    this.row = row;
  }

  get key(): string {
    return this.kv.key;
  }

  get value(): Uint8Array {
    return this.kv.value;
  }

  get modRevision(): number {
    return this.kv.modRevision;
  }

  get lease(): WatchEvent['lease'] {
    return this.kv.lease;
  }
}

/**
 * Returns the row of the key of an event; -1 if the table does not have it.
 *
 * @param prefixLength number of bytes of the prefix, which the table does not store
 */
export function rowOf(event: WatchEvent, keys: KeyTable, prefixLength: number): number {
  if (!(event instanceof TableEvent)) return keys.find(bytesOf(event), prefixLength);
  const bytes = bytesOf(event.kv);
  return keys.isRowOf(event.row, bytes, prefixLength) ? event.row : keys.find(bytes, prefixLength);
}

/** Returns the number of bytes of the value of an event, without creating a view of the value. */
export function valueLength(event: WatchEvent): number {
  if (!(event instanceof TableEvent && event.kv instanceof WireKeyValue)) return event.value.length;
  return event.kv.valueEnd - event.kv.valueAt;
}

/** Returns `charactersOf` the value of an event, without creating a view of the value. */
export function charactersOfValue(event: WatchEvent): string {
  if (!(event instanceof TableEvent && event.kv instanceof WireKeyValue)) return charactersOf(event.value);
  const { buffer, valueAt, valueEnd } = event.kv;
  return charactersIn(buffer, valueAt, valueEnd);
}

/**
 * Returns the name of the key of an event after its prefix. It is a new string if the event has the bytes of a message,
 * so that the whole key does not stay in memory.
 */
export function nameOf(
  event: WatchEvent,
  prefix: string,
  prefixBytes: number = byteLengthOf(prefix),
): string {
  if (!(event instanceof TableEvent && event.kv instanceof WireKeyValue))
    return event.key.slice(prefix.length);
  return event.kv.keyFrom(prefixBytes);
}
