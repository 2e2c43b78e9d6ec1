import { showValue } from '../base/show-value.ts';
import type { NodeAddress } from '../net/cluster-node.ts';
import { type Decoded, decodeWith, Fields, isObject, rejectInput } from '../net/fields.ts';
import type { NodeSpec, PlainNode } from './node-spec.ts';

/**
 * The nodes that were known when it was made, as plain data that survives JSON. An agent writes it to disk now and
 * then, and hands it back when it starts, so that its datapath keeps reaching nodes that are not announced yet.
 */
export interface NodeCheckpoint {
  readonly version: 1;
  readonly nodes: readonly PlainNode[];
}

/** The nodes of a checkpoint that was read back; `undefined` when the value is no checkpoint. Its nodes are not checked yet. */
export function nodesOfCheckpoint(value: unknown): readonly unknown[] | undefined {
  const { version, nodes }: Readonly<Record<string, unknown>> = isObject(value) ? value : {};
  return version === 1 && Array.isArray(nodes) ? nodes : undefined;
}

/**
 * Reads a node of a checkpoint as what a source says; rejected when a field is of the wrong type. Whether the texts
 * are valid is for `parseNode` to say.
 */
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
    addresses: fields.list('addresses').items(readAddress),
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

function readAddress(list: Fields<never>, index: number): NodeAddress {
  const fields = list.item(index);
  return { type: fields.text('type'), ip: fields.text('ip') };
}
