import { formatLabels, type Labels, parseLabels } from '../../model/labels.ts';
import { isNumericIdentity, type NumericIdentity } from '../../model/numeric-identity.ts';
import { type Decoded, decodeWith, rejectInput } from '../../net/fields.ts';
import { bytesOfText } from './bytes.ts';
import { type EncodedValue, readText, VALUE_LIMITS, type ValueLimits } from './value.ts';

/** A master key: the labels of a numeric identity. */
export interface IdentityLabels {
  readonly id: NumericIdentity;
  readonly labels: Labels;
}

/** Returns the number of a decimal text; `undefined` if it has a sign, a leading zero, or is out of range. */
export function parseIdentityText(text: string): NumericIdentity | undefined {
  const value = /^(0|[1-9]\d{0,9})$/.test(text) ? Number(text) : undefined;
  return isNumericIdentity(value) ? value : undefined;
}

function countOf(text: string, char: string): number {
  let count = 0;
  for (let at = text.indexOf(char); at >= 0; at = text.indexOf(char, at + 1)) count++;
  return count;
}

/**
 * Decodes `…/identities/v1/…/id/<name>`. Reasons of rejection: `invalid-key`, `too-large`, `too-many`, `invalid-utf8`,
 * `invalid-labels`.
 */
export function decodeIdentity(
  name: string,
  value: EncodedValue,
  at: string,
  limits: ValueLimits = VALUE_LIMITS,
): Decoded<IdentityLabels> {
  return decodeWith(at, () => {
    const id =
      parseIdentityText(name) ?? rejectInput('invalid-key', 'key', name, 'is not an identity number');
    const text = readText(value, limits);
    const count = countOf(text, ';'); // one after each label
    if (count > limits.labels)
      rejectInput('too-many', 'value', `${count} labels`, `must have at most ${limits.labels}`);
    const labels = parseLabels(text) ?? rejectInput('invalid-labels', 'value', text, 'is not a label string');
    return { id, labels };
  });
}

/** Returns the value of a master key. */
export function encodeIdentity(labels: Labels): Uint8Array {
  return bytesOfText(formatLabels(labels));
}

/**
 * Decodes the value of a slave key, which is the number of the identity. Reasons: `too-large`, `invalid-utf8`,
 * `out-of-range`.
 */
export function decodeIdentityNumber(value: Uint8Array, at: string): Decoded<NumericIdentity> {
  return decodeWith(at, () => {
    const text = readText(value, VALUE_LIMITS);
    return parseIdentityText(text) ?? rejectInput('out-of-range', 'value', text, 'is not an identity number');
  });
}

/** Returns the value of a slave key. */
export function encodeIdentityNumber(id: number): Uint8Array {
  return bytesOfText(String(id));
}
