import { type Arena, Native, type SyscallName } from './native.ts';
import { SyscallError } from './syscall-error.ts';

// Constants of sockets, the same on all supported architectures.
export const AF_UNIX = 1;
export const SOCK_CLOEXEC = 0o2000000;
export const SOL_SOCKET = 1;

/** Size of the buffer: the maximum size of a netlink message. */
const BUFFER_BYTES = 1 << 16;

const MSG_DONTWAIT = 0x40;

/** Offset of a returned value in the buffer. Its length precedes it. */
const VALUE_AT = 8;

/**
 * The system calls of the datapath, over byte buffers, synchronous. Throws {@link SyscallError} if the kernel refuses.
 * One instance per process is enough. Each call reuses its memory. The constructor throws `NoSyscallsError` if system
 * calls are not available.
 */
export class Kernel implements Disposable {
  readonly native: Native = new Native();
  readonly #buffer: Arena = this.native.alloc(BUFFER_BYTES);

  /** Like {@link Native.call}, but throws on failure. */
  call(name: SyscallName, ...args: readonly number[]): number {
    const result = this.native.call(name, ...args);
    if (result < 0) throw new SyscallError(name, -result);
    return result;
  }

  /** Returns a descriptor. Close it with `closeSync` of `node:fs`. */
  socket(domain: number, type: number, protocol: number): number {
    return this.call('socket', domain, type, protocol);
  }

  bind(fd: number, address: Uint8Array): void {
    this.call('bind', fd, this.#copyIn(address), address.length);
  }

  /** Returns the local address of a socket, at most `size` bytes. */
  socketName(fd: number, size: number): Uint8Array {
    return this.#returned(size, (value, length) => this.call('getsockname', fd, value, length));
  }

  setSocketOption(fd: number, level: number, option: number, value: Uint8Array): void {
    this.call('setsockopt', fd, level, option, this.#copyIn(value), value.length);
  }

  /** Returns the value of a socket option, at most `size` bytes. */
  socketOption(fd: number, level: number, option: number, size: number): Uint8Array {
    return this.#returned(size, (value, length) => this.call('getsockopt', fd, level, option, value, length));
  }

  /** Sends at most 64 KB as one message to `to`. Returns the number of bytes sent. */
  send(fd: number, message: Uint8Array, to: Uint8Array): number {
    const at = this.#copyIn(message, to);
    return this.call('sendto', fd, at, message.length, 0, at + message.length, to.length);
  }

  /** Receives one message of at most 64 KB and returns a copy, or `undefined` if there is none now. */
  receive(fd: number): Uint8Array | undefined {
    const { address, size, bytes } = this.#buffer;
    const result = this.native.call('recvfrom', fd, address, size, MSG_DONTWAIT);
    if (result >= 0) return bytes.slice(0, result);
    const error = new SyscallError('recvfrom', -result);
    if (error.code === 'EAGAIN') return undefined;
    throw error;
  }

  [Symbol.dispose](): void {
    this.#buffer[Symbol.dispose]();
  }

  /** Returns the value written by a call. `call` receives the addresses of the value and of its length. */
  #returned(size: number, call: (value: number, length: number) => void): Uint8Array {
    const { bytes, view, address } = this.#buffer;
    view.setUint32(0, size, true);
    call(address + VALUE_AT, address);
    return bytes.slice(VALUE_AT, VALUE_AT + view.getUint32(0, true));
  }

  /** Copies the bytes one after the other into the buffer. Returns its address, valid until the next call. */
  #copyIn(...parts: readonly Uint8Array[]): number {
    let at = 0;
    for (const part of parts) {
      if (at + part.length > this.#buffer.size)
        throw new RangeError(`system call arguments exceed ${BUFFER_BYTES} bytes`);
      this.#buffer.bytes.set(part, at);
      at += part.length;
    }
    return this.#buffer.address;
  }
}
