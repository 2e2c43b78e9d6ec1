import { type Arena, Native, type SyscallName } from './native.ts';
import { SyscallError } from './syscall-error.ts';

/** Bytes of a call that takes a buffer: as much as rtnetlink takes and gives at once. */
const BUFFER_BYTES = 1 << 16;

const MSG_DONTWAIT = 0x40;
const MNT_DETACH = 2;

/**
 * The system calls that the datapath makes, over byte buffers, synchronous. What the kernel refuses is thrown as
 * {@link SyscallError}. One for a process is enough; its memory is reused by each call.
 */
export class Kernel implements Disposable {
  readonly native: Native;
  readonly #buffer: Arena;

  /** Throws `NoSyscallsError` where there are none. */
  constructor(native: Native = new Native()) {
    this.native = native;
    this.#buffer = native.alloc(BUFFER_BYTES);
  }

  /** As {@link Native.call}, but throws. */
  call(name: SyscallName, ...args: readonly number[]): number {
    const result = this.native.call(name, ...args);
    if (result < 0) throw new SyscallError(name, -result);
    return result;
  }

  /** A descriptor; is closed by `closeSync` of `node:fs`. */
  socket(domain: number, type: number, protocol: number): number {
    return this.call('socket', domain, type, protocol);
  }

  bind(fd: number, address: Uint8Array): void {
    this.call('bind', fd, this.#lend(address), address.length);
  }

  /** The own address of a socket, of at most `size` bytes. */
  socketName(fd: number, size: number): Uint8Array {
    const { bytes, view, address } = this.#buffer;
    view.setUint32(0, size, true);
    this.call('getsockname', fd, address + 8, address);
    return bytes.slice(8, 8 + view.getUint32(0, true));
  }

  setSocketOption(fd: number, level: number, option: number, value: Uint8Array): void {
    this.call('setsockopt', fd, level, option, this.#lend(value), value.length);
  }

  /** Sends at most 64 KB as one message to `to`, or to whom the socket is connected; gives how many bytes went. */
  send(fd: number, message: Uint8Array, to: Uint8Array = new Uint8Array()): number {
    const at = this.#lend(message, to);
    const name = to.length === 0 ? 0 : at + message.length;
    return this.call('sendto', fd, at, message.length, 0, name, to.length);
  }

  /**
   * One message of at most 64 KB, a copy; `undefined` when there is none now. With `wait` it waits for one, which blocks the
   * event loop: for an answer that the kernel has ready.
   */
  receive(fd: number, { wait = false }: { readonly wait?: boolean } = {}): Uint8Array | undefined {
    const { address, size, bytes } = this.#buffer;
    const result = this.native.call('recvfrom', fd, address, size, wait ? 0 : MSG_DONTWAIT);
    if (result >= 0) return bytes.slice(0, result);
    const error = new SyscallError('recvfrom', -result);
    if (error.code === 'EAGAIN') return undefined;
    throw error;
  }

  /** `argument` is read and written: what the kernel has made of it is in it afterwards. */
  ioctl(fd: number, request: number, argument: Uint8Array): number {
    const result = this.call('ioctl', fd, request, this.#lend(argument));
    argument.set(this.#buffer.bytes.subarray(0, argument.length));
    return result;
  }

  /** Moves this thread, which is the one that JavaScript runs in, to a namespace; `type` 0 takes any kind. */
  setns(fd: number, type = 0): void {
    this.call('setns', fd, type);
  }

  unshare(flags: number): void {
    this.call('unshare', flags);
  }

  mount(
    what: { readonly source: string; readonly target: string; readonly type: string },
    { flags = 0, data = '' }: { readonly flags?: number; readonly data?: string } = {},
  ): void {
    const texts = [what.source, what.target, what.type, data].map((text) => Buffer.from(`${text}\0`));
    const at = this.#lend(...texts);
    const [source = 0, target = 0, type = 0] = texts.map(({ length }) => length);
    this.call('mount', at, at + source, at + source + target, flags, at + source + target + type);
  }

  /** With `detach` also where it is in use: nothing finds it any more, and it goes once nothing uses it. */
  unmount(target: string, { detach = false }: { readonly detach?: boolean } = {}): void {
    this.call('umount2', this.#lend(Buffer.from(`${target}\0`)), detach ? MNT_DETACH : 0);
  }

  [Symbol.dispose](): void {
    this.#buffer[Symbol.dispose]();
  }

  /** Where the kernel finds these bytes, one after the other, until the next call. */
  #lend(...parts: readonly Uint8Array[]): number {
    let at = 0;
    for (const part of parts) {
      if (at + part.length > this.#buffer.size)
        throw new RangeError(`a system call takes at most ${BUFFER_BYTES} bytes here`);
      this.#buffer.bytes.set(part, at);
      at += part.length;
    }
    return this.#buffer.address;
  }
}
