import { addressBits, type Family } from '../../../net/address-words.ts';
import type { BatchedMap } from '../bpf/bpf-map.ts';
import { writeAddressAt } from '../netlink/address-bytes.ts';
import { AFFINITY_FLAG, type Endpoint, endpointText, type ServiceMapName } from './service-layout.ts';

/** An entry of the map of services: a frontend (slot 0), or one of its slots. */
export interface ServiceEntry {
  /** In the format of `formatFrontend`. */
  readonly frontend: string;
  readonly slot: number;
  /** In a slot: the number of its backend. Without meaning in slot 0. */
  readonly number: number;
  /** In slot 0: the number of slots. */
  readonly count: number;
  /** In slot 0: the duration of session affinity; 0 if there is none. */
  readonly affinitySeconds: number;
}

export type ServiceMapSet = Readonly<Record<Family, ServiceMaps>>;

/** Reads and writes the maps of one family by entry; knows the offsets of their fields. */
export class ServiceMaps {
  readonly family: Family;
  readonly maps: Readonly<Record<ServiceMapName, BatchedMap>>;
  readonly #addressBytes: number;

  constructor(family: Family, maps: Readonly<Record<ServiceMapName, BatchedMap>>) {
    this.family = family;
    this.maps = maps;
    this.#addressBytes = addressBits(family) / 8;
  }

  writeServiceKey(at: number, endpoint: Endpoint, slot: number): void {
    const { view } = this.maps.services.keys;
    const next = this.#writeAddressAndPort(view, at, endpoint);
    view.setUint16(next, slot, true);
    view.setUint32(next + 2, endpoint.protocol, true);
  }

  writeService(at: number, count: number, affinitySeconds: number): void {
    this.#writeServiceValue(at, affinitySeconds, count, affinitySeconds === 0 ? 0 : AFFINITY_FLAG);
  }

  writeSlot(at: number, backend: number): void {
    this.#writeServiceValue(at, backend, 0, 0);
  }

  writeBackendKey(at: number, number: number): void {
    this.maps.backends.keys.view.setUint32(at, number, true);
  }

  writeBackend(at: number, endpoint: Endpoint): void {
    const { view } = this.maps.backends.values;
    const next = this.#writeAddressAndPort(view, at, endpoint);
    view.setUint16(next, endpoint.protocol, true);
    view.setUint32(next + 2, 0, true);
  }

  writeMember(keyAt: number, valueAt: number, endpoint: Endpoint, backend: number): void {
    const { view } = this.maps.members.keys;
    const next = this.#writeAddressAndPort(view, keyAt, endpoint);
    view.setUint16(next, endpoint.protocol, true);
    view.setUint32(next + 2, backend, true);
    this.maps.members.values.view.setUint32(valueAt, 1, true);
  }

  /** Yields each backend with its number, and undefined after each batch. */
  readBackends(): Iterable<readonly [number: number, backend: string] | undefined> {
    const { keys, values } = this.maps.backends;
    return this.#entries('backends', (keyAt, valueAt) => [
      keys.view.getUint32(keyAt, true),
      endpointText(values.view, valueAt, this.family, values.view.getUint8(valueAt + this.#addressBytes + 2)),
    ]);
  }

  /** Yields each frontend and each slot, and undefined after each batch. */
  readServices(): Iterable<ServiceEntry | undefined> {
    const { keys, values } = this.maps.services;
    return this.#entries('services', (keyAt, valueAt) => {
      const number = values.view.getUint32(valueAt, true);
      // Read together with the scope and the padding behind it: if they are not 0, the key is another frontend.
      const protocol = keys.view.getUint32(keyAt + this.#addressBytes + 4, true);
      return {
        frontend: endpointText(keys.view, keyAt, this.family, protocol),
        slot: keys.view.getUint16(keyAt + this.#addressBytes + 2, true),
        number,
        count: values.view.getUint16(valueAt + 4, true),
        affinitySeconds: (values.view.getUint8(valueAt + 8) & AFFINITY_FLAG) === 0 ? 0 : number,
      };
    });
  }

  /** Yields each backend number of each frontend with affinity, and undefined after each batch. */
  readMembers(): Iterable<readonly [frontend: string, backend: number] | undefined> {
    const { view } = this.maps.members.keys;
    return this.#entries('members', (keyAt) => [
      // The protocol together with the padding behind it, as in `readServices`.
      endpointText(view, keyAt, this.family, view.getUint16(keyAt + this.#addressBytes + 2, true)),
      view.getUint32(keyAt + this.#addressBytes + 4, true),
    ]);
  }

  /** Yields what `read` returns for the offsets of each entry of a map, and undefined after each batch. */
  *#entries<T>(
    name: ServiceMapName,
    read: (keyAt: number, valueAt: number) => T,
  ): Generator<T | undefined, void, void> {
    const { keySize, valueSize } = this.maps[name].shape;
    for (const count of this.maps[name].batches()) {
      for (let at = 0; at < count; at++) yield read(at * keySize, at * valueSize);
      yield undefined;
    }
  }

  /** Returns the offset after the port. */
  #writeAddressAndPort(view: DataView, at: number, { ip, port }: Endpoint): number {
    const portAt = at + this.#addressBytes;
    writeAddressAt(view, at, ip);
    view.setUint16(portAt, port);
    return portAt + 2;
  }

  /** `number` is the affinity time of a frontend in seconds, or the backend number of a slot. */
  #writeServiceValue(at: number, number: number, count: number, flags: number): void {
    const { view } = this.maps.services.values;
    view.setUint32(at, number, true);
    view.setUint32(at + 4, count, true);
    view.setUint32(at + 8, flags, true);
  }
}
