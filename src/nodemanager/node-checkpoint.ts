import { showValue } from '../base/show-value.ts';
import type { NodeAddress } from '../model/cluster-node.ts';
import { type Decoded, decodeWith, Fields, isObject, rejectInput } from '../net/fields.ts';
import type { NodeSpec, PlainNode } from './node-spec.ts';

/**
 * The known nodes as plain data, for JSON. An agent writes a checkpoint periodically and restores it
 * when it starts, so that its datapath reaches nodes that no source has announced yet.
 */
export interface NodeCheckpoint {
  readonly version: 1;
  readonly nodes: readonly PlainNode[];
}

/** Returns the unchecked nodes of a checkpoint; `undefined` if the value is not a checkpoint. */
export function nodesOfCheckpoint(value: unknown): readonly unknown[] | undefined {
  const { version, nodes }: Readonly<Record<string, unknown>> = isObject(value) ? value : {};
  return version === 1 && Array.isArray(nodes) ? nodes : undefined;
}

/** Decodes a node of a checkpoint. It is rejected if a field has the wrong type. `parseNode` validates the texts. */
export function specOfPlainNode(value: unknown): Decoded<NodeSpec> {
  const { name }: Readonly<Record<string, unknown>> = isObject(value) ? value : {};
  return decodeWith(`checkpoint, node ${showValue(name)}`, () =>
    readSpec(Fields.of(value, rejectInput, 'node')),
  );
}

function readSpec(fields: Fields<never>): NodeSpec {
  const number = (name: keyof NodeSpec): number | undefined => fields.number(name, 0, Number.MAX_VALUE);
  const texts = (name: keyof NodeSpec): readonly string[] =>
    fields.list(name).items((list, index) => list.string(index));
  return {
    name: fields.string('name') ?? '',
    cluster: fields.string('cluster') ?? '',
    source: 'restored',
    clusterID: number('clusterID'),
    addresses: fields.list('addresses').items(readCheckpointAddress),
    ipv4AllocCIDR: fields.string('ipv4AllocCIDR'),
    ipv6AllocCIDR: fields.string('ipv6AllocCIDR'),
    ipv4SecondaryAllocCIDRs: texts('ipv4SecondaryAllocCIDRs'),
    ipv6SecondaryAllocCIDRs: texts('ipv6SecondaryAllocCIDRs'),
    ipv4HealthIP: fields.string('ipv4HealthIP'),
    ipv6HealthIP: fields.string('ipv6HealthIP'),
    ipv4IngressIP: fields.string('ipv4IngressIP'),
    ipv6IngressIP: fields.string('ipv6IngressIP'),
    encryptionKey: number('encryptionKey'),
    labels: fields.strings('labels'),
    annotations: fields.strings('annotations'),
    nodeIdentity: number('nodeIdentity'),
    wireguardPubKey: fields.string('wireguardPubKey'),
    bootID: fields.string('bootID'),
  };
}

function readCheckpointAddress(list: Fields<never>, index: number): NodeAddress {
  const fields = list.item(index);
  return { type: fields.text('type'), ip: fields.text('ip') };
}
