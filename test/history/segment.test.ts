import fc from 'fast-check';
import { expect, it } from 'vitest';
import { KIND, Segment } from '../../src/history/segment.ts';

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
