import { CILIUM_IDENTITIES } from '../k8s/feed/kinds.ts';
import { readCiliumIdentity } from '../k8s/parse-cilium-identity.ts';
import { encodeIdentity } from '../kvstore/codec/identity.ts';
import { followKind, keyReader, Producer, type ProducerOptions } from './producer.ts';

/**
 * CiliumIdentities, as `cilium/state/identities/v1/id/<number>` (OPERATOR 38): of a cluster that allocates them as custom
 * resources. One that has lost its labels, or whose name is no number, has no key.
 */
export function identitySync(options: ProducerOptions): Producer {
  return new Producer(
    {
      name: 'identity sync',
      resource: 'identities',
      follow: (context) => {
        const reader = keyReader('CiliumIdentity', context, (fields) => {
          const said = readCiliumIdentity(fields);
          return said && { name: String(said.id), value: encodeIdentity(said.labels) };
        });
        return followKind(CILIUM_IDENTITIES, reader, context);
      },
    },
    options,
  );
}
