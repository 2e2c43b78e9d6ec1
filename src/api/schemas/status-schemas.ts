import { z } from '@hono/zod-openapi';
import { COPIED_RESOURCES, MESH_RESOURCES } from '../../kvstore/codec/keys.ts';
import type { DatapathDocument } from '../datapath-document.ts';
import { type ProblemsDocument, SEVERITIES } from '../problems.ts';
import {
  type CheckpointDocument,
  type ClusterDetailDocument,
  type ClusterDocument,
  type ClustermeshDocument,
  type HistoryStatusDocument,
  type KubernetesDocument,
  STORE_STATES,
  type StatusDocument,
  type StepDocument,
  type StoreDocument,
  type TapeDocument,
} from '../status-document.ts';

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
  local: z.boolean(),
  id: z.int().describe('0: none or unknown'),
  state: z
    .string()
    .describe(
      'ready; connecting: the client is being created; handshake: the configuration is being read; ' +
        'validating: the configuration is being checked; ' +
        'watching: the state is incomplete; unreachable: the kvstore does not answer; no-configuration: the kvstore has ' +
        'no configuration of the cluster; draining: state is being withdrawn; failed: retried soon; stopped; removed',
    ),
  ready: z.boolean().describe('True if the state of the cluster is complete and its kvstore answers'),
  knownAt: z.string().optional().describe('Last time the cluster was ready, if it is not ready now'),
  keys: z.partialRecord(RESOURCE, z.int()).describe('Number of keys by resource'),
  missing: z.array(RESOURCE).describe('Resources whose initial sync is not done'),
  rejected: z.int(),
  connected: z.boolean(),
  connectionChangedAt: z.string().describe('Time of the last change of `connected`, to true or to false'),
  servicesExpired: z
    .boolean()
    .optional()
    .describe('True if its services were withdrawn because their TTL has ended; only of remote clusters'),
  heartbeat: z
    .enum(['never', 'fresh', 'stale'])
    .optional()
    .describe('Heartbeat in the kvstore. stale: it has not changed for 2 min; never: there is none'),
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
    state: z
      .enum(['pending', 'running', 'done', 'overdue', 'failed', 'stopping', 'stopped', 'hanging'])
      .describe(
        'overdue: no progress in time, so the start continued without the step; hanging: did not stop in time',
      ),
    ms: z.int().optional().describe('Duration of the step; if it is running, its duration so far'),
    idleMs: z.int().optional().describe('Time since the last progress of a running step'),
    waitsFor: z.array(z.string()).describe('Pending conditions of a running step'),
    failure: z.string().optional(),
  })
  .openapi('Step');

const CLUSTERMESH_FIELDS = {
  cluster: z.string().describe('The local cluster'),
  clusterID: z.int(),
  clusters: z.array(CLUSTER).describe('The local cluster is the first'),
  configProblems: z.array(z.string()),
  steps: z.array(STEP).describe('Steps of the start, in order'),
};

export const CLUSTERMESH: z.ZodType<ClustermeshDocument> = z
  .object(CLUSTERMESH_FIELDS)
  .openapi('Clustermesh');

const HISTORY_STATUS: z.ZodType<HistoryStatusDocument> = z
  .object({
    retainedFrom: z.string().optional().describe('Earliest time that can be queried'),
    recordsInMemory: z.int().describe('Number of changes and marks in memory'),
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
          .describe('Failure of the last write; changes are then kept in memory only'),
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
      .describe(
        'Source of each group of data: Kubernetes (following) or a kvstore (resting); withdrawing: a kvstore, and the ' +
          'claims of Kubernetes are being deleted',
      ),
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
          .describe('Time since a list or watch failed; changes are not received until it succeeds'),
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
        missing: z
          .array(z.string())
          .describe('Why the part cannot run, with remedies; of a running part, its problems'),
      }),
    ),
    tables: z.array(
      z.object({
        name: z.string(),
        state: z.enum(['unread', 'adopting', 'in-sync', 'degraded']),
        desired: z
          .int()
          .describe(
            'Number of desired items; in `ipcache`, including prefixes that an endpoint of the same address overrules',
          ),
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
        unconfirmed: z.int().describe('Number of keys found at the start and not yet confirmed by a cache'),
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
      shadowed: z.int().describe('Full-length CIDRs (/32, /128) shadowed by an entry of the same IP'),
      overruled: z.int(),
      revision: z.int(),
      listenerFaults: z.int(),
    }),
    nodes: z.object({
      nodes: z.int(),
      overruled: z.int(),
      heldBack: z
        .array(z.string())
        .describe(
          'Nodes whose last change is withheld from handlers, because a stronger source holds one of their addresses',
        ),
    }),
    services: z.object({
      announced: z.int(),
      backends: z.int(),
      contested: z.int().describe('Backend addresses that several slices or clusters claim'),
      unknown: z.int().describe('Services with endpoints or remote offers, but without a Service'),
      listenerFaults: z.int(),
    }),
    rejected: z.object({
      total: z.int(),
      byReason: z.record(z.string(), z.int()),
      recent: z.array(z.string()),
      lastAt: z.string().optional().describe('Time of the last rejection, ISO 8601'),
    }),
  })
  .openapi('Status');

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
