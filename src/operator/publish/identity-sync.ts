import { CILIUM_IDENTITIES } from '../../k8s/feed/kinds.ts';
import { readCiliumIdentity } from '../../k8s/parse-cilium-identity.ts';
import { encodeIdentity } from '../../kvstore/codec/identity.ts';
import { clusterLabelFault, withClusterLabel } from '../../model/cluster-label.ts';
import { formatLabels } from '../../model/labels.ts';
import { followKind, keyReader, Producer, type ProducerOptions } from './producer.ts';

/**
 * Publishes CiliumIdentities as `cilium/state/identities/v1/id/<number>` (OPERATOR 38), for a cluster that allocates them as
 * custom resources. An identity gets no key if it has no labels, if its name is not a number, or if its labels name another
 * cluster. The label of the cluster is added if it is missing, because readers of 1.17 ignore identities without it.
 */
export function identitySync(options: ProducerOptions): Producer {
  return new Producer(
    {
      name: 'identity sync',
      resource: 'identities',
      follow: (context) => {
        const { clusterName } = context;
        const reader = keyReader('CiliumIdentity', context, (fields) => {
          const said = readCiliumIdentity(fields);
          if (said === undefined) return undefined;
          const fault = clusterLabelFault(said.labels, clusterName);
          if (fault === undefined)
            return {
              name: String(said.id),
              value: encodeIdentity(withClusterLabel(said.labels, clusterName)),
            };
          fields.reject('security-labels', 'cluster-name-mismatch', fault, formatLabels(said.labels));
          return undefined;
        });
        return followKind(CILIUM_IDENTITIES, reader, context);
      },
    },
    options,
  );
}
