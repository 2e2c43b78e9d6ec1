import { z } from '@hono/zod-openapi';
import { UNCERTAINTIES } from '../history/types.ts';
import { COPIED_RESOURCES, MESH_RESOURCES } from '../kvstore/codec/keys.ts';
import type { AddressRoleDocument } from './address-roles.ts';
import type { DatapathDocument } from './datapath-document.ts';
import {
  type BackendDocument,
  type ClaimDocument,
  type EntryDocument,
  type ExplanationDocument,
  type IdentityDocument,
  type NodeDocument,
  type NodeExplanationDocument,
  type OriginDocument,
  type ServiceDocument,
  type ServiceExplanationDocument,
  STORES,
} from './documents.ts';
import type { CausesDocument, HistoryDocument, HistoryRecordDocument } from './history-documents.ts';
import type { HeldDocument, PastDocument } from './past-document.ts';
import type { ProblemDocument } from './problem.ts';
import { type ProblemsDocument, SEVERITIES } from './problems.ts';
import type { RestoredDocument } from './read-model.ts';
import { SEARCH_KINDS, SEARCH_MATCHES, type SearchDocument } from './search.ts';
import {
  type CheckpointDocument,
  type ClusterDetailDocument,
  type ClusterDocument,
  type HistoryStatusDocument,
  type KubernetesDocument,
  STORE_STATES,
  type StatusDocument,
  type StepDocument,
  type StoreDocument,
  type TapeDocument,
} from './status-document.ts';

const TEXTS = z.record(z.string(), z.string());

const RESTORED: z.ZodType<RestoredDocument> = z
  .object({
    knownAt: z.string().describe('Time of the restored state'),
    ageSeconds: z.int().describe('Age of the restored state'),
  })
  .openapi('Restored');

/** Field of documents that can contain restored state. */
const RESTORED_FIELD = { restored: RESTORED.optional() };

const HELD: z.ZodType<HeldDocument> = z.object({ from: z.string(), to: z.string() }).openapi('Held');

const PAST: z.ZodType<PastDocument> = z
  .object({
    at: z.string(),
    certain: z.boolean(),
    reason: z.enum(UNCERTAINTIES).optional().describe('Why the answer is not certain'),
    claimsComplete: z
      .literal(false)
      .optional()
      .describe('Present if other claims may have existed: the moment is in the life of an earlier process'),
    held: HELD,
    effectiveSince: z.string().optional(),
    effectiveUntil: z.string().optional(),
  })
  .openapi('Past');

/** The moment of an answer with `at`. */
export const PAST_FIELD: { readonly past: z.ZodOptional<z.ZodType<PastDocument>> } = {
  past: PAST.optional().describe('Present with `at`'),
};

/** See {@link HistoryRecordDocument}. */
export const HISTORY_RECORD: z.ZodType<HistoryRecordDocument> = z
  .object({
    sequence: z.int(),
    at: z.string(),
    kind: z.enum(['prefix', 'service', 'node', 'mark']),
    key: z.string().optional(),
    source: z.string().optional(),
    owner: z.string().optional(),
    before: z.unknown().optional().describe('The claim before the change; absent: none'),
    after: z.unknown().optional().describe('The claim after the change; absent: none'),
    effective: z
      .object({ before: z.int().nullable(), after: z.int().nullable() })
      .optional()
      .describe('Visible identity of the prefix before and after'),
    cause: z
      .object({
        store: z.string(),
        revision: z.string(),
        kind: z.string().optional(),
        withdrawal: z.boolean().optional(),
      })
      .optional()
      .describe('`kind` of a Kubernetes object; `withdrawal`: all state of the store was withdrawn'),
    mark: z.string().optional(),
    subject: z.string().optional(),
    detail: z.string().optional(),
  })
  .openapi('HistoryRecord');

/** Records of the history. */
export const HISTORY: z.ZodType<HistoryDocument> = z
  .object({ items: z.array(HISTORY_RECORD), held: HELD, more: z.boolean(), changes: z.int() })
  .openapi('History');

/** See {@link CausesDocument}. */
export const CAUSES: z.ZodType<CausesDocument> = z
  .object({
    at: z.string(),
    groups: z.array(
      z.object({
        at: z.string(),
        until: z.string(),
        store: z.string(),
        revisions: z.object({ first: z.string(), last: z.string() }).optional(),
        host: z.string().optional(),
        node: z.string().optional(),
        added: z.int(),
        changed: z.int(),
        deleted: z.int(),
        kinds: z.record(z.string(), z.int()),
        emptied: z.array(z.string()).describe('Services that lost their last backend'),
        samples: z.array(z.string()),
        mark: z.object({ subject: z.string(), detail: z.string() }).optional(),
        withdrawal: z.literal(true).optional().describe('Present if the state of the store was withdrawn'),
      }),
    ),
    held: HELD,
  })
  .openapi('Causes');

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

/** See {@link EntryDocument}. */
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

/** See {@link ExplanationDocument}. */
export const EXPLANATION: z.ZodType<ExplanationDocument> = z
  .object({
    prefix: z.string(),
    decidedBy: z
      .enum(['only-claim', 'source-precedence', 'owner-name', 'endpoint-over-cidr'])
      .optional()
      .describe('Absent if there are no claims'),
    claims: z.array(CLAIM).describe('Strongest first'),
    roles: z
      .array(ROLE)
      .optional()
      .describe('Services and nodes with the IP; absent for a CIDR and with `at`'),
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

/** See {@link IdentityDocument}. */
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
  backends: z.array(BACKEND),
  ...RESTORED_FIELD,
  ...PAST_FIELD,
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
  ...PAST_FIELD,
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
    held: HELD.optional(),
    reason: z
      .enum(UNCERTAINTIES)
      .optional()
      .describe('Why it is not certain that nothing existed at that time; absent if it is'),
  })
  .openapi('Problem');

const RESOURCE = z.enum(MESH_RESOURCES);

const READ_PROGRESS = {
  revision: z.int().optional().describe('Changes up to this revision were received'),
  queuedBytes: z.int().optional().describe('Bytes received and not yet applied'),
  p99Ms: z
    .int()
    .nullable()
    .optional()
    .describe('Upper bound of the time in which 99 of 100 changes were applied; null: more than 30 s'),
};

const CLUSTER_FIELDS = {
  name: z.string(),
  own: z.boolean(),
  id: z.int().describe('0: none or unknown'),
  state: z.string(),
  ready: z.boolean().describe('True if the state of the cluster is complete and its kvstore is followed'),
  knownAt: z.string().optional().describe('Last time the cluster was ready, if it is not ready now'),
  keys: z.partialRecord(RESOURCE, z.int()).describe('Number of keys by resource'),
  missing: z.array(RESOURCE).describe('Resources whose initial sync is not done'),
  rejected: z.int(),
  connected: z.boolean(),
  connectedSince: z.string(),
  failures: z.int(),
  lastFailure: z.string().optional(),
  lastFailureAt: z.string().optional(),
  ...READ_PROGRESS,
};

const CLUSTER: z.ZodType<ClusterDocument> = z.object(CLUSTER_FIELDS).openapi('Cluster');

const STORE: z.ZodType<StoreDocument> = z
  .object({
    resource: z.enum(COPIED_RESOURCES),
    state: z.enum(STORE_STATES),
    complete: z.boolean().describe('True if its list was complete once'),
    keys: z.int(),
    rejected: z.int().describe('Number of keys whose present value is rejected'),
    lists: z.int(),
    failures: z.int(),
    lastFailure: z.string().optional(),
    lastFailureAt: z.string().optional(),
    ...READ_PROGRESS,
  })
  .openapi('Store');

/** See {@link ClusterDetailDocument}. */
export const CLUSTER_DETAIL: z.ZodType<ClusterDetailDocument> = z
  .object({
    ...CLUSTER_FIELDS,
    stores: z.array(STORE).readonly(),
    config: z
      .object({
        id: z.int(),
        capabilities: z.record(z.string(), z.union([z.boolean(), z.int(), z.string()])),
      })
      .optional()
      .describe('The configuration of the cluster in its kvstore'),
  })
  .openapi('ClusterDetail');

const STEP: z.ZodType<StepDocument> = z
  .object({
    name: z.string(),
    state: z.enum(['pending', 'running', 'done', 'overdue', 'failed', 'stopping', 'stopped', 'hanging']),
    ms: z.int().optional().describe('Duration of the step; if it is running, its duration so far'),
    idleMs: z.int().optional().describe('Time since the last progress of a running step'),
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
  cluster: z.string().describe('The local cluster'),
  clusterID: z.int(),
  clusters: z.array(CLUSTER).describe('The local cluster is the first'),
  configProblems: z.array(z.string()),
  steps: z.array(STEP).describe('Steps of the start, in order'),
};

/** See {@link ClustermeshDocument}. */
export const CLUSTERMESH: z.ZodType<ClustermeshDocument> = z
  .object(CLUSTERMESH_FIELDS)
  .openapi('Clustermesh');

const HISTORY_STATUS: z.ZodType<HistoryStatusDocument> = z
  .object({
    heldFrom: z.string().optional().describe('Earlier states are held from this time on'),
    held: z.int().describe('Number of records that are held'),
    bytes: z.int(),
    maxBytes: z.int(),
    records: z.record(z.string(), z.int()).describe('Records by kind since the start'),
    lost: z.record(z.string(), z.int()).describe('Changes that were not recorded, by reason'),
    disk: z
      .object({
        folder: z.string(),
        bytes: z.int(),
        maxBytes: z.int(),
        damaged: z.int().describe('Files that could not be read and were dropped'),
        failure: z
          .string()
          .optional()
          .describe('Failure of the last write; changes are then held in memory only'),
      })
      .optional()
      .describe('Present if the history is stored on disk'),
  })
  .openapi('HistoryStatus');

const TAPE: z.ZodType<TapeDocument> = z
  .object({
    folder: z.string(),
    bytes: z.int(),
    maxBytes: z.int(),
    lines: z.int().describe('Lines since the start, lost ones included'),
    lost: z.int().describe('Lines that were lost because of a failure'),
    failure: z.string().optional().openapi({
      description: 'Failure of the last write; input is then not recorded',
    }),
  })
  .openapi('Tape');

const CHECKPOINT: z.ZodType<CheckpointDocument> = z
  .object({
    folder: z.string(),
    restored: z
      .array(z.object({ cluster: z.string(), knownAt: z.string(), ageSeconds: z.int() }))
      .describe('Clusters with restored state that no source has confirmed'),
    written: z.int().describe('Number of checkpoints written since the start'),
    bytes: z.int().optional(),
    writtenAt: z.string().optional(),
    failure: z.string().optional().describe('Failure of the last attempt'),
  })
  .openapi('Checkpoint');

const HANDOVER = z.enum(['following', 'withdrawing', 'resting']);

const KUBERNETES: z.ZodType<KubernetesDocument> = z
  .object({
    server: z.string(),
    synced: z.boolean(),
    handover: z
      .object({ nodes: HANDOVER, ip: HANDOVER, identities: HANDOVER })
      .describe('Source of each group of data: Kubernetes (`following`) or a kvstore (`resting`)'),
    kinds: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['listing', 'watching', 'waiting', 'missing', 'forbidden', 'stopped', 'resting']),
        complete: z.boolean(),
        objects: z.int(),
        rejected: z.int(),
        events: z.int(),
        lastEventAt: z.string().optional(),
        resourceVersion: z.string().optional().describe('Resource version up to which changes were received'),
        lists: z.int(),
        bookmarks: z.int(),
        lagMs: z.int().optional().describe('Time since the last message of the server for this kind'),
        behindMs: z
          .int()
          .optional()
          .describe('Time since changes are no longer received because a list or watch failed'),
        retryInMs: z.int().optional().describe('Time until the next attempt after a failure'),
        failures: z.int(),
        lastFailure: z.string().optional(),
        lastFailureAt: z.string().optional(),
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
        missing: z.array(z.string()).describe('Reasons why the part cannot run, with the remedies'),
      }),
    ),
    tables: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['unread', 'holding', 'kept', 'degraded']),
        desired: z.int().describe('Number of desired items'),
        actual: z.int().describe('Number of items of dpcache in the table'),
        capacity: z.int().optional(),
        pressure: z
          .number()
          .optional()
          .describe('`actual` divided by `capacity`, or the usage of the fullest map'),
        maps: z
          .array(z.object({ name: z.string(), used: z.int(), capacity: z.int() }))
          .describe('Usage of each map, if an item has entries in several maps'),
        pending: z.int().describe('Number of keys with a pending write'),
        waiting: z
          .int()
          .describe('Number of pending deletes that wait until other tables no longer refer to their keys'),
        held: z.int().describe('Number of keys found at the start and in no cache'),
        noRoom: z.int().describe('Number of keys without room'),
        noRoomErrors: z.int(),
        failing: z.int().describe('Number of keys that are retried'),
        failures: z.array(z.object({ key: z.string(), reason: z.string(), attempts: z.int() })),
        upserts: z.int(),
        deletes: z.int(),
        repairs: z.int().describe('Number of repaired items, which another program had changed'),
      }),
    ),
    waitsFor: z.array(z.string()).describe('Pending conditions for the deletes of items found at the start'),
    failures: z.array(z.string()),
  })
  .openapi('Datapath');

/** See {@link StatusDocument}. */
export const STATUS: z.ZodType<StatusDocument> = z
  .object({
    ...CLUSTERMESH_FIELDS,
    kvstore: z.string(),
    kubernetes: KUBERNETES.optional().describe('Present if a Kubernetes API server is followed'),
    history: HISTORY_STATUS.optional().describe('Present if a history is recorded'),
    tape: TAPE.optional().describe('Present with --tape'),
    checkpoint: CHECKPOINT.optional().describe('Present with --state-dir'),
    datapath: DATAPATH.optional().describe('Present with --datapath'),
    syncedMs: z.int().optional().describe('Duration of the initial sync; absent until it is done'),
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

/** See {@link ProblemsDocument}. */
export const PROBLEMS: z.ZodType<ProblemsDocument> = z
  .object({
    ready: z.boolean().describe('The same as in /readyz. If false, there is at least one problem'),
    items: z
      .array(
        z.object({
          severity: z
            .enum(SEVERITIES)
            .describe('error: answers are missing or wrong; warning: they may become so, or are old'),
          subject: z.string().openapi({ description: 'What has the problem', example: 'cluster baltic' }),
          text: z.string(),
          since: z
            .string()
            .optional()
            .describe('Start of the problem, or time of the state that is served because of it'),
          remedy: z.string().optional().describe('What to do'),
        }),
      )
      .readonly()
      .describe('The worst first'),
  })
  .openapi('Problems');

/** See {@link SearchDocument}. */
export const SEARCH: z.ZodType<SearchDocument> = z
  .object({
    query: z.string(),
    truncated: z.boolean().describe('True if not all names were compared'),
    groups: z
      .array(
        z.object({
          kind: z.enum(SEARCH_KINDS),
          total: z.int(),
          items: z.array(
            z.object({
              kind: z.enum(SEARCH_KINDS),
              key: z.string(),
              title: z.string(),
              detail: z.string(),
              match: z.enum(SEARCH_MATCHES),
            }),
          ),
        }),
      )
      .describe('The group with the best result first'),
  })
  .openapi('SearchResults');
