import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { describe, expect, it } from 'vitest';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { Native, NoSyscallsError } from '../../../../src/datapath/linux/syscall/native.ts';
import {
  errnoCode,
  SyscallError,
  syscallErrorOf,
} from '../../../../src/datapath/linux/syscall/syscall-error.ts';

const AF_NETLINK = 16;
const SOCK_RAW = 3;
const NETLINK_ROUTE = 0;
const NETLINK_ADDRESS_BYTES = 12;

/** RTM_GETLINK (18), NLM_F_REQUEST | NLM_F_DUMP (0x301), with an empty `ifinfomsg`. */
function dumpLinks(sequence: number): Uint8Array {
  const message = new Uint8Array(32);
  const view = new DataView(message.buffer);
  view.setUint32(0, 32, true);
  view.setUint16(4, 18, true);
  view.setUint16(6, 0x301, true);
  view.setUint32(8, sequence, true);
  return message;
}

describe('errnos', () => {
  it('have names, including the one that only the kernel uses', () => {
    const { ENOSPC, E2BIG, EAGAIN, EOPNOTSUPP } = constants.errno;
    expect([ENOSPC, E2BIG, EAGAIN, EOPNOTSUPP, 524, 4000].map(errnoCode)).toEqual([
      ...['ENOSPC', 'E2BIG', 'EAGAIN', 'EOPNOTSUPP', 'ENOTSUPP', 'E4000'],
    ]);
  });

  it('contain the call and the text of the kernel', () => {
    const error = new SyscallError('bpf(PROG_LOAD)', 13, 'R1 is not a pointer');
    expect(error).toMatchObject({ code: 'EACCES', errno: 13, call: 'bpf(PROG_LOAD)' });
    expect(error.message).toBe('bpf(PROG_LOAD): EACCES: R1 is not a pointer');
  });
});

describe('an error without an errno', () => {
  it('has a message without a code (regression: E0)', () => {
    expect(syscallErrorOf('restore x', new Error('the pin is foreign'))).toMatchObject({
      errno: 0,
      code: 'UNKNOWN',
      message: 'restore x: the pin is foreign',
    });
    expect(new SyscallError('no such map', 0).message).toBe('no such map');
  });
});

describe('a platform without system calls', () => {
  it.each([
    ['win32', 'x64', 'requires Linux'],
    ['linux', 's390x', 'requires x64 or arm64'],
  ])('%s on %s is rejected with a message', (platform, arch, words) => {
    expect(() => new Native(platform, arch)).toThrow(NoSyscallsError);
    expect(() => new Native(platform, arch)).toThrow(words);
  });
});

describe.runIf(process.platform === 'linux')('the kernel', () => {
  it('answers a question to rtnetlink, without privilege', () => {
    using kernel = new Kernel();
    const fd = kernel.socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    const own = new Uint8Array(NETLINK_ADDRESS_BYTES);
    own[0] = AF_NETLINK;
    kernel.bind(fd, own);
    expect(kernel.socketName(fd, NETLINK_ADDRESS_BYTES)).toHaveLength(NETLINK_ADDRESS_BYTES);
    expect(kernel.receive(fd)).toBeUndefined();
    expect(kernel.send(fd, dumpLinks(7), own)).toBe(32);
    const answer = kernel.receive(fd);
    expect(answer && new DataView(answer.buffer).getUint32(8, true)).toBe(7);
    closeSync(fd);
  });

  it('calls back when there is something to read', async () => {
    using kernel = new Kernel();
    const fd = kernel.socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    const keepAlive = setInterval(() => {}, 1000);
    const answered = new Promise<Uint8Array | undefined>((resolve) => {
      const watch = kernel.native.onReadable(fd, () => {
        watch[Symbol.dispose]();
        resolve(kernel.receive(fd));
      });
    });
    kernel.send(fd, dumpLinks(9), new Uint8Array());
    expect((await answered)?.length).toBeGreaterThan(16);
    clearInterval(keepAlive);
    closeSync(fd);
  });

  it('is quoted with its errno where it refuses', () => {
    using kernel = new Kernel();
    expect(() => kernel.call('setns', -1, 0)).toThrow(new SyscallError('setns', 9));
    expect(kernel.native.call('bpf', 0, 0, 0)).toBeLessThan(0);
  });

  it('is lent zeroed memory that does not move', () => {
    const native = new Native();
    using arena = native.alloc(4096);
    expect(arena.bytes.every((byte) => byte === 0)).toBe(true);
    expect(arena.address).toBeGreaterThan(0);
    arena.view.setUint32(0, 1, true);
    expect(arena.bytes[0]).toBe(1);
  });
});
