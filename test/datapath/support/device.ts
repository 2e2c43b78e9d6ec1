import type { Datapath, DatapathContent } from '../../../src/datapath/datapath.ts';
import type { IPCacheEntry } from '../../../src/ipcache/types.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { AnnouncedService } from '../../../src/servicecache/announcement.ts';
import { attributes } from '../../ipcache/support/naive-ipcache.ts';
import { nameOf, text } from '../../servicecache/support/plain.ts';
import {
  type IPCacheRecord,
  type NodeRecord,
  RecordingIPCacheListener,
  RecordingNodeHandler,
  RecordingServiceListener,
  type ServiceRecord,
} from './recording.ts';

/** A device that applies its calls, records them, and complains of unnecessary ones. */
export class Device {
  readonly prefixes: Map<string, IPCacheEntry> = new Map();
  readonly services: Map<string, AnnouncedService> = new Map();
  readonly nodes: Map<string, Node> = new Map();
  readonly told: string[] = [];
  readonly complaints: string[] = [];

  /** Continues with the state of `before`. */
  constructor(before?: Device) {
    for (const [prefix, entry] of before?.prefixes ?? []) this.prefixes.set(prefix, entry);
    for (const [id, announced] of before?.services ?? []) this.services.set(id, announced);
    for (const [name, node] of before?.nodes ?? []) this.nodes.set(name, node);
  }

  get datapath(): Required<Datapath> {
    return {
      ipcache: new RecordingIPCacheListener((record) => this.#prefix(record)),
      services: new RecordingServiceListener((record) => this.#service(record)),
      nodes: new RecordingNodeHandler((record) => this.#node(record)),
    };
  }

  get content(): DatapathContent {
    return { ipcache: this.prefixes, services: [...this.services.values()], nodes: [...this.nodes.values()] };
  }

  /** Returns its whole state as text. */
  view(): readonly string[] {
    return [
      ...[...this.prefixes].map(([prefix, entry]) => `${prefix} ${attributes(entry)}`),
      ...[...this.services].map(
        ([id, { service, endpoints }]) => `${id} ${text([service, endpoints.backends])}`,
      ),
      ...[...this.nodes].map(([name, node]) => `${name} ${text(node)}`),
    ].sort();
  }

  takeTold(): readonly string[] {
    return this.told.splice(0);
  }

  #prefix(record: IPCacheRecord): void {
    if (record.kind === 'synced') return;
    const { prefix, old, new: next } = record.change;
    this.#write(this.prefixes, prefix, old, next, attributes);
  }

  #service(record: ServiceRecord): void {
    if (record.kind !== 'event') return;
    const { action, id, service, oldService, endpoints, oldEndpoints } = record.event;
    const old = oldService && oldEndpoints && { service: oldService, endpoints: oldEndpoints };
    const next = action === 'delete' ? undefined : { service, endpoints };
    this.#write(this.services, nameOf(id), old, next, (one) => text([one.service, one.endpoints.backends]));
  }

  #node(record: NodeRecord): void {
    if (!('node' in record)) return;
    const { kind, node } = record;
    if (kind === 'validate') return;
    const old = kind === 'update' ? record.old : kind === 'delete' ? node : undefined;
    this.#write(this.nodes, node.fullName, old, kind === 'delete' ? undefined : node, text);
  }

  #write<T>(
    table: Map<string, T>,
    key: string,
    old: T | undefined,
    next: T | undefined,
    say: (one: T) => string,
  ): void {
    this.told.push(`${next === undefined ? 'delete' : table.has(key) ? 'change' : 'add'} ${key}`);
    const [has, was, is] = [table.get(key), old, next].map((one) => (one === undefined ? '' : say(one)));
    if (has !== was) this.complaints.push(`${key}: old is ${was}, the device has ${has}`);
    if (has === is) this.complaints.push(`${key}: told what it has: ${is}`);
    if (next === undefined) table.delete(key);
    else table.set(key, next);
  }
}
