import { openSync } from 'node:fs';
import { useDescriptor } from './descriptor.ts';
import type { Kernel } from './kernel.ts';

const CLONE_NEWNET = 0x40000000;

/** Runs `work` in the network namespace with this path, if any, and returns to the current one. */
export function runInNamespace<T>(kernel: Kernel, namespace: string | undefined, work: () => T): T {
  if (namespace === undefined) return work();
  return useDescriptor(openSync(namespace, 'r'), (there) =>
    useDescriptor(openSync('/proc/thread-self/ns/net', 'r'), (here) => {
      kernel.call('setns', there, CLONE_NEWNET);
      try {
        return work();
      } finally {
        kernel.call('setns', here, CLONE_NEWNET);
      }
    }),
  );
}
