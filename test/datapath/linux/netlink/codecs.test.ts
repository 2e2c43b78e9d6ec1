import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { errorIn } from '../../../../src/datapath/linux/netlink/answer.ts';
import { readInterfaceAddress } from '../../../../src/datapath/linux/netlink/interface-address.ts';
import { type Link, RTM_LINK, readLink, writeLink } from '../../../../src/datapath/linux/netlink/link.ts';
import {
  Attributes,
  NetlinkFormatError,
  type NetlinkMessage,
  readMessages,
} from '../../../../src/datapath/linux/netlink/message-reader.ts';
import { MessageWriter } from '../../../../src/datapath/linux/netlink/message-writer.ts';
import {
  type Encap,
  type Route,
  RTM_ROUTE,
  readRoute,
  writeRoute,
} from '../../../../src/datapath/linux/netlink/route.ts';
import { canonicalAddress, Prefix } from '../../../../src/net/prefix.ts';
import { addressText, cidrText } from '../../../net/support/arbitraries.ts';

function bytesOf(hex: string): Uint8Array {
  return Uint8Array.from(Buffer.from(hex.replaceAll(/\s/g, ''), 'hex'));
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** Returns the decoded form of a message that `write` has written. */
function reread(type: number, write: (writer: MessageWriter) => void): NetlinkMessage {
  const writer = new MessageWriter().begin(type, 0, 1);
  write(writer);
  writer.end();
  const [message, ...others] = readMessages(writer.written());
  if (message === undefined || others.length > 0) throw new Error('one message was written');
  return message;
}

const u32 = fc.integer({ min: 1, max: 0xffff_ffff });
const u8 = fc.integer({ min: 1, max: 255 });
const prefix = cidrText.map((text) => String(Prefix.parse(text)));
const address = addressText.map((text) => canonicalAddress(text) ?? '');
const name = fc.stringMatching(/^[a-z][a-z0-9]{0,14}$/);

const encap: fc.Arbitrary<Encap> = fc.record({
  id: u32,
  source: address,
  destination: address,
  ttl: u8,
  tos: u8,
  flags: fc.nat(0xffff),
});

const route: fc.Arbitrary<Route> = fc.record({
  destination: prefix,
  table: u32,
  protocol: u8,
  gateway: fc.option(address, { nil: undefined }),
  interface: fc.nat(),
  encap: fc.option(encap, { nil: undefined }),
  onlink: fc.boolean(),
  metric: fc.nat(),
  isUnicast: fc.constant(true),
});

const link: fc.Arbitrary<Link> = fc.record({
  index: fc.constant(0),
  name,
  up: fc.boolean(),
  mtu: fc.nat(),
  arp: fc.boolean(),
  alias: fc.option(name, { nil: undefined }),
  vxlan: fc.record({ vni: fc.oneof(fc.constant('any' as const), u32), port: fc.nat(65_535) }),
});

describe('a written message is read back unchanged', () => {
  it('of routes', () => {
    fc.assert(
      fc.property(route, (one) => {
        expect(readRoute(reread(RTM_ROUTE.add, (writer) => writeRoute(writer, one)))).toEqual(one);
      }),
    );
  });

  it('of a route with IPv4-mapped addresses, which remain IPv6 (regression: written as IPv4)', () => {
    const [one] = fc.sample(route, 1);
    if (one === undefined) throw new Error('no sample');
    const mapped: Route = { ...one, destination: '::ffff:0:0/96', gateway: '::ffff:a00:1' };
    expect(readRoute(reread(RTM_ROUTE.add, (writer) => writeRoute(writer, mapped)))).toEqual(mapped);
  });

  it('of links', () => {
    fc.assert(
      fc.property(link, (one) => {
        expect(readLink(reread(RTM_LINK.add, (writer) => writeLink(writer, one, 'create')))).toEqual(one);
      }),
    );
  });

  it('also if a message makes the writer grow, or is discarded', () => {
    const writer = new MessageWriter();
    const starts = Array.from({ length: 500 }, (_, at) => {
      const start = writer.length;
      writer.begin(7, 1, at).attributeText(3, 'x'.repeat(at));
      writer.end();
      return start;
    });
    writer.truncate(starts.at(-1) ?? 0);
    const messages = readMessages(writer.written());
    expect(messages.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 499 }, (_, at) => at));
    expect(new Attributes(messages[400]?.body ?? new Uint8Array()).text(3)).toBe('x'.repeat(400));
  });
});

describe('bytes on the wire', () => {
  it('equal those that iproute2 sends for a route', () => {
    const writer = new MessageWriter().begin(RTM_ROUTE.add, 0x605, 9);
    writeRoute(writer, {
      destination: '10.1.0.0/24',
      table: 254,
      protocol: 201,
      gateway: '192.168.0.2',
      interface: 3,
      onlink: true,
      metric: 7,
      isUnicast: true,
    });
    writer.end();
    expect(hexOf(writer.written())).toBe(
      [
        '44000000 1800 0506 09000000 00000000', // 68 bytes, RTM_NEWROUTE, flags, sequence, port
        '02180000 fec90001 04000000', // rtmsg: AF_INET, /24; main, 201, universe, unicast; onlink
        '08000100 0a010000', // RTA_DST
        '08000f00 fe000000', // RTA_TABLE
        '08000500 c0a80002', // RTA_GATEWAY
        '08000400 03000000', // RTA_OIF
        '08000600 07000000', // RTA_PRIORITY
      ]
        .join('')
        .replaceAll(' ', ''),
    );
  });

  it.each([
    ['10.1.0.9', '10.1.0.8', '08000200 0a010009 08000300 0a010008', '0200'],
    [
      'fd00::9',
      'fd00::8',
      '14000200 fd000000 00000000 00000000 00000009 14000300 fd000000 00000000 00000000 00000008',
      '0400',
    ],
  ])('equal those that iproute2 sends for an encapsulation to %s', (destination, source, addresses, type) => {
    const writer = new MessageWriter().begin(RTM_ROUTE.add, 0, 9);
    writeRoute(writer, {
      destination: '10.1.0.0/24',
      table: 254,
      protocol: 201,
      gateway: undefined,
      interface: 0,
      encap: { id: 6, source, destination, ttl: 64, tos: 8, flags: 1 },
      onlink: false,
      metric: 0,
      isUnicast: true,
    });
    writer.end();
    const length = 4 + 12 + addresses.replaceAll(' ', '').length / 2 + 24;
    expect(hexOf(writer.written()).slice(2 * 44)).toBe(
      [
        `${length.toString(16)}001680`, // RTA_ENCAP, nested
        '0c000100 00000000 00000006', // id, 64 bits
        addresses, // destination, source
        '05000400 40000000 05000500 08000000 06000600 00010000', // TTL, TOS, flags
        `06001500 ${type} 0000`, // RTA_ENCAP_TYPE: ip or ip6
      ]
        .join('')
        .replaceAll(' ', ''),
    );
  });

  it('select a VXLAN interface for all network identifiers, without ARP', () => {
    const writer = new MessageWriter().begin(RTM_LINK.add, 0, 9);
    const vxlan = { vni: 'any', port: 8472 } as const;
    const one = { index: 0, name: 'vx', up: true, mtu: 1450, arp: false, alias: undefined, vxlan };
    writeLink(writer, one, 'create');
    writer.end();
    expect(hexOf(writer.written()).slice(2 * 16)).toBe(
      [
        '00000000 00000000 81000000 81000000', // ifinfomsg: IFF_UP and IFF_NOARP
        '07000300 76780000 08000400 aa050000', // name, MTU
        '34001280 0a000100 76786c61 6e000000', // IFLA_LINKINFO, vxlan
        '24000280 06000f00 21180000', // data: port
        '05001900 01000000 05000700 00000000 05001400 01000000', // any VNI, no learning, UDP over IPv6 without checksum
      ]
        .join('')
        .replaceAll(' ', ''),
    );
  });

  it('are padded after an attribute whose length is no multiple of 4', () => {
    const writer = new MessageWriter().begin(1, 0, 0).attributeU8(1, 5).attributeText(2, 'ab');
    writer.end();
    expect(hexOf(writer.written()).slice(32)).toBe('0500010005000000' + '0700020061620000');
  });
});

describe('an acknowledgement', () => {
  const header = '1c000000 1800 0500 02000000 00000000';
  const answer = (body: string, flags: number): NetlinkMessage => ({
    type: 2,
    flags,
    sequence: 2,
    port: 0,
    body: bytesOf(body),
  });

  it('of a success is no error', () => {
    expect(errorIn(answer(`00000000 ${header}`, 0x100), 'add')).toBeUndefined();
  });

  it('has the name of the error and the text of the kernel', () => {
    const words = Buffer.from('Nexthop has invalid gateway.\0').toString('hex');
    const error = errorIn(answer(`9bffffff ${header} 2100 0100 ${words} 000000`, 0x300), 'add 10.1.0.0/24');
    expect(error).toMatchObject({ code: 'ENETUNREACH', detail: 'Nexthop has invalid gateway.' });
    expect(error?.message).toBe('add 10.1.0.0/24: ENETUNREACH: Nexthop has invalid gateway.');
  });

  it('may repeat the whole request before the text', () => {
    const words = Buffer.from('no\0\0').toString('hex');
    const error = errorIn(answer(`efffffff ${header} ${'00'.repeat(12)} 0700 0100 ${words}`, 0x200), 'add');
    expect(error).toMatchObject({ code: 'EEXIST', detail: 'no' });
  });
});

/** Reads everything that can be read from any bytes. */
function readEverything(bytes: Uint8Array): void {
  for (const message of readMessages(bytes)) {
    for (const type of [2, 3, 16, 20, 24, message.type]) {
      const one = { ...message, type };
      readRoute(one);
      readLink(one);
      readInterfaceAddress(one);
      if (type === 2 || type === 3) errorIn(one, 'read');
    }
  }
}

describe('hostile input', () => {
  const legal = fc.tuple(route, link).map(([one, two]) => {
    const writer = new MessageWriter();
    for (const [type, write] of [
      [RTM_ROUTE.add, () => writeRoute(writer, one)],
      [RTM_LINK.add, () => writeLink(writer, two, 'create')],
    ] as const) {
      writer.begin(type, 0, 1);
      write();
      writer.end();
    }
    return writer.written().slice();
  });
  const changed = fc
    .tuple(legal, fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 6 }), fc.nat())
    .map(([bytes, edits, cut]) => {
      for (const [at, value] of edits) bytes[at % bytes.length] = value;
      return bytes.subarray(0, cut % 3 === 0 ? cut % bytes.length : bytes.length);
    });

  it.each([
    ['of random bytes', fc.uint8Array({ maxLength: 200 })],
    ['that was a message, changed and cut off', changed],
  ])('%s is read or rejected, and never read beyond its end', (_title, input) => {
    fc.assert(
      fc.property(input, (bytes) => {
        // Bytes behind the message must not matter: the result is the same whatever follows.
        const outcomes = [0, 255].map((fill) => {
          const around = new Uint8Array(bytes.length + 64).fill(fill);
          around.set(bytes, 32);
          try {
            readEverything(around.subarray(32, 32 + bytes.length));
            return 'read';
          } catch (error) {
            if (error instanceof NetlinkFormatError) return error.message;
            throw error;
          }
        });
        expect(outcomes[0]).toBe(outcomes[1]);
      }),
    );
  });
});
