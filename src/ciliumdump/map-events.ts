import { rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { type OutputContext, objectsIn } from './output-json.ts';
import { type MapValue, parseMapValue, tablePrefix } from './table-entry.ts';

/** A write of a map of the kernel. */
export interface MapEvent {
  /** RFC 3339; empty if the output has no time. */
  readonly time: string;
  readonly action: string;
  /** The pending action of the agent for the key: `ok`, `insert`, `delete`. */
  readonly desired: string;
  /** Undefined for a delete. */
  readonly value: MapValue | undefined;
  /** Error of the write; empty if it succeeded. */
  readonly error: string;
}

/** Maximum number of keys, far more than an agent keeps: the last 1,024 writes of a map, or a configured number. */
const MAX_KEYS = 1_000_000;

/**
 * Returns the last write of each prefix in the output of `map events cilium_ipcache`, as text or with `-o json`. The
 * output is in the order of the writes. An unreadable event is rejected without affecting the others.
 */
export function readMapEvents(text: string, { at, onReject }: OutputContext): ReadonlyMap<string, MapEvent> {
  const last = new Map<string, MapEvent>();
  for (const event of text.includes('key="') ? eventsOfLines(text) : eventsOfJson(text)) {
    const key = typeof event['key'] === 'string' ? tablePrefix(event['key']) : undefined;
    if (key === undefined) onReject(rejection('invalid-prefix', 'key', event['key'], 'must be a prefix', at));
    else if (last.size < MAX_KEYS || last.has(key)) last.set(key, mapEvent(event));
  }
  return last;
}

function mapEvent(event: Readonly<Record<string, unknown>>): MapEvent {
  const textOf = (name: string): string => {
    const value = event[name];
    return typeof value === 'string' ? value : '';
  };
  return {
    time: textOf('timestamp'),
    action: textOf('action'),
    desired: textOf('desired-action'),
    value: parseMapValue(textOf('value')),
    error: textOf('last-error'),
  };
}

function* eventsOfJson(text: string): Generator<Readonly<Record<string, unknown>>, void, void> {
  for (const object of objectsIn(text)) {
    try {
      const value: unknown = JSON.parse(object);
      if (isObject(value)) yield value;
    } catch {
      yield {};
    }
  }
}

/** `key="10.0.0.1/32" value="identity=5 …" time=… action=update desiredState=ok lastError=""` */
const LINE = /^key="([^"]*)" value="([^"]*)" time=(\S*) action=(\S*) desiredState=(\S*) lastError="([^"]*)"/;

function* eventsOfLines(text: string): Generator<Readonly<Record<string, unknown>>, void, void> {
  for (const line of text.split('\n')) {
    if (!line.startsWith('key=')) continue;
    const [, key, value, timestamp, action, desired, error] = LINE.exec(line) ?? [];
    yield { key, value, timestamp, action, 'desired-action': desired, 'last-error': error };
  }
}
