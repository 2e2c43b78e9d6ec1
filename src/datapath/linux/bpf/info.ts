import { closeSync } from 'node:fs';
import { type Bpf, setAddress } from './bpf.ts';

/** Kinds of maps that are made here. */
export const MAP_TYPES = { hash: 1, array: 2, lruHash: 9, lpmTrie: 11 } as const;

/** A kind of map. */
export type MapType = keyof typeof MAP_TYPES;

/** What a map is: what two maps have to share to be read by the same program. */
export interface MapShape {
  readonly type: MapType;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
}

/** What the kernel says of a map. */
export interface MapInfo {
  readonly id: number;
  readonly type: number;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
  readonly flags: number;
}

/** Where `bpf_prog_info` has the name, ended by a zero. */
const PROGRAM_NAME_AT = 64;
const NAME_BYTES = 16;

/** Bytes of `bpf_map_info`, `bpf_prog_info` and `bpf_link_info` that are read. */
const INFO_BYTES = 80;

/** What the kernel says of an object; the view is good until the next call. */
function infoOf(bpf: Bpf, fd: number): DataView {
  const { scratch } = bpf;
  scratch.bytes.fill(0, 0, INFO_BYTES);
  const attributes = bpf.attributes();
  attributes.setUint32(0, fd, true);
  attributes.setUint32(4, INFO_BYTES, true);
  setAddress(attributes, 8, scratch.address);
  bpf.call('OBJ_GET_INFO_BY_FD');
  return scratch.view;
}

/** What kind of map a descriptor is of. Throws `SyscallError` when it is of no BPF object. */
export function mapInfo(bpf: Bpf, fd: number): MapInfo {
  const view = infoOf(bpf, fd);
  return {
    type: view.getUint32(0, true),
    id: view.getUint32(4, true),
    keySize: view.getUint32(8, true),
    valueSize: view.getUint32(12, true),
    maxEntries: view.getUint32(16, true),
    flags: view.getUint32(20, true),
  };
}

/** The type of a link to a cgroup. */
export const CGROUP_LINK = 3;

/** What the kernel says of a link; all but its type and its program is of one to a cgroup. */
export interface LinkInfo {
  readonly type: number;
  readonly programID: number;
  /** The number of the folder; 0 when it has vanished, and the link leads nowhere. */
  readonly cgroup: number;
  /** One of `ATTACH_TYPES`. */
  readonly attachType: number;
}

export function linkInfo(bpf: Bpf, fd: number): LinkInfo {
  const view = infoOf(bpf, fd);
  return {
    type: view.getUint32(0, true),
    programID: view.getUint32(8, true),
    cgroup: Number(view.getBigUint64(16, true)),
    attachType: view.getUint32(24, true),
  };
}

/** The name of a program, its first 15 characters; undefined where that may not be asked (`CAP_SYS_ADMIN`) or it is gone. */
export function programName(bpf: Bpf, id: number): string | undefined {
  bpf.attributes().setUint32(0, id, true);
  const fd = bpf.try('PROG_GET_FD_BY_ID');
  if (fd < 0) return undefined;
  try {
    const { byteOffset, buffer } = infoOf(bpf, fd);
    const name = Buffer.from(buffer, byteOffset + PROGRAM_NAME_AT, NAME_BYTES);
    return name.subarray(0, name.indexOf(0)).toString();
  } finally {
    closeSync(fd);
  }
}
