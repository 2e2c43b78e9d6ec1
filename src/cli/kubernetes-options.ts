import { type Command, InvalidArgumentError } from 'commander';
import type { KubernetesOptions } from '../agent/options.ts';
import { KUBERNETES_ENDPOINTS, KUBERNETES_PARTS, type KubernetesPart } from '../tape/tape-settings.ts';
import {
  accessContradiction,
  choice,
  contextOption,
  k8sLoadOption,
  kubeconfigOption,
  parseEncryptKey,
  parseLabelValue,
  RepeatableOption,
} from './option-table.ts';

/** Options of a Kubernetes API server as parsed by commander. */
export interface KubernetesFlags {
  readonly kubeconfig?: string;
  readonly context?: string;
  readonly k8s: 'auto' | 'on' | 'off';
  readonly k8sLoad?: readonly string[];
  readonly k8sWatch?: readonly KubernetesPart[];
  readonly k8sEndpoints: KubernetesOptions['endpoints'];
  readonly k8sIdentities: KubernetesOptions['identities'];
  readonly k8sServiceProxyName?: string;
  readonly k8sHeadlessServices?: true;
  readonly k8sHostIps?: true;
  readonly k8sDualStack?: true;
  readonly k8sNodeAnnotations?: true;
  readonly k8sEncryptKey?: number;
}

/** The other sources of a command. If there is one, the service account of the pod is not used by default. */
export interface OtherSources {
  readonly manifests: boolean;
  readonly mesh: boolean;
}

/** Parses parts separated by commas, such as `services,nodes`, and appends them to the previous ones. */
function parseParts(text: string, previous: readonly KubernetesPart[] = []): readonly KubernetesPart[] {
  const parts = text.split(',').map((word) => {
    const part = KUBERNETES_PARTS.find((name) => name === word);
    if (part !== undefined) return part;
    throw new InvalidArgumentError(`'${word}' is not one of ${KUBERNETES_PARTS.join(', ')}.`);
  });
  return [...previous, ...parts];
}

/** Adds the options of {@link KubernetesFlags}. */
export function addKubernetesOptions(command: Command): Command {
  return command
    .optionsGroup('Kubernetes:')
    .addOption(kubeconfigOption())
    .addOption(contextOption())
    .addOption(
      choice(
        '--k8s <mode>',
        'auto: follow Kubernetes if there is a kubeconfig, or if the process runs in a pod and has no other source; on: use the service account of the pod if there is no kubeconfig',
        ['auto', 'on', 'off'],
        'auto',
      ),
    )
    .addOption(k8sLoadOption())
    .addOption(
      new RepeatableOption(
        '--k8s-watch <parts>',
        `resources to follow: ${KUBERNETES_PARTS.join(',')} (default: all); may be repeated`,
      ).argParser(parseParts),
    )
    .addOption(
      choice(
        '--k8s-endpoints <kind>',
        'resource with the endpoints of other nodes',
        KUBERNETES_ENDPOINTS,
        'ciliumendpoints',
      ),
    )
    .addOption(
      choice(
        '--k8s-identities <mode>',
        'crd: use CiliumIdentities even if there is a kvstore',
        ['kvstore', 'crd'],
        'kvstore',
      ),
    )
    .option('--k8s-service-proxy-name <name>', 'use only services with this proxy name', parseLabelValue)
    .option('--k8s-headless-services', 'use headless services, too')
    .option(
      '--k8s-host-ips',
      'addresses of this machine have identity host, and unknown addresses have identity world',
    )
    .option('--k8s-dual-stack', 'unknown IPv4 and IPv6 addresses have different world identities')
    .option('--k8s-node-annotations', 'use the annotations of the local Node')
    .option('--k8s-encrypt-key <number>', 'encryption key of the pods of the local node', parseEncryptKey);
}

/** Returns true if the flags require Kubernetes: `--k8s on`, a kubeconfig, or objects to load. */
export function namesKubernetes({ k8s, kubeconfig, k8sLoad = [] }: KubernetesFlags): boolean {
  return k8s === 'on' || (k8s === 'auto' && (kubeconfig !== undefined || k8sLoad.length > 0));
}

/** Returns the contradiction between the flags, if any. */
export function kubernetesContradiction(flags: KubernetesFlags, others: OtherSources): string | undefined {
  const { k8s, kubeconfig, k8sLoad = [], k8sWatch = KUBERNETES_PARTS } = flags;
  if (k8s === 'off' && (kubeconfig !== undefined || k8sLoad.length > 0))
    return '--k8s off cannot be combined with --kubeconfig or --k8s-load';
  const access = accessContradiction(flags, k8sLoad.length > 0);
  if (access !== undefined) return access;
  if (namesKubernetes(flags) && others.manifests && k8sWatch.includes('services'))
    return '--manifests and Kubernetes cannot both define services: remove services from --k8s-watch';
  return undefined;
}

/** Returns the options of an agent for Kubernetes; `undefined`: do not follow it. */
export function kubernetesOptions(
  flags: KubernetesFlags,
  others: OtherSources,
): KubernetesOptions | undefined {
  const isNamed = namesKubernetes(flags);
  if (!isNamed && (flags.k8s === 'off' || others.manifests || others.mesh)) return undefined;
  return {
    ifInCluster: !isNamed,
    kubeconfig: flags.kubeconfig,
    context: flags.context,
    load: flags.k8sLoad ?? [],
    watch: flags.k8sWatch ?? KUBERNETES_PARTS,
    endpoints: flags.k8sEndpoints,
    identities: flags.k8sIdentities,
    serviceProxyName: flags.k8sServiceProxyName,
    headlessServices: flags.k8sHeadlessServices ?? false,
    hostIPs: flags.k8sHostIps ?? false,
    dualStack: flags.k8sDualStack ?? false,
    nodeAnnotations: flags.k8sNodeAnnotations ?? false,
    encryptKey: flags.k8sEncryptKey ?? 0,
  };
}
