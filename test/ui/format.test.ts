import { describe, expect, it } from 'vitest';
import { omittedRowsText } from '../../ui/format.ts';

const MAX_ROWS = 1_000_000;

describe('the note below the list of prefixes', () => {
  it('is present if the list is cut at its maximum length, in the order without a limit, too', () => {
    const note = 'The first 1,000,000 in this order of 1,200,000. Filter the list to see the others.';
    expect(omittedRowsText({ count: 1_200_000, isTruncated: false }, MAX_ROWS)).toBe(note);
    expect(omittedRowsText({ count: MAX_ROWS, isTruncated: false }, MAX_ROWS, 1_200_000)).toBe(note);
  });

  it('names the order with the greater limit', () => {
    expect(omittedRowsText({ count: 10_000, isTruncated: true }, MAX_ROWS, 30_000)).toBe(
      'The first 10,000 in this order of 30,000. Filter the list to see the others, or sort it by prefix, which shows up to 1,000,000.',
    );
  });

  it('has no total if it is not known', () => {
    expect(omittedRowsText({ count: 10_000, isTruncated: true }, MAX_ROWS)).toMatch(
      /^The first 10,000 in this order\. Filter/,
    );
  });

  it('is absent if the list has all prefixes', () => {
    expect(omittedRowsText({ count: MAX_ROWS, isTruncated: false }, MAX_ROWS, MAX_ROWS)).toBeUndefined();
  });
});
