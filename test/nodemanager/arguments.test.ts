import { describe, it } from 'vitest';
import type { NodeManager } from '../../src/nodemanager/node-manager.ts';
import { alone, expectRefused, without } from '../base/support/wrong-arguments.ts';
import { fresh } from './support/node-fixtures.ts';

type WrongCalls<T> = Partial<Record<keyof T, readonly (readonly unknown[])[]>>;

const HANDLER = { nodeAdd: () => {}, nodeUpdate: () => {}, nodeDelete: () => {} };

const OF_MANAGER: WrongCalls<NodeManager> = {
  nodeUpdated: [[undefined]],
  nodeDeleted: [[undefined]],
  withdraw: [[undefined]],
  configure: [[undefined]],
  subscribe: [
    ...alone(without(HANDLER, 'nodeAdd', 'nodeUpdate', 'nodeDelete')),
    ...[[{ ...HANDLER, name: 7 }], [HANDLER, 7], [HANDLER, { concurrency: '7' }]],
    // Regression: the handler was never called.
    ...[
      [HANDLER, { concurrency: 0 }],
      [HANDLER, { concurrency: Number.NaN }],
    ],
    // Regression: parsed JSON has no full name, so every node was added again, and the sweep deleted the last one.
    [HANDLER, { previous: [{ cluster: 'west', name: 'n1', source: 'kvstore', addresses: [] }] }],
  ],
  // Regression: with 0, each tick validated all nodes; with NaN, none.
  startValidation: [['7'], [0], [Number.NaN]],
  get: [[undefined]],
  exists: [[undefined]],
  explain: [[undefined]],
  clusterSizeDependantInterval: [[undefined]],
};

describe('an incomplete argument is rejected', () => {
  it.each(Object.entries(OF_MANAGER))('by a node manager: %s', (method, calls) => {
    expectRefused(fresh().manager, method, calls);
  });
});
