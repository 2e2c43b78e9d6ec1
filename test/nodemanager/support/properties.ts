import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { Node } from '../../../src/nodemanager/node.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import type { ManualClock } from '../../base/support/manual-clock.ts';
import { FoldingListener } from '../../ipcache/support/invariants.ts';
import { attributes, type NaiveIPCache } from '../../ipcache/support/naive-ipcache.ts';
import { FoldingHandler } from './folding-handler.ts';
import {
  addressesAreHeld,
  handlersKnowNodes,
  lostAddressesAreTold,
  type NodesUnderTest,
} from './invariants.ts';
import { claimsOf, fullName, holdsBack, NaiveNodes, text } from './naive-nodes.ts';
import { apply, applyNaively, CLUSTERS, history, NAMES, type Operation } from './operations.ts';

/** A manager and its engines. */
export interface Rig {
  readonly manager: NodesUnderTest;
  readonly ipcache: IPCache;
  readonly clock: ManualClock;
}

/** Creates a rig in one of the two modes. */
export type MakeRig = (retainOverruled: boolean) => Rig;

/** A law of the engine, for any engine and mode. Each mutant must break its law. */
export type Law = (make: MakeRig, retain: boolean) => fc.IRawProperty<unknown>;

function check(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(problems.join('\n'));
}

function expectEqual(what: string, actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) {
    throw new Error(`${what}: ${JSON.stringify(actual)} but expected ${JSON.stringify(expected)}`);
  }
}

/** Returns a node of the engine in the form of the model. */
function asText(node: Node): string {
  return text(node.fields);
}

function texts(nodes: Iterable<readonly [string, Node]>): readonly (readonly [string, string])[] {
  return sorted(Array.from(nodes, ([name, node]) => [name, asText(node)] as const));
}

function naiveTexts(nodes: ReadonlyMap<string, NodeSpec>): readonly (readonly [string, string])[] {
  return sorted(Array.from(nodes, ([name, node]) => [name, text(node)] as const));
}

function sorted<T>(pairs: Iterable<readonly [string, T]>): readonly (readonly [string, T])[] {
  return [...pairs].sort(([a], [b]) => (a < b ? -1 : 1));
}

function effective(manager: NodesUnderTest): readonly (readonly [string, string])[] {
  return texts(Array.from(manager.nodes(), (node) => [node.fullName, node] as const));
}

/** Returns prefix → attributes, as a listener of the IPCache sees them. */
function visible(ipcache: IPCache): readonly (readonly [string, string])[] {
  const fresh = new FoldingListener();
  ipcache.subscribe(fresh)();
  return sorted(Array.from(fresh.view, ([prefix, entry]) => [prefix, attributes(entry)] as const));
}

interface Step extends Rig {
  readonly model: NaiveNodes;
  readonly folded: FoldingHandler;
  /** The nodes that the model had announced before. */
  readonly before: ReadonlyMap<string, NodeSpec>;
  readonly operation: Operation;
  readonly outcome: unknown;
  readonly expected: unknown;
}

/** Runs a history on engine and model, and calls `verify` after every step. */
function together(
  make: MakeRig,
  retain: boolean,
  operations: readonly Operation[],
  verify: (step: Step) => void,
): void {
  const rig = make(retain);
  const model = new NaiveNodes(retain, rig.manager.configuration);
  const folded = new FoldingHandler();
  rig.manager.subscribe(folded);
  for (const operation of operations) {
    const before = model.announced;
    const outcome = apply(rig, operation);
    const expected = applyNaively(model, operation);
    verify({ ...rig, model, folded, before, operation, outcome, expected });
    folded.takeTold();
  }
}

export const I1_foldEqualsReplay: Law = (make, retain) =>
  fc.property(history, fc.nat(20), (operations, joinAt) => {
    let late: FoldingHandler | undefined;
    let steps = 0;
    together(make, retain, operations, ({ manager, model, folded }) => {
      if (steps++ === joinAt) {
        late = new FoldingHandler();
        manager.subscribe(late);
      }
      check([...folded.complaints, ...(late?.complaints ?? []), ...handlersKnowNodes(manager, folded)]);
      if (late !== undefined) check(handlersKnowNodes(manager, late));
      if (retain) expectEqual('I1 folded', texts(folded.view), naiveTexts(model.announced));
    });
  });

/** The same if handlers change nodes during calls and replays. */
export const I1_reentrantHandlers: Law = (make, retain) =>
  fc.property(history, history, fc.nat(20), (operations, echoes, joinAt) => {
    const rig = make(retain);
    const left = [...echoes];
    const folded: FoldingHandler[] = [];
    const join = (): void => {
      const handler = new FoldingHandler();
      folded.push(handler);
      const echo = (): void => {
        const next = left.shift();
        if (next !== undefined) apply(rig, next);
      };
      rig.manager.subscribe({
        nodeAdd: (node) => {
          handler.nodeAdd(node);
          echo();
        },
        nodeUpdate: (old, node) => {
          handler.nodeUpdate(old, node);
          echo();
        },
        nodeDelete: (node) => {
          handler.nodeDelete(node);
          echo();
        },
      });
    };
    join();
    operations.forEach((operation, i) => {
      if (i === joinAt) join();
      apply(rig, operation);
      for (const handler of folded) {
        check([...handler.complaints, ...handlersKnowNodes(rig.manager, handler)]);
      }
      check([
        ...addressesAreHeld(rig.manager, rig.ipcache),
        ...lostAddressesAreTold(rig.manager, rig.ipcache),
      ]);
    });
  });

export const I2_orderDoesNotMatter: Law = (make, retain) =>
  fc.property(history, fc.infiniteStream(fc.nat()), (operations, shuffle) => {
    const [rig, other] = [make(retain), make(retain)];
    const model = new NaiveNodes(retain, rig.manager.configuration);
    for (const operation of operations) {
      apply(rig, operation);
      applyNaively(model, operation);
    }
    const claims: readonly Operation[] = [
      ...model.claims.map((node) => ({ op: 'update' as const, node })),
      ...model.foreign.claims.map(({ key, claim }) => ({ op: 'take' as const, key, claim })),
      { op: 'configure', changes: model.configuration },
    ];
    const order = claims.map((operation) => ({ operation, at: shuffle.next().value }));
    for (const { operation } of order.sort((a, b) => a.at - b.at)) apply(other, operation);
    expectEqual('I2 nodes', effective(rig.manager), effective(other.manager));
    expectEqual('I2 ipcache', visible(rig.ipcache), visible(other.ipcache));
    expectEqual('I2 nodes of the model', effective(rig.manager), naiveTexts(model.effective()));
    expectEqual('I2 ipcache of the model', visible(rig.ipcache), sorted(model.ipcache().visible()));
  });

export const I3_noNoise: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ model, folded, before }) => {
      check(folded.complaints);
      if (!retain) return;
      const names = new Set([...before.keys(), ...model.announced.keys()]);
      const changed = [...names].filter((name) => {
        const [old, now] = [before.get(name), model.announced.get(name)];
        return (old && text(old)) !== (now && text(now));
      });
      expectEqual('I3 nodes told', [...folded.takeTold()].sort(), changed.sort());
    });
  });

export const I4_oneWinner: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ manager, model, outcome, expected }) => {
      expectEqual('I4 outcome', outcome, expected);
      for (const cluster of CLUSTERS) {
        for (const name of NAMES) {
          const fullName = `${cluster}/${name}`;
          const claims = manager.explain(fullName)?.claims ?? [];
          expectEqual(`I4 claims on ${fullName}`, claims.map(asText), model.on(fullName).map(text));
          const node = manager.get(fullName);
          expectEqual(`I4 ${fullName}`, node && asText(node), claims[0] && asText(claims[0]));
        }
      }
    });
  });

export const addresses: Law = (make, retain) =>
  fc.property(history, (operations) => {
    together(make, retain, operations, ({ manager, ipcache, model }) => {
      check([...addressesAreHeld(manager, ipcache), ...lostAddressesAreTold(manager, ipcache)]);
      if (retain) expectEqual('ipcache', visible(ipcache), sorted(model.ipcache().visible()));
    });
  });

export const I7_isolation: Law = (make, retain) =>
  fc.property(history, fc.array(fc.boolean(), { minLength: 40, maxLength: 40 }), (operations, moods) => {
    const rig = make(retain);
    let broken = true;
    const sound = new FoldingHandler();
    const fragile = new FoldingHandler();
    const attempt = (work: () => void): void => {
      if (broken) throw new Error('this handler fails now and then');
      work();
    };
    rig.manager.subscribe({
      nodeAdd: (node) => attempt(() => fragile.nodeAdd(node)),
      nodeUpdate: (old, node) => attempt(() => fragile.nodeUpdate(old, node, 'retries')),
      nodeDelete: (node) => attempt(() => fragile.nodeDelete(node, 'retries')),
    });
    rig.manager.subscribe(sound);
    for (const [i, operation] of operations.entries()) {
      broken = moods[i] !== false;
      apply(rig, operation);
      check([...sound.complaints, ...handlersKnowNodes(rig.manager, sound)]);
    }
    broken = false;
    rig.clock.advance(60_000);
    check([...fragile.complaints, ...handlersKnowNodes(rig.manager, fragile)]);
  });

export const I10_noOrphans: Law = (make, retain) =>
  fc.property(
    history,
    fc.constantFrom('kvstore' as const, 'k8s' as const, 'clustermesh' as const),
    fc.constantFrom(undefined, ...CLUSTERS),
    (operations, source, cluster) => {
      const last: Operation = { op: 'withdraw', source, cluster };
      together(make, retain, [...operations, last], ({ manager, ipcache, operation, outcome, expected }) => {
        if (operation.op !== 'withdraw') return;
        const isOrphan = (of: { readonly source: string }, owner: string): boolean =>
          of.source === operation.source &&
          owner !== '' &&
          (operation.cluster === undefined || owner.startsWith(`${operation.cluster}/`));
        const nodes = Array.from(
          manager.nodes(),
          ({ fullName }) => manager.explain(fullName)?.claims ?? [],
        ).flat();
        expectEqual('I10 nodes', nodes.filter((node) => isOrphan(node, node.fullName)).map(asText), []);
        const entries = [...ipcache.entries({ includeShadowed: true })].flatMap(
          ({ key }) => ipcache.explain(key)?.claims ?? [],
        );
        expectEqual(
          'I10 addresses',
          entries.filter((entry) => isOrphan(entry, entry.owner)),
          [],
        );
        expectEqual('I10 withdrawn', outcome, expected);
      });
    },
  );

/**
 * Returns the holders of addresses that a node has lost, from the model, in the form of `explain` and
 * `status`.
 */
function lostOf(model: NaiveNodes, ipcache: NaiveIPCache, node: NodeSpec): readonly object[] {
  const owner = fullName(node);
  return [...claimsOf(node, model.configuration).keys()].flatMap((ip) => {
    const [holder] = ipcache.on(ip).map(({ claim }) => ({ source: claim.source, owner: claim.owner ?? '' }));
    if (holder?.owner === owner && holder.source === node.source) return [];
    const stronger = holder !== undefined && holdsBack(holder.source, node);
    return [{ ip, ...(holder && { holder }), stronger }];
  });
}

function byAddress(lost: readonly object[]): readonly string[] {
  return lost.map((each) => JSON.stringify(each)).sort();
}

/** The answers about the manager and each node; a checkpoint restores all of them. */
export const answers: Law = (make, retain) =>
  fc.property(history, (operations) => {
    const counts = new Map<string, number>();
    let revision = 0;
    together(make, retain, operations, ({ manager, model, before, operation, outcome }) => {
      const counted = operation.op === 'delete' && outcome === 'applied' ? 'deleted' : outcome;
      if (operation.op === 'update' || operation.op === 'delete')
        counts.set(String(counted), (counts.get(String(counted)) ?? 0) + 1);
      const names = new Set([...before.keys(), ...model.announced.keys()]);
      const textIn = (nodes: ReadonlyMap<string, NodeSpec>, name: string): string => {
        const node = nodes.get(name);
        return node === undefined ? '' : text(node);
      };
      revision += [...names].filter((name) => textIn(before, name) !== textIn(model.announced, name)).length;
      const effective = model.effective();
      const ipcache = model.ipcache();
      const isHeld = (name: string): boolean => textIn(model.announced, name) !== textIn(effective, name);
      const lost = new Map(
        [...effective].map(([name, node]) => [name, byAddress(lostOf(model, ipcache, node))]),
      );
      const sources = [...effective.values()].map(({ source }) => source);
      const status = manager.status();
      expectEqual(
        'nodes by source',
        sorted(Object.entries(status.nodesBySource)),
        sorted(
          [...new Set(sources)].map((source) => [source, sources.filter((each) => each === source).length]),
        ),
      );
      expectEqual(
        'counts',
        [status.nodes, status.overruledClaims, status.revision, status.closed],
        [...[effective.size, model.claims.length - effective.size, revision], false],
      );
      expectEqual(
        'outcomes',
        sorted(Object.entries(status.outcomes).filter(([, n]) => n > 0)),
        sorted(counts),
      );
      expectEqual('held back', [...status.heldBack].sort(), [...effective.keys()].filter(isHeld).sort());
      expectEqual(
        'lost addresses',
        sorted(Object.entries(status.lostAddresses).map(([name, ips]) => [name, byAddress(ips)])),
        sorted([...lost].filter(([, ips]) => ips.length > 0)),
      );
      expectEqual(
        'handlers',
        status.handlers.map(({ durations: _, ...handler }) => handler),
        [{ name: undefined, pending: 0, running: 0, faults: 0, failing: [] }],
      );
      for (const name of CLUSTERS.flatMap((cluster) => NAMES.map((each) => `${cluster}/${each}`))) {
        const explained = manager.explain(name);
        if (!effective.has(name)) {
          expectEqual(`${name} is unknown`, [explained, manager.exists(name)], [undefined, false]);
          continue;
        }
        expectEqual(
          `explanation of ${name}`,
          explained && [
            explained.fullName,
            explained.claims.map(asText),
            explained.announced && asText(explained.announced),
            explained.heldBack,
            byAddress(explained.lostAddresses),
            explained.handlers,
            manager.exists(name),
          ],
          [
            name,
            model.on(name).map(text),
            textIn(model.announced, name) || undefined,
            isHeld(name),
            lost.get(name),
            [{ handler: undefined, applied: true }],
            true,
          ],
        );
      }
      expectEqual('snapshot', texts(manager.snapshot()), naiveTexts(effective));
      expectEqual('size', manager.size, effective.size);
    });
  });

/** A checkpoint that was converted to JSON and back restores every node but the local one. */
export const checkpoints: Law = (make, retain) =>
  fc.property(history, (operations) => {
    const [{ manager }, next] = [make(retain), make(retain)];
    const rig = make(retain);
    for (const operation of operations) apply(rig, operation);
    const kept = [...rig.manager.nodes()].filter(({ source }) => source !== 'local');
    const restored = next.manager.restore(JSON.parse(JSON.stringify(rig.manager.checkpoint())));
    expectEqual('restored', restored, kept.length);
    const expected = kept.map(
      (node) => [node.fullName, text({ ...node.fields, source: 'restored' })] as const,
    );
    expectEqual('nodes', effective(next.manager), sorted(expected));
    expectEqual('nothing', [manager.restore({ version: 1, nodes: [] }), manager.size], [0, 0]);
  });

/** Every law with its id and modes. */
export const LAWS: readonly {
  readonly name: string;
  readonly law: Law;
  readonly modes: readonly boolean[];
}[] = [
  { name: 'I1 fold = replay, for early and late handlers', law: I1_foldEqualsReplay, modes: [true, false] },
  {
    name: 'I1 fold = replay, for handlers that change nodes while they are notified',
    law: I1_reentrantHandlers,
    modes: [true, false],
  },
  {
    name: 'I2 nodes and addresses are a function of the live claims, not of their order',
    law: I2_orderDoesNotMatter,
    modes: [true],
  },
  { name: 'I3 handlers are told of exactly the nodes that differ', law: I3_noNoise, modes: [true, false] },
  { name: 'I4 one winner: the strongest source', law: I4_oneWinner, modes: [true, false] },
  {
    name: 'every address of every node is in the ipcache, and nothing else',
    law: addresses,
    modes: [true, false],
  },
  {
    name: 'I7 a handler that throws affects no other, and catches up',
    law: I7_isolation,
    modes: [true, false],
  },
  {
    name: 'I10 a source or cluster that is withdrawn leaves nothing',
    law: I10_noOrphans,
    modes: [true, false],
  },
  { name: 'what it says of itself is what happened', law: answers, modes: [true] },
  { name: 'a checkpoint brings nodes back', law: checkpoints, modes: [true, false] },
];
