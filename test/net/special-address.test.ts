import { expect, it } from 'vitest';
import { isSpecialAddress } from '../../src/net/special-address.ts';

it.each([
  ...['0.0.0.0', '127.0.0.1', '127.255.255.255', '169.254.0.0', '169.254.169.254', '224.0.0.251'],
  ...['::', '::1', 'fe80::1', 'febf:ffff::', 'ff02::1', 'ff32::1'],
])('%s is refused by Kubernetes', (address) => expect(isSpecialAddress(address)).toBe(true));

it.each([
  ...['0.0.0.1', '10.0.0.0', '126.255.255.255', '128.0.0.1', '12.7.0.0', '169.253.1.1', '169.255.1.1'],
  ...['224.0.1.1', '239.1.1.1', '255.255.255.255'],
  ...['::2', '::1:1', '1::1', '::127.0.0.1', 'fe7f::1', 'fec0::1', 'fe8::1', 'fd00::1', 'ff05::1', 'ff2::1'],
])('%s is accepted by Kubernetes', (address) => expect(isSpecialAddress(address)).toBe(false));
