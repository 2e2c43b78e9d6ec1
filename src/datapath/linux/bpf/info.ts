import { useDescriptor } from '../syscall/descriptor.ts';
import { type Bpf, setAddress } from './bpf.ts';

/** The map types created here. */
export const MAP_TYPES = { hash: 1, array: 2, lruHash: 9, lpmTrie: 11 } as const;

export type MapType = keyof typeof MAP_TYPES;

/** The properties of a map. Programs that read the map depend on them. */
export interface MapShape {
  readonly type: MapType;
  readonly keySize: number;
  readonly valueSize: number;
  readonly maxEntries: number;
}

/** The kernel's description of a map. */
export interface MapInfo extends Omit<MapShape, 'type'> {
  readonly id: number;
  readonly type: number;
  /** The first 15 characters. */
  readonly name: string;
}

/** Offset of the zero-terminated name in `bpf_map_info`. */
const MAP_NAME_AT = 24;
/** Offset of the zero-terminated name in `bpf_prog_info`. */
const PROGRAM_NAME_AT = 64;
const NAME_BYTES = 16;

/** Number of bytes read of `bpf_map_info`, `bpf_prog_info` and `bpf_link_info`. */
const INFO_BYTES = 80;

/** Returns the kernel's description of an object. The view is valid until the next call. */
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

function nameAt({ buffer, byteOffset }: DataView, at: number): string {
  const name = Buffer.from(buffer, byteOffset + at, NAME_BYTES);
  return name.subarray(0, name.indexOf(0)).toString();
}

/** Returns the description of the map of a descriptor. Throws `SyscallError` if it is not a BPF object. */
export function mapInfo(bpf: Bpf, fd: number): MapInfo {
  const view = infoOf(bpf, fd);
  return {
    type: view.getUint32(0, true),
    id: view.getUint32(4, true),
    keySize: view.getUint32(8, true),
    valueSize: view.getUint32(12, true),
    maxEntries: view.getUint32(16, true),
    name: nameAt(view, MAP_NAME_AT),
  };
}

export const CGROUP_LINK = 3;

/** The kernel's description of a link. All fields except type and program apply to cgroup links only. */
export interface LinkInfo {
  readonly type: number;
  readonly programID: number;
  /** The inode of the folder; 0 if it was removed and the link has no effect. */
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

/** Returns the first 15 characters of a program's name; undefined if it does not exist, or without `CAP_SYS_ADMIN`. */
export function programName(bpf: Bpf, id: number): string | undefined {
  bpf.attributes().setUint32(0, id, true);
  const fd = bpf.tryCall('PROG_GET_FD_BY_ID');
  return fd < 0 ? undefined : useDescriptor(fd, () => nameAt(infoOf(bpf, fd), PROGRAM_NAME_AT));
}
