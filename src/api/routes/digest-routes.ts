import { createRoute, z } from '@hono/zod-openapi';
import { BUCKETS, ClaimDigest, type GroupDigest } from '../../compare/claim-digest.ts';
import type { HeldClaim } from '../../ipcache/row-reader.ts';
import { formatLabels } from '../../model/labels.ts';
import type { NodeConfiguration } from '../../nodemanager/address-claims.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { ProblemError } from '../problem.ts';
import { answerJSON } from './answer.ts';
import { answers } from './route-parts.ts';

/** The version of the hashes. Digests of different versions cannot be compared. */
const VERSION = 2;

/** Maximum number of buckets or places of a request. */
const SELECTED = 256;

/** Maximum number of claims of an answer; further ones are counted. */
const CLAIMS = 10_000;

/** The digests of an agent. */
export interface DigestDocument {
  readonly version: number;
  readonly cluster: string;
  /** Cluster and name of the node of the agent: `atlantic/node-1`. */
  readonly node: string;
  /** The settings that determine the claims of nodes. */
  readonly settings: NodeConfiguration;
  readonly revision: number;
  readonly writers: readonly GroupDigest[];
}

/** The digest of a group of writers, or a part of it. */
export interface GroupDigestDocument {
  readonly writer: string;
  /** The sum of each of the 256 buckets. */
  readonly buckets?: readonly string[] | undefined;
  /** The sums of the requested buckets by place, a number of 16 bits whose upper 8 bits are the bucket. */
  readonly places?: Readonly<Record<string, string>> | undefined;
  /** The claims at the requested places. */
  readonly claims?: readonly DigestClaim[] | undefined;
  /** Number of claims that are omitted. */
  readonly omitted?: number | undefined;
}

/** A claim at a requested place. */
export interface DigestClaim {
  readonly key: string;
  readonly owner?: string | undefined;
  readonly identity: number;
  /** The labels of the identity, if they are known. */
  readonly labels?: string | undefined;
  readonly hostIP?: string | undefined;
  readonly encryptKey: number;
  readonly namespace?: string | undefined;
  readonly podName?: string | undefined;
}

const DIGEST: z.ZodType<DigestDocument> = z
  .object({
    version: z.int(),
    cluster: z.string(),
    node: z.string(),
    settings: z.object({
      remoteNodeIdentities: z.boolean(),
      encryption: z.boolean(),
      nodeEncryption: z.boolean(),
      hostFirewall: z.boolean(),
      underlay: z.enum(['ipv4', 'ipv6']),
    }),
    revision: z.int(),
    writers: z.array(z.object({ writer: z.string(), claims: z.int(), sum: z.string() })),
  })
  .openapi('Digest');

const GROUP_DIGEST: z.ZodType<GroupDigestDocument> = z
  .object({
    writer: z.string(),
    buckets: z.array(z.string()).optional(),
    places: z.record(z.string(), z.string()).optional(),
    claims: z
      .array(
        z.object({
          key: z.string(),
          owner: z.string().optional(),
          identity: z.int(),
          labels: z.string().optional(),
          hostIP: z.string().optional(),
          encryptKey: z.int(),
          namespace: z.string().optional(),
          podName: z.string().optional(),
        }),
      )
      .optional(),
    omitted: z.int().optional(),
  })
  .openapi('GroupDigest');

const GET_DIGEST = createRoute({
  method: 'get',
  path: '/v1/digest',
  summary:
    'Returns sums of the claims of each group of writers, to compare two agents. The first request starts them',
  responses: answers(DIGEST, 'The digests'),
});

const LIST_OF_NUMBERS = z.string().regex(/^\d{1,5}(,\d{1,5}){0,255}$/, {
  error: 'must be at most 256 numbers, separated by commas',
});

const GET_GROUP = createRoute({
  method: 'get',
  path: '/v1/digest/{writer}',
  summary:
    'Returns the sums of the buckets of a group of writers, of the parts of some buckets, or the claims at some places',
  request: {
    params: z.object({ writer: z.string().min(1).max(512).openapi({ example: 'clustermesh baltic' }) }),
    query: z.strictObject({
      bucket: LIST_OF_NUMBERS.optional().openapi({ description: 'Buckets whose parts are returned' }),
      place: LIST_OF_NUMBERS.optional().openapi({ description: 'Places whose claims are returned' }),
    }),
  },
  responses: answers(GROUP_DIGEST, 'The sums or the claims'),
});

/** Adds the routes of digests. */
export function addDigestRoutes(app: ApiApp, { model, gate }: RouteContext): void {
  const labelsOf = (identity: number): string => {
    const labels = model.labelsOf(identity);
    return labels === undefined ? '' : formatLabels(labels);
  };
  const digest = new ClaimDigest({ ipcache: model.ipcache, labelsOf });
  let started: Promise<unknown> | undefined;
  const ready = async (): Promise<void> => {
    started ??= gate.runSteps(digest.start());
    await started;
  };

  app.openapi(GET_DIGEST, async (c) => {
    await ready();
    const document: DigestDocument = {
      version: VERSION,
      cluster: model.status().cluster,
      node: `${model.nodes.localNode.cluster}/${model.nodes.localNode.name}`,
      settings: model.nodes.configuration,
      revision: model.ipcache.revision,
      writers: digest.groups(),
    };
    return answerJSON(c, document);
  });

  app.openapi(GET_GROUP, async (c) => {
    await ready();
    const { writer } = c.req.valid('param');
    const { bucket, place } = c.req.valid('query');
    const buckets = digest.buckets(writer);
    if (buckets === undefined)
      throw new ProblemError('not-found', 'No such group of writers: see /v1/digest.', {
        field: 'writer',
        value: writer.slice(0, 120),
      });
    if (bucket === undefined && place === undefined) return answerJSON(c, { writer, buckets });
    const wanted = new Set((place ?? bucket ?? '').split(',').map(Number));
    const max = place === undefined ? BUCKETS : BUCKETS * BUCKETS;
    if (wanted.size > SELECTED || [...wanted].some((number) => number >= max))
      throw new ProblemError('invalid-parameter', `Numbers must be below ${max}.`, {
        field: place === undefined ? 'bucket' : 'place',
        value: (place ?? bucket ?? '').slice(0, 120),
      });
    const isWanted = (at: number): boolean => wanted.has(place === undefined ? at >>> 8 : at);
    if (place === undefined) {
      const sums = new Map<number, string>();
      await gate.runSteps(digest.partSums(writer, isWanted, sums));
      return answerJSON(c, { writer, places: Object.fromEntries(sums) });
    }
    const claims: DigestClaim[] = [];
    let omitted = 0;
    const add = (claim: HeldClaim, key: string): void => {
      if (claims.length < CLAIMS) claims.push(claimDocument(claim, key, labelsOf));
      else omitted++;
    };
    await gate.runSteps(digest.claimsIn(writer, isWanted, add));
    return answerJSON(c, { writer, claims, ...(omitted > 0 && { omitted }) });
  });
}

function claimDocument(
  { owner, identity, hostIP, encryptKey, k8s }: HeldClaim,
  key: string,
  labelsOf: (identity: number) => string,
): DigestClaim {
  const labels = labelsOf(identity);
  return {
    key,
    identity,
    encryptKey,
    ...(owner !== '' && { owner }),
    ...(labels !== '' && { labels }),
    ...(hostIP !== undefined && { hostIP }),
    ...(k8s !== undefined && { namespace: k8s.namespace, podName: k8s.podName }),
  };
}
