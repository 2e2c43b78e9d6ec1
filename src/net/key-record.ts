import { addressBits } from './address-words.ts';
import { type ByteBuffer, DamagedError } from './byte-buffer.ts';
import { MAX_CLUSTER_ID, type PrefixRegister } from './prefix.ts';

/*
 * A key in a binary record, after a byte of flags. The record may use the other bits of this byte:
 *
 *     flags │ prefix length if CIDR │ cluster id if not 0 │ 1 or 4 words of address
 */

const IS_CIDR = 1;
const IS_IPV6 = 2;
const HAS_CLUSTER_ID = 128;

/** Writes a key. `flags` are those of the record, without those of the key. */
export function writeKey(out: ByteBuffer, key: Readonly<PrefixRegister>, flags: number): void {
  const isCIDR = key.form === 'cidr';
  const isIPv6 = key.family === 6;
  out.writeByte(
    flags | (isCIDR ? IS_CIDR : 0) | (isIPv6 ? IS_IPV6 : 0) | (key.clusterID === 0 ? 0 : HAS_CLUSTER_ID),
  );
  if (isCIDR) out.writeByte(key.length);
  if (key.clusterID !== 0) out.writeNumber(key.clusterID);
  out.writeWord(key.w0);
  if (!isIPv6) return;
  out.writeWord(key.w1);
  out.writeWord(key.w2);
  out.writeWord(key.w3);
}

/** Reads a key into `out`. Returns the flags. Throws {@link DamagedError} if the key is invalid. */
export function readKey(from: ByteBuffer, out: PrefixRegister): number {
  const flags = from.readByte();
  out.family = flags & IS_IPV6 ? 6 : 4;
  out.form = flags & IS_CIDR ? 'cidr' : 'endpoint';
  out.length = flags & IS_CIDR ? from.readByte() : addressBits(out.family);
  if (out.length > addressBits(out.family)) throw new DamagedError(`a prefix has length ${out.length}`);
  out.clusterID = flags & HAS_CLUSTER_ID ? from.readNumber() : 0;
  if (out.clusterID > MAX_CLUSTER_ID) throw new DamagedError(`an address space has id ${out.clusterID}`);
  out.w0 = from.readWord();
  out.w1 = flags & IS_IPV6 ? from.readWord() : 0;
  out.w2 = flags & IS_IPV6 ? from.readWord() : 0;
  out.w3 = flags & IS_IPV6 ? from.readWord() : 0;
  return flags;
}
