import { expect, it } from 'vitest';
import {
  boolField,
  bytesField,
  message,
  numberField,
  ProtoWriter,
} from '../../../src/kvstore/codec/proto-writer.ts';

/** Lengths around those that need one more byte. */
const LENGTHS = [0, 1, 124, 125, 126, 127, 128, 16_380, 16_381, 16_383, 16_384, 100_000];

it('writes embedded messages of any length as the functions for short messages do', () => {
  for (const length of LENGTHS) {
    const text = 'é'.repeat(length / 2) + 'a'.repeat(length % 2);
    const writer = new ProtoWriter();
    writer.varint(1, 2 ** 40);
    const writeInner = (to: ProtoWriter, value: string): void => to.text(4, value);
    const writeOuter = (to: ProtoWriter, value: string): void => {
      to.message(3, writeInner, value);
      to.varint(5, true);
    };
    writer.message(2000, writeOuter, text);
    writer.text(6, 'end');
    const inner = message(bytesField(3, bytesField(4, Buffer.from(text)) as Uint8Array), boolField(5, true));
    const expected = message(
      numberField(1, 2 ** 40),
      bytesField(2000, inner),
      bytesField(6, Buffer.from('end')),
    );
    expect(Buffer.from(writer.written).equals(expected), `${length} bytes`).toBe(true);
  }
});

it('omits undefined fields only', () => {
  const writer = new ProtoWriter();
  writer.varint(1, undefined);
  writer.text(2, undefined);
  writer.varint(3, 0);
  writer.text(4, '');
  writer.message(5, () => {}, undefined);
  expect([...writer.written]).toEqual([3 * 8, 0, 4 * 8 + 2, 0, 5 * 8 + 2, 0]);
});

it.each([-1, 1.5, Number.POSITIVE_INFINITY])(
  'rejects the number %s (regression: -1 was written as an incomplete varint, and the loop for Infinity did not end)',
  (number) => {
    expect(() => new ProtoWriter().varint(2, number)).toThrow(
      `field 2 of the message must be an integer from 0 to 2⁵³ - 1, not ${number}`,
    );
  },
);
