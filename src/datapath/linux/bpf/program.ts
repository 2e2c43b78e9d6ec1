import { constants } from 'node:os';
import { type Bpf, refusal, setAddress, setName } from './bpf.ts';

/** Program types, numbered as in `linux/bpf.h`. */
export const PROGRAM_TYPES = { schedCls: 3, cgroupSockAddr: 18 } as const;

/** Attach types, numbered as in `linux/bpf.h`. */
export const ATTACH_TYPES = {
  inet4Connect: 10,
  inet6Connect: 11,
  udp4Sendmsg: 14,
  udp6Sendmsg: 15,
  udp4Recvmsg: 19,
  udp6Recvmsg: 20,
  inet4Getpeername: 29,
  inet6Getpeername: 30,
  tcxIngress: 46,
  tcxEgress: 47,
} as const;

/** The kind of hook of a program. */
export type AttachType = keyof typeof ATTACH_TYPES;

/**
 * A program compiled by `scripts/build-bpf.ts`. It refers to maps by name; descriptors are inserted when it is loaded.
 */
export interface ProgramImage {
  readonly name: string;
  /** Instructions of 8 bytes, base64. */
  readonly code: string;
  /** Indexes of the instructions referring to a map, with the map's name. */
  readonly maps: readonly (readonly [instruction: number, map: string])[];
}

export interface ProgramOptions {
  readonly type: keyof typeof PROGRAM_TYPES;
  /** The attach type. For some program types, the kernel checks the program against it. */
  readonly attachType?: AttachType | undefined;
  /** Descriptors by the names of the image. */
  readonly maps: ReadonlyMap<string, number>;
}

const INSTRUCTION_BYTES = 8;
/** Flag in the upper half of the second byte of an instruction: its immediate value is a map's descriptor. */
const BPF_PSEUDO_MAP_FD = 1;
/** The programs call no helper that requires the GPL. */
const LICENSE = 'Apache-2.0';
const LOG_BYTES = 1 << 18;
const LOG_LINES = 24;
/** Number of further attempts if signals interrupt the verifier (EAGAIN). A busy process receives several in a row. */
const MAX_INTERRUPTED = 9;

/** Returns the instructions with the descriptors of their maps inserted. */
export function linkImage(image: ProgramImage, maps: ReadonlyMap<string, number>): Uint8Array {
  const code = Uint8Array.from(Buffer.from(image.code, 'base64'));
  const view = new DataView(code.buffer);
  for (const [instruction, name] of image.maps) {
    const fd = maps.get(name);
    if (fd === undefined) throw new RangeError(`program ${image.name} requires the map ${name}`);
    const at = instruction * INSTRUCTION_BYTES;
    view.setUint8(at + 1, (view.getUint8(at + 1) & 0x0f) | (BPF_PSEUDO_MAP_FD << 4));
    view.setInt32(at + 4, fd, true);
  }
  return code;
}

/** Number of `bpf_set_retval`. Older kernels name it by number in their log. */
const SET_RETVAL = 187;
const CALL = 0x85;
const MOVE = 0xb7;

/** Returns the code with each call of a helper replaced by one that returns 0 (`r0 = 0`). */
export function withoutHelper(code: Uint8Array, helper: number): Uint8Array {
  const patched = code.slice();
  const view = new DataView(patched.buffer);
  for (let at = 0; at < patched.length; at += INSTRUCTION_BYTES) {
    if (view.getUint8(at) !== CALL || view.getUint8(at + 1) !== 0 || view.getInt32(at + 4, true) !== helper)
      continue;
    view.setUint8(at, MOVE);
    view.setInt32(at + 4, 0, true);
  }
  return patched;
}

/**
 * Loads a program and returns its descriptor. Before Linux 5.18, a program cannot set the error code of a refused
 * connection (`bpf_set_retval`), so it is loaded without that call. Throws `SyscallError` with the end of the
 * verifier's log.
 */
export function loadProgram(bpf: Bpf, image: ProgramImage, options: ProgramOptions): number {
  const code = linkImage(image, options.maps);
  const loaded = tryLoad(bpf, image.name, code, options);
  if (typeof loaded === 'number') return loaded;
  const isMissing = loaded.log.includes(`#${SET_RETVAL}`);
  const older = isMissing ? tryLoad(bpf, image.name, withoutHelper(code, SET_RETVAL), options) : loaded;
  if (typeof older === 'number') return older;
  throw refusal('PROG_LOAD', older.errno, `${image.name}${lastLines(older.log)}`);
}

/** Returns a descriptor, or the reason why the program was refused. */
function tryLoad(
  bpf: Bpf,
  name: string,
  code: Uint8Array,
  { type, attachType }: ProgramOptions,
): number | { readonly errno: number; readonly log: string } {
  using memory = bpf.alloc(code.length + LICENSE.length + 1);
  memory.bytes.set(code);
  memory.bytes.set(Buffer.from(LICENSE), code.length);
  const load = (logAddress: number): number => {
    const attributes = bpf.attributes();
    attributes.setUint32(0, PROGRAM_TYPES[type], true);
    attributes.setUint32(4, code.length / INSTRUCTION_BYTES, true);
    setAddress(attributes, 8, memory.address);
    setAddress(attributes, 16, memory.address + code.length);
    if (logAddress !== 0) {
      attributes.setUint32(24, 1, true);
      attributes.setUint32(28, LOG_BYTES, true);
      setAddress(attributes, 32, logAddress);
    }
    setName(attributes, 48, name);
    attributes.setUint32(68, attachType === undefined ? 0 : ATTACH_TYPES[attachType], true);
    let result = bpf.tryCall('PROG_LOAD');
    for (let left = MAX_INTERRUPTED; result === -constants.errno.EAGAIN && left > 0; left--)
      result = bpf.tryCall('PROG_LOAD');
    return result;
  };
  const fd = load(0);
  if (fd >= 0) return fd;
  using log = bpf.alloc(LOG_BYTES);
  const again = load(log.address);
  if (again >= 0) return again;
  return {
    errno: -again,
    log: Buffer.from(log.bytes.subarray(0, log.bytes.indexOf(0)))
      .toString()
      .trim(),
  };
}

/** Returns the end of the log, which contains the error. */
function lastLines(log: string): string {
  return log === '' ? '' : `\n${log.split('\n').slice(-LOG_LINES).join('\n')}`;
}
