import fc from 'fast-check';

/** Dotted decimal text of any IPv4 address; few distinct octets, so that prefixes overlap. */
export const ipv4Text: fc.Arbitrary<string> = fc
  .array(fc.oneof(fc.integer({ min: 0, max: 255 }), fc.constantFrom(0, 1, 10, 127, 128, 255)), {
    minLength: 4,
    maxLength: 4,
  })
  .map((octets) => octets.join('.'));

const group = fc.oneof(
  { weight: 3, arbitrary: fc.constant(0) },
  { weight: 1, arbitrary: fc.constantFrom(0xf, 0x10, 0xff, 0x100, 0xfff, 0x1000, 0xffff) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 0xffff }) },
);

/** Eight groups of an IPv6 address, zeros often. */
export const ipv6Groups: fc.Arbitrary<readonly number[]> = fc.array(group, { minLength: 8, maxLength: 8 });

/** A legal way to write the groups: upper case, padding, `::` for some run of zeros, a dotted tail. */
export const ipv6Text: fc.Arbitrary<string> = fc
  .tuple(ipv6Groups, fc.nat(), fc.boolean(), fc.boolean(), fc.boolean())
  .map(([groups, pick, upper, padded, dotted]) => {
    const words = groups.map((value) => value.toString(16).padStart(padded ? 4 : 1, '0'));
    const tail = dotted ? [dottedTail(groups)] : words.slice(6);
    const text = compress([...words.slice(0, 6), ...tail], pick);
    return upper ? text.toUpperCase() : text;
  });

/** Any legal address text. */
export const addressText: fc.Arbitrary<string> = fc.oneof(
  ipv4Text,
  ipv6Text,
  ipv4Text.map((text) => `::ffff:${text}`),
);

/** Any legal CIDR text, host bits and all. */
export const cidrText: fc.Arbitrary<string> = fc
  .tuple(addressText, fc.nat())
  .map(([text, n]) => `${text}/${n % (text.includes(':') ? 129 : 33)}`);

/** Text that is nearly an address: a legal one with a character inserted, removed or changed. */
export const almostAddressText: fc.Arbitrary<string> = fc
  .tuple(
    fc.oneof(addressText, cidrText),
    fc.array(
      fc.tuple(
        fc.nat(),
        fc.constantFrom('insert', 'remove', 'replace'),
        fc.constantFrom(...'0123459afgAF@`:./%- \u0130'),
      ),
      {
        maxLength: 3,
      },
    ),
  )
  .map(([text, edits]) =>
    edits.reduce((now, [at, edit, character]) => {
      const index = at % (now.length + 1);
      const rest = now.slice(edit === 'insert' ? index : index + 1);
      return now.slice(0, index) + (edit === 'remove' ? '' : character) + rest;
    }, text),
  );

function dottedTail(groups: readonly number[]): string {
  return groups
    .slice(6)
    .flatMap((value) => [value >> 8, value & 255])
    .join('.');
}

/** Replaces the run of zeros at `pick` (if there is one) by `::`. */
function compress(words: readonly string[], pick: number): string {
  const isZero = (word: string | undefined): boolean => word !== undefined && /^0+$/.test(word);
  const start = pick % (words.length + 1);
  let end = start;
  while (isZero(words[end])) end++;
  if (end === start) return words.join(':');
  return `${words.slice(0, start).join(':')}::${words.slice(end).join(':')}`;
}
