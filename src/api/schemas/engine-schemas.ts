import { z } from '@hono/zod-openapi';
import type { AddressRoleDocument } from '../address-roles.ts';
import {
  type BackendDocument,
  type ClaimDocument,
  type EntryDocument,
  type ExplainedNodeDocument,
  type ExplainedServiceDocument,
  type ExplanationDocument,
  type IdentityDocument,
  type NodeDocument,
  type NodeExplanationDocument,
  type OriginDocument,
  type ServiceDocument,
  type ServiceExplanationDocument,
  STORES,
} from '../documents.ts';
import type { RestoredDocument } from '../read-model.ts';
import { PAST_FIELD } from './history-schemas.ts';

const TEXTS = z.record(z.string(), z.string());

const RESTORED: z.ZodType<RestoredDocument> = z
  .object({
    knownAt: z.string().describe('Time of the restored state'),
    ageSeconds: z.int().describe('Age of the restored state'),
  })
  .openapi('Restored');

/** Field of documents that can contain restored state. */
const RESTORED_FIELD = { restored: RESTORED.optional() };

const ENTRY_FIELDS = {
  prefix: z.string().openapi({ description: 'Canonical CIDR', example: '10.10.0.12/32' }),
  identity: z.int().openapi({ description: 'Numeric security identity', example: 66536 }),
  labels: z
    .array(z.string())
    .optional()
    .openapi({ example: ['k8s:app=checkout'] }),
  hostIP: z.string().optional().describe('IP of the node'),
  encryptKey: z.int().describe('0: not encrypted'),
  namespace: z.string().optional(),
  podName: z.string().optional(),
  serviceAccount: z.string().optional().describe("The pod's service account"),
  namedPorts: TEXTS.optional().openapi({
    description: 'Port and protocol by name',
    example: { http: '8080/TCP' },
  }),
  source: z.string().openapi({ description: 'Source of the claim', example: 'clustermesh' }),
  owner: z.string().optional().describe('Owner of the claim, if the source has several'),
  ...RESTORED_FIELD,
  ...PAST_FIELD,
};

export const ENTRY: z.ZodType<EntryDocument> = z.object(ENTRY_FIELDS).openapi('Entry');

const ORIGIN: z.ZodType<OriginDocument> = z
  .object({
    text: z.string().openapi({
      example: "atlantic's etcd, cilium/state/ip/v1/default/10.10.0.12, revision 88124",
    }),
    cluster: z.string().optional(),
    store: z.enum(STORES),
    key: z.string().optional(),
    revision: z.int().optional(),
    knownAt: z.string().optional().describe('If the cluster is not ready: the time of its served state'),
  })
  .openapi('Origin');

const ROLE: z.ZodType<AddressRoleDocument> = z
  .object({
    kind: z.enum(['service', 'node']),
    name: z.string(),
    as: z.string().openapi({ example: 'cluster-ip' }),
    ports: z.array(z.string()).optional(),
    text: z.string().openapi({ example: 'cluster IP of shop/checkout (80/TCP)' }),
  })
  .openapi('AddressRole');

const CLAIM: z.ZodType<ClaimDocument> = z
  .object({
    ...ENTRY_FIELDS,
    key: z.string(),
    effective: z.boolean(),
    shadowed: z.boolean(),
    origin: ORIGIN.optional().describe('Absent with `at`'),
    since: z.string().optional(),
    until: z.string().optional(),
  })
  .openapi('Claim');

export const EXPLANATION: z.ZodType<ExplanationDocument> = z
  .object({
    prefix: z.string(),
    decidedBy: z
      .enum(['only-claim', 'source-precedence', 'owner-name', 'endpoint-over-cidr'])
      .optional()
      .describe('Absent if there are no claims, or if only one is known and `claimsComplete` is false'),
    claims: z.array(CLAIM).describe('Strongest first'),
    roles: z
      .array(ROLE)
      .optional()
      .describe(
        'Services and nodes with the IP; `pod-cidr`: nodes whose pod CIDR contains it, if it has no entry; absent for a CIDR and with `at`',
      ),
    kernel: z
      .object({
        kernel: z.string().optional(),
        cache: z.string().optional(),
        failure: z.string().optional(),
      })
      .optional()
      .describe('Entry in the kernel; present if a datapath keeps a map of prefixes'),
    ...PAST_FIELD,
  })
  .openapi('Explanation');

export const IDENTITY: z.ZodType<IdentityDocument> = z
  .object({
    identity: z.int(),
    labels: z.array(z.string()),
    cluster: z.string().optional(),
    prefixes: z.int().describe('Number of prefixes with this identity'),
    ...RESTORED_FIELD,
  })
  .openapi('Identity');

const BACKEND_FIELDS = {
  address: z.string(),
  ports: TEXTS,
  cluster: z.string().optional().describe('Absent: local cluster'),
  nodeName: z.string().optional(),
  zone: z.string().optional(),
  state: z.string().openapi({ example: 'active' }),
  weight: z.int().optional().describe('Absent: 100'),
};

const BACKEND: z.ZodType<BackendDocument> = z.object(BACKEND_FIELDS).openapi('Backend');

const SERVICE_FIELDS = {
  namespace: z.string(),
  name: z.string(),
  type: z.string(),
  clusterIPs: z.array(z.string()),
  ports: TEXTS,
  nodePorts: z.record(z.string(), z.int()).optional().describe('Node port by port name'),
  externalIPs: z.array(z.string()).optional(),
  loadBalancerIPs: z.array(z.string()).optional(),
  global: z.boolean(),
  shared: z.boolean(),
  affinity: z.string(),
  nodeSelector: z.string().optional().describe('Only matching nodes have the frontends'),
  nodeLabel: z
    .string()
    .optional()
    .describe('Only nodes whose label service.cilium.io/node has this value have the frontends'),
  exposedType: z.string().optional().describe('Only frontends of this type, and external IPs, exist'),
  sourceRanges: z
    .array(z.string())
    .optional()
    .describe('CIDRs of clients of the load balancer; absent: all clients are admitted'),
  sourceRangesPolicy: z
    .enum(['allow', 'deny'])
    .optional()
    .describe('`allow`: only clients in `sourceRanges` are admitted; `deny`: only others'),
  backends: z.array(BACKEND),
  ...RESTORED_FIELD,
  ...PAST_FIELD,
};

export const SERVICE: z.ZodType<ServiceDocument> = z.object(SERVICE_FIELDS).openapi('Service');

const SERVICE_EXPLANATION: z.ZodType<ServiceExplanationDocument> = z
  .object({
    ready: z.boolean(),
    announced: z.boolean(),
    origins: z.array(z.object({ cluster: z.string(), slice: z.string(), backends: z.int() })),
    backends: z.array(
      z.object({
        ...BACKEND_FIELDS,
        slice: z.string(),
        verdict: z.enum([
          'effective',
          'merged',
          'overruled',
          'not-global',
          'not-ready',
          'affinity',
          'maintenance',
        ]),
      }),
    ),
  })
  .openapi('ServiceExplanation');

export const EXPLAINED_SERVICE: z.ZodType<ExplainedServiceDocument> = z
  .object({ ...SERVICE_FIELDS, explain: SERVICE_EXPLANATION })
  .openapi('ExplainedService');

const NODE_FIELDS = {
  cluster: z.string(),
  name: z.string(),
  clusterID: z.int(),
  source: z.string(),
  addresses: z.array(z.object({ type: z.string(), ip: z.string() })),
  ipv4AllocCIDR: z.string().optional(),
  ipv6AllocCIDR: z.string().optional(),
  ipv4SecondaryAllocCIDRs: z.array(z.string()).optional(),
  ipv6SecondaryAllocCIDRs: z.array(z.string()).optional(),
  ipv4HealthIP: z.string().optional(),
  ipv6HealthIP: z.string().optional(),
  ipv4IngressIP: z.string().optional(),
  ipv6IngressIP: z.string().optional(),
  encryptionKey: z.int(),
  wireguardPubKey: z.string().optional(),
  bootID: z.string().optional(),
  labels: TEXTS,
  ...RESTORED_FIELD,
  ...PAST_FIELD,
};

export const NODE: z.ZodType<NodeDocument> = z.object(NODE_FIELDS).openapi('Node');

const NODE_EXPLANATION: z.ZodType<NodeExplanationDocument> = z
  .object({
    claims: z.array(NODE),
    heldBack: z.boolean(),
    lostAddresses: z.array(
      z.object({
        ip: z.string(),
        holder: z
          .object({ source: z.string(), owner: z.string() })
          .optional()
          .describe('Writer of the effective claim; absent if the IPCache is full'),
        stronger: z.boolean().describe('If true, handlers do not receive the new version of the node'),
      }),
    ),
  })
  .openapi('NodeExplanation');

export const EXPLAINED_NODE: z.ZodType<ExplainedNodeDocument> = z
  .object({ ...NODE_FIELDS, explain: NODE_EXPLANATION })
  .openapi('ExplainedNode');
