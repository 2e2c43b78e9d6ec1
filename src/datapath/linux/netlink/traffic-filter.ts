import type { MessageWriter } from './message-writer.ts';

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

/** A hook of an interface: received or sent packets. */
type TrafficDirection = keyof typeof HOOKS;

/** A filter: its hook, and its numbers there. */
export interface TrafficFilter {
  readonly interface: number;
  readonly direction: TrafficDirection;
  /** 1 to 65,535; smaller ones run first. */
  readonly priority: number;
  readonly handle: number;
}

/** Writes the body of a message that adds `clsact` to an interface, or deletes it with all its filters. */
export function writeClsact(writer: MessageWriter, ifindex: number): void {
  writer.u32(0).u32(ifindex).u32(CLSACT.handle).u32(CLSACT.parent).u32(0);
  writer.attributeText(TCA.kind, 'clsact');
}

/** Writes the body of a request for all filters of a hook. */
export function writeFilterDump(
  writer: MessageWriter,
  ifindex: number,
  direction: TrafficFilter['direction'],
): void {
  writer.u32(0).u32(ifindex).u32(0).u32(HOOKS[direction]).u32(0);
}

/** Writes the body of a message that adds or deletes a filter. `clsact` must exist. */
export function writeFilter(
  writer: MessageWriter,
  { interface: ifindex, direction, priority, handle }: TrafficFilter,
  program?: { readonly fd: number; readonly name: string } | undefined,
): void {
  writer.u32(0).u32(ifindex).u32(handle).u32(HOOKS[direction]);
  writer.u32(((priority << 16) | ALL_PROTOCOLS) >>> 0);
  writer.attributeText(TCA.kind, 'bpf');
  if (program === undefined) return;
  writer.nest(TCA.options, () =>
    writer
      .attributeU32(BPF.fd, program.fd)
      .attributeText(BPF.name, program.name)
      .attributeU32(BPF.flags, DIRECT_ACTION),
  );
}
