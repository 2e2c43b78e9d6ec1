import { matchesLabels, parseLabelSelector } from '../model/label-selector.ts';
import type { Service } from './service.ts';

/** The label of nodes that the annotation of the same name refers to. */
export const NODE_LABEL = 'service.cilium.io/node';

/** Returns true if a service has frontends on some nodes only. */
export function isRestricted({ nodeSelector, nodeLabel }: Service): boolean {
  return nodeSelector !== undefined || nodeLabel !== undefined;
}

/**
 * Returns true if a service has frontends on a node with these labels. If it has a selector, its `nodeLabel` is
 * ignored. An invalid selector restricts nothing, as in Cilium.
 */
export function isExposedOn(
  { nodeSelector, nodeLabel }: Service,
  labels: { get(key: string): string | undefined },
): boolean {
  if (nodeSelector === undefined) return nodeLabel === undefined || labels.get(NODE_LABEL) === nodeLabel;
  try {
    return matchesLabels(parseLabelSelector(nodeSelector), labels);
  } catch {
    return true;
  }
}
