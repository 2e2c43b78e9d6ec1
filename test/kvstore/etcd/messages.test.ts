import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../../src/base/turn-gate.ts';
import { bytesOfKey, keyOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { bytesField, message } from '../../../src/kvstore/codec/proto-writer.ts';
import {
  decodeLease,
  decodeRange,
  decodeWatch,
  encodeLease,
  encodeLeaseGrant,
  encodeRange,
  encodeWatchCreate,
  encodeWatchProgress,
} from '../../../src/kvstore/etcd/messages.ts';
import { decodeTxn } from '../../../src/kvstore/etcd/txn-messages.ts';
import type { TransportEvent } from '../../../src/kvstore/session/transport.ts';
import { plainKeyValue } from '../../../src/kvstore/session/wire-key-value.ts';

// The definitions of etcd itself, read by an independent implementation.
const proto = join(dirname(createRequire(import.meta.url).resolve('etcd3')), '../proto/rpc.proto');
const root = new protobuf.Root().loadSync(proto, { keepCase: true });
const type = (name: string): protobuf.Type => root.lookupType(`etcdserverpb.${name}`);
const encode = (name: string, fields: object): Buffer => Buffer.from(type(name).encode(fields).finish());
const decode = (name: string, bytes: Buffer): Record<string, unknown> =>
  type(name).toObject(type(name).decode(bytes), { longs: String, defaults: true, bytes: Array });

const bytes = fc.uint8Array({ maxLength: 40 });
const key = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }).map((text) => Buffer.from(text)),
  bytes,
);
const revision = fc.oneof(fc.nat(300), fc.maxSafeNat());
const half = (value: bigint): number => Number(BigInt.asIntN(32, value));
const bigLong = (value: bigint, unsigned = false): protobuf.Long =>
  new protobuf.util.Long(half(value), half(value >> 32n), unsigned);
const long = (value: number): protobuf.Long => bigLong(BigInt(value));
const uint64 = fc.bigInt({ min: 0n, max: (1n << 64n) - 1n });
const header = fc.record({ cluster: uint64, revision, term: fc.nat() });
const keyValue = fc.record({
  key,
  value: bytes,
  create: revision,
  mod: revision,
  lease: revision,
  version: revision,
});

type Header = typeof header extends fc.Arbitrary<infer T> ? T : never;
type KeyValue = typeof keyValue extends fc.Arbitrary<infer T> ? T : never;

const protoHeader = ({ cluster, revision: at, term }: Header): object => ({
  cluster_id: bigLong(cluster, true),
  member_id: long(99),
  revision: long(at),
  raft_term: long(term),
});
const protoKeyValue = (kv: KeyValue): object => ({
  key: kv.key,
  value: kv.value,
  create_revision: long(kv.create),
  mod_revision: long(kv.mod),
  version: long(kv.version),
  lease: long(kv.lease),
});
const expectedHeader = ({ cluster, revision: at, term }: Header): object => ({
  clusterID: cluster.toString(),
  revision: at,
  raftTerm: term,
});

const plainEvent = ({ key: name, value, modRevision }: TransportEvent): TransportEvent => ({
  key: name,
  value,
  modRevision,
});

describe('answers, against protobufjs', () => {
  it('a range is read as it was written', async () => {
    await fc.assert(
      fc.asyncProperty(header, fc.array(keyValue), fc.boolean(), revision, async (head, kvs, more, count) => {
        const buffer = encode('RangeResponse', {
          header: protoHeader(head),
          kvs: kvs.map(protoKeyValue),
          more,
          count: long(count),
        });
        const { kvs: read, ...rest } = await decodeRange(buffer);
        expect(rest).toEqual({ header: expectedHeader(head), more, count });
        expect(read.map((kv) => ({ ...plainKeyValue(kv), value: [...kv.value] }))).toEqual(
          kvs.map((kv) => ({
            key: keyOfBytes(kv.key),
            value: [...kv.value],
            createRevision: kv.create,
            modRevision: kv.mod,
          })),
        );
      }),
    );
  });

  it('a watch answer is read as it was written', () => {
    const event = fc.record({ deleted: fc.boolean(), kv: keyValue });
    const flags = fc.record({ created: fc.boolean(), canceled: fc.boolean(), fragment: fc.boolean() });
    fc.assert(
      fc.property(
        header,
        flags,
        fc.tuple(revision, fc.constantFrom(-1, 0, 3)),
        fc.string(),
        fc.array(event),
        (head, flag, [compact, watchID], reason, events) => {
          const buffer = encode('WatchResponse', {
            header: protoHeader(head),
            ...flag,
            watch_id: long(watchID),
            compact_revision: long(compact),
            cancel_reason: reason,
            events: events.map(({ deleted, kv }) => ({ type: deleted ? 1 : 0, kv: protoKeyValue(kv) })),
          });
          const { events: read, ...rest } = decodeWatch(buffer);
          expect(rest).toEqual({
            header: expectedHeader(head),
            requested: watchID === -1,
            ...flag,
            compactRevision: compact,
            cancelReason: reason,
          });
          expect(read.takeEvents().map(plainEvent)).toEqual(
            events.map(({ deleted, kv }) => ({
              key: keyOfBytes(kv.key),
              value: deleted ? undefined : Buffer.from(kv.value),
              modRevision: kv.mod,
            })),
          );
        },
      ),
    );
  });

  it('events are decoded in slices, also within a revision (regression: 200,000 deletes of one revision in one slice)', () => {
    const events = fc.array(fc.tuple(fc.constantFrom(0, 0, 1), keyValue), { maxLength: 30 });
    fc.assert(
      fc.property(events, fc.integer({ min: 1, max: 5 }), (drawn, most) => {
        let revision = 1;
        const kvs = drawn.map(([step, kv]) => {
          revision += step;
          return { ...kv, mod: revision };
        });
        const whole = encode('WatchResponse', { events: kvs.map((kv) => ({ kv: protoKeyValue(kv) })) });
        const reader = decodeWatch(whole).events;
        const slices: number[][] = [];
        while (!reader.isEmpty) {
          const { nextRevision } = reader;
          slices.push(reader.takeEvents(most).map(({ modRevision }) => modRevision));
          expect(slices.at(-1)?.[0]).toBe(nextRevision);
        }
        expect(reader.nextRevision).toBeUndefined();
        expect(slices.flat()).toEqual(kvs.map(({ mod }) => mod));
        for (const slice of slices.slice(0, -1)) expect(slice.length).toBe(most);
      }),
    );
  });

  it('an event without a key-value is an error (regression: was an event of the key "")', () => {
    const kv = { key: Buffer.from('p/a'), mod_revision: long(7) };
    const answer = encode('WatchResponse', { events: [{ kv }, { type: 1 }] });
    expect(() => decodeWatch(answer).events.takeEvents()).toThrow(/key-value/);
    expect(() => decodeWatch(encode('WatchResponse', { events: [{}] }))).toThrow(/key-value/);
  });

  it('a keepalive is read as it was written', () => {
    const lease = fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n });
    fc.assert(
      fc.property(lease, fc.nat(), (id, ttl) => {
        const ID = bigLong(id);
        const buffer = encode('LeaseKeepAliveResponse', { ID, TTL: long(ttl) });
        expect(decodeLease(buffer)).toEqual({ lease: id.toString(), ttlSeconds: ttl });
        const granted = encode('LeaseGrantResponse', { ID, TTL: long(ttl), error: '' });
        expect(decodeLease(granted)).toEqual({ lease: id.toString(), ttlSeconds: ttl });
        expect(decode('LeaseRevokeRequest', encodeLease(id.toString()))).toEqual({ ID: id.toString() });
        expect(decode('LeaseGrantRequest', encodeLeaseGrant(ttl + 1))).toEqual({
          TTL: `${ttl + 1}`,
          ID: '0',
        });
        expect(decode('LeaseKeepAliveRequest', encodeLease(id.toString()))).toEqual({
          ID: id.toString(),
        });
      }),
    );
  });

  it('a large range is decoded with other turns in between (regression: a page in one)', async () => {
    const kvs = Array.from({ length: 4 * 4096 }, (_, i) => ({
      key: Buffer.from(`${i}`),
      value: Buffer.alloc(300),
    }));
    let turns = 0;
    let isOver = false;
    const others = (async () => {
      for (; !isOver; turns++) await new Promise(setImmediate);
    })();
    const read = await decodeRange(encode('RangeResponse', { kvs, count: kvs.length }));
    isOver = true;
    await others;
    expect(read.kvs).toHaveLength(4 * 4096);
    expect(turns).toBeGreaterThanOrEqual(4);
  });

  it('a large range passes the gate in slices (regression: 4,096 keys in one piece)', async () => {
    const kvs = Array.from({ length: 5000 }, (_, i) => ({
      key: Buffer.from(`${i}`),
      value: Buffer.alloc(100),
    }));
    let turns = 0;
    const nextTurn = (callback: () => void): unknown =>
      setImmediate(() => {
        turns++;
        callback();
      });
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn, weightPerTurn: 64 });
    const read = await decodeRange(encode('RangeResponse', { kvs, count: kvs.length }), gate);
    expect(read.kvs).toHaveLength(5000);
    expect(turns).toBe(4); // 1,024 keys in each, including the turn of the call
  });

  it('a range of other fields passes the gate in slices, too (regression: 64 MiB of them in one piece)', async () => {
    let slices = 0;
    const gate = new TurnGate({ clock: { now: () => 0 }, nextTurn: setImmediate });
    const run = gate.run.bind(gate);
    gate.run = (...call) => {
      slices++;
      return run(...call);
    };
    const unknown = Buffer.from([0x78, 1]);
    await decodeRange(Buffer.alloc(10_000 * unknown.length, unknown), gate);
    expect(slices).toBe(10);
  });

  it('a range with more keys than requested is rejected (regression: 33 million empty keys took 3 GB)', async () => {
    const answer = Buffer.alloc(2 * 100_000, Buffer.from([0x12, 0]));
    await expect(decodeRange(answer, undefined, 4096)).rejects.toThrow('more than 4096 keys');
    expect((await decodeRange(answer, undefined, 100_000)).kvs).toHaveLength(100_000);
  });

  it('a watch response of many fields that are no events is rejected (regression: 64 MiB of them in one turn)', () => {
    expect(() => decodeWatch(Buffer.alloc(2 * 1025, Buffer.from([0x78, 1])))).toThrow(
      'more than 1024 fields',
    );
    const events = Buffer.alloc(4 * 5000, Buffer.from([0x5a, 2, 0x12, 0]));
    expect(decodeWatch(events).events.takeEvents()).toHaveLength(5000);
    const unknown = Buffer.alloc(2 * 1025, Buffer.from([0x78, 1]));
    const { events: read } = decodeWatch(Buffer.concat([events, unknown]));
    expect(() => read.takeEvents()).toThrow('more than 1024 fields');
  });

  it('a watch response is read up to its first event (regression: a million deletes took 80 ms, and 64 MiB of empty events 1.4 s)', () => {
    const event = Buffer.from([0x5a, 2, 0x12, 0]);
    const cut = Buffer.from([0x5a, 100]);
    const { events } = decodeWatch(Buffer.concat([event, event, cut]));
    expect(events.takeEvents(1)).toHaveLength(1);
    expect(() => events.takeEvents()).toThrow('malformed message');
  });

  it('a field with a lower number after the events is an error, because they may already be delivered', () => {
    const event = Buffer.from([0x5a, 2, 0x12, 0]);
    const fragment = Buffer.from([0x38, 1]);
    const { events } = decodeWatch(Buffer.concat([event, fragment]));
    expect(() => events.takeEvents()).toThrow('field 7 of a watch response after events');
  });

  it('a header, key, event or lease of many fields is rejected (regression: 64 MiB of them in one turn)', async () => {
    const junk = Buffer.alloc(2 * 1025, Buffer.from([0x78, 1]));
    const error = 'more than 1024 fields';
    const kv = message(bytesField(2, junk));
    await expect(decodeRange(message(bytesField(1, junk)))).rejects.toThrow(error);
    await expect(decodeRange(kv)).rejects.toThrow(error);
    for (const event of [kv, junk]) expect(() => decodeWatch(message(bytesField(11, event)))).toThrow(error);
    expect(() => decodeLease(junk)).toThrow(error);
  });

  it('an answer without fields has none', async () => {
    const header = { clusterID: '', revision: 0, raftTerm: 0 };
    const empty = Buffer.alloc(0);
    expect(await decodeRange(empty)).toEqual({ header, kvs: [], more: false, count: 0 });
    const { kvs, ...one } = await decodeRange(Buffer.from([0x0a, 0, 0x12, 0]));
    expect(one).toEqual({ header, more: false, count: 0 });
    expect(kvs.map(plainKeyValue)).toEqual([{ key: '', value: empty, createRevision: 0, modRevision: 0 }]);
    const flags = { requested: false, created: false, canceled: false, fragment: false };
    const { events, ...rest } = decodeWatch(empty);
    expect([rest, events.isEmpty]).toEqual([
      { header, ...flags, compactRevision: 0, cancelReason: '' },
      true,
    ]);
    expect(
      decodeWatch(Buffer.from([0x5a, 2, 0x12, 0]))
        .events.takeEvents()
        .map(plainEvent),
    ).toEqual([{ key: '', value: empty, modRevision: 0 }]);
    expect(decodeLease(empty)).toEqual({ lease: '0', ttlSeconds: 0 });
  });

  it.each([
    ['a number of eleven bytes', [0x20, ...Array.from({ length: 10 }, () => 0x80), 1]],
    ['a cluster id of eleven bytes', [0x0a, 12, 0x08, ...Array.from({ length: 10 }, () => 0x80), 1]],
    ['a number that ends in its first byte', [0x20]],
    ['a number that ends in its second byte', [0x20, 0x80]],
    ['a cluster id that ends', [0x0a, 1, 0x08]],
    ['a field that runs over the end of its message', [0x0a, 1, 0x18, 0x80, 1]],
    ['a field that is longer than the answer', [0x0a, 1]],
    ['a group', [0x23]],
    ['a field without a number', [0x00, 1]],
  ])('%s is malformed', async (_, bytes_) => {
    await expect(decodeRange(Buffer.from(bytes_))).rejects.toMatchObject({ name: 'ProtoError' });
    await expect(decodeRange(Buffer.from(bytes_))).rejects.toThrow(/^malformed message: ./);
  });

  describe('a field of another wire type', () => {
    const within =
      (field: number) =>
      (content: Buffer): Buffer =>
        message(bytesField(field, content));
    const range = within(2);
    const event = (content: Buffer): Buffer =>
      within(11)(Buffer.concat([within(2)(Buffer.alloc(0)), content]));
    const deletes = (content: Buffer): Buffer => within(3)(within(3)(content));
    const readEvents = (answer: Buffer): unknown => decodeWatch(answer).events.takeEvents();
    it.each<[string, (answer: Buffer) => unknown, (field: Buffer) => Buffer, number[], number[]]>([
      ['a range', decodeRange, (field) => field, [3, 4], [1, 2]],
      ['a header', decodeRange, within(1), [1, 3, 4], []],
      ['a key', decodeRange, range, [2, 3, 6], [1, 5]],
      ['a watch response', readEvents, (field) => field, [2, 3, 4, 5, 7], [1, 6, 11]],
      ['an event', readEvents, event, [1], [2]],
      ['a lease', decodeLease, (field) => field, [2, 3], []],
      ['a transaction', decodeTxn, (field) => field, [2], [1, 3]],
      ['an operation', decodeTxn, within(3), [], [3, 4]],
      ['a delete', decodeTxn, deletes, [2], []],
    ])(
      'of %s is malformed (regression: was read as a value)',
      async (_, read, inMessage, numbers, contents) => {
        // 0 is a number, and also the length of an empty content, so only the wire type is wrong.
        const fields = [
          ...numbers.map((field) => [field, 8 * field + 2] as const),
          ...contents.map((field) => [field, 8 * field] as const),
        ];
        for (const [field, tag] of fields) {
          const answer = inMessage(Buffer.from([tag, 0]));
          await expect((async () => read(answer))()).rejects.toThrow(
            `malformed message: wire type ${tag % 8} of field ${field}`,
          );
        }
      },
    );
  });

  it('a number of ten bytes is accepted', async () => {
    const minusOne = [...Array.from({ length: 9 }, () => 0xff), 1];
    expect((await decodeRange(Buffer.from([0x20, ...minusOne]))).count).toBe(2 ** 64);
    expect(decodeLease(Buffer.from([0x10, ...minusOne]))).toMatchObject({ lease: '-1' });
  });

  it('a negative TTL is negative (regression: 584 billion years)', () => {
    const minusOne = [...Array.from({ length: 9 }, () => 0xff), 1];
    expect(decodeLease(Buffer.from([0x18, ...minusOne]))).toMatchObject({ ttlSeconds: -1 });
  });

  it('fields of newer servers are skipped', async () => {
    const buffer = encode('RangeResponse', { count: 7 });
    const unknown = Buffer.from([
      0xa2, 0x06, 2, 1, 2, 0xa8, 0x06, 5, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa5, 0x06, 1, 2, 3, 4,
    ]);
    expect(await decodeRange(Buffer.concat([unknown, buffer, unknown]))).toMatchObject({ count: 7 });
  });

  it('an answer that is cut, or noise, fails and never hangs', async () => {
    const whole = encode('RangeResponse', {
      kvs: [{ key: Buffer.from('key'), value: Buffer.alloc(300) }],
      count: 1,
    });
    for (let length = 1; length < whole.length; length++) {
      if (length === whole.length - 2) continue; // a field ends at this length
      await expect(decodeRange(whole.subarray(0, length))).rejects.toThrow('malformed message');
    }
    await fc.assert(
      fc.asyncProperty(fc.uint8Array(), async (noise) => {
        const decodeEvents = (answer: Buffer): unknown => decodeWatch(answer).events.takeEvents();
        for (const read of [decodeRange, decodeEvents, decodeLease]) {
          try {
            await read(Buffer.from(noise));
          } catch (error) {
            expect(String(error)).toContain('malformed message');
          }
        }
      }),
    );
  });
});

describe('requests, against protobufjs', () => {
  it('have no unnecessary byte', () => {
    const [start, end] = ['a', 'b'];
    expect([...encodeRange({ start, end })]).toEqual([0x0a, 1, 0x61, 0x12, 1, 0x62]);
    expect([...encodeRange({ start, end, limit: 128 })]).toEqual([
      0x0a, 1, 0x61, 0x12, 1, 0x62, 0x18, 0x80, 1,
    ]);
    expect([...encodeLease('127')]).toEqual([0x08, 127]);
  });

  it('a range', () => {
    fc.assert(
      fc.property(
        key,
        key,
        revision,
        revision,
        revision,
        fc.boolean(),
        (start, end, limit, at, min, keysOnly) => {
          const range = { start: keyOfBytes(start), end: keyOfBytes(end) };
          const buffer = encodeRange({ ...range, limit, revision: at, minModRevision: min, keysOnly });
          expect(decode('RangeRequest', buffer)).toMatchObject({
            key: [...bytesOfKey(range.start)],
            range_end: [...bytesOfKey(range.end)],
            limit: String(limit),
            revision: String(at),
            min_mod_revision: String(min),
            keys_only: keysOnly,
            serializable: false,
            count_only: false,
          });
        },
      ),
    );
  });

  it('a watch, and a request for progress', () => {
    fc.assert(
      fc.property(key, key, revision, fc.boolean(), (start, end, at, fragment) => {
        const range = { start: keyOfBytes(start), end: keyOfBytes(end) };
        expect(decode('WatchRequest', encodeWatchCreate(range, at, fragment))).toMatchObject({
          create_request: {
            key: [...bytesOfKey(range.start)],
            range_end: [...bytesOfKey(range.end)],
            start_revision: String(at),
            progress_notify: true,
            prev_kv: false,
            fragment,
          },
        });
      }),
    );
    expect(decode('WatchRequest', encodeWatchProgress())).toMatchObject({ progress_request: {} });
  });
});
