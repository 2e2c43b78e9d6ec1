import { CILIUM_IDENTITIES } from '../../k8s/feed/kinds.ts';
import type { KindReader } from '../../k8s/feed/object-feed.ts';
import { type ParsedIdentity, readCiliumIdentity } from '../../k8s/parse-cilium-identity.ts';
import type { ObjectFields } from '../../k8s/parse-object.ts';
import { encodeIdentity } from '../../kvstore/codec/identity.ts';
import { clusterLabelFault, withClusterLabel } from '../../model/cluster-label.ts';
import { formatLabels } from '../../model/labels.ts';
import { NAMESPACE_LABEL, namespaceOfLabels } from '../../model/namespace-label.ts';
import { MINIMAL_ALLOCATED_IDENTITY } from '../../model/numeric-identity.ts';
import {
  exportedValues,
  type FollowedInputs,
  followKind,
  type InputContext,
  Producer,
  type ProducerOptions,
  type PublishedValue,
  publishTo,
  withNamespaces,
} from './producer.ts';

interface IdentityKey extends PublishedValue {
  /**
   * The namespace that must be global for the identity to be exported; undefined if the identity is always exported.
   */
  readonly namespace: string | undefined;
}

/**
 * Returns true if the identity is reserved. Such an identity belongs to no pod and no namespace, so it is always
 * exported.
 */
function isReserved({ id, labels }: ParsedIdentity): boolean {
  return id < MINIMAL_ALLOCATED_IDENTITY || labels.some(({ source }) => source === 'reserved');
}

/** Returns the key of an identity; undefined if the identity is rejected. */
function readKey(fields: ObjectFields, context: InputContext): IdentityKey | undefined {
  const { clusterName, namespaces } = context;
  const identity = readCiliumIdentity(fields);
  if (identity === undefined) return undefined;
  const { id, labels } = identity;
  const fault = clusterLabelFault(labels, clusterName);
  if (fault !== undefined)
    return fields.reject('security-labels', 'cluster-name-mismatch', fault, formatLabels(labels));
  const isAlwaysExported = namespaces === undefined || isReserved(identity);
  const namespace = isAlwaysExported ? undefined : namespaceOfLabels(labels);
  if (!isAlwaysExported && namespace === undefined) {
    const reason = `must have k8s:${NAMESPACE_LABEL}, because only identities of global namespaces are exported`;
    return fields.reject('security-labels', 'missing-field', reason, formatLabels(labels));
  }
  const value = encodeIdentity(withClusterLabel(labels, clusterName));
  return { name: String(id), value, namespace };
}

function follow(context: InputContext): FollowedInputs {
  const namespaceOf = ({ namespace }: IdentityKey): string | undefined => namespace;
  // Publishes only identities of global namespaces and identities without a namespace.
  const values = exportedValues({ namespaceOf, change: publishTo(context) }, context, 'identities');
  const reader: KindReader<IdentityKey> = {
    kind: 'CiliumIdentity',
    read: (fields) => readKey(fields, context),
    change: (current, previous) => values.change(current, previous),
  };
  return withNamespaces(followKind(CILIUM_IDENTITIES, reader, context), values, context, 'identities');
}

/**
 * Publishes CiliumIdentities as `cilium/state/identities/v1/id/<number>` (OPERATOR 38), for a cluster that allocates
 * identities as custom resources. An identity gets no key if it has no labels, if its name is not a number, if its
 * labels name another cluster, or if its namespace is not global. The label of the cluster is added if it is missing,
 * because readers of 1.17 ignore identities without it.
 */
export function identitySync(options: ProducerOptions): Producer {
  return new Producer({ name: 'identity sync', resource: 'identities', follow }, options);
}
