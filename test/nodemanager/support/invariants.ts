import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { LostAddress } from '../../../src/nodemanager/node-addresses.ts';
import type { NodeManager } from '../../../src/nodemanager/node-manager.ts';
import { attributes } from '../../ipcache/support/naive-ipcache.ts';
import { FoldingHandler } from './folding-handler.ts';
import { claimsOf, holdsBack, rank } from './naive-nodes.ts';

/** The part of a node manager that the tests use, so that a mutant can replace it. */
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
  | 'status'
  | 'exists'
  | 'size'
  | 'snapshot'
  | 'checkpoint'
  | 'restore'
>;

/** I1: the folded calls of a handler are equal to the replay of a new one. */
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
 * The reported holders of lost addresses are those in the IPCache, including retained overruled claims.
 * Handlers wait only for stronger sources except API servers.
 */
export function lostAddressesAreTold(manager: NodesUnderTest, ipcache: Pick<IPCache, 'get'>): string[] {
  const problems: string[] = [];
  const told = manager.status();
  for (const { fullName, source, fields } of manager.nodes()) {
    const lost = [...claimsOf(fields, manager.configuration).keys()].flatMap((ip) => {
      const found = ipcache.get(ip);
      if (found?.owner === fullName && found.source === source) return [];
      const holder = found && { source: found.source, owner: found.owner };
      return [{ ip, holder, stronger: holder !== undefined && holdsBack(holder.source, fields) }];
    });
    const { lostAddresses, heldBack } = manager.explain(fullName) ?? {};
    const expected = byAddress(lost);
    for (const said of [lostAddresses, told.lostAddresses[fullName]]) {
      if (byAddress(said ?? []) !== expected)
        problems.push(`${fullName}: says ${byAddress(said ?? [])}, has lost ${expected}`);
    }
    if (heldBack === true && !lost.some(({ stronger }) => stronger))
      problems.push(`${fullName}: waits for nobody`);
  }
  return problems;
}

function byAddress(lost: readonly LostAddress[]): string {
  return JSON.stringify([...lost].sort((a, b) => (a.ip < b.ip ? -1 : 1)));
}

/**
 * Every address of a known node is in the IPCache as the node implies, or has a legitimate other holder. The
 * IPCache has nothing in a node's name that the node does not claim.
 */
export function addressesAreHeld(
  manager: NodesUnderTest,
  ipcache: Pick<IPCache, 'get' | 'entries'>,
): string[] {
  const problems: string[] = [];
  const claims = new Map<string, string>();
  for (const { fullName, fields } of manager.nodes()) {
    for (const [ip, claim] of claimsOf(fields, manager.configuration)) {
      claims.set(`${fullName} ${ip}`, `${claim.source} ${attributes(claim)}`);
      const entry = ipcache.get(ip);
      if (entry === undefined) problems.push(`${fullName}: ${ip} is not in the ipcache`);
      else if (rank(entry.source) < rank(claim.source))
        problems.push(`${fullName}: ${ip} is held by a weaker source`);
    }
  }
  for (const entry of ipcache.entries({ includeShadowed: true })) {
    if (entry.owner === '') continue;
    if (claims.get(`${entry.owner} ${entry.key}`) !== `${entry.source} ${attributes(entry)}`)
      problems.push(`${entry.key}: held for ${entry.owner}, which does not claim it so`);
  }
  return problems;
}
