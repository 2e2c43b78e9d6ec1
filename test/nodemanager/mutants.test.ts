import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Unsubscribe, unsubscribeOnce } from '../../src/base/subscription.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { addressClaims } from '../../src/nodemanager/address-claims.ts';
import type { HandlerResult, NodeHandler } from '../../src/nodemanager/node-handler.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import type { NodeManagerOptions, NodeWithdrawal } from '../../src/nodemanager/node-manager-options.ts';
import type { NodeSpec } from '../../src/nodemanager/node-spec.ts';
import type { NodeExplanation, NodeUpdateOutcome } from '../../src/nodemanager/node-status.ts';
import { parseNode } from '../../src/nodemanager/parse-node.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import {
  addresses,
  I1_foldEqualsReplay,
  I2_orderDoesNotMatter,
  I3_noNoise,
  I4_oneWinner,
  I7_isolation,
  I10_noOrphans,
  type Law,
  type MakeRig,
} from './support/properties.ts';

/** An IPCache that does not report owner changes. */
class Secretive extends IPCache {
  override subscribeOwners(): Unsubscribe {
    return unsubscribeOnce(() => {});
  }
}

/** Replays nodes to a new handler that are withheld from the others, like the original. */
class TellsNewcomersMore extends NodeManager {
  override subscribe(handler: NodeHandler): Unsubscribe {
    const unsubscribe = super.subscribe(handler);
    for (const node of this.nodes()) {
      if (this.explain(node.fullName)?.announced !== node)
        void handler.nodeAdd(node, new AbortController().signal);
    }
    return unsubscribe;
  }
}

/** Reports every update twice. */
class Noisy extends NodeManager {
  override subscribe(handler: NodeHandler): Unsubscribe {
    return super.subscribe({
      nodeAdd: (node, signal) => handler.nodeAdd(node, signal),
      nodeUpdate: (old, node, signal) => {
        void handler.nodeUpdate(old, node, signal);
        return handler.nodeUpdate(old, node, signal);
      },
      nodeDelete: (node, signal) => handler.nodeDelete(node, signal),
    });
  }
}

/** Reports unchanged updates, like the original. */
class PassesOnEverything extends NodeManager {
  readonly #handlers: NodeHandler[] = [];
  override subscribe(handler: NodeHandler): Unsubscribe {
    this.#handlers.push(handler);
    return super.subscribe(handler);
  }
  override nodeUpdated(spec: NodeSpec): NodeUpdateOutcome {
    const outcome = super.nodeUpdated(spec);
    const node = this.get(`${spec.cluster}/${spec.name}`);
    if (outcome === 'unchanged' && node !== undefined) {
      for (const handler of this.#handlers) void handler.nodeUpdate(node, node, new AbortController().signal);
    }
    return outcome;
  }
}

/** Explains in the order of arrival. */
class Unsorted extends NodeManager {
  override explain(fullName: string): NodeExplanation | undefined {
    const explained = super.explain(fullName);
    return explained && { ...explained, claims: explained.claims.toReversed() };
  }
}

/** Writes addresses before it checks the source, like the original. */
class WritesFirst extends NodeManager {
  readonly #ipcache: IPCache;
  constructor(options: NodeManagerOptions & { readonly ipcache: IPCache }) {
    super(options);
    this.#ipcache = options.ipcache;
  }
  override nodeUpdated(spec: NodeSpec): NodeUpdateOutcome {
    const node = parseNode(spec, () => {});
    for (const claim of node === undefined ? [] : addressClaims(node, this.configuration)) {
      this.#ipcache.upsert(claim.ip, claim);
    }
    return super.nodeUpdated(spec);
  }
}

/** A failing handler keeps the change from the others. */
class Fragile extends NodeManager {
  #failed = false;
  override subscribe(handler: NodeHandler): Unsubscribe {
    const guarded = (call: () => HandlerResult): HandlerResult => {
      if (this.#failed) return;
      this.#failed = true;
      const result = call();
      this.#failed = false;
      return result;
    };
    return super.subscribe({
      nodeAdd: (node, signal) => guarded(() => handler.nodeAdd(node, signal)),
      nodeUpdate: (old, node, signal) => guarded(() => handler.nodeUpdate(old, node, signal)),
      nodeDelete: (node, signal) => guarded(() => handler.nodeDelete(node, signal)),
    });
  }
}

/** Ignores the errors of handlers, like the original. */
class Careless extends NodeManager {
  override subscribe(handler: NodeHandler): Unsubscribe {
    const careless = (call: () => HandlerResult): HandlerResult => {
      try {
        return call();
      } catch {
        // the error is lost
      }
    };
    return super.subscribe({
      nodeAdd: (node, signal) => careless(() => handler.nodeAdd(node, signal)),
      nodeUpdate: (old, node, signal) => careless(() => handler.nodeUpdate(old, node, signal)),
      nodeDelete: (node, signal) => careless(() => handler.nodeDelete(node, signal)),
    });
  }
}

/** Withdraws effective claims and drops overruled ones. */
class Orphaning extends NodeManager {
  override withdraw({ source, cluster }: NodeWithdrawal): number {
    const nodes = [...this.nodes()].filter(
      (node) => node.source === source && (cluster === undefined || node.cluster === cluster),
    );
    return nodes.filter(
      ({ name, cluster: of }) => this.nodeDeleted({ name, cluster: of, source }) === 'applied',
    ).length;
  }
}

/** Treats cluster `westend` as a part of cluster `west`: a prefix without the final `/`. */
class Greedy extends NodeManager {
  override withdraw({ source, cluster = '' }: NodeWithdrawal): number {
    const clusters = new Set(
      Array.from(this.nodes(), (node) => node.cluster).filter((c) => c.startsWith(cluster)),
    );
    return [...clusters].reduce((sum, each) => sum + super.withdraw({ source, cluster: each }), 0);
  }
}

type Options = NodeManagerOptions & { readonly ipcache: IPCache };

function rig(make: (options: Options) => NodeManager, newIPCache = IPCache): MakeRig {
  return (retainOverruled) => {
    const clock = new ManualClock();
    const ipcache = new newIPCache({ retainOverruled });
    const options = { ipcache, clock, clusterName: 'east', nodeName: 'me', retainOverruled };
    return { manager: make(options), ipcache, clock };
  };
}

const MUTANTS: readonly {
  readonly name: string;
  readonly law: Law;
  readonly make: MakeRig;
  readonly retain?: boolean;
}[] = [
  {
    name: 'I1: one that replays nodes that are held back',
    law: I1_foldEqualsReplay,
    make: rig((options) => new TellsNewcomersMore(options)),
  },
  {
    name: 'I1: one that ignores the owner of an address',
    law: I1_foldEqualsReplay,
    make: rig((options) => new NodeManager(options), Secretive),
  },
  {
    name: 'I2: one that forgets overruled claims',
    law: I2_orderDoesNotMatter,
    make: rig((options) => new NodeManager({ ...options, retainOverruled: false })),
  },
  {
    name: 'I3: one that delivers every update twice',
    law: I3_noNoise,
    make: rig((options) => new Noisy(options)),
  },
  {
    name: 'I3: one that delivers unchanged updates',
    law: I3_noNoise,
    make: rig((options) => new PassesOnEverything(options)),
  },
  {
    name: 'I4: one that explains in the wrong order',
    law: I4_oneWinner,
    make: rig((options) => new Unsorted(options)),
  },
  {
    name: 'addresses: one that writes before it checks the source',
    law: addresses,
    make: rig((options) => new WritesFirst(options)),
  },
  {
    name: 'addresses: one that does not reclaim addresses that others have released in single-slot mode',
    law: addresses,
    make: rig((options) => new NodeManager(options), Secretive),
    retain: false,
  },
  {
    name: 'I7: one whose handlers are not isolated',
    law: I7_isolation,
    make: rig((options) => new Fragile(options)),
  },
  {
    name: 'I7: one that drops errors of handlers',
    law: I7_isolation,
    make: rig((options) => new Careless(options)),
  },
  {
    name: 'I10: one that keeps overruled claims of a withdrawn writer',
    law: I10_noOrphans,
    make: rig((options) => new Orphaning(options)),
  },
  {
    name: 'I10: one whose cluster prefix does not end in a slash',
    law: I10_noOrphans,
    make: rig((options) => new Greedy(options)),
  },
];

describe('a broken engine is detected', () => {
  it.each(MUTANTS)('$name', async ({ law, make, retain = true }) => {
    // The first run that detects it ends the search; the rarest needs some hundred.
    const run = await fc.check(law(make, retain), { numRuns: 50_000, endOnFailure: true });
    expect(run.failed).toBe(true);
  });

  it('and an intact one is not', async () => {
    const run = await fc.check(
      I10_noOrphans(
        rig((options) => new NodeManager(options)),
        true,
      ),
      { numRuns: 100 },
    );
    expect(run.failed).toBe(false);
  });
});
