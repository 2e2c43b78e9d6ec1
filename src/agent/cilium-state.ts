import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { labelTexts } from '../api/documents.ts';
import { errorCode } from '../base/failure.ts';
import { readFileHead } from '../base/files/regular-file.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { identityCell, table } from '../client/answer.ts';
import { bytesOfText } from '../kvstore/codec/bytes.ts';
import { decodeNode } from '../kvstore/codec/node.ts';
import type { ClusterNode, NodeName } from '../model/cluster-node.ts';
import type { Labels } from '../model/labels.ts';
import { RESERVED_IDENTITIES } from '../model/numeric-identity.ts';
import { type Decoded, isObject, parseJson } from '../net/fields.ts';
import { InputError, unreadable } from '../process/input-error.ts';
import { printable } from '../process/terminal.ts';
import {
  type CiliumEndpoint,
  decodeEndpointHeader,
  decodeEndpointJson,
  decodeLocalIdentities,
  type EndpointKind,
} from '../restore/cilium-endpoint.ts';
import { DEFAULT_POOL, IPAM, type ReservedAddress } from '../restore/ipam.ts';
import type { ImportedState } from '../restore/restoration.ts';
import { type RouterAddresses, readRouterAddresses } from '../restore/router-addresses.ts';

/** An endpoint of a state directory. */
interface EndpointDocument extends Omit<CiliumEndpoint, 'labels' | 'identityLabels'> {
  readonly file: string;
  readonly labels: readonly string[];
  readonly identityLabels: readonly string[];
}

/** The reason why a file, or a part of it, was rejected. */
interface FileProblem extends Pick<Rejection, 'reason' | 'field' | 'message'> {
  readonly file: string;
}

/** The contents of the state directory of a Cilium agent. */
export interface CiliumState {
  readonly folder: string;
  readonly endpoints: readonly (CiliumEndpoint & { readonly file: string })[];
  readonly nodes: readonly ClusterNode[];
  readonly localIdentities: readonly { readonly identity: number; readonly labels: Labels }[];
  readonly router: RouterAddresses;
  /** Ignored unfinished folders: `42_next` beside `42`. */
  readonly ignored: readonly string[];
  readonly problems: readonly { readonly file: string; readonly rejection: Rejection }[];
  /** Latest modification time of the files, wall clock. */
  readonly writtenAt: number;
}

/** A state directory as plain data. `addresses` are reserved and may not be allocated. */
export interface CiliumStateDocument {
  readonly folder: string;
  readonly endpoints: readonly EndpointDocument[];
  readonly nodes: readonly {
    readonly cluster: string;
    readonly name: string;
    readonly addresses: readonly string[];
  }[];
  readonly localIdentities: readonly { readonly identity: number; readonly labels: readonly string[] }[];
  readonly addresses: readonly ReservedAddress[];
  readonly ignored: readonly string[];
  readonly problems: readonly FileProblem[];
}

/** Maximum size of a file. Larger files are rejected. */
const MAX_FILE_BYTES: number = 16 << 20;

/** Names of the file of an endpoint. The first existing one is read; the first name is that of 1.17 (AGENT 7). */
const ENDPOINT_FILES = ['ep_config.json', 'ep_config.h', 'lxc_config.h'] as const;

/** Name of the folder of an endpoint; `_next` and `_next_fail`: unfinished (AGENT 5). */
const FOLDER = /^(\d{1,5})(_next|_next_fail)?$/;

/** Reads files of one folder and collects their problems. Never writes. */
class StateReader {
  readonly problems: { readonly file: string; readonly rejection: Rejection }[] = [];
  readonly #folder: string;
  /** Latest modification time of the read files, wall clock. */
  writtenAt = 0;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Returns the text of a file; `undefined` if it does not exist or cannot be read. */
  async readText(file: string): Promise<string | undefined> {
    const path = join(this.#folder, file);
    try {
      const { size, mtimeMs } = await stat(path);
      this.writtenAt = Math.max(this.writtenAt, Math.floor(mtimeMs));
      if (size <= MAX_FILE_BYTES) return (await readFileHead(path, MAX_FILE_BYTES)).bytes.toString('utf8');
      this.reject(
        file,
        rejection('too-large', 'file', `${size} bytes`, `the file must have at most ${MAX_FILE_BYTES} bytes`),
      );
    } catch (error) {
      const code = String(errorCode(error) ?? '');
      if (code !== 'ENOENT')
        this.reject(file, rejection('unreadable', 'file', code, unreadable('file', file, error).message));
    }
    return undefined;
  }

  /** Returns the decoded value. If decoding failed, adds a problem and returns `undefined`. */
  valueOf<T>(file: string, decoded: Decoded<T>): T | undefined {
    if (decoded.ok) return decoded.value;
    this.reject(file, decoded.rejection);
    return undefined;
  }

  reject(file: string, rejected: Rejection): void {
    this.problems.push({ file, rejection: rejected });
  }
}

/**
 * Reads a state directory (`/var/run/cilium/state`) or its parent, the run directory. Throws `InputError` if it
 * contains no state.
 */
export async function readCiliumState(path: string): Promise<CiliumState> {
  const names = await namesIn(path);
  const folder = names.includes('state') ? join(path, 'state') : path;
  const all = folder === path ? names : await namesIn(folder);
  const reader = new StateReader(folder);
  const { folders, ignored } = foldersOf(all);
  const endpoints = await readEndpoints(reader, folders);
  const nodes = await readNodes(reader);
  const localIdentities = await readLocalIdentities(reader);
  const header = (await reader.readText('globals/node_config.h')) ?? '';
  if (folders.length === 0 && nodes === undefined && localIdentities === undefined)
    throw new InputError(
      `${path}: no endpoint, nodes.json or local_allocator_state.json found: set a state directory`,
    );
  const { problems, writtenAt } = reader;
  return {
    folder,
    endpoints,
    nodes: nodes ?? [],
    localIdentities: localIdentities ?? [],
    router: readRouterAddresses(header),
    ignored,
    problems,
    writtenAt,
  };
}

/** Returns a state directory as plain data. */
export function ciliumStateDocument(state: CiliumState): CiliumStateDocument {
  const { folder, endpoints, nodes, localIdentities, ignored } = state;
  const problems = state.problems.map(({ file, rejection: { reason, field, message } }) => ({
    file,
    reason,
    field,
    message,
  }));
  const onReject = ({ reason, field, at = '', message }: Rejection): void => {
    problems.push({ file: at, reason, field, message });
  };
  return {
    folder,
    endpoints: endpoints.map(({ labels, identityLabels, ...rest }) => ({
      ...rest,
      labels: labelTexts(labels),
      identityLabels: labelTexts(identityLabels),
    })),
    nodes: nodes.map(({ cluster, name, addresses }) => ({
      cluster,
      name,
      addresses: addresses.map(({ type, ip }) => `${type}=${ip}`),
    })),
    localIdentities: localIdentities.map(({ identity, labels }) => ({
      identity,
      labels: labelTexts(labels),
    })),
    addresses: [...reservedAddresses(state, onReject).reserved()],
    ignored,
    problems,
  };
}

/**
 * Returns the addresses reserved before any allocation (AGENT 12, 16, 17): the router's first, then those of
 * endpoints.
 */
function reservedAddresses(
  { router, endpoints }: CiliumState,
  onReject: (rejection: Rejection) => void,
): IPAM {
  const pools = new Set(endpoints.flatMap(({ ipv4Pool, ipv6Pool }) => [ipv4Pool, ipv6Pool]).filter(Boolean));
  const ipam = new IPAM(
    Array.from(pools.add(DEFAULT_POOL), (pool) => [pool, []]),
    onReject,
  );
  for (const ip of [router.ipv4, router.ipv6])
    if (ip !== undefined) ipam.reserve(ip, { use: 'router', name: 'cilium_host' });
  for (const { kind, file, ipv4, ipv6, ipv4Pool, ipv6Pool } of endpoints) {
    if (kind !== 'pod') continue;
    const owner = { use: 'endpoint', name: file } as const;
    if (ipv4 !== undefined) ipam.reserve(ipv4, owner, ipv4Pool || DEFAULT_POOL);
    if (ipv6 !== undefined) ipam.reserve(ipv6, owner, ipv6Pool || DEFAULT_POOL);
  }
  return ipam;
}

/**
 * Returns the state to serve until the sources of an agent are complete: endpoints of pods, the router as the host,
 * other nodes, and labels.
 */
export function importedState(state: CiliumState, localNode: NodeName): ImportedState {
  const { endpoints, router, nodes, localIdentities, writtenAt: knownAt } = state;
  const pods = endpoints.filter(({ kind }) => kind === 'pod');
  const routers = [router.ipv4, router.ipv6].flatMap((ip) =>
    ip === undefined ? [] : { ip, identity: RESERVED_IDENTITIES.host },
  );
  const entries = pods.flatMap(({ ipv4, ipv6, identity, namespace, podName }) => {
    const k8s = podName === '' ? undefined : { namespace, podName };
    return [ipv4, ipv6].flatMap((ip) => (ip === undefined ? [] : { ip, identity, k8s }));
  });
  return {
    entries: [...routers, ...entries],
    nodes: nodes.filter(({ cluster, name }) => cluster !== localNode.cluster || name !== localNode.name),
    identities: [...pods.filter(({ labels }) => labels.length > 0), ...localIdentities],
    knownAt,
  };
}

async function namesIn(path: string): Promise<readonly string[]> {
  const names = await readdir(path).catch((cause: unknown) => {
    throw unreadable('the state directory', path, cause);
  });
  return names.sort();
}

/** Returns the folders of endpoints. An unfinished folder is read only if no finished one exists (AGENT 5). */
function foldersOf(names: readonly string[]): {
  readonly folders: readonly string[];
  readonly ignored: readonly string[];
} {
  const all = new Set(names);
  const folders: string[] = [];
  const ignored: string[] = [];
  for (const name of names) {
    const [, id, unfinished] = FOLDER.exec(name) ?? [];
    if (id === undefined || Number(id) > 65_535) continue;
    const isReplaced =
      unfinished !== undefined && (all.has(id) || (unfinished === '_next_fail' && all.has(`${id}_next`)));
    if (isReplaced) ignored.push(name);
    else folders.push(name);
  }
  return { folders, ignored };
}

/** Returns the endpoints by id, ascending. */
async function readEndpoints(
  reader: StateReader,
  folders: readonly string[],
): Promise<CiliumState['endpoints']> {
  const endpoints = new Map<number, CiliumState['endpoints'][number]>();
  for (const name of folders) {
    const endpoint = await readEndpoint(reader, name);
    if (endpoint === undefined) continue;
    const other = endpoints.get(endpoint.id);
    // If two folders contain the same id, the folder with this id as its name wins (AGENT 6).
    const used = other === undefined || name === String(endpoint.id) ? endpoint : other;
    endpoints.set(endpoint.id, used);
    if (other !== undefined)
      reader.reject(
        endpoint.file,
        rejection('repeated-id', 'ID', endpoint.id, `duplicate of ${other.file}: ${used.file} is used`),
      );
  }
  return [...endpoints.values()].sort((a, b) => a.id - b.id);
}

async function readEndpoint(
  reader: StateReader,
  name: string,
): Promise<CiliumState['endpoints'][number] | undefined> {
  for (const fileName of ENDPOINT_FILES) {
    const file = `${name}/${fileName}`;
    const text = await reader.readText(file);
    if (text === undefined) continue;
    const decoded =
      fileName === 'ep_config.json' ? decodeEndpointJson(text, file) : decodeEndpointHeader(text, file);
    const endpoint = reader.valueOf(file, decoded);
    return endpoint && { file, ...endpoint };
  }
  reader.reject(
    name,
    rejection('no-endpoint', 'folder', name, `must contain one of ${ENDPOINT_FILES.join(', ')}`),
  );
  return undefined;
}

/** Returns the node-local identities; undefined if their file does not exist or cannot be read. */
async function readLocalIdentities(reader: StateReader): Promise<CiliumState['localIdentities'] | undefined> {
  const file = 'local_allocator_state.json';
  const text = await reader.readText(file);
  return text === undefined ? undefined : (reader.valueOf(file, decodeLocalIdentities(text, file)) ?? []);
}

/** Returns the nodes; undefined if their file does not exist or cannot be read. */
async function readNodes(reader: StateReader): Promise<readonly ClusterNode[] | undefined> {
  const file = 'nodes.json';
  const text = await reader.readText(file);
  if (text === undefined) return undefined;
  const list = parseJson(text);
  if (!Array.isArray(list)) {
    reader.reject(file, rejection('invalid-json', 'nodes', text.slice(0, 64), 'must be a list of nodes'));
    return [];
  }
  return list.flatMap((value: unknown, index) => {
    const { Cluster: cluster, Name: name }: Readonly<Record<string, unknown>> = isObject(value) ? value : {};
    const expected = { cluster: String(cluster), name: String(name) };
    const decoded = decodeNode(expected, bytesOfText(JSON.stringify(value)), `${file} [${index}]`);
    return reader.valueOf(`${file} [${index}]`, decoded) ?? [];
  });
}

const OUTCOME_TEXTS: Readonly<Record<EndpointKind, string>> = {
  pod: 'restored',
  health: 'not imported: cilium-health allocates it again',
  host: 'not imported',
  ingress: 'not imported',
};

/**
 * Returns a state directory as lines of text: its contents, and what an agent does with them after a restart. The
 * problems are not included; they are in `problems`.
 */
export function ciliumStateLines(state: CiliumStateDocument): readonly string[] {
  const endpoints = state.endpoints.map((endpoint) => [
    String(endpoint.id),
    endpoint.podName === '' ? '-' : `${endpoint.namespace}/${endpoint.podName}`,
    [endpoint.ipv4, endpoint.ipv6].filter(Boolean).join(' ') || '-',
    identityCell(endpoint.identity, endpoint.labels),
    OUTCOME_TEXTS[endpoint.kind],
    endpoint.file,
  ]);
  const nodes = state.nodes.map(({ cluster, name, addresses }) => [
    `${cluster}/${name}`,
    addresses.join(' '),
  ]);
  const local = state.localIdentities.map(({ identity, labels }) => [String(identity), labels.join(' ')]);
  const reserved = state.addresses.map(({ address, pool, use, name }) => [address, pool, use, name]);
  const tables = [
    [['ENDPOINT', 'POD', 'ADDRESSES', 'IDENTITY', 'RESULT', 'FILE'], ...endpoints],
    [['NODE', 'ADDRESSES'], ...nodes],
    [['LOCAL IDENTITY', 'LABELS'], ...local],
    [['USED ADDRESS', 'POOL', 'USE', 'NAME'], ...reserved],
  ].filter((rows) => rows.length > 1);
  return [
    ...tables.flatMap((rows, index) => [...(index === 0 ? [] : ['']), ...table(rows, { wide: true })]),
    ...state.ignored.map(
      (name) => `${printable(name)}: not read, because another folder of the same endpoint is read`,
    ),
  ];
}
