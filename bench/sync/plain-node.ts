import { Etcd3, type IKeyValue } from 'etcd3';
import { expect } from '../expect.ts';
import type { Following } from './follower.ts';
import type { FollowerTask } from './protocol.ts';

interface Entry {
  readonly identity: number;
  readonly hostIP: string;
  readonly encryptKey: number;
  readonly namespace: string;
  readonly podName: string;
}

const PAGE = 10_000;

function entryOf(value: Buffer): Entry {
  const { ID, HostIP, Key, K8sNamespace, K8sPodName } = JSON.parse(value.toString());
  return { identity: ID, hostIP: HostIP, encryptKey: Key, namespace: K8sNamespace, podName: K8sPodName };
}

/** Follows the IPs as a plain program: the client `etcd3` (grpc-js), `JSON.parse` and a `Map`. */
export function follow({ endpoint, prefix, keys }: FollowerTask): Following {
  const client = new Etcd3({ hosts: endpoint, grpcOptions: { 'grpc.max_receive_message_length': -1 } });
  const entries = new Map<string, Entry>();
  let begun = 0;
  let first = 0;
  let changes = 0;
  let awaited = Number.POSITIVE_INFINITY;
  let onAwaited = (): void => {};
  const store = ({ key, value }: Pick<IKeyValue, 'key' | 'value'>): void => {
    entries.set(key.toString().slice(prefix.length), entryOf(value));
    first ||= performance.now();
  };
  const end = `${prefix.slice(0, -1)}0`;
  const list = async (): Promise<string> => {
    let revision = '0';
    for (let start = prefix, more = true; more; ) {
      const page = await client.getAll().inRange({ start, end }).limit(PAGE).revision(revision).exec();
      revision = page.header.revision;
      for (const kv of page.kvs) store(kv);
      more = page.more;
      start = `${page.kvs.at(-1)?.key.toString()}\0`;
    }
    return revision;
  };
  return {
    get firstMs() {
      return first - begun;
    },
    list: async () => {
      begun = performance.now();
      const revision = await list();
      const watcher = await client
        .watch()
        .prefix(prefix)
        .startRevision(String(Number(revision) + 1))
        .create();
      watcher.on('put', (kv) => {
        store(kv);
        if (++changes >= awaited) onAwaited();
      });
      watcher.on('delete', ({ key }) => void entries.delete(key.toString().slice(prefix.length)));
      expect('IPs', entries.size, keys);
    },
    changes: (count) => {
      awaited = count;
      return new Promise((resolve) => {
        onAwaited = resolve;
        if (changes >= awaited) resolve();
      });
    },
    resynced: async () => {
      // A plain program lists again, because its watcher does not detect lost events.
      for (;;) {
        try {
          await new Promise((resolve) => setTimeout(resolve, 500));
          await list();
          return;
        } catch {}
      }
    },
  };
}
