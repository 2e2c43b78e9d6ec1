import { CILIUM_NODES } from '../k8s/feed/kinds.ts';
import { readCiliumNode } from '../k8s/parse-nodes.ts';
import { encodeNode } from '../kvstore/codec/node.ts';
import { followKind, keyReader, Producer, type ProducerOptions } from './producer.ts';

/**
 * CiliumNodes, as `cilium/state/nodes/v1/<cluster>/<name>` (OPERATOR 10 to 13, 39), compared by their bytes: labels and
 * annotations count. One that is being deleted has no key (OPERATOR 11). While there are none at all, what a former life
 * has left stays: they may not have been made yet (OPERATOR 13).
 */
export function nodeSync(options: ProducerOptions): Producer {
  const { version } = options;
  return new Producer(
    {
      name: 'node sync',
      resource: 'nodes',
      keepWhenEmpty: true,
      follow: (context) => {
        const reader = keyReader('CiliumNode', context, (fields) => {
          if (fields.map('metadata').value('deletionTimestamp') !== undefined) return undefined;
          const node = readCiliumNode(fields, options);
          return node && { name: node.name, value: encodeNode(node, { version, source: 'custom-resource' }) };
        });
        return followKind(CILIUM_NODES, reader, context);
      },
    },
    options,
  );
}
