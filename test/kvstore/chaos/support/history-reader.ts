import { createInterface } from 'node:readline';
import { keyOfBytes, textOfBytes } from '../../../../src/kvstore/codec/bytes.ts';
import type { EtcdProcess } from '../../etcd/support/etcd-process.ts';
import type { Past } from './past.ts';

/** One answer printed by `etcdctl watch -w json`. Numbers above 2⁵³, which only ids have, are rounded. */
interface PrintedAnswer {
  readonly Header: { readonly revision: number };
  readonly Events: readonly PrintedEvent[] | null;
  readonly CompactRevision: number;
}

interface PrintedEvent {
  readonly type?: number;
  readonly kv: { readonly key: string; readonly mod_revision: number; readonly value?: string };
}

const DELETE = 1;

/**
 * Reads the history of a prefix from a member by etcd's Go client, from the end of `past` to `revision`,
 * which must be that of a write below the prefix.
 */
export async function readHistory(
  member: EtcdProcess,
  prefix: string,
  past: Past,
  revision: number,
): Promise<void> {
  if (revision <= past.revision) return;
  const from = past.revision + 1;
  const words = ['watch', '--prefix', prefix, '--rev', String(from), '-w', 'json'];
  const child = member.spawnCtl(words);
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const answer = JSON.parse(line) as PrintedAnswer; // etcdctl's own format
      if (answer.CompactRevision > 0) break;
      for (const event of answer.Events ?? []) addEvent(past, event, from);
      if (past.revision >= revision) return;
    }
  } finally {
    child.kill('SIGKILL');
  }
  throw new Error(`the history of ${prefix} from revision ${from} to ${revision} cannot be read`);
}

function addEvent(past: Past, { type, kv }: PrintedEvent, from: number): void {
  if (kv.mod_revision < from) throw new Error(`etcdctl told of revision ${kv.mod_revision} again`);
  const value = textOfBytes(Buffer.from(kv.value ?? '', 'base64'));
  past.add(keyOfBytes(Buffer.from(kv.key, 'base64')), {
    revision: kv.mod_revision,
    value: type === DELETE ? undefined : value,
  });
}
