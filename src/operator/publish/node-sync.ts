import { CILIUM_NODES } from '../../k8s/feed/kinds.ts';
import { CILIUM_NODE_FIELDS, readCiliumNode } from '../../k8s/parse-nodes.ts';
import type { ObjectFields } from '../../k8s/parse-object.ts';
import { encodeNode } from '../../kvstore/codec/node.ts';
import { followKind, Producer, type ProducerOptions, type PublishedValue, publishTo } from './producer.ts';

/**
 * Publishes CiliumNodes as `cilium/state/nodes/v1/<cluster>/<name>` (OPERATOR 10 to 13, 39). Values are compared by
 * their bytes, so changed labels and annotations are published. A CiliumNode being deleted has no key (OPERATOR
 * 11). While there are no CiliumNodes at all, the keys of earlier runs are kept, because the CiliumNodes may not have
 * been created yet (OPERATOR 13).
 */
export function nodeSync(options: ProducerOptions): Producer {
  const { version } = options;
  return new Producer(
    {
      name: 'node sync',
      resource: 'nodes',
      keepWhenEmpty: true,
      follow: (context) => {
        const read = (fields: ObjectFields): PublishedValue | undefined => {
          if (fields.map('metadata').value('deletionTimestamp') !== undefined) return undefined;
          const node = readCiliumNode(fields, options);
          return node && { name: node.name, value: encodeNode(node, { version, source: 'custom-resource' }) };
        };
        const fields = ['metadata.deletionTimestamp', ...CILIUM_NODE_FIELDS];
        return followKind(
          CILIUM_NODES,
          { kind: 'CiliumNode', fields, read, change: publishTo(context) },
          context,
        );
      },
    },
    options,
  );
}
