import { type Rejection, rejection } from '../base/rejection.ts';
import { showValue } from '../base/show-value.ts';
import type { NodeAddress } from '../net/cluster-node.ts';
import type { NodeSpec, PlainNode } from './node-spec.ts';

/**
 * The nodes that were known when it was made, as plain data that survives JSON. An agent writes it to disk now and
 * then, and hands it back when it starts, so that its datapath keeps reaching nodes that are not announced yet.
 */
export interface NodeCheckpoint {
  readonly version: 1;
  readonly nodes: readonly PlainNode[];
}

/** The nodes of a checkpoint that was read back; `undefined` when it is none. Each may still be none itself. */
export function nodesOfCheckpoint(value: unknown): readonly unknown[] | undefined {
  const checkpoint = propertiesOf(value);
  const nodes = checkpoint.get('nodes');
  return checkpoint.get('version') === 1 && Array.isArray(nodes) ? nodes : undefined;
}

/**
 * Reads a node of a checkpoint as what a source says; a rejection when a field is of the wrong type. Whether the words
 * are right is for `parseNode` to say.
 */
export function specOfPlainNode(value: unknown): NodeSpec | Rejection {
  const fields = new PlainFields(value);
  const spec: NodeSpec = {
    name: fields.text('name') ?? '',
    cluster: fields.text('cluster') ?? '',
    source: 'restored',
    clusterID: fields.number('clusterID'),
    addresses: fields.list('addresses').map((item) => fields.address(item)),
    ipv4AllocCIDR: fields.text('ipv4AllocCIDR'),
    ipv6AllocCIDR: fields.text('ipv6AllocCIDR'),
    ipv4SecondaryAllocCIDRs: fields.list('ipv4SecondaryAllocCIDRs').map(String),
    ipv6SecondaryAllocCIDRs: fields.list('ipv6SecondaryAllocCIDRs').map(String),
    ipv4HealthIP: fields.text('ipv4HealthIP'),
    ipv6HealthIP: fields.text('ipv6HealthIP'),
    ipv4IngressIP: fields.text('ipv4IngressIP'),
    ipv6IngressIP: fields.text('ipv6IngressIP'),
    encryptionKey: fields.number('encryptionKey'),
    labels: fields.texts('labels'),
    annotations: fields.texts('annotations'),
    nodeIdentity: fields.number('nodeIdentity'),
    wireguardPubKey: fields.text('wireguardPubKey'),
    bootID: fields.text('bootID'),
  };
  return fields.fault ?? spec;
}

/** The fields of a stranger's object; remembers the first one that is of the wrong type. */
class PlainFields {
  readonly #object: ReadonlyMap<string, unknown>;
  #fault: Rejection | undefined;

  constructor(value: unknown) {
    this.#object = propertiesOf(value);
  }

  get fault(): Rejection | undefined {
    return this.#fault;
  }

  text(field: keyof NodeSpec): string | undefined {
    const value = this.#object.get(field);
    return typeof value === 'string' || value === undefined
      ? value
      : this.#refuse(field, value, 'must be text');
  }

  number(field: keyof NodeSpec): number | undefined {
    const value = this.#object.get(field);
    return typeof value === 'number' || value === undefined
      ? value
      : this.#refuse(field, value, 'must be a number');
  }

  list(field: keyof NodeSpec): readonly unknown[] {
    const value = this.#object.get(field) ?? [];
    return Array.isArray(value) ? value : (this.#refuse(field, value, 'must be a list') ?? []);
  }

  address(item: unknown): NodeAddress {
    const address = propertiesOf(item);
    const [type, ip] = [address.get('type'), address.get('ip')];
    if (typeof type === 'string' && typeof ip === 'string') return { type, ip };
    this.#refuse('addresses', item, 'must have a type and an ip');
    return { type: '', ip: '' };
  }

  texts(field: keyof NodeSpec): ReadonlyMap<string, string> {
    const texts = new Map<string, string>();
    for (const [key, value] of propertiesOf(this.#object.get(field))) {
      if (typeof value === 'string') texts.set(key, value);
      else this.#refuse(`${field}.${key}`, value, 'must be text');
    }
    return texts;
  }

  #refuse(field: string, value: unknown, why: string): undefined {
    const name = this.#object.get('name');
    this.#fault ??= rejection('wrong-type', field, value, why, `checkpoint, node ${showValue(name)}`);
  }
}

/** The properties of an object, by name: a `Map`, so that no name from outside can reach a prototype. */
function propertiesOf(value: unknown): ReadonlyMap<string, unknown> {
  return new Map(typeof value === 'object' && value !== null ? Object.entries(value) : []);
}
