import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Unsubscribe } from '../../src/base/subscription.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { Node } from '../../src/nodemanager/node.ts';
import type { HandlerResult, NodeHandler } from '../../src/nodemanager/node-handler.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import type { NodeManagerOptions, NodeSubscribeOptions } from '../../src/nodemanager/node-manager-options.ts';
import { ManualClock } from '../base/manual-clock.ts';
import { fresh } from './node-fixtures.ts';
import { I1_asynchronousHandlersCatchUp, type RacingRig } from './races.ts';

it('I1: asynchronous handlers catch up, whatever fails and in whatever order calls end', async () => {
  await fc.assert(
    I1_asynchronousHandlersCatchUp(() => fresh()),
    { numRuns: 1000 },
  );
});

/** Drops the errors of handlers, as the original does. */
class Careless extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    const careless = async (result: HandlerResult): Promise<void> => {
      try {
        await result;
      } catch {
        // nobody will know
      }
    };
    return super.subscribe(
      {
        nodeAdd: (node, signal) => careless(handler.nodeAdd(node, signal)),
        nodeUpdate: (old, node, signal) => careless(handler.nodeUpdate(old, node, signal)),
        nodeDelete: (node, signal) => careless(handler.nodeDelete(node, signal)),
      },
      options,
    );
  }
}

/** Calls handlers as often at a time as there are nodes. */
class Unlimited extends NodeManager {
  override subscribe(handler: NodeHandler): Unsubscribe {
    return super.subscribe(handler, { concurrency: Number.POSITIVE_INFINITY });
  }
}

/** Does not wait for a call to end before it makes the next one. */
class Impatient extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    const impatient = (result: HandlerResult): void => {
      result?.catch(() => {});
    };
    return super.subscribe(
      {
        nodeAdd: (node, signal) => impatient(handler.nodeAdd(node, signal)),
        nodeUpdate: (old, node, signal) => impatient(handler.nodeUpdate(old, node, signal)),
        nodeDelete: (node, signal) => impatient(handler.nodeDelete(node, signal)),
      },
      options,
    );
  }
}

/** Takes a call that fails for one that did nothing, so it leaves undone what such a call has done. */
class Trusting extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    const inPlace = new Map<string, Node>();
    const trusting = async (result: HandlerResult, node: Node | undefined, name: string): Promise<void> => {
      await result;
      if (node === undefined) inPlace.delete(name);
      else inPlace.set(name, node);
    };
    const isThere = (node: Node): boolean => inPlace.get(node.fullName)?.equals(node) === true;
    return super.subscribe(
      {
        nodeAdd: (node, signal) => trusting(handler.nodeAdd(node, signal), node, node.fullName),
        nodeUpdate: (old, node, signal) =>
          isThere(old) ? trusting(handler.nodeUpdate(old, node, signal), node, node.fullName) : undefined,
        nodeDelete: (node, signal) =>
          isThere(node) ? trusting(handler.nodeDelete(node, signal), undefined, node.fullName) : undefined,
      },
      options,
    );
  }
}

function rig(make: (options: NodeManagerOptions) => NodeManager): () => RacingRig {
  return () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    return { manager: make({ ipcache, clock, clusterName: 'east', localNodeName: 'me' }), ipcache, clock };
  };
}

describe('a broken feed is caught', () => {
  it.each([
    ['one that drops errors', rig((options) => new Careless(options))],
    ['one without a limit', rig((options) => new Unlimited(options))],
    ['one that does not wait', rig((options) => new Impatient(options))],
    ['one that undoes nothing', rig((options) => new Trusting(options))],
  ])('%s', async (_, make) => {
    const run = await fc.check(I1_asynchronousHandlersCatchUp(make), { numRuns: 1000 });
    expect(run.failed).toBe(true);
  });
});
