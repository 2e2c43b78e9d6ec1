import { type Check, OBJECT, optional, TEXT } from '../base/arguments.ts';
import { showValue } from '../base/show-value.ts';
import type { Claim, PrefixDeleteOptions } from '../ipcache/types.ts';
import { isSource, SOURCES, type Source } from '../model/source.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import { type EndpointSlice, SLICE } from '../servicecache/backend.ts';
import { SERVICE, type Service } from '../servicecache/service.ts';

/**
 * An assumed change:
 *
 * - `remove-cluster`: the remote cluster leaves the mesh
 * - `remove-node`: all claims on a node (`cluster/name`) are deleted. Its pods and their backends stay
 * - `drain-node`: the claims of the pods on a node are deleted, and its backends. The node stays, and so do backends
 *   without the name of their node, such as those that a remote cluster shares in `services/v1`
 * - `remove-source`: all claims of a source are deleted, or those of one owner, which is a cluster or a node. Services
 *   of remote clusters have the source `clustermesh`, those of the local cluster `k8s`
 * - `rank`: the source ranks directly above or below another
 * - `setting`: settings of the node manager are changed
 * - `upsert`, `delete`: the claim of a writer on a prefix is set or deleted. The CIDRs of policies have the source
 *   `generated`
 * - `service`, `slice`: a Kubernetes service, or one of its endpoint slices, is created or replaced
 */
export type Edit =
  | { readonly edit: 'remove-cluster'; readonly cluster: string }
  | { readonly edit: 'remove-node' | 'drain-node'; readonly node: string }
  | { readonly edit: 'remove-source'; readonly source: Source; readonly owner?: string | undefined }
  | {
      readonly edit: 'rank';
      readonly source: Source;
      readonly place: 'above' | 'below';
      readonly other: Source;
    }
  | { readonly edit: 'setting'; readonly settings: Partial<NodeConfiguration> }
  | { readonly edit: 'upsert'; readonly key: string; readonly claim: Claim }
  | { readonly edit: 'delete'; readonly key: string; readonly by: PrefixDeleteOptions }
  | { readonly edit: 'service'; readonly service: Service }
  | { readonly edit: 'slice'; readonly slice: EndpointSlice };

/** Thrown by `whatIf` for an edit that names an unknown object or has an invalid value. */
export class EditError extends Error {
  override readonly name = 'EditError';
  readonly code = 'invalid-edit';
  /** Index of the edit in the list. */
  readonly index: number;
  readonly field: string;
  readonly value: string;
  /** The known clusters, nodes or owners for an unknown one; empty for an unknown claim; otherwise undefined. */
  readonly known: readonly string[] | undefined;

  constructor(
    message: string,
    about: { index: number; field: string; value: string; known?: readonly string[] | undefined },
  ) {
    super(message);
    this.index = about.index;
    this.field = about.field;
    this.value = about.value;
    this.known = about.known;
  }
}

const EDITS: readonly unknown[] = [
  'remove-cluster',
  'remove-node',
  'drain-node',
  'remove-source',
  'rank',
  'setting',
  'upsert',
  'delete',
  'service',
  'slice',
] satisfies readonly Edit['edit'][];

/** The checks of fields whose values have no list of allowed ones. */
const FIELDS: Readonly<Record<string, Readonly<Record<string, Check>>>> = {
  'remove-cluster': { cluster: TEXT },
  'remove-node': { node: TEXT },
  'drain-node': { node: TEXT },
  'remove-source': { owner: optional(TEXT) },
  setting: { settings: OBJECT },
  service: { service: SERVICE },
  slice: { slice: SLICE },
} satisfies Partial<Record<Edit['edit'], Readonly<Record<string, Check>>>>;

const BOOLEANS: readonly unknown[] = [true, false];

/** The values of each setting of the node manager. */
const SETTINGS: ReadonlyMap<string, readonly unknown[]> = new Map(
  Object.entries({
    remoteNodeIdentities: BOOLEANS,
    encryption: BOOLEANS,
    nodeEncryption: BOOLEANS,
    hostFirewall: BOOLEANS,
    underlay: ['ipv4', 'ipv6'],
  } satisfies Record<keyof NodeConfiguration, readonly unknown[]>),
);

/** Throws {@link EditError} if an edit is of no known kind, lacks a field, or has a wrong value in one. */
export function checkEdits(edits: readonly Edit[]): void {
  for (const [index, edit] of edits.entries()) {
    const check = (field: string, value: unknown, isValid: boolean, expected: string): void => {
      if (isValid) return;
      const shown = showValue(value);
      throw new EditError(`${field} ${shown} must be ${expected}`, { index, field, value: shown });
    };
    check('edit', edit.edit, EDITS.includes(edit.edit), `one of ${EDITS.join(', ')}`);
    for (const [field, checkField] of Object.entries(FIELDS[edit.edit] ?? {})) {
      const value: unknown = Reflect.get(edit, field);
      const fault = checkField(value);
      if (fault !== undefined)
        throw new EditError(`${field}${fault}`, { index, field, value: showValue(value) });
    }
    if (edit.edit === 'remove-source' || edit.edit === 'rank')
      check('source', edit.source, isSource(edit.source), 'a source');
    if (edit.edit === 'setting')
      for (const [name, value] of Object.entries(edit.settings)) {
        const values = SETTINGS.get(name) ?? [];
        check('settings', name, SETTINGS.has(name), `one of ${[...SETTINGS.keys()].join(', ')}`);
        check(name, value, values.includes(value), `one of ${values.join(', ')}`);
      }
    if (edit.edit !== 'rank') continue;
    const isOther = isSource(edit.other) && edit.other !== edit.source;
    check('other', edit.other, isOther, 'another source');
    check('place', edit.place, ['above', 'below'].includes(edit.place), 'above or below');
  }
}

/** Returns the order of sources after the edits, strongest first. */
export function orderAfter(edits: readonly Edit[]): readonly Source[] {
  const order: Source[] = [...SOURCES];
  for (const edit of edits) {
    if (edit.edit !== 'rank') continue;
    order.splice(order.indexOf(edit.source), 1);
    order.splice(order.indexOf(edit.other) + (edit.place === 'above' ? 0 : 1), 0, edit.source);
  }
  return order;
}

/** Returns a comparison of claims, strongest first, for an order of sources; ties by the owner's name (I4). */
export function comparison(
  order: readonly Source[],
): (
  a: { readonly source: Source; readonly owner: string },
  b: { readonly source: Source; readonly owner: string },
) => number {
  const ranks = new Map(order.map((source, rank) => [source, rank]));
  const rankOf = (source: Source): number => ranks.get(source) ?? order.length;
  return (a, b) =>
    rankOf(a.source) - rankOf(b.source) || (a.owner < b.owner ? -1 : Number(a.owner > b.owner));
}

/** The sources of the claims of remote clusters: `clustermesh`, and `restored` from a checkpoint. */
const SOURCES_OF_REMOTES = ['clustermesh', 'restored'] as const satisfies readonly Source[];

/** A writer of claims in the IPCache. */
interface NamedWriter {
  readonly source: Source;
  readonly owner: string;
}

/** Returns a writer as text. */
export function writerText({ source, owner }: NamedWriter): string {
  return `${source} ${owner}`;
}

/** Returns the scope of the claims on a node. No source is named `node`. */
function nodeScope(fullName: string): string {
  return `node ${fullName}`;
}

/** Returns the scope of the claims of the pods on a node. No source is named `pods`. */
export function podScope(fullName: string): string {
  return `pods ${fullName}`;
}

/**
 * Returns the scopes whose claims an edit removes: a source, a writer (`source owner`), a node or the pods on a node.
 * Empty if the edit removes none.
 */
export function removedScopes(edit: Edit): readonly string[] {
  switch (edit.edit) {
    case 'remove-cluster':
      return SOURCES_OF_REMOTES.map((source) => writerText({ source, owner: edit.cluster }));
    case 'remove-node':
      return [nodeScope(edit.node)];
    case 'drain-node':
      return [podScope(edit.node)];
    case 'remove-source': {
      const { source, owner } = edit;
      return [owner === undefined ? source : writerText({ source, owner })];
    }
    default:
      return [];
  }
}

/**
 * Returns the scopes that contain the claims of a writer in the IPCache. Address claims of nodes have the full name of
 * the node as owner, so `remove-cluster` and `remove-node` do not remove them; they are removed with their node.
 */
export function scopesOfWriter(writer: NamedWriter): readonly string[] {
  return [writer.source, writerText(writer)];
}

/** Returns the scopes that contain the claim of a source on a node. */
export function scopesOfNode({
  source,
  cluster,
  fullName,
}: {
  readonly source: Source;
  readonly cluster: string;
  readonly fullName: string;
}): readonly string[] {
  const ofOwners = [cluster, fullName].map((owner) => writerText({ source, owner }));
  return [source, ...ofOwners, nodeScope(fullName)];
}

/** Returns the indexes of the first and the last edit that removes each scope. */
export function removalsByScope(
  edits: readonly Edit[],
): ReadonlyMap<string, { readonly first: number; readonly last: number }> {
  const removals = new Map<string, { readonly first: number; readonly last: number }>();
  for (const [index, edit] of edits.entries())
    for (const scope of removedScopes(edit))
      removals.set(scope, { first: removals.get(scope)?.first ?? index, last: index });
  return removals;
}

/** Returns the remote cluster whose services an edit removes; `'*'` for all clusters, undefined for none. */
export function clusterOfRemovedServices(edit: Edit): string | undefined {
  if (edit.edit === 'remove-cluster') return edit.cluster;
  return edit.edit === 'remove-source' && edit.source === 'clustermesh' ? (edit.owner ?? '*') : undefined;
}

/** Returns true if an edit removes the services and slices of the local cluster. */
export function removesLocalServices(edit: Edit): boolean {
  return edit.edit === 'remove-source' && edit.source === 'k8s' && edit.owner === undefined;
}
