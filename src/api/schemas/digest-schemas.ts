import { z } from '@hono/zod-openapi';
import type { DigestDocument, GroupDigestDocument } from '../digest-documents.ts';

export const DIGEST: z.ZodType<DigestDocument> = z
  .object({
    version: z.int(),
    cluster: z.string(),
    node: z.string(),
    instance: z.string(),
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

export const GROUP_DIGEST: z.ZodType<GroupDigestDocument> = z
  .object({
    writer: z.string(),
    buckets: z.array(z.string()).optional(),
    places: z.record(z.string(), z.string()).optional(),
    claims: z
      .array(
        z.object({
          key: z.string(),
          place: z.int(),
          owner: z.string().optional(),
          identity: z.int(),
          labels: z.string().optional(),
          hostIP: z.string().optional(),
          encryptKey: z.int(),
          namespace: z.string().optional(),
          podName: z.string().optional(),
          serviceAccount: z.string().optional(),
          namedPorts: z.record(z.string(), z.string()).optional(),
        }),
      )
      .optional(),
    documents: z
      .array(
        z.object({
          key: z.string(),
          place: z.int(),
          fields: z.record(z.string(), z.union([z.string(), z.array(z.string())])),
        }),
      )
      .optional(),
    next: z.int().optional(),
    tooMany: z.object({ place: z.int(), claims: z.int() }).optional(),
  })
  .openapi('GroupDigest');
