import { commandOutput, outputKind } from '../ciliumdump/command-output.ts';
import { readNodeList } from '../ciliumdump/node-list.ts';
import { clusterIDOf, MINIMAL_ALLOCATED_IDENTITY } from '../model/numeric-identity.ts';
import { isObject } from '../net/fields.ts';
import type { ArchiveEntry } from './archive/archive.ts';
import { commandFile } from './node-dump.ts';
import { kindOfFile, objectsOf } from './object-files.ts';

/** The cluster of a sysdump. */
export interface DumpedCluster {
  readonly clusterName: string;
  readonly clusterID: number;
}

/** Returns the cluster in the settings of Cilium; a missing name is `default`, a missing or invalid id 0. */
export function clusterOfSettings({
  'cluster-name': name,
  'cluster-id': id,
}: Readonly<Record<string, unknown>>): DumpedCluster {
  const isID = typeof id === 'string' && /^\d{1,3}$/.test(id);
  return {
    clusterName: typeof name === 'string' && name !== '' ? name : 'default',
    clusterID: isID ? Number(id) : 0,
  };
}

/**
 * Returns the cluster of a sysdump without settings: its name from an agent's list of nodes (the cluster of the local
 * node), its id from the numbers of CiliumIdentities. If the name is known, `note` states its origin. Reads
 * entries until name and id are known. `read` returns the text of an entry; undefined if it is broken.
 */
export async function clusterOfEntries(
  entries: AsyncIterable<ArchiveEntry>,
  read: (entry: ArchiveEntry) => Promise<string | undefined>,
): Promise<{ readonly cluster: DumpedCluster; readonly note: string | undefined }> {
  let name: string | undefined;
  let id: number | undefined;
  for await (const entry of entries) {
    const command = commandFile(entry.name);
    if (command !== undefined) {
      if (name !== undefined || outputKind(command.file) !== 'node-list') continue;
      name = clusterOfLocalNode((await read(entry)) ?? '', entry.name);
    } else if (id === undefined && kindOfFile(entry.name) === 'CiliumIdentity')
      id = await identityCluster((await read(entry)) ?? '', entry.name);
    if (name !== undefined && id !== undefined) break;
  }
  const origin = `cluster ${name} is taken from a list of nodes${id === undefined ? '' : `, its id ${id} from the identities`}`;
  return {
    cluster: { clusterName: name ?? 'default', clusterID: id ?? 0 },
    note: name === undefined ? undefined : `no settings of Cilium: ${origin}`,
  };
}

// Unreadable values are rejected when the outputs and objects are examined.
const onReject = (): void => {};

function clusterOfLocalNode(text: string, at: string): string | undefined {
  const nodes = readNodeList(commandOutput(text).text, { at, onReject });
  return nodes?.find(({ source, cluster }) => source === 'local' && cluster !== '')?.cluster;
}

async function identityCluster(text: string, at: string): Promise<number | undefined> {
  for await (const { object } of objectsOf(text, at, onReject)) {
    const identity = isObject(object['metadata']) ? Number(object['metadata']['name']) : Number.NaN;
    if (identity >= MINIMAL_ALLOCATED_IDENTITY) return clusterIDOf(identity);
  }
  return undefined;
}
