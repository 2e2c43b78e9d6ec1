import fc from 'fast-check';
import type { IPCache } from '../../../src/ipcache/ipcache.ts';
import type { Claim } from '../../../src/ipcache/types.ts';
import type { Source } from '../../../src/model/source.ts';
import type { NodeConfiguration } from '../../../src/nodemanager/address-claims.ts';
import type { NodeSpec } from '../../../src/nodemanager/node-spec.ts';
import type { NodesUnderTest } from './invariants.ts';
import type { NaiveNodes } from './naive-nodes.ts';
import { fullName } from './naive-nodes.ts';

/** One call, of the manager or by another writer of the IPCache. */
export type Operation =
  | { readonly op: 'update'; readonly node: NodeSpec }
  | { readonly op: 'delete'; readonly cluster: string; readonly name: string; readonly source: Source }
  | { readonly op: 'withdraw'; readonly source: Source; readonly cluster: string | undefined }
  | { readonly op: 'delete-all' }
  | { readonly op: 'configure'; readonly changes: Partial<NodeConfiguration> }
  | { readonly op: 'take'; readonly key: string; readonly claim: Claim }
  | { readonly op: 'free'; readonly key: string; readonly source: Source };

export const CLUSTERS: readonly string[] = ['east', 'west', 'westend'];
export const NAMES: readonly string[] = ['a', 'b'];
const SOURCES: readonly Source[] = ['local', 'kvstore', 'k8s', 'clustermesh', 'restored'];
const IPS: readonly string[] = ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1'];

const cluster = fc.constantFrom(...CLUSTERS);
const name = fc.constantFrom(...NAMES);
const source = fc.constantFrom(...SOURCES);
const ip = fc.constantFrom(...IPS);

const node: fc.Arbitrary<NodeSpec> = fc.record({
  cluster,
  name,
  source,
  addresses: fc.array(
    fc.record({ type: fc.constantFrom('InternalIP', 'ExternalIP', 'CiliumInternalIP', 'Hostname'), ip }),
    { maxLength: 3 },
  ),
  ipv4HealthIP: fc.constantFrom(undefined, undefined, '10.0.0.2', '10.0.0.4'),
  ipv6HealthIP: fc.constantFrom(undefined, undefined, undefined, 'fd00::1', 'fd00::2'),
  ipv4IngressIP: fc.constantFrom(undefined, undefined, undefined, '10.0.0.3'),
  encryptionKey: fc.constantFrom(0, 3),
  bootID: fc.constantFrom('', '1'),
});

const configuration = fc.record(
  {
    remoteNodeIdentities: fc.boolean(),
    encryption: fc.boolean(),
    nodeEncryption: fc.boolean(),
    hostFirewall: fc.boolean(),
    underlay: fc.constantFrom('ipv4' as const, 'ipv6' as const),
  },
  { requiredKeys: [] },
);

const key = fc.constantFrom(...IPS, '10.0.0.1/32', '10.0.0.0/24');

const foreignClaim: fc.Arbitrary<Claim> = fc.record({
  source,
  identity: fc.constantFrom(100, 200),
  hostIP: fc.constantFrom(undefined, '192.168.9.9'),
});

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ op: fc.constant('update' as const), node }) },
  { weight: 4, arbitrary: fc.record({ op: fc.constant('delete' as const), cluster, name, source }) },
  {
    weight: 1,
    arbitrary: fc.record({
      op: fc.constant('withdraw' as const),
      source,
      cluster: fc.option(cluster, { nil: undefined }),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ op: 'delete-all' as const }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant('configure' as const), changes: configuration }) },
  { weight: 4, arbitrary: fc.record({ op: fc.constant('take' as const), key, claim: foreignClaim }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant('free' as const), key, source }) },
);

/** Sometimes adds the same update again, or the same node with one field of `other`. */
function followedUp(
  said: Operation,
  again: 'no' | 'same' | keyof NodeSpec,
  other: NodeSpec,
): readonly Operation[] {
  if (again === 'no') return [said];
  if (again === 'same' || said.op !== 'update') return [said, said];
  return [said, { op: 'update', node: { ...said.node, [again]: other[again] } }];
}

const followUp = fc.oneof(
  { weight: 4, arbitrary: fc.constant('no' as const) },
  { weight: 2, arbitrary: fc.constant('same' as const) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      'source',
      'encryptionKey',
      'ipv4HealthIP',
      'ipv6HealthIP',
      'ipv4IngressIP',
      'bootID',
    ),
  },
);

/** Histories over few nodes, sources and addresses: collisions of every kind are common. */
export const history: fc.Arbitrary<readonly Operation[]> = fc
  .array(fc.tuple(operation, followUp, node), { minLength: 1, maxLength: 20, size: 'max' })
  .map((said) => said.flatMap((one) => followedUp(...one)));

/** Applies an operation to the engines. Returns its result. */
export function apply(
  { manager, ipcache }: { readonly manager: NodesUnderTest; readonly ipcache: IPCache },
  operation: Operation,
): unknown {
  switch (operation.op) {
    case 'update':
      return manager.nodeUpdated(operation.node);
    case 'delete':
      return manager.nodeDeleted(operation);
    case 'withdraw':
      return manager.withdraw(operation);
    case 'delete-all':
      return manager.deleteAllNodes();
    case 'configure':
      return manager.configure(operation.changes);
    case 'take':
      ipcache.upsert(operation.key, operation.claim);
      return undefined;
    case 'free':
      ipcache.delete(operation.key, { source: operation.source });
      return undefined;
  }
}

/** Applies an operation to the model. */
export function applyNaively(model: NaiveNodes, operation: Operation): unknown {
  const outcome = applyToClaims(model, operation);
  model.announce();
  return outcome;
}

function applyToClaims(model: NaiveNodes, operation: Operation): unknown {
  switch (operation.op) {
    case 'update':
      return model.update(operation.node);
    case 'delete':
      return model.delete(fullName(operation), operation.source);
    case 'withdraw':
      return model.withdraw(operation.source, operation.cluster);
    case 'delete-all':
      model.claims = [];
      return undefined;
    case 'configure':
      model.configuration = { ...model.configuration, ...operation.changes };
      return undefined;
    case 'take':
      model.foreign.upsert(operation.key, operation.claim);
      return undefined;
    case 'free':
      model.foreign.delete(operation.key, { source: operation.source });
      return undefined;
  }
}
