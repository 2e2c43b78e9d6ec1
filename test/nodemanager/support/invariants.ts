import { sourceRank } from '../../../src/identity/source.ts';
import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import { type AddressClaim, addressClaims } from '../../../src/nodemanager/address-claims.ts';
import type { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { FoldingHandler } from './folding-handler.ts';

/** What the tests use of a node manager, so that a broken one can stand in for it. */
export type NodesUnderTest = Pick<
  NodeManager,
  | 'nodeUpdated'
  | 'nodeDeleted'
  | 'withdraw'
  | 'deleteAllNodes'
  | 'close'
  | 'subscribe'
  | 'nodes'
  | 'get'
  | 'explain'
  | 'configuration'
  | 'configure'
>;

/** I1: what a handler has folded is what a new one is given. */
export function handlersKnowNodes(manager: NodesUnderTest, folded: FoldingHandler): string[] {
  const fresh = new FoldingHandler();
  manager.subscribe(fresh)();
  const problems = [...fresh.complaints];
  for (const name of new Set([...folded.view.keys(), ...fresh.view.keys()])) {
    const known = folded.view.get(name);
    const given = fresh.view.get(name);
    if (known === undefined || given === undefined || !known.equals(given)) {
      problems.push(
        `I1: ${name}: fold ${JSON.stringify(known)} but a new handler is told ${JSON.stringify(given)}`,
      );
    }
  }
  return problems;
}

/**
 * Every address of a known node is in the IPCache as the node implies, or held by somebody who may hold it; and the
 * IPCache holds nothing in a node's name that the node does not claim.
 */
export function addressesAreHeld(
  manager: NodesUnderTest,
  ipcache: Pick<IPCache, 'get' | 'entries'>,
): string[] {
  const problems: string[] = [];
  const claims = new Map<string, AddressClaim>();
  for (const node of manager.nodes()) {
    for (const claim of addressClaims(node, manager.configuration)) {
      claims.set(`${claim.owner} ${claim.ip}`, claim);
      const entry = ipcache.get(claim.ip);
      if (entry === undefined) problems.push(`${node.fullName}: ${claim.ip} is not in the ipcache`);
      else if (sourceRank(entry.source) < sourceRank(claim.source)) {
        problems.push(`${node.fullName}: ${claim.ip} is held by a weaker source`);
      }
    }
  }
  for (const entry of ipcache.entries({ includeShadowed: true })) {
    if (entry.owner === '') continue;
    const claim = claims.get(`${entry.owner} ${entry.key}`);
    const same =
      claim?.identity === entry.identity &&
      claim.source === entry.source &&
      claim.hostIP === entry.hostIP &&
      claim.encryptKey === entry.encryptKey;
    if (!same) problems.push(`${entry.key}: held for ${entry.owner}, which does not claim it so`);
  }
  return problems;
}
