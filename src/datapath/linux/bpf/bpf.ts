import type { Kernel } from '../syscall/kernel.ts';
import type { Arena } from '../syscall/native.ts';
import { SyscallError } from '../syscall/syscall-error.ts';

/** Commands of `bpf()`, numbered as in `linux/bpf.h`. */
const COMMANDS = {
  MAP_CREATE: 0,
  MAP_LOOKUP_ELEM: 1,
  PROG_LOAD: 5,
  OBJ_PIN: 6,
  OBJ_GET: 7,
  PROG_TEST_RUN: 10,
  PROG_GET_FD_BY_ID: 13,
  OBJ_GET_INFO_BY_FD: 15,
  MAP_LOOKUP_BATCH: 24,
  MAP_UPDATE_BATCH: 26,
  MAP_DELETE_BATCH: 27,
  LINK_CREATE: 28,
  LINK_UPDATE: 29,
} as const;

export type BpfCommand = keyof typeof COMMANDS;

/** Number of used bytes of `union bpf_attr`. */
const ATTRIBUTE_BYTES = 128;
const SCRATCH_BYTES = 1 << 16;

const RLIMIT_MEMLOCK = 8;
/** Size of `struct rlimit`. All bits set: no limit. */
const RLIMIT_BYTES = 16;

/** Makes `bpf()` calls with attributes in reused memory. */
export class Bpf implements Disposable {
  readonly #kernel: Kernel;
  readonly #attributes: Arena;
  /** For texts, packets and contexts of one call. */
  readonly scratch: Arena;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#attributes = kernel.native.alloc(ATTRIBUTE_BYTES);
    this.scratch = kernel.native.alloc(SCRATCH_BYTES);
  }

  /** Returns zeroed memory for the kernel to read and write. */
  alloc(size: number): Arena {
    return this.#kernel.native.alloc(size);
  }

  /** Returns zeroed attributes to fill in for the next call. */
  attributes(): DataView {
    this.#attributes.bytes.fill(0);
    return this.#attributes.view;
  }

  /** Makes the call with the filled attributes. Returns its result, or minus its errno. */
  tryCall(command: BpfCommand): number {
    return this.#kernel.native.call('bpf', COMMANDS[command], this.#attributes.address, ATTRIBUTE_BYTES);
  }

  /** Like {@link tryCall}, but throws on failure. */
  call(command: BpfCommand, subject = ''): number {
    const result = this.tryCall(command);
    if (result < 0) throw refusal(command, -result, subject);
    return result;
  }

  /** Removes the limit of locked memory, because kernels before 5.11 charge maps. Needs `CAP_SYS_RESOURCE`. */
  unlimitLockedMemory(): void {
    this.scratch.bytes.fill(0xff, 0, RLIMIT_BYTES);
    this.#kernel.native.call('setrlimit', RLIMIT_MEMLOCK, this.scratch.address);
  }

  /** Returns the address of a zero-terminated text, valid until the scratch memory is written again. */
  text(text: string): number {
    const bytes = Buffer.from(`${text}\0`);
    this.scratch.bytes.set(bytes);
    return this.scratch.address;
  }

  [Symbol.dispose](): void {
    this.#attributes[Symbol.dispose]();
    this.scratch[Symbol.dispose]();
  }
}

export function refusal(command: BpfCommand, errno: number, subject = ''): SyscallError {
  return new SyscallError(`bpf(${command})`, errno, subject);
}

/** Writes a memory address as 64 bits. */
export function setAddress(view: DataView, at: number, address: number): void {
  view.setUint32(at, address % 2 ** 32, true);
  view.setUint32(at + 4, Math.floor(address / 2 ** 32), true);
}

/** Maximum length of the name of a map or program in the kernel. */
export const NAME_LENGTH = 15;

/** Writes a name. The kernel allows letters, digits, `_` and `.`; others are replaced. */
export function setName(view: DataView, at: number, name: string): void {
  const text = name.replaceAll(/[^\w.]/g, '_').slice(0, NAME_LENGTH);
  for (let i = 0; i < text.length; i++) view.setUint8(at + i, text.charCodeAt(i));
}
