import { isIPv4 } from 'node:net';
import { exec } from './scratch.ts';

interface DumpedEntry {
  readonly key: readonly string[];
  readonly value: readonly string[];
}

function bytesOf(texts: readonly string[]): Buffer {
  return Buffer.from(texts.map((text) => Number.parseInt(text, 16)));
}

/** Returns the content of a pinned map as bpftool reads it: keys and values in bytes. */
export function dumpMap(path: string): readonly (readonly [key: Buffer, value: Buffer])[] {
  const entries = JSON.parse(exec('bpftool', '-j', 'map', 'dump', 'pinned', path)) as readonly DumpedEntry[];
  return entries.map(({ key, value }) => [bytesOf(key), bytesOf(value)]);
}

function ipv6(bytes: Buffer): string {
  const words = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16));
  return new URL(`http://[${words.join(':')}]`).hostname.slice(1, -1);
}

/**
 * Returns prefixes with identity and tunnel endpoint of a map in Cilium 1.17's layout, decoded from the
 * documented layout.
 */
export function dumpPrefixes(path: string): ReadonlyMap<string, string> {
  return new Map(
    dumpMap(path).map(([key, value]) => {
      const bits = key.readUInt32LE(0) - 32;
      const family = key.readUInt8(7);
      const address = key.subarray(8, 24);
      const text = family === 1 ? address.subarray(0, 4).join('.') : ipv6(address);
      const tunnel = value.subarray(4, 8).join('.');
      return [`${text}/${bits}`, `${value.readUInt32LE(0)} via ${tunnel === '0.0.0.0' ? '-' : tunnel}`];
    }),
  );
}

/** Returns the same form for an item of the API's list. */
export function listedPrefix({
  prefix,
  identity,
  hostIP = '',
}: {
  readonly prefix: string;
  readonly identity: number;
  readonly hostIP?: string;
}): readonly [string, string] {
  return [prefix, `${identity} via ${isIPv4(hostIP) ? hostIP : '-'}`];
}
