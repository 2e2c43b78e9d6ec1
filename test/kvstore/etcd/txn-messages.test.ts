import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, it } from 'vitest';
import { bytesOfKey, keyOfBytes } from '../../../src/kvstore/codec/bytes.ts';
import { isOneKey, keyRange } from '../../../src/kvstore/codec/key-range.ts';
import { bytesField, message } from '../../../src/kvstore/codec/proto-writer.ts';
import { decodeTxn, encodeTxn } from '../../../src/kvstore/etcd/txn-messages.ts';
import type { Compare, WriteOperation } from '../../../src/kvstore/session/transport.ts';

// The definitions of etcd itself, read by an independent implementation.
const proto = join(dirname(createRequire(import.meta.url).resolve('etcd3')), '../proto/rpc.proto');
const root = new protobuf.Root().loadSync(proto, { keepCase: true });
const type = (name: string): protobuf.Type => root.lookupType(`etcdserverpb.${name}`);

const key = fc.oneof(fc.string({ unit: 'binary', maxLength: 20 }), fc.uint8Array().map(keyOfBytes));
/** Lengths around those at which a length needs another byte. */
const value = fc
  .oneof(fc.nat(40), fc.constantFrom(90, 100, 110, 127, 128, 129, 300))
  .map((length) => new Uint8Array(length).fill(length));
const revision = fc.oneof(fc.nat(300), fc.maxSafeNat());
const lease = fc.oneof(fc.constant('0'), fc.bigInt({ min: -(1n << 63n), max: (1n << 63n) - 1n }).map(String));
const put = fc.record({ op: fc.constant('put' as const), key, value, lease });
const range = fc.oneof(fc.record({ start: key, end: key }), key.map(keyRange));
const write: fc.Arbitrary<WriteOperation> = fc.oneof(
  put,
  fc.record({ op: fc.constant('delete' as const), range }),
);
const compare: fc.Arbitrary<Compare> = fc.oneof(
  fc.record({
    key,
    equals: revision,
    target: fc.constantFrom('create-revision' as const, 'mod-revision' as const),
  }),
  fc.record({ key, target: fc.constant('value' as const), equals: value }),
  fc.record({ key, target: fc.constant('lease' as const), equals: lease }),
);

function asProto(one: WriteOperation): object {
  if (one.op === 'delete') {
    const { start, end } = one.range;
    const sentEnd = isOneKey(one.range) ? '' : end;
    return { request_delete_range: { key: [...bytesOfKey(start)], range_end: [...bytesOfKey(sentEnd)] } };
  }
  return {
    request_put: {
      key: [...bytesOfKey(one.key)],
      value: [...one.value],
      ...(one.lease === '0' ? {} : { lease: one.lease }),
    },
  };
}

function compareAsProto(one: Compare): object {
  const of = { key: [...bytesOfKey(one.key)], result: 0 };
  switch (one.target) {
    case 'create-revision':
      return { ...of, target: 1, create_revision: String(one.equals) };
    case 'mod-revision':
      return { ...of, target: 2, mod_revision: String(one.equals) };
    case 'value':
      return { ...of, target: 3, value: [...one.equals] };
    case 'lease':
      return { ...of, target: 4, lease: one.equals };
  }
}

describe('a transaction, against protobufjs', () => {
  it('is sent with its comparisons and both branches', () => {
    const writes = fc.array(write, { maxLength: 5 });
    fc.assert(
      fc.property(fc.array(compare, { maxLength: 4 }), writes, writes, (compares, then, otherwise) => {
        const encoded = encodeTxn({ compare: compares, writes: then, otherwise });
        const decoded = type('TxnRequest').toObject(type('TxnRequest').decode(encoded), {
          longs: String,
          bytes: Array,
          defaults: true,
        });
        // Without operations, etcd would not ask the quorum.
        const [first] = then.length + otherwise.length === 0 ? compares : [];
        const read = first === undefined ? [] : [{ request_range: { key: [...bytesOfKey(first.key)] } }];
        expect(decoded).toMatchObject({
          compare: compares.map(compareAsProto),
          success: [...read, ...then.map(asProto)],
          failure: otherwise.map(asProto),
        });
        const { success = [], failure = [] } = decoded as Record<'success' | 'failure', unknown[]>;
        expect([success.length, failure.length]).toEqual([read.length + then.length, otherwise.length]);
      }),
    );
  });

  it('has the lease of each put, also if others follow (the last one is remembered)', () => {
    const puts = ['7', '7', '0', '-1', '7'].map(
      (of, i): WriteOperation => ({ op: 'put', key: `${i}`, value: new Uint8Array(1), lease: of }),
    );
    const { success } = type('TxnRequest').toObject(
      type('TxnRequest').decode(encodeTxn({ compare: [], writes: puts })),
      { longs: String, defaults: true },
    );
    const leases = (success as { request_put: { lease: string } }[]).map(
      ({ request_put: { lease: of } }) => of,
    );
    expect(leases).toEqual(['7', '7', '0', '-1', '7']);
  });

  it('sends the key of a single delete once, without an end', () => {
    const deleted = encodeTxn({ compare: [], writes: [{ op: 'delete', range: keyRange('a/b') }] });
    const { success } = type('TxnRequest').toObject(type('TxnRequest').decode(deleted), { bytes: String });
    expect(success).toEqual([{ request_delete_range: { key: Buffer.from('a/b').toString('base64') } }]);
  });

  it.each([1, 128, 129, 384])('sends %i writes in their order, nested if they are more than 128', (count) => {
    const writes = Array.from({ length: count }, (_, i): WriteOperation => {
      const range = { start: `${i}`, end: '' };
      return i % 3 === 0
        ? { op: 'delete', range }
        : { op: 'put', key: `${i}`, value: new Uint8Array(i), lease: '7' };
    });
    const encoded = encodeTxn({ compare: [], writes, otherwise: writes });
    const decoded = type('TxnRequest').toObject(type('TxnRequest').decode(encoded), {
      longs: String,
      bytes: Array,
      defaults: true,
    }) as Record<'success' | 'failure', { request_txn?: { success: unknown[] } }[]>;
    for (const branch of [decoded.success, decoded.failure]) {
      const sent = branch.map(({ request_txn }) => request_txn?.success);
      expect(sent.every((nested) => (nested !== undefined) === count > 128)).toBe(true);
      expect(Math.max(branch.length, ...sent.map((nested) => nested?.length ?? 0))).toBeLessThanOrEqual(
        count > 128 ? 64 : 128,
      );
      expect(branch.flatMap((operation) => operation.request_txn?.success ?? [operation])).toMatchObject(
        writes.map(asProto),
      );
    }
  });

  it.each([16_370, 16_383, 16_384, 2 ** 21])(
    'has a value of %i bytes, whose length takes several',
    (length) => {
      const large = new Uint8Array(length).fill(7);
      const encoded = encodeTxn({ compare: [], writes: [{ op: 'put', key: 'k', value: large, lease: '1' }] });
      const decoded = type('TxnRequest').toObject(type('TxnRequest').decode(encoded), { bytes: Buffer });
      const [{ request_put: written }] = decoded['success'] as [{ request_put: { value: Buffer } }];
      expect(Buffer.compare(written.value, large)).toBe(0);
    },
  );

  it('is answered with the revision, its branch and the number of deleted keys', () => {
    const deleted = fc.array(fc.option(fc.nat(300_000)), { maxLength: 5 });
    fc.assert(
      fc.property(revision, fc.boolean(), deleted, (at, succeeded, counts) => {
        const header = { cluster_id: 99, member_id: 7, revision: at, raft_term: 3 };
        const responses = counts.map((count) =>
          count === null
            ? { response_put: { header } }
            : { response_delete_range: { header, deleted: count, prev_kvs: [{ version: 5 }] } },
        );
        const fields = { header, succeeded, responses };
        const answer = Buffer.from(
          type('TxnResponse').encode(type('TxnResponse').fromObject(fields)).finish(),
        );
        expect(decodeTxn(answer)).toEqual({
          header: { clusterID: '99', revision: at, raftTerm: 3 },
          succeeded,
          deleted: counts.reduce<number>((sum, count) => sum + (count ?? 0), 0),
        });
      }),
    );
  });

  it('is answered with the number of keys that its nested transactions have deleted', () => {
    const nested = (counts: readonly number[]): object => ({
      response_txn: {
        succeeded: true,
        responses: counts.map((deleted) => ({ response_delete_range: { deleted } })),
      },
    });
    const responses = [nested([1, 0, 2]), { response_put: {} }, nested([]), nested([300])];
    const fields = type('TxnResponse').fromObject({ header: { revision: 5 }, succeeded: true, responses });
    const answer = Buffer.from(type('TxnResponse').encode(fields).finish());
    expect(decodeTxn(answer).deleted).toBe(303);
  });

  it('is rejected if its answer, or a part of it, has many fields (regression: 64 MiB of them in one turn)', () => {
    const junk = Buffer.alloc(2 * 1025, Buffer.from([0x78, 1]));
    const response = message(bytesField(3, junk));
    for (const answer of [junk, response, message(bytesField(3, response))])
      expect(() => decodeTxn(answer)).toThrow('more than 1024 fields');
  });
});
