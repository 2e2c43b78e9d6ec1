import { Map as ImmutableMap, Record as ImmutableRecord, type RecordOf } from 'immutable';
import type { Claim } from '../../src/ipcache/types.ts';
import type { Subject } from './subject.ts';

interface Fields {
  identity: number;
  hostIP: string | undefined;
  encryptKey: number;
  namespace: string;
  podName: string;
}

const Entry: ImmutableRecord.Factory<Fields> = ImmutableRecord<Fields>({
  identity: 0,
  hostIP: undefined,
  encryptKey: 0,
  namespace: '',
  podName: '',
});

/** An `immutable.Map` of records that counts each change: the simplest design with free snapshots. */
export class ImmutableRecordsSubject implements Subject {
  map: ImmutableMap<string, RecordOf<Fields>> = ImmutableMap();
  changes = 0;

  get size(): number {
    return this.map.size;
  }

  upsertAll(keys: readonly string[], claims: readonly Claim[]): void {
    for (let i = 0; i < keys.length; i++) {
      const claim = claims[i];
      if (claim !== undefined) this.#upsert(keys[i] ?? '', claim);
    }
  }

  getAll(keys: readonly string[]): number {
    let found = 0;
    for (const key of keys) if (this.map.get(key) !== undefined) found++;
    return found;
  }

  deleteAll(keys: readonly string[]): void {
    for (const key of keys) {
      const next = this.map.delete(key);
      if (next !== this.map) this.changes++;
      this.map = next;
    }
  }

  #upsert(key: string, { identity, hostIP, encryptKey = 0, k8s }: Claim): void {
    const { namespace = '', podName = '' } = k8s ?? {};
    const entry = Entry({ identity, hostIP, encryptKey, namespace, podName });
    if (entry.equals(this.map.get(key))) return;
    this.map = this.map.set(key, entry);
    this.changes++;
  }
}
