import type { Clock } from '../base/clock.ts';
import { forEachInSteps, type TurnGate } from '../base/turn-gate.ts';
import { ownerCluster, type Source } from '../model/source.ts';
import { Prefix, prefixOfKey } from '../net/prefix.ts';
import { isSpecialAddress } from '../net/special-address.ts';
import type { NodeFields } from '../nodemanager/node-spec.ts';
import type { ReadModel } from './read-model.ts';
import type { StatusDocument } from './status-document.ts';

export const CONFLICT_KINDS = ['pod-cidr', 'prefix', 'cluster-id'] as const;

/**
 * `pod-cidr`: pod CIDRs of nodes of different clusters overlap. `prefix`: several clusters claim the same prefix,
 * unless it is link-local or loopback. `cluster-id`: several clusters have the same id.
 */
export type ConflictKind = (typeof CONFLICT_KINDS)[number];

export interface ConflictSide {
  readonly cluster: string;
  /** The claim of the cluster: `10.0.0.0/16 of node n1`, `identity 131328 on 192.168.0.1`. */
  readonly claim: string;
}

/** A conflict between clusters. */
export interface ConflictDocument {
  readonly kind: ConflictKind;
  /** The prefix or id. */
  readonly subject: string;
  readonly sides: readonly ConflictSide[];
}

export interface ConflictsDocument {
  readonly counts: Readonly<Record<ConflictKind, number>>;
  /** At most {@link MAX_SHOWN} of each kind. */
  readonly items: readonly ConflictDocument[];
}

/** The state searched for conflicts. */
export type ConflictModel = Pick<ReadModel, 'ipcache' | 'nodes' | 'status'>;

/** Maximum number of listed conflicts of a kind; all are counted. */
const MAX_SHOWN = 1_000;
/** Number of items examined in one step: about 1 ms. */
const ITEMS_PER_STEP = 256;
/** Age after which counts are renewed when they are read. */
const FRESH_MS = 60_000;

const LOCAL_SOURCES: ReadonlySet<Source> = new Set<Source>(['local', 'kvstore', 'custom-resource', 'k8s']);

interface PodCIDR extends ConflictSide {
  readonly prefix: Prefix;
  readonly text: string;
}

function* cidrsOf(fields: NodeFields): Generator<PodCIDR, void, void> {
  const { cluster, name, ipv4AllocCIDR, ipv6AllocCIDR } = fields;
  const secondary = [...fields.ipv4SecondaryAllocCIDRs, ...fields.ipv6SecondaryAllocCIDRs];
  for (const cidr of [ipv4AllocCIDR, ipv6AllocCIDR, ...secondary]) {
    const prefix = cidr === undefined ? undefined : Prefix.parse(cidr);
    if (prefix === undefined) continue;
    const text = prefix.toString();
    yield { cluster, claim: `${text} of node ${name}`, prefix, text };
  }
}

/** The pod CIDRs of all nodes. If several nodes of a cluster have the same CIDR, only the first one counts. */
class PodCIDRs {
  readonly #byText = new Map<string, Map<string, PodCIDR>>();
  /** The lengths of the CIDRs of each family. */
  readonly #lengths = { 4: new Set<number>(), 6: new Set<number>() };
  readonly all: PodCIDR[] = [];

  add(cidr: PodCIDR): void {
    const { text, cluster, prefix } = cidr;
    const known = this.#byText.get(text) ?? new Map<string, PodCIDR>();
    this.#byText.set(text, known);
    if (known.has(cluster)) return;
    known.set(cluster, cidr);
    this.#lengths[prefix.family].add(prefix.length);
    this.all.push(cidr);
  }

  /**
   * Returns a CIDR of another cluster that contains `cidr`. If both are equal, returns the CIDR only if its cluster
   * sorts first, so that the conflict is counted for one of them.
   */
  containerOf({ cluster, prefix, text }: PodCIDR): PodCIDR | undefined {
    const [address] = text.split('/');
    for (const length of this.#lengths[prefix.family]) {
      if (length > prefix.length) continue;
      const container = Prefix.parse(`${address}/${length}`)?.toString() ?? '';
      for (const [other, cidr] of this.#byText.get(container) ?? [])
        if (other !== cluster && (length < prefix.length || other < cluster)) return cidr;
    }
    return undefined;
  }
}

const sideOf = ({ cluster, claim }: ConflictSide): ConflictSide => ({ cluster, claim });

function* cidrConflicts({ nodes }: ConflictModel): Generator<ConflictDocument | undefined, void, void> {
  const cidrs = new PodCIDRs();
  for (const { fields } of nodes.nodes()) {
    for (const cidr of cidrsOf(fields)) cidrs.add(cidr);
    yield undefined;
  }
  for (const cidr of cidrs.all) {
    const container = cidrs.containerOf(cidr);
    yield container && { kind: 'pod-cidr', subject: cidr.text, sides: [sideOf(container), sideOf(cidr)] };
  }
}

function* prefixConflicts(
  { ipcache }: ConflictModel,
  { cluster: local }: StatusDocument,
): Generator<ConflictDocument | undefined, void, void> {
  for (const claims of ipcache.contested()) {
    const sides = new Map<string, ConflictSide>();
    for (const { source, owner, identity, hostIP } of claims) {
      const remote = source === 'clustermesh' ? ownerCluster(owner) : undefined;
      const cluster = remote ?? (LOCAL_SOURCES.has(source) ? local : undefined);
      if (cluster === undefined || sides.has(cluster)) continue;
      const host = hostIP === undefined ? '' : ` on ${hostIP}`;
      sides.set(cluster, { cluster, claim: `identity ${identity}${host}` });
    }
    const key = claims[0]?.key ?? '';
    // Routers of all clusters may have one link-local address.
    const isConflict = sides.size > 1 && !isSpecialAddress(key);
    yield isConflict ? { kind: 'prefix', subject: prefixOfKey(key), sides: [...sides.values()] } : undefined;
  }
}

function* idConflicts({ clusters }: StatusDocument): Generator<ConflictDocument, void, void> {
  const byID = new Map<number, ConflictSide[]>();
  for (const { id, name, state } of clusters) {
    if (id === 0) continue;
    byID.set(id, [...(byID.get(id) ?? []), { cluster: name, claim: `id ${id}, ${state}` }]);
  }
  for (const [id, sides] of byID)
    if (sides.length > 1) yield { kind: 'cluster-id', subject: String(id), sides };
}

/** Yields all conflicts, and `undefined` for each other item examined. */
export function* meshConflicts(model: ConflictModel): Generator<ConflictDocument | undefined, void, void> {
  const status = model.status();
  yield* idConflicts(status);
  yield* cidrConflicts(model);
  yield* prefixConflicts(model, status);
}

/** Finds the conflicts of a mesh in turns of the event loop. Concurrent requests share a scan. */
export class ConflictScan {
  readonly #model: ConflictModel;
  readonly #gate: TurnGate;
  readonly #clock: Clock;
  #running: Promise<ConflictsDocument> | undefined;
  #last: ConflictsDocument | undefined;
  #lastAt = 0;

  constructor(model: ConflictModel, gate: TurnGate, clock: Clock) {
    this.#model = model;
    this.#gate = gate;
    this.#clock = clock;
  }

  /** Returns the current conflicts. Cost: all nodes, and all prefixes with several claims. */
  scan(): Promise<ConflictsDocument> {
    this.#running ??= this.#scan().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /**
   * Returns the counts of the last scan; undefined before the first one. Starts a new scan if the last one is older
   * than a minute. If that scan fails, the counts stay; only a caller of {@link ConflictScan.scan} receives the error.
   */
  counts(): ConflictsDocument['counts'] | undefined {
    if (this.#last === undefined || this.#clock.now() - this.#lastAt >= FRESH_MS) this.scan().catch(() => {});
    return this.#last?.counts;
  }

  async #scan(): Promise<ConflictsDocument> {
    const counts = { 'pod-cidr': 0, prefix: 0, 'cluster-id': 0 };
    const items: ConflictDocument[] = [];
    const add = (conflict: ConflictDocument | undefined): void => {
      if (conflict !== undefined && ++counts[conflict.kind] <= MAX_SHOWN) items.push(conflict);
    };
    await this.#gate.runSteps(forEachInSteps(meshConflicts(this.#model), ITEMS_PER_STEP, add));
    this.#last = { counts, items };
    this.#lastAt = this.#clock.now();
    return this.#last;
  }
}
