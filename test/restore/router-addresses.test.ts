import { describe, expect, it } from 'vitest';
import { readRouterAddresses } from '../../src/restore/router-addresses.ts';

// As written by Cilium 1.8.
const HEADER = `/*
 cilium.v6.external.str fd01::b
 cilium.v6.internal.str f00d::a00:0:0:a4ad
 cilium.v4.internal.str 10.0.0.2

 cilium.v6.internal.raw 0xf0, 0xd, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0xa, 0x0, 0x0, 0x0, 0x0, 0x0, 0xa4, 0xad
 cilium.v4.internal.raw 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0xff, 0xff, 0xa, 0x0, 0x0, 0x2
 */

#define ROUTER_IP 0xfd, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x1
#define IPV4_GATEWAY 0x100000a
`;

const six = 'f00d::a00:0:0:a4ad';

describe('the router’s addresses in node_config.h (A 17)', () => {
  it.each<[string, string, object]>([
    ['comments before definitions', HEADER, { ipv4: '10.0.0.2', ipv6: six }],
    [
      'definitions of older ones',
      HEADER.replace(/ cilium\.v. *.*internal.raw.*\n/g, ''),
      { ipv4: '10.0.0.1', ipv6: 'fd00::1' },
    ],
    ['four bytes', 'cilium.v4.internal.raw 0xa, 0x1, 0x2, 0x3', { ipv4: '10.1.2.3' }],
    ['a number as it is in memory', 'cilium.v4.internal.raw 0x0302010a', { ipv4: '10.1.2.3' }],
    ['nothing', '', {}],
    ['none', 'cilium.v4.internal.raw 0x0\ncilium.v6.internal.raw 0x0, 0x0', {}],
    [
      'other bytes',
      'cilium.v4.internal.raw 0x1ff, 0x1, 0x2, 0x3\ncilium.v6.internal.raw 0xa, 0xb, 0xc, 0xd',
      {},
    ],
    ['no numbers', 'cilium.v4.internal.raw ten, 0x1, 0x2, 0x3', {}],
    ['numbers and more', 'cilium.v4.internal.raw 0x0a, 0x1, 0x2, -0x3', {}],
    ['numbers with more behind', 'cilium.v4.internal.raw 0x0a, 0x1, 0x2, 0x3;', {}],
    ['bytes without spaces, and spaces', 'cilium.v4.internal.raw 0xa,0x1 ,0x2, 0x3 ', { ipv4: '10.1.2.3' }],
    ['a number of more than 32 bits', 'cilium.v4.internal.raw 0x10302010a', {}],
    ['bytes of which one is none', `cilium.v6.internal.raw 0xfd, 0x1ff${', 0x1'.repeat(14)}`, {}],
    [
      'many spaces in linear time (regression: hours for 1 MB)',
      `cilium.v4.internal.raw 0xa${' '.repeat(500_000)}x`,
      {},
    ],
    ['three bytes', 'cilium.v4.internal.raw 0xa, 0x1, 0x2', {}],
    ['five bytes', 'cilium.v4.internal.raw 0x9, 0xa, 0x1, 0x2, 0x3', {}],
    [
      'a broken comment and a definition',
      'cilium.v4.internal.raw ?\n#define IPV4_GATEWAY 0x100000a',
      { ipv4: '10.0.0.1' },
    ],
  ])('are read from %s', (_, header, expected) => {
    expect(readRouterAddresses(header)).toEqual({ ipv4: undefined, ipv6: undefined, ...expected });
  });
});
