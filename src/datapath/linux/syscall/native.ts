import { createRequire } from 'node:module';
import type koffi from 'koffi';
import { errorCode, messageOf } from '../../../base/failure.ts';

/** Numbers of system calls on x86-64 and arm64. */
const NUMBERS = {
  bpf: { x64: 321, arm64: 280 },
  socket: { x64: 41, arm64: 198 },
  bind: { x64: 49, arm64: 200 },
  getsockname: { x64: 51, arm64: 204 },
  setsockopt: { x64: 54, arm64: 208 },
  getsockopt: { x64: 55, arm64: 209 },
  sendto: { x64: 44, arm64: 206 },
  recvfrom: { x64: 45, arm64: 207 },
  setns: { x64: 308, arm64: 268 },
  flock: { x64: 73, arm64: 32 },
  setrlimit: { x64: 160, arm64: 164 },
} as const;

/** The system calls used here. They accept descriptors of `node:fs`, which opens and closes the files. */
export type SyscallName = keyof typeof NUMBERS;

/** The package to install, with its major version. */
const KOFFI = 'koffi@3';

/** Returns why system calls are not supported on a platform and architecture; undefined if they are. */
export function systemProblem(platform: string, arch: string): string | undefined {
  if (platform !== 'linux') return `platform ${platform} is not supported: the datapath requires Linux`;
  if (arch === 'x64' || arch === 'arm64') return undefined;
  return `architecture ${arch} is not supported: the datapath requires x64 or arm64`;
}

/** Returns why the optional package koffi does not load, with a remedy, or `undefined` if it loads. */
export function missingLibrary(): string | undefined {
  try {
    loadLibrary();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Throws {@link NoSyscallsError} if the package is not installed, or not for this system. */
function loadLibrary(): typeof koffi {
  const require = createRequire(import.meta.url);
  try {
    return require('koffi');
  } catch (cause) {
    const isInstalled = errorCode(cause) !== 'MODULE_NOT_FOUND';
    throw new NoSyscallsError(
      isInstalled
        ? `the package koffi does not load: ${messageOf(cause)}. Install it on this system: npm install ${KOFFI}`
        : `the optional package koffi is not installed: npm install ${KOFFI}`,
      { cause },
    );
  }
}

/** Thrown if the operating system, the processor or a library prevents system calls. */
export class NoSyscallsError extends Error {
  override readonly name: string = 'NoSyscallsError';
}

/**
 * Memory outside of the JavaScript heap that never moves, so that its address can be passed to the kernel. `view` and
 * `bytes` show the same memory. Do not use them after dispose.
 */
export interface Arena extends Disposable {
  /** The address of the first byte. */
  readonly address: number;
  readonly size: number;
  readonly bytes: Uint8Array;
  readonly view: DataView;
}

type Call = (number: number, ...args: readonly number[]) => number;

/**
 * Calls `syscall(2)` of the C library, and nothing else. This is the only file that calls foreign functions. The
 * library for it is loaded by the constructor, not by the import.
 */
export class Native {
  readonly #koffi: typeof koffi;
  readonly #arch: 'x64' | 'arm64';
  readonly #syscall: Call;

  /** Throws {@link NoSyscallsError}. */
  constructor(platform: string = process.platform, arch: string = process.arch) {
    const problem = systemProblem(platform, arch);
    if (problem !== undefined) throw new NoSyscallsError(problem);
    this.#arch = arch === 'x64' ? 'x64' : 'arm64';
    this.#koffi = loadLibrary();
    // All arguments are signed 64-bit integers, as syscall(2) passes them on. Addresses are below 2⁴⁸.
    const types = Array.from({ length: 7 }, () => 'int64_t');
    this.#syscall = this.#koffi.load(null).func('syscall', 'int64_t', types);
  }

  /** Returns the result of the call, or minus its errno. Never throws. */
  call(name: SyscallName, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0): number {
    const result = this.#syscall(NUMBERS[name][this.#arch], a, b, c, d, e, f);
    return result === -1 ? -this.#koffi.errno() : result;
  }

  /** Returns zeroed memory. It is not garbage collected: its owner must dispose of it, once only. */
  alloc(size: number): Arena {
    const pointer = this.#koffi.alloc('uint8_t', size);
    const memory = this.#koffi.view(pointer, size);
    const bytes = new Uint8Array(memory);
    bytes.fill(0);
    return {
      address: Number(this.#koffi.address(pointer)),
      size,
      bytes,
      view: new DataView(memory),
      [Symbol.dispose]: () => this.#koffi.free(pointer),
    };
  }

  /**
   * Calls back when a descriptor is readable, until dispose. Dispose before you close the descriptor. Keeps no process
   * alive.
   */
  onReadable(fd: number, callback: () => void): Disposable {
    const handle = this.#koffi.node.poll(fd, { readable: true }, () => callback());
    handle.unref();
    return { [Symbol.dispose]: () => handle.close() };
  }
}
