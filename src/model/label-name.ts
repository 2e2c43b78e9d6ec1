import type { Label, Labels } from './labels.ts';

/** Labels that name a workload, the most specific first: Kubernetes' recommended labels and older conventions. */
const NAME_LABELS = ['app.kubernetes.io/name', 'app', 'k8s-app', 'name'];

/** Prefix of labels that Cilium adds to every pod. */
const ADDED_PREFIX = 'io.';

function isOfWorkload({ key }: Label): boolean {
  return !key.startsWith(ADDED_PREFIX);
}

/** Returns the label that best names an identity (`app=checkout`); `undefined` if it has no labels. */
export function labelName(labels: Labels): string | undefined {
  const named = NAME_LABELS.map((key) => labels.find((label) => label.key === key)).find(Boolean);
  const best = named ?? labels.find(isOfWorkload) ?? labels[0];
  return best && (best.value === '' ? best.key : `${best.key}=${best.value}`);
}
