import { expect, it } from 'vitest';
import { readMessages } from '../../../../src/datapath/linux/netlink/message-reader.ts';
import { MessageWriter, NLM_F } from '../../../../src/datapath/linux/netlink/message-writer.ts';
import { RTM_NEIGHBOR, readNeighbor } from '../../../../src/datapath/linux/netlink/neighbor.ts';
import { type PathItem, ROUTE_PROTOCOL } from '../../../../src/datapath/linux/paths/path-item.ts';
import { neighborRequest } from '../../../../src/datapath/linux/paths/path-requests.ts';

const MAC = '02:dc:0a:00:00:01';
const OTHER_MAC = '02:dc:0a:00:00:02';
const INDEX = 9;

const fdb = (host: string): PathItem => ({ kind: 'fdb', host });
const neighbor = (mac: string): PathItem => ({ kind: 'neighbor', mac });
const fdbEntry = (address: string | undefined): object => ({
  ...{ kind: 'fdb', interface: INDEX, address, mac: MAC, permanent: true, protocol: 0 },
});
const neighborEntry = (mac: string | undefined): object => ({
  ...{
    kind: 'neighbor',
    interface: INDEX,
    address: '10.7.0.1',
    mac,
    permanent: true,
    protocol: ROUTE_PROTOCOL,
  },
});

it.each<readonly [key: string, item: PathItem | undefined, known: PathItem | undefined, entry: object]>([
  [`fdb ${MAC}`, fdb('192.168.0.1'), undefined, fdbEntry('192.168.0.1')],
  [`fdb ${MAC}`, fdb('192.168.0.1'), fdb('192.168.0.2'), fdbEntry('192.168.0.1')],
  [`fdb ${MAC}`, undefined, fdb('192.168.0.2'), fdbEntry('192.168.0.2')],
  [`fdb ${MAC}`, undefined, undefined, fdbEntry(undefined)],
  ['neighbor 10.7.0.1', neighbor(MAC), undefined, neighborEntry(MAC)],
  ['neighbor 10.7.0.1', neighbor(MAC), neighbor(OTHER_MAC), neighborEntry(MAC)],
  ['neighbor 10.7.0.1', undefined, neighbor(OTHER_MAC), neighborEntry(OTHER_MAC)],
  ['neighbor 10.7.0.1', undefined, undefined, neighborEntry(undefined)],
])(
  'a request of %s adds or replaces the item, or deletes the known entry: %o, known %o',
  (key, item, known, entry) => {
    const { write, ...request } = neighborRequest(key, item, known, INDEX);
    expect(request).toEqual(
      item === undefined
        ? {
            operation: `delete ${key}`,
            type: RTM_NEIGHBOR.delete,
            flags: 0,
            ignoredErrors: ['ENOENT', 'ESRCH'],
          }
        : {
            operation: `add ${key}`,
            type: RTM_NEIGHBOR.add,
            flags: NLM_F.create | NLM_F.replace,
            ignoredErrors: [],
          },
    );
    const writer = new MessageWriter().begin(request.type, request.flags, 1);
    write(writer);
    writer.end();
    const [message] = readMessages(writer.written());
    expect(message && readNeighbor(message)).toEqual(entry);
  },
);

it('a key of another kind of item is rejected', () => {
  expect(() => neighborRequest('tunnel x', undefined, undefined, INDEX)).toThrow(RangeError);
});
