import type { Labels } from './labels.ts';

/** The key of the label that names the namespace of an identity's pods. Its source is `k8s`. */
export const NAMESPACE_LABEL = 'io.kubernetes.pod.namespace';

/** Returns the namespace that labels name; undefined if they name none. */
export function namespaceOfLabels(labels: Labels): string | undefined {
  return labels.find(({ source, key }) => source === 'k8s' && key === NAMESPACE_LABEL)?.value;
}
