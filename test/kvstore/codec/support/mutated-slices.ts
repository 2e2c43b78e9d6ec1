import { expect } from 'vitest';
import {
  decodeClusterEndpointSlice,
  decodeLargeEndpointSlice,
  encodeClusterEndpointSlice,
  endpointSliceSize,
} from '../../../../src/kvstore/codec/cluster-endpoint-slice.ts';
import { rawZstdFrame, readZstdFrame } from '../../../../src/kvstore/codec/zstd/zstd-frame.ts';
import type { ClusterEndpointSlice } from '../../../../src/model/cluster-endpoint-slice.ts';
import { type Decoded, decodeWith } from '../../../../src/net/fields.ts';
import { bytesInUse } from '../../../base/support/garbage.ts';
import { seededRandom } from '../../chaos/support/seeded-random.ts';
import { protoBytes, zstdProgram } from './slice-proto.ts';

const KEY = { cluster: 'c1', namespace: 'shop', name: 'web-1' };

/** The reasons documented for `decodeClusterEndpointSlice`. */
const REASONS: ReadonlySet<string> = new Set([
  ...['too-large', 'invalid-zstd', 'invalid-protobuf', 'wrong-type', 'invalid-utf8', 'too-many'],
  ...['missing-field', 'key-mismatch', 'out-of-range', 'missing', 'unknown-value', 'invalid-address'],
  'wrong-family',
]);
const DROPPED: ReadonlySet<string> = new Set(['out-of-range', 'unknown-protocol', 'invalid-weight']);

function messageOf(endpoints: number): Buffer {
  const pod = (i: number): object => ({
    addresses: [`10.1.${i >> 8}.${i & 255}`],
    conditions: { ready: i % 7 !== 0, serving: true, terminating: i % 11 === 0 },
    nodeName: `node-${i % 50}`,
    zone: `zone-${i % 3}`,
    hostname: i % 5 === 0 ? `web-${i}` : undefined,
    hints: { forZones: [{ name: `zone-${i % 3}` }] },
    deprecatedTopology: i % 13 === 0 ? { 'kubernetes.io/hostname': `node-${i % 50}` } : {},
  });
  return protoBytes({
    ...KEY,
    clusterID: 1,
    addressType: 'IPv4',
    labels: { 'kubernetes.io/service-name': 'web', app: 'web' },
    annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-01T00:00:00Z' },
    endpoints: Array.from({ length: endpoints }, (_, i) => pod(i)),
    ports: [
      { name: 'http', protocol: 'TCP', port: 8080 },
      { name: 'dns', protocol: 'UDP', port: 53 },
    ],
  });
}

/**
 * Returns messages of slices, and their frames by Debian's zstd program with several block types and headers.
 */
function originals(): { readonly messages: readonly Buffer[]; readonly frames: readonly Buffer[] } {
  const messages = [0, 1, 5, 100].map(messageOf);
  const args = [[], ['-19'], ['--fast=5'], ['--no-check'], ['--no-content-size'], ['-1', '--long=23']];
  const frames = messages.flatMap((message) => args.map((each) => zstdProgram(each, message)));
  const large = messageOf(1000);
  frames.push(
    zstdProgram([], large),
    Buffer.from(rawZstdFrame(messages[2] ?? large)),
    zstdProgram([], Buffer.alloc(5000)),
  );
  return { messages, frames };
}

type Below = (limit: number) => number;

/** Returns a copy with one to four mutations. */
function mutated(original: Buffer, others: readonly Buffer[], below: Below): Buffer {
  let bytes = Buffer.from(original);
  for (let mutations = 1 + below(4); mutations > 0; mutations--) {
    const at = below(bytes.length + 1);
    const to = Math.min(bytes.length, at + 1 + below(16));
    const other = others[below(others.length)] ?? original;
    const from = below(other.length + 1);
    switch (below(9)) {
      case 0:
        if (at < bytes.length) bytes[at] = (bytes[at] ?? 0) ^ (1 << below(8));
        break;
      case 1:
        if (at < bytes.length) bytes[at] = below(256);
        break;
      case 2: // within the header
        if (bytes.length > 4) bytes[4 + below(Math.min(14, bytes.length - 4))] = below(256);
        break;
      case 3:
        bytes = bytes.subarray(0, at);
        break;
      case 4:
        bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(to)]);
        break;
      case 5:
        bytes = Buffer.concat([bytes.subarray(0, to), bytes.subarray(at)]);
        break;
      case 6:
        bytes = Buffer.concat([bytes.subarray(0, at), other.subarray(from, from + 64), bytes.subarray(at)]);
        break;
      case 7:
        bytes = Buffer.concat([bytes.subarray(0, at), other.subarray(from)]);
        break;
      default:
        bytes.fill([0, 0xff, 0x80][below(3)] ?? 0, at, to);
    }
  }
  return bytes;
}

function decodedInSteps(value: Uint8Array): Decoded<ClusterEndpointSlice> | undefined {
  const steps = decodeLargeEndpointSlice(KEY, value, 'k');
  for (;;) {
    const step = steps?.next();
    if (step === undefined || step.done) return step?.value;
  }
}

/** Numbers of mutated values by outcome, and the memory used. */
export interface MutationFigures {
  readonly outcomes: Readonly<Record<string, number>>;
  /** Maximum heap and buffers for one value with a large window or content; only some are measured. */
  readonly mostBytes: number;
  /** Growth of heap and buffers from start to end. */
  readonly keptBytes: number;
}

const LARGE = 1024 * 1024;

function memory(): number {
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Returns true if a decoder may need much memory for a frame. */
function isLarge(value: Uint8Array): boolean {
  const frame = decodeWith('', () => readZstdFrame(value));
  return frame.ok && Math.max(frame.value.window, frame.value.maxSize) > LARGE;
}

/**
 * Decodes `count` mutated slices. Throws if a decoder throws, if an outcome has an undocumented reason, or if decoding
 * in steps or after encoding differs.
 */
export async function decodeMutatedSlices(count: number, seed: number): Promise<MutationFigures> {
  const { messages, frames } = originals();
  const random = seededRandom(seed);
  const below: Below = (limit) => Math.floor(random() * limit);
  const outcomes: Record<string, number> = {};
  const start = await bytesInUse();
  let mostBytes = 0;
  for (let i = 0, large = 0; i < count; i++) {
    // Half of them are valid frames, so that the message is read.
    const isFrame = i % 2 === 0;
    const from = isFrame ? frames : messages;
    const bytes = mutated(from[below(from.length)] ?? Buffer.alloc(0), from, below);
    const value = isFrame ? bytes : rawZstdFrame(bytes);
    const isMeasured = isFrame && isLarge(value) && large++ % 200 === 0;
    const before = isMeasured ? await bytesInUse() : 0;
    const decoded = decodeClusterEndpointSlice(KEY, value, 'k');
    if (isMeasured) mostBytes = Math.max(mostBytes, memory() - before);
    const outcome = decoded.ok ? 'accepted' : decoded.rejection.reason;
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    const dropped = decoded.ok ? (decoded.dropped ?? []) : [];
    const isKnown = decoded.ok || REASONS.has(outcome);
    if (!isKnown || !dropped.every(({ reason }) => DROPPED.has(reason)) || endpointSliceSize(value) < 0)
      expect.fail(`${outcome} of ${Buffer.from(value).toString('hex')}, seed ${seed}`);
    if (i % 100 < 2) checkAgain(decoded, value);
  }
  return { outcomes, mostBytes, keptBytes: (await bytesInUse()) - start };
}

function checkAgain(decoded: Decoded<ClusterEndpointSlice>, value: Uint8Array): void {
  const inSteps = decodedInSteps(value);
  if (inSteps !== undefined) expect(inSteps).toEqual(decoded);
  if (!decoded.ok) return;
  const again = decodeClusterEndpointSlice(KEY, encodeClusterEndpointSlice(decoded.value), 'k');
  expect(again).toEqual({ ok: true, value: decoded.value });
}
