import { expect, it } from 'vitest';
import { parseTapeLine } from '../../src/tape/tape-line.ts';

it.each([
  ['a list that is too deep to be shown', `${'['.repeat(200_000)}${']'.repeat(200_000)}`],
  ['an object with a member toString', '{"toString":1}'],
  ['a number', '7'],
])('the sum of a digest that is %s is an error that names the field', (_, sum) => {
  const text = `{"seq":1,"ms":0,"ev":"digest","sums":{"kvstore a":${sum}}}`;
  expect(() => parseTapeLine(text, () => 'a:1')).toThrow(
    /^a:1: sums: must be object of texts, but is \{"kvstore a":/,
  );
});
