import { closeSync, fstatSync, openSync } from 'node:fs';
import { constants } from 'node:os';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ROUTE_TABLE } from '../../../../src/datapath/linux/kernel-names.ts';
import {
  ADDRESS_DUMP,
  type InterfaceAddress,
  readInterfaceAddress,
} from '../../../../src/datapath/linux/netlink/interface-address.ts';
import { linkRequest, readLink } from '../../../../src/datapath/linux/netlink/link.ts';
import { viewOf } from '../../../../src/datapath/linux/netlink/message-reader.ts';
import { NLM_F } from '../../../../src/datapath/linux/netlink/message-writer.ts';
import { type NetlinkRequest, NetlinkSocket } from '../../../../src/datapath/linux/netlink/netlink-socket.ts';
import {
  type Route,
  RTM_ROUTE,
  readRoute,
  routeDump,
  routeRequest,
  writeRoute,
} from '../../../../src/datapath/linux/netlink/route.ts';
import { Kernel } from '../../../../src/datapath/linux/syscall/kernel.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import { describeOnLinux } from '../support/requirements.ts';
import { type Namespace, Scratch } from '../support/scratch.ts';

const RTNLGRP_IPV4_ROUTE = 7;

function addRoute(destination: string, gateway: string): NetlinkRequest {
  const route: Route = {
    destination,
    gateway,
    table: ROUTE_TABLE,
    protocol: 201,
    interface: 0,
    onlink: false,
    metric: 0,
    isUnicast: true,
  };
  const flags = NLM_F.create | NLM_F.exclusive;
  return {
    operation: `add ${destination}`,
    type: RTM_ROUTE.add,
    flags,
    write: (writer) => writeRoute(writer, route),
  };
}

function routes(socket: NetlinkSocket): Route[] {
  return socket.dump(routeDump(4, ROUTE_TABLE), readRoute);
}

describeOnLinux('a netlink socket', ['routes', 'namespaces', 'ip'], () => {
  let scratch: Scratch;
  let here: Namespace;
  let there: Namespace;
  let kernel: Kernel;
  let socket: NetlinkSocket;

  beforeAll(() => {
    scratch = new Scratch();
    here = scratch.namespace('here');
    there = scratch.namespace('there');
    here.run('ip', 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', there.name);
    for (const [namespace, address] of [
      [here, '10.200.0.1/24'],
      [there, '10.200.0.2/24'],
    ] as const) {
      namespace.run('ip', 'address', 'add', address, 'dev', 'eth0');
      namespace.run('ip', 'link', 'set', 'eth0', 'up');
    }
    kernel = new Kernel();
    socket = new NetlinkSocket(kernel, { namespace: here.path });
  });

  afterAll(() => {
    socket[Symbol.dispose]();
    kernel[Symbol.dispose]();
    scratch[Symbol.dispose]();
  });

  it('changes the namespace in which it was opened, while the process stays in its own', () => {
    using other = new NetlinkSocket(kernel, { namespace: there.path });
    using own = new NetlinkSocket(kernel);
    const addresses = (one: NetlinkSocket): readonly InterfaceAddress[] =>
      one.dump(ADDRESS_DUMP, readInterfaceAddress);
    expect(addresses(socket).map(({ address }) => address)).toContain('10.200.0.1');
    expect(addresses(other).map(({ address }) => address)).toContain('10.200.0.2');
    expect(addresses(own).map(({ address }) => address)).not.toContain('10.200.0.1');
  });

  it('sends messages that fill its buffer to the last byte', () => {
    const route: Route = {
      destination: 'fd00:77::/64',
      gateway: undefined,
      table: ROUTE_TABLE,
      protocol: 201,
      interface: 1,
      onlink: false,
      metric: 0,
      isUnicast: true,
    };
    const write: NetlinkRequest['write'] = (writer) => writeRoute(writer, route, 'delete');
    const request = { operation: 'delete fd00:77::/64', type: RTM_ROUTE.delete, flags: 0, write };
    // Each takes 64 bytes.
    const outcomes = socket.transact(Array.from({ length: 2048 }, () => request));
    expect(new Set(outcomes.map((error) => error?.code))).toEqual(new Set(['ESRCH']));
  });

  it('reports the result of each of many requests, though only the last requests an acknowledgement', () => {
    const wanted = Array.from({ length: 5000 }, (_, at) =>
      addRoute(`10.${at >> 8}.${at & 255}.0/24`, at % 10 === 3 ? '203.0.113.9' : '10.200.0.2'),
    );
    const outcomes = socket.transact(wanted);
    expect(outcomes).toHaveLength(5000);
    outcomes.forEach((outcome, at) => {
      expect(outcome?.message).toBe(
        at % 10 === 3 ? `${wanted[at]?.operation}: ENETUNREACH: Nexthop has invalid gateway` : undefined,
      );
    });
    const theirs = JSON.parse(here.run('ip', '-j', 'route', 'show', 'proto', '201'));
    expect(theirs).toHaveLength(4500);
    expect(routes(socket).filter(({ protocol }) => protocol === 201)).toHaveLength(4500);
    here.run('ip', 'route', 'flush', 'proto', '201');
  });

  it('reports the results of requests at the wrap of the sequence number (regression: errors were lost)', () => {
    using wrapping = new NetlinkSocket(kernel, { namespace: here.path, lastSequence: 0xffff_fffd });
    const requests = Array.from({ length: 5 }, (_, at) => addRoute(`10.9.${at}.0/24`, '203.0.113.9'));
    const twice = [wrapping.transact(requests), wrapping.transact(requests)].flat();
    expect(twice.map((error) => error?.code)).toEqual(new Array(10).fill('ENETUNREACH'));
  });

  it('throws the error of the kernel for a single request', () => {
    expect(() => socket.change(addRoute('10.9.0.0/16', '203.0.113.9'))).toThrow(
      /add 10.9.0.0\/16: ENETUNREACH/,
    );
    const missing = linkRequest({ name: 'missing0' });
    expect(() => socket.ask(missing, readLink)).toThrow('link missing0: ENODEV');
  });

  it('returns how an address is reached', () => {
    const reach = (address: string): Route | undefined => socket.ask(routeRequest(address), readRoute);
    expect(reach('10.200.0.2')).toMatchObject({ gateway: undefined, isUnicast: true });
    expect(reach('10.200.0.1')).toMatchObject({ isUnicast: false });
    expect(() => reach('203.0.113.9')).toThrow('203.0.113.9: ENETUNREACH');
  });

  it('reads the same links as ip', () => {
    const links = socket.dump(linkRequest(), readLink);
    const theirs: { ifname: string; mtu: number; ifindex: number }[] = JSON.parse(
      here.run('ip', '-j', 'link'),
    );
    expect(links.map(({ name, mtu, index }) => ({ name, mtu, index }))).toEqual(
      theirs.map(({ ifname, mtu, ifindex }) => ({
        name: ifname,
        mtu,
        index: ifindex,
      })),
    );
  });

  it('calls back for changes of others, and when it has missed some', async () => {
    using listening = new NetlinkSocket(kernel, { namespace: here.path, groups: [RTNLGRP_IPV4_ROUTE] });
    let poll: Disposable | undefined;
    const called = new Promise<void>((resolve) => {
      poll = listening.onEvents(resolve);
    });
    here.run('ip', 'route', 'add', '10.77.0.0/16', 'via', '10.200.0.2');
    await called;
    poll?.[Symbol.dispose]();
    const events = listening.receive();
    expect(events === 'overrun' ? [] : events?.map(readRoute)).toMatchObject([
      { destination: '10.77.0.0/16' },
    ]);
    expect(listening.receive()).toBeUndefined();
    const many = Array.from({ length: 20_000 }, (_, at) =>
      addRoute(`10.${at >> 8}.${at & 255}.0/24`, '10.200.0.2'),
    );
    expect(socket.transact(many).filter(Boolean)).toEqual([]);
    const received: unknown[] = [];
    for (let got = listening.receive(); got !== undefined; got = listening.receive()) received.push(got);
    expect(received).toContain('overrun');
    expect(routes(socket).filter(({ protocol }) => protocol === 201)).toHaveLength(20_000);
  });

  it('repeats a dump that the kernel flags as interrupted, and returns nothing twice', () => {
    socket.transact([1, 2, 3].map((octet) => addRoute(`10.9.${octet}.0/24`, '10.200.0.2')));
    const expected = routes(socket);
    expect(expected.length).toBeGreaterThan(3);
    /** Sets NLM_F_DUMP_INTR in the messages of the first dumps. */
    const interrupt = (dumps: number): void => {
      const receive = kernel.receive.bind(kernel);
      let left = dumps;
      vi.spyOn(kernel, 'receive').mockImplementation((fd) => {
        const bytes = receive(fd);
        if (bytes === undefined) left--;
        else if (left > 0)
          for (let at = 0; at < bytes.length; at += (viewOf(bytes).getUint32(at, true) + 3) & ~3)
            viewOf(bytes).setUint16(at + 6, viewOf(bytes).getUint16(at + 6, true) | 0x10, true);
        return bytes;
      });
    };
    interrupt(2);
    const pieces = [...socket.dumpPieces(routeDump(4, ROUTE_TABLE), readRoute)];
    expect(pieces.filter((piece) => piece === 'again')).toHaveLength(2);
    vi.restoreAllMocks();
    interrupt(2);
    expect(routes(socket)).toEqual(expected);
    vi.restoreAllMocks();
    // A table that changes continuously is returned as it was read last.
    interrupt(1_000);
    expect(routes(socket)).toEqual(expected);
    vi.restoreAllMocks();
  });

  it('reports requests whose answers are lost as failed', () => {
    const receive = kernel.receive.bind(kernel);
    let calls = 0;
    vi.spyOn(kernel, 'receive').mockImplementation((fd) => {
      if (calls++ === 0) throw new SyscallError('recvfrom', constants.errno.ENOBUFS);
      return receive(fd);
    });
    const [error] = socket.transact([addRoute('172.20.1.0/24', '10.200.0.2')]);
    vi.restoreAllMocks();
    // The answer to the only request arrived after the loss, and may belong to another request.
    expect(error?.message).toBe('add 172.20.1.0/24: ENOBUFS: the kernel dropped the answer');
  });

  it('reports a question whose answer is lost as failed (regression: as if the object did not exist)', () => {
    const lose = (): never => {
      throw new SyscallError('recvfrom', constants.errno.ENOBUFS);
    };
    vi.spyOn(kernel, 'receive').mockImplementationOnce(lose).mockReturnValueOnce(undefined);
    expect(() => socket.ask(linkRequest({ name: 'lo' }), readLink)).toThrow('ENOBUFS: the kernel dropped');
    vi.restoreAllMocks();
    vi.spyOn(kernel, 'receive').mockImplementationOnce(lose);
    expect(socket.ask(linkRequest({ name: 'lo' }), readLink)?.name).toBe('lo');
    vi.restoreAllMocks();
  });

  it('closes only its own descriptors if it is disposed of twice', () => {
    const closed = new NetlinkSocket(kernel);
    closed[Symbol.dispose]();
    const others = openSync('/dev/null', 'r');
    closed[Symbol.dispose]();
    expect(fstatSync(others).isCharacterDevice()).toBe(true);
    closeSync(others);
  });
});
