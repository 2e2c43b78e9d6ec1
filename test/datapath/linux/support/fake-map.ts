import type { BatchedMap } from '../../../../src/datapath/linux/bpf/bpf-map.ts';
import {
  type ServiceCapacity,
  serviceMapShapes,
} from '../../../../src/datapath/linux/services/service-layout.ts';
import { ServiceMaps } from '../../../../src/datapath/linux/services/service-maps.ts';
import { SyscallError } from '../../../../src/datapath/linux/syscall/syscall-error.ts';
import type { Family } from '../../../../src/net/address-words.ts';

const E2BIG = 7;
const EPERM = 1;
const ENTRIES = 1024;

interface Memory {
  readonly bytes: Uint8Array;
  readonly view: DataView;
}

function memory(size: number): Memory {
  const bytes = new Uint8Array(size);
  return { bytes, view: new DataView(bytes.buffer) };
}

/** A hash map like the kernel's, in memory: content by the hexadecimal bytes of the keys. */
export class FakeMap implements BatchedMap {
  readonly shape: BatchedMap['shape'];
  readonly keys: Memory;
  readonly values: Memory;
  readonly content: Map<string, Uint8Array> = new Map();
  /** If true, every write is refused. */
  broken = false;
  /** Called after each written or deleted entry, because a program may read at any time. */
  onWrite: () => void = () => {};

  constructor(shape: BatchedMap['shape']) {
    this.shape = shape;
    this.keys = memory(ENTRIES * shape.keySize);
    this.values = memory(ENTRIES * shape.valueSize);
  }

  update(count: number): readonly (SyscallError | undefined)[] {
    return Array.from({ length: count }, (_, at) => {
      if (this.broken) return new SyscallError('update', EPERM);
      const key = this.#keyAt(at);
      if (!this.content.has(key) && this.content.size >= this.shape.maxEntries)
        return new SyscallError('update', E2BIG);
      this.content.set(
        key,
        this.values.bytes.slice(at * this.shape.valueSize, (at + 1) * this.shape.valueSize),
      );
      this.onWrite();
      return undefined;
    });
  }

  delete(count: number): readonly (SyscallError | undefined)[] {
    return Array.from({ length: count }, (_, at) => {
      if (this.broken) return new SyscallError('delete', EPERM);
      this.content.delete(this.#keyAt(at));
      this.onWrite();
      return undefined;
    });
  }

  lookup(): boolean {
    const value = this.content.get(this.#keyAt(0));
    if (value !== undefined) this.values.bytes.set(value);
    return value !== undefined;
  }

  *batches(): Generator<number, void, void> {
    const entries = [...this.content];
    for (let from = 0; from === 0 || from < entries.length; from += ENTRIES) {
      const batch = entries.slice(from, from + ENTRIES);
      for (const [at, [key, value]] of batch.entries()) {
        this.keys.bytes.set(Buffer.from(key, 'hex'), at * this.shape.keySize);
        this.values.bytes.set(value, at * this.shape.valueSize);
      }
      yield batch.length;
    }
  }

  [Symbol.dispose](): void {}

  #keyAt(at: number): string {
    const { keySize } = this.shape;
    return Buffer.from(this.keys.bytes.subarray(at * keySize, (at + 1) * keySize)).toString('hex');
  }
}

/** Returns the maps of services, in memory: the same ones on each call. */
export function fakeServiceMaps(capacity: ServiceCapacity): (family: Family) => ServiceMaps {
  const families = new Map<Family, ServiceMaps>();
  return (family) => {
    const found = families.get(family);
    if (found !== undefined) return found;
    const shapes = serviceMapShapes(family, capacity);
    const made = new ServiceMaps(family, {
      services: new FakeMap(shapes.services),
      backends: new FakeMap(shapes.backends),
      members: new FakeMap(shapes.members),
      clients: new FakeMap(shapes.clients),
      peers: new FakeMap(shapes.peers),
      datagrams: new FakeMap(shapes.datagrams),
    });
    families.set(family, made);
    return made;
  };
}

/** Returns the keys of frontends for which a program would find a slot or a backend missing. */
export function brokenFrontends(services: FakeMap, backends: FakeMap): readonly string[] {
  const slotAt = services.shape.keySize - 6;
  const broken: string[] = [];
  for (const [key, value] of services.content) {
    const bytes = Buffer.from(key, 'hex');
    if (bytes.readUInt16LE(slotAt) !== 0) continue;
    for (let slot = 1; slot <= Buffer.from(value).readUInt16LE(4); slot++) {
      bytes.writeUInt16LE(slot, slotAt);
      const number = services.content.get(bytes.toString('hex'))?.slice(0, 4);
      if (number === undefined || !backends.content.has(Buffer.from(number).toString('hex')))
        broken.push(key);
    }
  }
  return broken;
}
