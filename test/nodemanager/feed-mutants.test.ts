import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Unsubscribe, unsubscribeOnce } from '../../src/base/subscription.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import type { AppliedOutcome } from '../../src/nodemanager/handler-feeds.ts';
import type { Node } from '../../src/nodemanager/node.ts';
import type { HandlerResult, NodeHandler } from '../../src/nodemanager/node-handler.ts';
import { NodeManager } from '../../src/nodemanager/node-manager.ts';
import type { NodeManagerOptions, NodeSubscribeOptions } from '../../src/nodemanager/node-manager-options.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { I1_asynchronousHandlersCatchUp, type RacingRig, stoppingEndsEverything } from './support/races.ts';

/** The configuration methods of a handler, which most mutants do not change. */
function configurationOf(handler: NodeHandler): Pick<NodeHandler, 'nodeConfigurationChanged'> {
  return {
    nodeConfigurationChanged: (configuration, signal) =>
      handler.nodeConfigurationChanged?.(configuration, signal),
  };
}

/** Ignores the errors of handlers, like the original. */
class Careless extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    const careless = async (result: HandlerResult): Promise<void> => {
      try {
        await result;
      } catch {
        // the error is lost
      }
    };
    return super.subscribe(
      {
        nodeAdd: (node, signal) => careless(handler.nodeAdd(node, signal)),
        nodeUpdate: (old, node, signal) => careless(handler.nodeUpdate(old, node, signal)),
        nodeDelete: (node, signal) => careless(handler.nodeDelete(node, signal)),
        ...configurationOf(handler),
      },
      options,
    );
  }
}

/** Runs as many calls at the same time as there are nodes. */
class Unlimited extends NodeManager {
  override subscribe(handler: NodeHandler): Unsubscribe {
    return super.subscribe(handler, { concurrency: Number.POSITIVE_INFINITY });
  }
}

/** Does not wait for a call to end before the next one. */
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
        ...configurationOf(handler),
      },
      options,
    );
  }
}

/** Assumes that a failed call has had no effect, and does not undo it. */
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
        ...configurationOf(handler),
      },
      options,
    );
  }
}

/** Considers the configuration as delivered when its call begins. */
class Hasty extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    return super.subscribe(
      {
        nodeAdd: (node, signal) => handler.nodeAdd(node, signal),
        nodeUpdate: (old, node, signal) => handler.nodeUpdate(old, node, signal),
        nodeDelete: (node, signal) => handler.nodeDelete(node, signal),
        nodeConfigurationChanged: (configuration, signal) => {
          handler.nodeConfigurationChanged?.(configuration, signal)?.catch(() => {});
        },
      },
      options,
    );
  }
}

/** Continues after it is closed and after its handlers unsubscribe. */
class Unstoppable extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    super.subscribe(handler, options);
    return unsubscribeOnce(() => {});
  }

  override close(): void {}
}

/** Gives calls a signal that is never aborted. */
class Silent extends NodeManager {
  override subscribe(handler: NodeHandler, options?: NodeSubscribeOptions): Unsubscribe {
    const { signal } = new AbortController();
    return super.subscribe(
      {
        nodeAdd: (node) => handler.nodeAdd(node, signal),
        nodeUpdate: (old, node) => handler.nodeUpdate(old, node, signal),
        nodeDelete: (node) => handler.nodeDelete(node, signal),
        ...configurationOf(handler),
      },
      options,
    );
  }
}

/** On close, resolves only those who wait for all handlers. */
class Forgetful extends NodeManager {
  override whenApplied(): Promise<AppliedOutcome> {
    return new Promise((resolve) => {
      void super.whenApplied().then((outcome) => {
        if (outcome === 'applied') resolve(outcome);
      });
    });
  }
}

function rig(make: (options: NodeManagerOptions) => NodeManager): () => RacingRig {
  return () => {
    const clock = new ManualClock();
    const ipcache = new IPCache();
    return { manager: make({ ipcache, clock, clusterName: 'east', nodeName: 'me' }), ipcache, clock };
  };
}

describe('a broken feed is detected', () => {
  it.each([
    ['one that drops errors', rig((options) => new Careless(options))],
    ['one without a limit', rig((options) => new Unlimited(options))],
    ['one that does not wait', rig((options) => new Impatient(options))],
    ['one that undoes nothing', rig((options) => new Trusting(options))],
    ['one that hurries the configuration', rig((options) => new Hasty(options))],
  ])('%s', async (_, make) => {
    const run = await fc.check(I1_asynchronousHandlersCatchUp(make), { endOnFailure: true });
    expect(run.failed).toBe(true);
  });

  it.each([
    ['one that goes on after the end', rig((options) => new Unstoppable(options))],
    ['one that lets calls run on', rig((options) => new Silent(options))],
    ['one that keeps those who wait', rig((options) => new Forgetful(options))],
  ])('%s', async (_, make) => {
    const run = await fc.check(stoppingEndsEverything(make), { endOnFailure: true });
    expect(run.failed).toBe(true);
  });
});
