import { type Bpf, setAddress } from '../../../../src/datapath/linux/bpf/bpf.ts';

/** The result of a program for a packet. */
export interface TestRun {
  readonly result: number;
  /** The context after the run, such as `__sk_buff`; valid until the next call. */
  readonly context: DataView;
}

/** Size of `__sk_buff`. */
const CONTEXT_BYTES = 192;
const CONTEXT_AT = 16_384;

/** Runs a program once in the kernel on a packet of at most 16 KB. */
export function testRun(bpf: Bpf, fd: number, packet: Uint8Array): TestRun {
  const { address, bytes, view } = bpf.scratch;
  bytes.set(packet);
  const attributes = bpf.attributes();
  attributes.setUint32(0, fd, true);
  attributes.setUint32(8, packet.length, true);
  setAddress(attributes, 16, address);
  attributes.setUint32(44, CONTEXT_BYTES, true);
  setAddress(attributes, 56, address + CONTEXT_AT);
  bpf.call('PROG_TEST_RUN');
  return {
    result: attributes.getInt32(4, true),
    context: new DataView(view.buffer, view.byteOffset + CONTEXT_AT, CONTEXT_BYTES),
  };
}
