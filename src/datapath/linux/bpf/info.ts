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

/** What the kernel says of a link to a cgroup. */
export interface LinkInfo {
  readonly programID: number;
  /** The number of the folder; 0 when it has vanished, and the link leads nowhere. */
  readonly cgroup: number;
}

export function linkInfo(bpf: Bpf, fd: number): LinkInfo {
  const view = infoOf(bpf, fd);
  return { programID: view.getUint32(8, true), cgroup: Number(view.getBigUint64(16, true)) };
}
