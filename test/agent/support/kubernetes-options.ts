import type { KubernetesOptions } from '../../../src/agent/options.ts';

/** Options of an agent that follows nothing of Kubernetes. */
export const NO_KUBERNETES: KubernetesOptions = {
  ifInCluster: false,
  load: [],
  watch: [],
  endpoints: 'ciliumendpoints',
  identities: 'kvstore',
  headlessServices: false,
  hostIPs: false,
  dualStack: false,
  nodeAnnotations: false,
  encryptKey: 0,
};
