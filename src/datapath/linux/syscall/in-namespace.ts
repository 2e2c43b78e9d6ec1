import { closeSync, openSync } from 'node:fs';
import type { Kernel } from './kernel.ts';

const CLONE_NEWNET = 0x40000000;

/**
 * Does something in a network namespace, the one with this path if it has one: this thread goes there and comes back, before
 * anything else can run.
 */
export function inNamespace<T>(kernel: Kernel, namespace: string | undefined, work: () => T): T {
  if (namespace === undefined) return work();
  const there = openSync(namespace, 'r');
  try {
    const here = openSync('/proc/thread-self/ns/net', 'r');
    try {
      kernel.setns(there, CLONE_NEWNET);
      try {
        return work();
      } finally {
        kernel.setns(here, CLONE_NEWNET);
      }
    } finally {
      closeSync(here);
    }
  } finally {
    closeSync(there);
  }
}
