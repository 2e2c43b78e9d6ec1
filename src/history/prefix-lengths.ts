import type { IPCache } from '../ipcache/ipcache.ts';
import { addressBits, type Family, maskWords } from '../net/address-words.ts';
import { copyRegister, type PrefixRegister } from '../net/prefix.ts';

/** Returns the lengths of all current and recorded prefixes, and the length of an address, longest first. */
export function lengthsOf(
  ipcache: IPCache,
  family: Family,
  isRecorded: (length: number) => boolean,
): readonly number[] {
  const { ipv4, ipv6 } = ipcache.status();
  const cidrs: Readonly<Record<number, number>> = (family === 4 ? ipv4 : ipv6).cidrs;
  const bits = addressBits(family);
  const all = Array.from({ length: bits + 1 }, (_, index) => bits - index);
  return all.filter((length) => length === bits || cidrs[length] !== undefined || isRecorded(length));
}

/** Yields the prefixes that contain an address, longest first. */
export function* covering(
  address: Readonly<PrefixRegister>,
  lengths: readonly number[],
): Generator<PrefixRegister, void, void> {
  for (const length of lengths) {
    const key = copyRegister(address);
    maskWords(key, length);
    key.length = length;
    key.form = 'cidr';
    yield key;
  }
}
