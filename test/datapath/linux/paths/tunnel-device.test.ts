import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { setDevice } from '../../../../src/datapath/linux/paths/tunnel-device.ts';
import { readFilter, setFilter } from '../../../../src/datapath/linux/paths/tunnel-filter.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';

const { EINVAL, EOPNOTSUPP, EPERM, EPROTONOSUPPORT } = constants.errno;

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
  const item = { kind: 'device', vni: 'any', port: 2, mtu: 1450 } as const;
  expect(() => setDevice(socket, item)).toThrow(new RegExp(`^${message}$`));
});

it.each([
  ['EPROTONOSUPPORT', EPROTONOSUPPORT],
  ['EOPNOTSUPP', EOPNOTSUPP],
  ['EINVAL', EINVAL],
])(
  'a kernel without nftables, which reports %s, has no filter, and a write names the module',
  (code, errno) => {
    const open = (): never => {
      throw new SyscallError('nftables', errno);
    };
    expect(readFilter(open)).toBeUndefined();
    expect(() => setFilter(open, { kind: 'filter' })).toThrow(
      `add filter dpcache_vxlan: ${code}: the kernel has no nftables for interfaces: load the module nf_tables`,
    );
  },
);

it('other errors of nftables are reported unchanged', () => {
  const error = new SyscallError('nftables', EPERM);
  const socket = {
    dump: () => {
      throw error;
    },
    transact: () => [undefined, error],
    [Symbol.dispose]: () => {},
  };
  expect(() => readFilter(() => socket)).toThrow(error);
  expect(() => setFilter(() => socket, undefined)).toThrow(error);
});
