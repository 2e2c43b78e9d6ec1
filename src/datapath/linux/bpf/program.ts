import { type Bpf, refusal, setAddress, setName } from './bpf.ts';

/** Kinds of programs, as `linux/bpf.h` numbers them. */
export const PROGRAM_TYPES = { schedCls: 3, cgroupSockAddr: 18 } as const;

/** Where programs are attached, as `linux/bpf.h` numbers it. */
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

/** A place for programs. */
export type AttachType = keyof typeof ATTACH_TYPES;

/** A program as `scripts/build-bpf.ts` has compiled it: its maps are named, and get their numbers when it is loaded. */
export interface ProgramImage {
  readonly name: string;
  /** Instructions of 8 bytes, base64. */
  readonly code: string;
  /** Instructions that refer to a map, by its name. */
  readonly maps: readonly (readonly [instruction: number, map: string])[];
}

/** How a program is loaded. */
export interface ProgramOptions {
  readonly type: keyof typeof PROGRAM_TYPES;
  /** Where it will be attached: some kinds are checked for that. */
  readonly attachType?: AttachType | undefined;
  /** Descriptors by the names of the image. */
  readonly maps: ReadonlyMap<string, number>;
}

const INSTRUCTION_BYTES = 8;
/** In the upper half of the second byte of an instruction: its number is a map's descriptor. */
const BPF_PSEUDO_MAP_FD = 1;
/** No helper that asks for the GPL is called. */
const LICENSE = 'Apache-2.0';
const LOG_BYTES = 1 << 18;
const LOG_LINES = 24;

/** The instructions with the descriptors of their maps in place. */
export function linkImage(image: ProgramImage, maps: ReadonlyMap<string, number>): Uint8Array {
  const code = Uint8Array.from(Buffer.from(image.code, 'base64'));
  const view = new DataView(code.buffer);
  for (const [instruction, name] of image.maps) {
    const fd = maps.get(name);
    if (fd === undefined) throw new RangeError(`${image.name} needs the map ${name}`);
    const at = instruction * INSTRUCTION_BYTES;
    view.setUint8(at + 1, (view.getUint8(at + 1) & 0x0f) | (BPF_PSEUDO_MAP_FD << 4));
    view.setInt32(at + 4, fd, true);
  }
  return code;
}

/** Loads a program; gives its descriptor. What the verifier has to say of a refused one is in the error. */
export function loadProgram(
  bpf: Bpf,
  image: ProgramImage,
  { type, attachType, maps }: ProgramOptions,
): number {
  const code = linkImage(image, maps);
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
    setName(attributes, 48, image.name);
    attributes.setUint32(68, attachType === undefined ? 0 : ATTACH_TYPES[attachType], true);
    return bpf.try('PROG_LOAD');
  };
  const fd = load(0);
  if (fd >= 0) return fd;
  using log = bpf.alloc(LOG_BYTES);
  // A signal while it is verified is EAGAIN, and all is well the second time.
  const again = load(log.address);
  if (again >= 0) return again;
  throw refusal('PROG_LOAD', -again, `${image.name}${lastLines(log.bytes)}`);
}

/** The end of the log: it says what is wrong. */
function lastLines(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, bytes.indexOf(0)))
    .toString()
    .trim();
  return text === '' ? '' : `\n${text.split('\n').slice(-LOG_LINES).join('\n')}`;
}

/** What a program has made of a packet. */
export interface TestRun {
  readonly result: number;
  /** The context afterwards, `__sk_buff` for instance; good until the next call. */
  readonly context: DataView;
}

/** Bytes of `__sk_buff`. */
const CONTEXT_BYTES = 192;
const CONTEXT_AT = 16_384;

/** Runs a program once with a packet of at most 16 KB, as the kernel would. */
export function testRun(bpf: Bpf, fd: number, packet: Uint8Array): TestRun {
  const { address, bytes, view } = bpf.scratch;
  bytes.set(packet);
  const attributes = bpf.attributes();
  attributes.setUint32(0, fd, true);
  attributes.setUint32(8, packet.length, true);
  setAddress(attributes, 16, address);
  attributes.setUint32(44, CONTEXT_BYTES, true);
  setAddress(attributes, 56, address + CONTEXT_AT);
  bpf.call('PROG_TEST_RUN');
  return {
    result: attributes.getInt32(4, true),
    context: new DataView(view.buffer, view.byteOffset + CONTEXT_AT, CONTEXT_BYTES),
  };
}
