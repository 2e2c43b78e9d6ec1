import { showValue } from '../base/show-value.ts';
import type { ClaimWriter, Writer } from '../ipcache/types.ts';
import { canonicalKey } from '../net/prefix.ts';
import { type Edit, EditError, removedScopes, scopesOfWriter } from './edits.ts';
import type { WhatIfEngines } from './what-if.ts';

/** The names that an evaluation has found in the engines. */
interface FoundNames {
  /** The edits that remove a claim on a node or an offer of a cluster, or drain a known node. */
  readonly matched: ReadonlySet<Edit>;
  /** The remote clusters with a claim on a node, or an offer. */
  readonly clusters: ReadonlySet<string>;
}

/** Throws {@link EditError} if an edit names a cluster, node, owner or claim that does not exist. */
export function checkNames(edits: readonly Edit[], engines: WhatIfEngines, found: FoundNames): void {
  const writers = engines.ipcache.writers();
  const writtenScopes = new Set(writers.flatMap(scopesOfWriter));
  const followed = new Set(engines.clusters?.() ?? []);
  const setBefore = new Set<string>(); // the claims that earlier edits have set
  for (const [index, edit] of edits.entries()) {
    if (edit.edit === 'upsert') setBefore.add(claimText(edit.key, edit.claim));
    if (edit.edit === 'delete') checkDelete(edit, index, engines, setBefore);
    const removed = removedScopes(edit);
    if (removed.length === 0 || found.matched.has(edit)) continue;
    if (removed.some((scope) => writtenScopes.has(scope))) continue;
    if (edit.edit === 'remove-cluster' && !followed.has(edit.cluster))
      throw new EditError(noRemoteCluster(edit.cluster, engines), {
        index,
        field: 'cluster',
        value: edit.cluster,
        known: knownClusters(writers, found.clusters, followed),
      });
    if (edit.edit === 'remove-node' || edit.edit === 'drain-node')
      throw new EditError(`no node ${showValue(edit.node)}`, {
        index,
        field: 'node',
        value: edit.node,
        known: Array.from(engines.nodes?.claims() ?? [], ([name]) => name),
      });
    if (edit.edit === 'remove-source' && edit.owner !== undefined)
      throw new EditError(`${edit.source} has no owner ${showValue(edit.owner)}`, {
        index,
        field: 'owner',
        value: edit.owner,
        known: writers.flatMap(({ source, owner }) => (source === edit.source ? [owner] : [])),
      });
  }
}

function checkDelete(
  { key, by }: Extract<Edit, { edit: 'delete' }>,
  index: number,
  { ipcache }: WhatIfEngines,
  setBefore: ReadonlySet<string>,
): void {
  const { source, owner = '' } = by;
  if (ipcache.claimsOf(key).some((claim) => claim.source === source && claim.owner === owner)) return;
  if (setBefore.has(claimText(key, by))) return;
  const writer = owner === '' ? source : `${source} ${owner}`;
  const message = `${writer} has no claim on ${showValue(key)}`;
  throw new EditError(message, { index, field: 'key', value: key, known: [] });
}

function noRemoteCluster(cluster: string, { localCluster }: WhatIfEngines): string {
  const shown = showValue(cluster);
  return cluster === localCluster
    ? `${shown} is the local cluster: only remote clusters can be removed`
    : `no remote cluster ${shown}`;
}

/** Returns the names of the remote clusters with claims or offers, and of the followed ones, sorted. */
function knownClusters(
  writers: readonly ClaimWriter[],
  found: Iterable<string>,
  followed: Iterable<string>,
): readonly string[] {
  const owners = writers.flatMap(({ source, owner }) => (source === 'clustermesh' ? [owner] : []));
  // The owners of the claims of nodes are full names.
  return [...new Set([...found, ...followed, ...owners])].filter((name) => !name.includes('/')).sort();
}

/** Returns a text for the claim of a writer on a key, in any spelling. */
function claimText(key: string, { source, owner = '' }: Writer): string {
  return `${source} ${owner} ${canonicalKey(key)}`;
}
