import { SERVICE_FORMATS, type ServiceFormat } from '../clustermesh/service-format.ts';
import { checkMaxConnected } from '../kvstore/codec/cluster-config.ts';
import type { MaxConnectedClusters } from '../model/numeric-identity.ts';
import { decodeWith, Fields, rejectInput } from '../net/fields.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import { TapeError } from './tape-line.ts';

/** The settings on the tape of an agent: all those which its state depends on. */
export interface TapeSettings {
  readonly clusterName: string;
  /** Id of the local cluster; 0 if it has none. */
  readonly clusterID: number;
  readonly nodeName: string;
  readonly maxConnectedClusters: MaxConnectedClusters;
  readonly serviceV2: ServiceFormat;
  readonly network: NodeConfiguration;
  /** Undefined if Kubernetes is not followed. */
  readonly kubernetes?: TapedKubernetes | undefined;
}

/** The kinds of Kubernetes objects that an agent can follow. */
export const KUBERNETES_PARTS = ['services', 'endpoints', 'nodes', 'identities', 'policies'] as const;

export type KubernetesPart = (typeof KUBERNETES_PARTS)[number];

/** The kinds with the endpoints of other nodes. */
export const KUBERNETES_ENDPOINTS = ['ciliumendpoints', 'ciliumendpointslices', 'pods'] as const;

/** Settings of an agent with Kubernetes. */
export interface TapedKubernetes {
  readonly watch: readonly KubernetesPart[];
  readonly endpoints: (typeof KUBERNETES_ENDPOINTS)[number];
  /** `crd`: CiliumIdentities are always read. `kvstore`: only while no kvstore provides identities. */
  readonly identities: 'kvstore' | 'crd';
  readonly serviceProxyName?: string | undefined;
  readonly headlessServices: boolean;
  /** If true, the annotations of the local Node are used (KUBERNETES 40). */
  readonly nodeAnnotations: boolean;
  /** Encryption key of the local node, for its pods (KUBERNETES 18); 0: none. */
  readonly encryptKey: number;
}

function readKubernetes(fields: Fields<never>): TapedKubernetes {
  const watch = fields.list('watch');
  return {
    watch: watch.items((_, index) => watch.word(index, KUBERNETES_PARTS)),
    endpoints: fields.word('endpoints', KUBERNETES_ENDPOINTS) ?? 'ciliumendpoints',
    identities: fields.word('identities', ['kvstore', 'crd'] as const) ?? 'kvstore',
    serviceProxyName: fields.string('serviceProxyName'),
    headlessServices: fields.boolean('headlessServices') === true,
    nodeAnnotations: fields.boolean('nodeAnnotations') === true,
    encryptKey: fields.integer('encryptKey', 0, 255) ?? 0,
  };
}

/** Returns the name of a cluster or node. It has no slash, because keys contain the name. */
function readName(fields: Fields<never>, field: string): string {
  const name = fields.text(field);
  return name.includes('/') ? fields.reject(field, 'malformed-name', 'must not contain /', name) : name;
}

/** Returns the checked settings of a tape. Throws {@link TapeError}. */
export function readTapeSettings(settings: unknown, at: string): TapeSettings {
  const decoded = decodeWith('settings', () => {
    const fields = Fields.of(settings, rejectInput, 'settings');
    const network = fields.item('network');
    const kubernetes = fields.object('kubernetes');
    const flag = (name: string): boolean => network.boolean(name) === true;
    return {
      clusterName: readName(fields, 'clusterName'),
      clusterID: fields.integer('clusterID', 0, 511) ?? 0,
      nodeName: readName(fields, 'nodeName'),
      maxConnectedClusters: checkMaxConnected(fields, fields.value('maxConnectedClusters') ?? 255),
      serviceV2: fields.word('serviceV2', SERVICE_FORMATS) ?? 'auto',
      network: {
        remoteNodeIdentities: flag('remoteNodeIdentities'),
        encryption: flag('encryption'),
        nodeEncryption: flag('nodeEncryption'),
        hostFirewall: flag('hostFirewall'),
        underlay: network.word('underlay', ['ipv4', 'ipv6'] as const) ?? 'ipv4',
      },
      ...(kubernetes && { kubernetes: readKubernetes(kubernetes) }),
    } satisfies TapeSettings;
  });
  if (decoded.ok) return decoded.value;
  throw new TapeError(at, decoded.rejection.message);
}
