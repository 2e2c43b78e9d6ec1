import { constants } from 'node:os';
import { requireAllowed } from '../../../base/arguments.ts';
import { disposeOnError } from '../../../base/dispose-on-error.ts';
import { Bpf } from '../bpf/bpf.ts';
import { BpfMap } from '../bpf/bpf-map.ts';
import type { MapShape } from '../bpf/info.ts';
import { loadProgram } from '../bpf/program.ts';
import { ipcacheCount } from '../bpf/programs/ipcache-images.ts';
import { openIPCachePin } from '../ipcache-map.ts';
import { useDescriptor } from '../syscall/descriptor.ts';
import { Kernel } from '../syscall/kernel.ts';
import { SyscallError } from '../syscall/syscall-error.ts';
import {
  type AttachedBy,
  type AttachedProgram,
  attachProgram,
  type TrafficPlace,
} from './attached-program.ts';

/** The traffic from one identity to another. Identity 0: the ipcache has no entry for the address. */
export interface IdentityFlow {
  readonly source: number;
  readonly destination: number;
  readonly packets: number;
  /** Bytes with all headers, including that of Ethernet. */
  readonly bytes: number;
}

/** The interface whose packets are counted, and the map that contains the identities. */
export interface IdentityTrafficOptions extends TrafficPlace {
  /** Path of a pinned ipcache map, for example `/sys/fs/bpf/dpcache/ipcache`. All layouts of the map are supported. */
  readonly ipcache: string;
  /** The method of attaching the program. Default: a TCX link if the kernel supports it (Linux 6.6 or later). */
  readonly by?: AttachedBy | undefined;
}

/** The counters of up to 65,536 pairs. Beyond it, the least recently seen ones are dropped. */
const TRAFFIC_SHAPE: MapShape = { type: 'lruHash', keySize: 8, valueSize: 16, maxEntries: 65_536 };

/**
 * Counts the IP packets received or sent by an interface, by the identities of source and destination. A program in
 * the kernel looks both up in the ipcache map that an agent maintains. It changes no packet, and passes each to the
 * programs of others. If an agent later replaces the map by one of another size or layout, the new one is not used.
 */
export class IdentityTraffic implements Disposable {
  readonly #bpf: Bpf;
  readonly #kernel: Kernel;
  readonly #traffic: BpfMap;
  readonly #program: AttachedProgram;
  #isDisposed = false;

  private constructor(kernel: Kernel, bpf: Bpf, traffic: BpfMap, program: AttachedProgram) {
    this.#kernel = kernel;
    this.#bpf = bpf;
    this.#traffic = traffic;
    this.#program = program;
  }

  /**
   * Starts to count until dispose. Needs `CAP_BPF` and `CAP_NET_ADMIN`. Throws `ForeignMapError` if the pin is not an
   * ipcache map, and `SyscallError`: `ENOENT` without a pin, `ENODEV` without the interface.
   */
  static open({ ipcache, by, ...place }: IdentityTrafficOptions): IdentityTraffic {
    const kernel = new Kernel();
    const bpf = new Bpf(kernel);
    return disposeOnError([kernel, bpf], () => {
      const traffic = BpfMap.create(bpf, TRAFFIC_SHAPE, 'traffic');
      return disposeOnError([traffic], () =>
        useDescriptor(load(bpf, ipcache, traffic), (program) => {
          const attached = attachProgram({ kernel, bpf }, program, place, by);
          return new IdentityTraffic(kernel, bpf, traffic, attached);
        }),
      );
    });
  }

  /** How the program was attached. */
  get by(): AttachedBy {
    return this.#program.by;
  }

  /**
   * Returns the counts, unordered. Packets counted during the call may be included. Must not be called after dispose.
   */
  flows(): readonly IdentityFlow[] {
    requireAllowed(!this.#isDisposed, 'flows must not be called after dispose');
    const { keys, values } = this.#traffic;
    // If the dump restarts, a pair may be returned twice.
    const flows = new Map<string, IdentityFlow>();
    for (const count of this.#traffic.batches()) {
      for (let at = 0; at < count; at++) {
        const source = keys.view.getUint32(at * 8, true);
        const destination = keys.view.getUint32(at * 8 + 4, true);
        flows.set(`${source} ${destination}`, {
          source,
          destination,
          packets: Number(values.view.getBigUint64(at * 16, true)),
          bytes: Number(values.view.getBigUint64(at * 16 + 8, true)),
        });
      }
    }
    return [...flows.values()];
  }

  /** Stops counting and drops the counts. Idempotent, because memory must not be freed twice. */
  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    try {
      this.#program[Symbol.dispose]();
    } finally {
      this.#traffic[Symbol.dispose]();
      this.#bpf[Symbol.dispose]();
      this.#kernel[Symbol.dispose]();
    }
  }
}

/** Loads the program, which keeps its maps alive. Returns its descriptor. */
function load(bpf: Bpf, path: string, traffic: BpfMap): number {
  using ipcache = openIPCachePin(bpf, path);
  if (ipcache === undefined) throw new SyscallError(`open ${path}`, constants.errno.ENOENT);
  const maps = new Map([
    ['ipcache', ipcache.map.fd],
    ['traffic', traffic.fd],
  ]);
  return loadProgram(bpf, ipcacheCount, { type: 'schedCls', maps });
}
