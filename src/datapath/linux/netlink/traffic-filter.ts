import { type MessageWriter, NLM_F } from './message-writer.ts';
import type { NetlinkRequest } from './netlink-socket.ts';

/** Types of messages about queueing disciplines and filters of traffic control. */
export const RTM_TC = {
  addDiscipline: 36,
  deleteDiscipline: 37,
  addFilter: 44,
  deleteFilter: 45,
  getFilter: 46,
} as const;

/** `tcmsg`: handle and parent of the discipline `clsact`, which exists only for filters. */
const CLSACT = { handle: 0xffff0000, parent: 0xfffffff1 } as const;
/** Hooks of `clsact` for filters (`TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`). */
const HOOKS = { ingress: 0xfffffff2, egress: 0xfffffff3 } as const;
const TCA = { kind: 1, options: 2 } as const;
const BPF = { fd: 6, name: 7, flags: 8 } as const;
/** The result of the program decides what happens to the packet. */
const DIRECT_ACTION = 1;
/** `ETH_P_ALL` in network order. */
const ALL_PROTOCOLS = 0x0300;

/** A filter: its hook, and its numbers there. */
export interface TrafficFilter {
  readonly interface: number;
  /** Received or sent packets. */
  readonly direction: keyof typeof HOOKS;
  /** 1 to 65,535; smaller ones run first. */
  readonly priority: number;
  readonly handle: number;
}

/** Returns the request that adds `clsact` to an interface, or deletes it with all its filters. */
export function clsactRequest(change: 'add' | 'delete', ifindex: number): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    writer.u32(0).u32(ifindex).u32(CLSACT.handle).u32(CLSACT.parent).u32(0);
    writer.attributeText(TCA.kind, 'clsact');
  };
  const operation = `${change} clsact`;
  return change === 'add'
    ? { operation, type: RTM_TC.addDiscipline, flags: NLM_F.create | NLM_F.exclusive, write }
    : { operation, type: RTM_TC.deleteDiscipline, flags: 0, write };
}

/** Returns a request for all filters of a hook. */
export function filterDump(ifindex: number, direction: TrafficFilter['direction']): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    writer.u32(0).u32(ifindex).u32(0).u32(HOOKS[direction]).u32(0);
  };
  return { operation: 'filters', type: RTM_TC.getFilter, flags: 0, write };
}

/** Returns the request that adds or replaces a filter. `clsact` must exist. */
export function addFilter(
  filter: TrafficFilter,
  program: { readonly fd: number; readonly name: string },
): NetlinkRequest {
  const write = (writer: MessageWriter): void => {
    writeFilter(writer, filter);
    writer.nest(TCA.options, () =>
      writer
        .attributeU32(BPF.fd, program.fd)
        .attributeText(BPF.name, program.name)
        .attributeU32(BPF.flags, DIRECT_ACTION),
    );
  };
  const flags = NLM_F.create | NLM_F.replace;
  return { operation: 'add a filter', type: RTM_TC.addFilter, flags, write };
}

export function deleteFilter(filter: TrafficFilter): NetlinkRequest {
  const write = (writer: MessageWriter): void => writeFilter(writer, filter);
  return { operation: 'delete a filter', type: RTM_TC.deleteFilter, flags: 0, write };
}

function writeFilter(
  writer: MessageWriter,
  { interface: ifindex, direction, priority, handle }: TrafficFilter,
): void {
  writer.u32(0).u32(ifindex).u32(handle).u32(HOOKS[direction]);
  writer.u32(((priority << 16) | ALL_PROTOCOLS) >>> 0);
  writer.attributeText(TCA.kind, 'bpf');
}
