import { openSync } from 'node:fs';
import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { NftServices } from '../../../../src/datapath/linux/nftables/nft-services.ts';
import type { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';

it('an event that cannot be read counts as a change (regression: the callback threw, which ended the process)', () => {
  let onReadable = (): void => {};
  const fake = {
    socket: () => openSync('/dev/null', 'r'),
    setSocketOption: () => {},
    bind: () => {},
    socketName: () => new Uint8Array(12),
    receive: () => {
      throw new SyscallError('recvfrom', constants.errno.ENOMEM);
    },
    native: {
      onReadable: (_: number, callback: () => void) => {
        onReadable = callback;
        return { [Symbol.dispose]: () => {} };
      },
    },
  };
  let changes = 0;
  using services = new NftServices(fake as unknown as Kernel);
  services.follow(() => changes++);
  onReadable();
  expect(changes).toBe(1);
});
