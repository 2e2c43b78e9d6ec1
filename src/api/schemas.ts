import { z } from '@hono/zod-openapi';
import { MESH_RESOURCES } from '../kvstore/codec/keys.ts';
import type { DatapathDocument } from './datapath-document.ts';
import type {
  BackendDocument,
  ClaimDocument,
  EntryDocument,
  ExplanationDocument,
  IdentityDocument,
  NodeDocument,
  NodeExplanationDocument,
  ServiceDocument,
  ServiceExplanationDocument,
} from './documents.ts';
import type { ProblemDocument } from './problem.ts';
import type { RestoredDocument } from './read-model.ts';
import type {
  CheckpointDocument,
  ClusterDocument,
  KubernetesDocument,
  StatusDocument,
  StepDocument,
} from './status-document.ts';

/** A record of strings. */
const TEXTS = z.record(z.string(), z.string());

const RESTORED: z.ZodType<RestoredDocument> = z
  .object({
    knownAt: z.string().openapi({ description: 'When it was known' }),
    ageSeconds: z.int().openapi({ description: 'How long ago that is' }),
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
  hostIP: z.string().optional().openapi({ description: 'Address of the node it runs on' }),
  encryptKey: z.int().openapi({ description: '0: not encrypted' }),
  namespace: z.string().optional(),
  podName: z.string().optional(),
  namedPorts: TEXTS.optional().openapi({
    description: 'Port and protocol by name',
    example: { http: '8080/TCP' },
  }),
  source: z.string().openapi({ description: 'Who says so', example: 'clustermesh' }),
  owner: z.string().optional().openapi({ description: 'Which one, where there are several of a source' }),
  ...RESTORED_FIELD,
};

/** See {@link EntryDocument}. */
export const ENTRY: z.ZodType<EntryDocument> = z.object(ENTRY_FIELDS).openapi('Entry');

const CLAIM: z.ZodType<ClaimDocument> = z
  .object({ ...ENTRY_FIELDS, key: z.string(), effective: z.boolean(), shadowed: z.boolean() })
  .openapi('Claim');

/** See {@link ExplanationDocument}. */
export const EXPLANATION: z.ZodType<ExplanationDocument> = z
  .object({
    prefix: z.string(),
    decidedBy: z.enum(['only-claim', 'source-precedence', 'owner-name', 'endpoint-over-cidr']),
    claims: z.array(CLAIM).openapi({ description: 'Strongest first' }),
  })
  .openapi('Explanation');

/** See {@link IdentityDocument}. */
export const IDENTITY: z.ZodType<IdentityDocument> = z
  .object({
    identity: z.int(),
    labels: z.array(z.string()),
    cluster: z.string().optional(),
    prefixes: z.int().openapi({ description: 'How many prefixes have it' }),
    ...RESTORED_FIELD,
  })
  .openapi('Identity');

const BACKEND_FIELDS = {
  address: z.string(),
  ports: TEXTS,
  cluster: z.string().optional().openapi({ description: 'Left out: the own cluster' }),
  nodeName: z.string().optional(),
  zone: z.string().optional(),
  state: z.string().openapi({ example: 'active' }),
};

const BACKEND: z.ZodType<BackendDocument> = z.object(BACKEND_FIELDS).openapi('Backend');

const SERVICE_FIELDS = {
  namespace: z.string(),
  name: z.string(),
  type: z.string(),
  clusterIPs: z.array(z.string()),
  ports: TEXTS,
  nodePorts: z.record(z.string(), z.int()).optional().openapi({ description: 'By name of port' }),
  externalIPs: z.array(z.string()).optional(),
  loadBalancerIPs: z.array(z.string()).optional(),
  global: z.boolean(),
  shared: z.boolean(),
  affinity: z.string(),
  backends: z.array(BACKEND),
  ...RESTORED_FIELD,
};

/** See {@link ServiceDocument}. */
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
        verdict: z.enum(['effective', 'merged', 'overruled', 'not-global', 'not-ready', 'affinity']),
      }),
    ),
  })
  .openapi('ServiceExplanation');

/** A service with its explanation. */
export interface ExplainedServiceDocument extends ServiceDocument {
  readonly explain: ServiceExplanationDocument;
}

/** See {@link ExplainedServiceDocument}. */
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
};

/** See {@link NodeDocument}. */
export const NODE: z.ZodType<NodeDocument> = z.object(NODE_FIELDS).openapi('Node');

const NODE_EXPLANATION: z.ZodType<NodeExplanationDocument> = z
  .object({
    claims: z.array(NODE),
    heldBack: z.boolean(),
    lostAddresses: z.array(
      z.object({
        ip: z.string(),
        holder: z.object({ source: z.string(), owner: z.string() }).optional(),
        stronger: z.boolean(),
      }),
    ),
  })
  .openapi('NodeExplanation');

/** A node with its explanation. */
export interface ExplainedNodeDocument extends NodeDocument {
  readonly explain: NodeExplanationDocument;
}

/** See {@link ExplainedNodeDocument}. */
export const EXPLAINED_NODE: z.ZodType<ExplainedNodeDocument> = z
  .object({ ...NODE_FIELDS, explain: NODE_EXPLANATION })
  .openapi('ExplainedNode');

/** See {@link ProblemDocument}. */
export const PROBLEM: z.ZodType<ProblemDocument> = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    field: z.string().optional(),
    value: z.string().optional(),
    allowed: z.string().optional(),
  })
  .openapi('Problem');

const RESOURCE = z.enum(MESH_RESOURCES);

const CLUSTER: z.ZodType<ClusterDocument> = z
  .object({
    name: z.string(),
    own: z.boolean(),
    id: z.int().openapi({ description: '0: none, or not known yet' }),
    state: z.string(),
    ready: z
      .boolean()
      .openapi({ description: 'What is known of it is complete and follows its kvstore now' }),
    knownAt: z
      .string()
      .optional()
      .openapi({ description: 'While it is not ready, but was: what is served is of then' }),
    keys: z.partialRecord(RESOURCE, z.int()).openapi({ description: 'Keys that are held, by resource' }),
    missing: z.array(RESOURCE).openapi({ description: 'Resources that have not been complete yet' }),
    rejected: z.int(),
    connected: z.boolean(),
    connectedSince: z.string(),
    failures: z.int(),
    lastFailure: z.string().optional(),
    lastFailureAt: z.string().optional(),
  })
  .openapi('Cluster');

const STEP: z.ZodType<StepDocument> = z
  .object({
    name: z.string(),
    state: z.enum(['pending', 'running', 'done', 'overdue', 'failed', 'stopping', 'stopped', 'hanging']),
    ms: z.int().optional().openapi({ description: 'How long it took, or has taken so far' }),
    idleMs: z.int().optional().openapi({ description: 'While it lasts: since it came further' }),
    waitsFor: z.array(z.string()),
    failure: z.string().optional(),
  })
  .openapi('Step');

/** The part of the status that `/v1/clustermesh` returns. */
export type ClustermeshDocument = Pick<
  StatusDocument,
  'cluster' | 'clusterID' | 'clusters' | 'configProblems' | 'steps'
>;

const CLUSTERMESH_FIELDS = {
  cluster: z.string().openapi({ description: 'The own cluster' }),
  clusterID: z.int(),
  clusters: z.array(CLUSTER).openapi({ description: 'The own one first' }),
  configProblems: z.array(z.string()),
  steps: z.array(STEP).openapi({ description: 'Steps of the start, in order' }),
};

/** See {@link ClustermeshDocument}. */
export const CLUSTERMESH: z.ZodType<ClustermeshDocument> = z
  .object(CLUSTERMESH_FIELDS)
  .openapi('Clustermesh');

const CHECKPOINT: z.ZodType<CheckpointDocument> = z
  .object({
    folder: z.string(),
    restored: z
      .array(z.object({ cluster: z.string(), knownAt: z.string(), ageSeconds: z.int() }))
      .openapi({ description: 'Clusters of which something is only restored' }),
    written: z.int().openapi({ description: 'Checkpoints since the start' }),
    bytes: z.int().optional(),
    writtenAt: z.string().optional(),
    failure: z.string().optional().openapi({ description: 'Why the last attempt has failed' }),
  })
  .openapi('Checkpoint');

const HANDOVER = z.enum(['following', 'withdrawing', 'resting']);

const KUBERNETES: z.ZodType<KubernetesDocument> = z
  .object({
    server: z.string(),
    synced: z.boolean(),
    handover: z
      .object({ nodes: HANDOVER, ip: HANDOVER, identities: HANDOVER })
      .openapi({ description: 'Whether Kubernetes says it, or a kvstore does: resting' }),
    kinds: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['listing', 'watching', 'waiting', 'missing', 'forbidden', 'stopped', 'resting']),
        complete: z.boolean(),
        objects: z.int(),
        rejected: z.int(),
        events: z.int(),
        lastEventAt: z.string().optional(),
        lists: z.int(),
        bookmarks: z.int(),
        lagMs: z.int().optional().openapi({ description: 'Since the server said anything of it' }),
        behindMs: z
          .int()
          .optional()
          .openapi({ description: 'Since changes are no longer received because a list or watch failed' }),
        retryInMs: z.int().optional().openapi({ description: 'Until the next attempt after a failure' }),
        failures: z.int(),
        lastFailure: z.string().optional(),
      }),
    ),
  })
  .openapi('Kubernetes');

const DATAPATH: z.ZodType<DatapathDocument> = z
  .object({
    kind: z.literal('linux'),
    kernel: z.string(),
    pinFolder: z.string(),
    cgroup: z.string().optional(),
    layout: z.string(),
    dryRun: z.boolean(),
    parts: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['running', 'off', 'unavailable']),
        missing: z.array(z.string()).openapi({ description: 'Why it cannot, and what to do about it' }),
      }),
    ),
    tables: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['unread', 'holding', 'kept', 'degraded']),
        desired: z.int().openapi({ description: 'Items that are to be there' }),
        actual: z.int().openapi({ description: 'Items of ours that are there' }),
        capacity: z.int().optional(),
        pressure: z
          .number()
          .optional()
          .openapi({ description: '`actual` as a part of `capacity`, or how full the fullest map is' }),
        maps: z
          .array(z.object({ name: z.string(), used: z.int(), capacity: z.int() }))
          .openapi({ description: 'Where an item takes entries of several maps: how full they are' }),
        pending: z.int().openapi({ description: 'Keys that wait for their turn' }),
        waiting: z.int().openapi({
          description:
            'Those of them that are to be deleted, and wait until other tables do not lead to them any more',
        }),
        held: z.int().openapi({ description: 'Keys found at the start that no cache has said' }),
        noRoom: z.int().openapi({ description: 'Keys that there is no room for' }),
        noRoomErrors: z.int(),
        failing: z.int().openapi({ description: 'Keys that are tried again' }),
        failures: z.array(z.object({ key: z.string(), reason: z.string(), attempts: z.int() })),
        upserts: z.int(),
        deletes: z.int(),
        repairs: z.int().openapi({ description: 'Items that others had changed, put right' }),
      }),
    ),
    waitsFor: z
      .array(z.string())
      .openapi({ description: 'What deletes of what was found at the start wait for' }),
    failures: z.array(z.string()),
  })
  .openapi('Datapath');

/** See {@link StatusDocument}. */
export const STATUS: z.ZodType<StatusDocument> = z
  .object({
    ...CLUSTERMESH_FIELDS,
    kvstore: z.string(),
    kubernetes: KUBERNETES.optional().openapi({ description: 'With a Kubernetes API server' }),
    checkpoint: CHECKPOINT.optional().openapi({ description: 'With --state-dir' }),
    datapath: DATAPATH.optional().openapi({ description: 'With --datapath' }),
    syncedMs: z
      .int()
      .optional()
      .openapi({ description: 'How long the first sync took; left out while it lasts' }),
    ipcache: z.object({
      prefixes: z.int(),
      shadowed: z.int(),
      overruled: z.int(),
      revision: z.int(),
      listenerFaults: z.int(),
    }),
    nodes: z.object({ nodes: z.int(), overruled: z.int(), heldBack: z.array(z.string()) }),
    services: z.object({
      announced: z.int(),
      backends: z.int(),
      contested: z.int(),
      unknown: z.int(),
      listenerFaults: z.int(),
    }),
    rejected: z.object({
      total: z.int(),
      byReason: z.record(z.string(), z.int()),
      recent: z.array(z.string()),
    }),
  })
  .openapi('Status');
