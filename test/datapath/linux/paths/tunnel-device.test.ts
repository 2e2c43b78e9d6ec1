import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { setDevice } from '../../../../src/datapath/linux/paths/tunnel-device.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';

const { EOPNOTSUPP } = constants.errno;

it.each([
  ['', 'add vx: EOPNOTSUPP: the kernel has no VXLAN: load the module vxlan'],
  [
    'Unknown device type',
    'add vx: EOPNOTSUPP: Unknown device type: the kernel has no VXLAN: load the module vxlan',
  ],
])('a kernel without VXLAN is reported with a remedy; its own text is "%s"', (text, message) => {
  const socket = {
    ask: () => undefined,
    dump: () => [],
    change: () => {},
    transact: () => [new SyscallError('add vx', EOPNOTSUPP, text), undefined],
  };
  const item = {
    kind: 'device',
    vni: 1,
    port: 2,
    local: '10.0.0.1',
    mtu: 1450,
    mac: '02:dc:0a:00:00:01',
  } as const;
  expect(() => setDevice(socket, item)).toThrow(new RegExp(`^${message}$`));
});
