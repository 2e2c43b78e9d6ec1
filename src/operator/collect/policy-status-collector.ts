import type { Clock } from '../../base/clock.ts';
import { counted } from '../../base/show-value.ts';
import { parseTime } from '../../base/system-clock.ts';
import type { KubernetesObject, ResourceKind } from '../../k8s/resource.ts';
import { type PatchOperation, pointer } from '../../k8s/rest/object-writer.ts';
import { nodeKey, resourcePrefix } from '../../kvstore/codec/keys.ts';
import type { KvstoreBackend } from '../../kvstore/session/backend.ts';
import { isObject } from '../../net/fields.ts';
import { NotReadyError } from '../duty-report.ts';
import { field } from './field.ts';
import { type ObjectAccess, performWrite, placeOfObject } from './perform-write.ts';
import type { Collector, RoundReport } from './rounds.ts';

export interface PolicyStatusCollectorOptions extends ObjectAccess {
  /** CiliumNetworkPolicies or CiliumClusterwideNetworkPolicies. */
  readonly policies: ResourceKind;
  readonly backend: Pick<KvstoreBackend, 'get' | 'listPrefix'>;
  readonly cluster: string;
  readonly clock: Pick<Clock, 'wallTime'>;
}

/** Younger entries are not removed. */
const MIN_AGE_MS = 2 * 60_000;
/** Objects per page of a list. Few, because the status of one object may have an entry for each of 5,000 nodes. */
const PAGE_SIZE = 10;
/** A patch has at most 10,000 operations, two for an entry. */
const ENTRIES_PER_PATCH = 5000;

/**
 * Returns the nodes of a policy's status which do not exist and whose entry is old enough, each with the `lastUpdated`
 * of its entry. Pure.
 */
export function staleEntries(
  policy: KubernetesObject,
  nodes: ReadonlySet<string>,
  wallNow: number,
  minAgeMs: number,
): ReadonlyMap<string, string> {
  const stale = new Map<string, string>();
  const entries = field(policy, 'status', 'nodes');
  for (const [node, entry] of Object.entries(isObject(entries) ? entries : {})) {
    const lastUpdated = field(entry, 'lastUpdated');
    if (nodes.has(node) || typeof lastUpdated !== 'string') continue;
    const time = parseTime(lastUpdated);
    if (time !== undefined && time <= wallNow - minAgeMs) stale.set(node, lastUpdated);
  }
  return stale;
}

/** Returns patches that remove the entries. A patch fails if one of its entries has changed. Pure. */
export function removalPatches(entries: ReadonlyMap<string, string>): readonly (readonly PatchOperation[])[] {
  const all = [...entries];
  const patches: PatchOperation[][] = [];
  for (let from = 0; from < all.length; from += ENTRIES_PER_PATCH)
    patches.push(
      all.slice(from, from + ENTRIES_PER_PATCH).flatMap(([node, lastUpdated]): readonly PatchOperation[] => [
        { op: 'test', path: pointer('status', 'nodes', node, 'lastUpdated'), value: lastUpdated },
        { op: 'remove', path: pointer('status', 'nodes', node) },
      ]),
    );
  return patches;
}

/**
 * Removes policy status entries of deleted nodes (OPERATOR 31, 32), for agents of 1.8. A node counts as deleted if it
 * has no key in two rounds. If the kvstore contains no node of the cluster, nothing is removed, because the kvstore may
 * be new.
 */
export class PolicyStatusCollector implements Collector {
  readonly name: string;
  readonly needs: Collector['needs'] = [];
  readonly #options: PolicyStatusCollectorOptions;
  /** Nodes of the previous round; undefined before the first round. */
  #previousNodes: ReadonlySet<string> | undefined;

  constructor(options: PolicyStatusCollectorOptions) {
    this.#options = options;
    this.name = `${options.policies.plural}-status-gc`;
  }

  async round(report: RoundReport, signal: AbortSignal): Promise<void> {
    const { policies, reader, clock } = this.#options;
    const nodes = await this.#listNodes(signal);
    const recent = new Set([...nodes, ...(this.#previousNodes ?? [])]);
    const isFirst = this.#previousNodes === undefined;
    this.#previousNodes = nodes;
    let marked = 0;
    for await (const page of reader.list(policies, signal, PAGE_SIZE)) {
      for (const policy of page) {
        const stale = staleEntries(policy, recent, clock.wallTime(), MIN_AGE_MS);
        marked += stale.size;
        if (!isFirst) await this.#remove(policy, stale, report, signal);
        if (signal.aborted) return;
      }
    }
    report.setMarked(marked);
  }

  async #listNodes(signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { backend, cluster } = this.#options;
    const prefix = resourcePrefix('nodes', cluster);
    const keys = await backend.listPrefix(prefix, { signal });
    if (keys.length > 0) return new Set(keys.map(({ key }) => key.slice(prefix.length)));
    throw new NotReadyError(`the kvstore contains no node of cluster ${cluster}`);
  }

  /**
   * Returns the entries whose node still has no key. A node may return during a round: for many policies a round takes
   * minutes, because writes are limited to a few per second.
   */
  async #stillGone(
    entries: ReadonlyMap<string, string>,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, string>> {
    const { backend, cluster } = this.#options;
    const gone = new Map<string, string>();
    for (const [node, lastUpdated] of entries)
      if ((await backend.get(nodeKey({ cluster, name: node }), { signal })) === undefined)
        gone.set(node, lastUpdated);
    return gone;
  }

  /** Removes the entries in `suspects` whose node still has no key. */
  async #remove(
    policy: KubernetesObject,
    suspects: ReadonlyMap<string, string>,
    report: RoundReport,
    signal: AbortSignal,
  ): Promise<void> {
    const { policies, writer } = this.#options;
    const stale = await this.#stillGone(suspects, signal);
    if (stale.size === 0) return;
    const place = placeOfObject(policies, policy);
    const rounds = `in rounds ${report.round - 1} and ${report.round}`;
    const reason = `the kvstore has no key of ${counted(stale.size, 'node')} in the status ${rounds}: ${[...stale.keys()].slice(0, 10).join(', ')}`;
    for (const operations of removalPatches(stale)) {
      const write = { verb: 'patch', place, subresource: 'status', operations } as const;
      if ((await performWrite(writer, write, reason, report, signal)) === 'done')
        for (const { op } of operations) if (op === 'remove') report.countDelete();
    }
  }
}
