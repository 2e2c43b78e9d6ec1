import type { Label, Labels } from '../identity/labels.ts';

/** Labels that say what a workload is, the most telling first (Kubernetes' recommended labels, and old habits). */
const TELLING = ['app.kubernetes.io/name', 'app', 'k8s-app', 'name'];

/** Prefixes of labels that Cilium adds by itself: every pod has them. */
const ADDED = 'io.';

function isTelling({ key }: Label): boolean {
  return !key.startsWith(ADDED);
}

/** The label that best says what an identity stands for, `app=checkout`; `undefined` without labels. */
export function labelName(labels: Labels): string | undefined {
  const named = TELLING.map((key) => labels.find((label) => label.key === key)).find(Boolean);
  const best = named ?? labels.find(isTelling) ?? labels[0];
  return best && (best.value === '' ? best.key : `${best.key}=${best.value}`);
}
