import fc from 'fast-check';
import { expect, it } from 'vitest';
import { KIND } from '../../src/history/record-reader.ts';
import { Segment } from '../../src/history/segment.ts';
import type { CompleteClaim } from '../../src/ipcache/row-reader.ts';
import type { NumericIdentity } from '../../src/model/numeric-identity.ts';
import { ByteBuffer } from '../../src/net/byte-buffer.ts';
import { copyRegister, parseKey, prefixRegister } from '../../src/net/prefix.ts';
import { haveOneClass } from '../base/support/hidden-class.ts';

/** A text of a record; records of up to 254 bytes have a shorter head than longer ones. */
const text = fc.oneof(
  fc.constant(undefined),
  fc.oneof(fc.nat(20), fc.integer({ min: 200, max: 300 }), fc.nat(2000)).map((length) => 'ä'.repeat(length)),
);
const record = fc.record({
  kind: fc.constantFrom(KIND.service, KIND.node, KIND.batch, KIND.mark),
  key: fc.constantFrom('shop/checkout', 'own/node-1', 'x'.repeat(300)),
  writer: fc.constantFrom('own', 'baltic'),
  before: text,
  after: text,
});
const OPTIONS = { number: 1, firstSequence: 100, startMs: 1000, maxBytes: 1 << 20 };

it('a segment reads each record back, whatever its length, also if only its bytes are stored', () => {
  fc.assert(
    fc.property(fc.array(record, { maxLength: 140 }), (records) => {
      const written = new Segment(OPTIONS);
      for (const [at, { kind, key, ...change }] of records.entries())
        written.addText(1000 + at, kind, key, change);
      const reopened = new Segment({ ...OPTIONS, isStored: true, content: written.bytesFrom(0).slice() });
      for (const _ of reopened.reindex());
      for (const segment of [written, reopened]) {
        const heads = [...segment.newestHeads()].reverse();
        expect(
          heads.map(({ kind, ms, sequence, position }) => [kind, ms, sequence, segment.textAt(position)]),
        ).toEqual(records.map(({ kind, ...texts }, at) => [kind, 1000 + at, 100 + at, texts]));
        for (const { position, sequence } of heads)
          expect([segment.positionOf(sequence), segment.sequenceOf(position)]).toEqual([position, sequence]);
      }
    }),
    { numRuns: 60 },
  );
});

it('the heads of records have one hidden class (regression: 716 instead of 86 ns for each)', () => {
  const segment = new Segment(OPTIONS);
  for (let i = 0; i < 1000; i++)
    segment.addText(1000, KIND.mark, 'lost', { writer: '', before: undefined, after: undefined });
  const heads = [...segment.newestHeads()];
  for (const head of heads) expect(haveOneClass(head, heads[0])).toBe(true);
});

const name = fc.constantFrom(
  '',
  'a',
  'shop',
  'checkout-7d4b9c8f6d-x2x9p',
  '-',
  'ö-ä',
  '\ufeff-\ufeff',
  '\ud800',
  `${'y'.repeat(230)}-z`,
);
const pod = fc.option(
  fc.record({
    namespace: name,
    podName: name,
    serviceAccount: fc.constantFrom('', 'default', 'z'.repeat(90)),
    namedPorts: fc.constantFrom(undefined, new Map([['http', { port: 80, protocol: 6 }]])),
  }),
  { nil: undefined },
);
const held = fc.option(
  fc.record({
    identity: fc.constantFrom(1, 300, 16_777_217) as fc.Arbitrary<NumericIdentity>,
    hostIP: fc.constantFrom(undefined, '192.168.0.1', '192.168.0.2', 'fd00::1'),
    encryptKey: fc.constantFrom(0, 3),
    k8s: pod,
  }),
  { nil: undefined },
);
const WRITERS = [
  { source: 'kvstore', owner: '' },
  { source: 'clustermesh', owner: 'baltic' },
] as const;
const claimChange = fc.record({
  key: fc.constantFrom('10.0.0.1', '10.0.0.1/32', '10.0.0.0/24', '10.0.0.1@5', 'fd00::1', 'fd00::/64'),
  by: fc.constantFrom(...WRITERS),
  after: held,
  /** Changes of this writer before this one were not recorded. */
  lost: fc.constantFrom(false, false, false, true),
});

/** A claim as it is read back: without empty metadata. Each lone surrogate is U+FFFD. */
function readBack(claim: CompleteClaim | undefined): unknown {
  if (claim?.k8s === undefined) return claim;
  const text = (value: string): string => value.replace('\ud800', '\ufffd');
  const { namespace, podName, serviceAccount, namedPorts } = claim.k8s;
  const account = serviceAccount === '' ? {} : { serviceAccount };
  const ports = namedPorts === undefined ? {} : { namedPorts };
  return { ...claim, k8s: { namespace: text(namespace), podName: text(podName), ...account, ...ports } };
}

it('a segment reads each claim back, whatever claim was before it', () => {
  fc.assert(
    fc.property(
      fc.array(claimChange, { maxLength: 140 }),
      fc.constantFrom(16 << 10, 1 << 20),
      (changes, maxBytes) => {
        const written = new Segment({ ...OPTIONS, maxBytes });
        const now = new Map<string, CompleteClaim | undefined>();
        const expected = changes.map(({ key, by, after, lost }, at) => {
          const register = prefixRegister();
          parseKey(key, register);
          const place = `${key} ${by.source}`;
          if (lost) {
            written.unlink();
            now.clear();
          }
          const change = {
            writer: by,
            before: now.get(place),
            after: after && { ...after, ...by },
            effect: at % 4,
          };
          now.set(place, change.after);
          written.addClaim(1000 + at, register, change);
          return { key: register, ...change, before: readBack(change.before), after: readBack(change.after) };
        });
        const reopened = new Segment({ ...OPTIONS, isStored: true, content: written.bytesFrom(0).slice() });
        for (const _ of reopened.reindex());
        expect(reopened.index().names).toEqual(written.index().names);
        written.seal();
        for (const segment of [written, reopened]) {
          const read = Array.from(segment.newestHeads(), ({ position }) => {
            const key = prefixRegister();
            const change = segment.claimAt(position, key);
            return { key: copyRegister(key), ...change };
          });
          expect(read.reverse()).toEqual(expected);
        }
      },
    ),
    { numRuns: 100 },
  );
});

it('a buffer that is trimmed keeps no memory of the longest text that it has loaded', () => {
  const buffer = new ByteBuffer(new Uint8Array(16), 1 << 20);
  const length = buffer.load('x'.repeat(1_000_000));
  buffer.writeLoaded(0, length);
  buffer.trim();
  expect([buffer.capacity, buffer.loaded.length]).toEqual([buffer.length, 0]);
  expect(buffer.load('shop')).toBe(4);
});
