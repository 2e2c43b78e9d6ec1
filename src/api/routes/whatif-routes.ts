import { createRoute, z } from '@hono/zod-openapi';
import { hasSimilarLength, nearest } from '../../base/show-value.ts';
import type { ClaimWriter } from '../../ipcache/types.ts';
import { SOURCES } from '../../model/source.ts';
import type { NodeConfiguration } from '../../nodemanager/address-claims.ts';
import { type Edit, EditError } from '../../whatif/edits.ts';
import { type WhatIfAnswer, whatIf } from '../../whatif/what-if.ts';
import { NDJSON_TYPE } from '../api-client.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { ProblemError } from '../problem.ts';
import type { ReadModel } from '../read-model.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { whatIfLines } from '../whatif-documents.ts';
import { COMPARED_NAMES, disconnectedProblem, listOf } from './route-parts.ts';

/** Maximum number of edits of a request. */
const MAX_EDITS = 16;

/** Maximum number of objects of a manifest. A body of 1 MiB has no room for more that have a kind and a name. */
const MAX_OBJECTS = 32_768;

/**
 * Maximum number of concurrent evaluations over TCP, and as many over the unix socket. Each takes up to 550 MB for a
 * million prefixes that would change.
 */
const MAX_EVALUATIONS = 4;

/** Lines of an answer in one turn of the event loop. */
const LINES_PER_PART = 256;

const NAME = z.string().min(1).max(512);
const SOURCE = z.enum(SOURCES, oneOf(SOURCES));
const WRITER = { source: SOURCE, owner: z.string().max(512).optional() };

/** The settings for which an edit is possible. */
const SETTING_NAMES = [
  'remote-node-identities',
  'encryption',
  'node-encryption',
  'host-firewall',
  'underlay',
] as const;

type SettingName = (typeof SETTING_NAMES)[number];

/** The fields of the settings with the values true and false. */
const SWITCHES: Readonly<Record<Exclude<SettingName, 'underlay'>, keyof NodeConfiguration>> = {
  'remote-node-identities': 'remoteNodeIdentities',
  encryption: 'encryption',
  'node-encryption': 'nodeEncryption',
  'host-firewall': 'hostFirewall',
};

function oneOf(words: readonly string[]): { readonly error: string } {
  return { error: `must be one of ${words.join(', ')}` };
}

const EDIT = z
  .discriminatedUnion('edit', [
    z.strictObject({ edit: z.literal('remove-cluster'), cluster: NAME }),
    z.strictObject({ edit: z.enum(['remove-node', 'drain-node']), node: NAME }),
    z.strictObject({ edit: z.literal('remove-source'), ...WRITER }),
    z.strictObject({
      edit: z.literal('rank'),
      source: SOURCE,
      place: z.enum(['above', 'below'], { error: 'must be above or below' }),
      other: SOURCE,
    }),
    z.strictObject({
      edit: z.literal('setting'),
      name: z.enum(SETTING_NAMES, oneOf(SETTING_NAMES)),
      value: NAME,
    }),
    z.strictObject({
      edit: z.literal('upsert'),
      key: z.string().max(64),
      ...WRITER,
      identity: z.int(),
      hostIP: z.string().max(64).optional(),
      encryptKey: z.int().optional(),
      namespace: z.string().max(253).optional(),
      podName: z.string().max(253).optional(),
    }),
    z.strictObject({ edit: z.literal('delete'), key: z.string().max(64), ...WRITER }),
    z.strictObject({
      edit: z.literal('manifest'),
      objects: listOf(z.record(z.string(), z.unknown()), MAX_OBJECTS),
    }),
  ])
  .openapi('Edit');

const WHAT_IF = createRoute({
  method: 'post',
  path: '/v1/whatif',
  summary:
    'Returns the changes that listeners would receive if the edits were made, and what would be lost. Writes nothing',
  request: {
    body: {
      required: true,
      content: {
        'application/json': { schema: z.strictObject({ edits: z.array(EDIT).min(1).max(MAX_EDITS) }) },
      },
    },
  },
  responses: {
    200: {
      description:
        'JSON lines: at most 1,000 changes of each `type` (prefix, node, service) and `kind`, then one line of type `summary` with all counts',
      content: { [String(NDJSON_TYPE)]: { schema: z.string() } },
    },
  },
});

export function addWhatIfRoutes(app: ApiApp, { model, gate }: RouteContext): void {
  const limitEvaluations = limitConcurrency(MAX_EVALUATIONS, 'what-ifs');
  app.openapi(WHAT_IF, async (c) => {
    const { edits } = c.req.valid('json');
    const answer = await limitEvaluations(c, async () => {
      const parsed = edits.map((edit, index) => editsOf(edit, index, model));
      return evaluate(model, parsed, gate, c.req.raw.signal);
    });
    return new Response(lineStream(answer, model), { headers: { 'content-type': NDJSON_TYPE } });
  });
}

/** Evaluates edits. An error names the field of the request. */
async function evaluate(
  model: ReadModel,
  parsed: readonly (readonly Edit[])[],
  gate: RouteContext['gate'],
  signal: AbortSignal,
): Promise<WhatIfAnswer> {
  const { ipcache, services, nodes } = model;
  const { cluster: localCluster } = nodes.localNode;
  const clusters = (): readonly string[] => model.clusterNames().filter((name) => name !== localCluster);
  try {
    return await whatIf(
      { ipcache, services, nodes, identities: () => model.identities(), clusters, localCluster },
      parsed.flat(),
      { gate, signal },
    );
  } catch (error) {
    if (signal.aborted) throw disconnectedProblem();
    if (!(error instanceof EditError)) throw error;
    const { index, field, value, known, message } = error;
    // A manifest in the request is several edits, with the index of the manifest.
    const requestIndexes = parsed.flatMap((list, at) => list.map(() => at));
    const similar = known?.filter((name) => hasSimilarLength(value, name)).slice(0, COMPARED_NAMES);
    const meant = similar && nearest(value, similar);
    const hint = meant === undefined ? '' : `; did you mean ${meant}?`;
    const kind = known === undefined ? 'invalid-parameter' : 'not-found';
    throw new ProblemError(kind, `${message}${hint}`, {
      field: `edits.${requestIndexes[index] ?? 0}.${field}`,
      value,
      ...(known !== undefined && known.length > 0 && { allowed: known.slice(0, 16).join(', ') }),
    });
  }
}

/** The writer of a claim, as an edit names it. */
type EditWriter = Pick<ClaimWriter, 'source'> & { readonly owner?: string | undefined };

function writerOf({ source, owner }: EditWriter): EditWriter {
  return { source, owner };
}

/** Returns the setting of an edit. Throws `ProblemError` if its value is invalid. */
function settingOf(name: SettingName, value: string, index: number): Partial<NodeConfiguration> {
  const allowed = name === 'underlay' ? ['ipv4', 'ipv6'] : ['true', 'false'];
  if (!allowed.includes(value))
    throw new ProblemError('invalid-parameter', `${name} must be ${allowed.join(' or ')}.`, {
      field: `edits.${index}.value`,
      value,
      allowed: allowed.join(', '),
    });
  if (name === 'underlay') return { underlay: value === 'ipv6' ? 'ipv6' : 'ipv4' };
  return { [SWITCHES[name]]: value === 'true' };
}

/** Returns the edits of one edit of a request: several for a manifest. */
function editsOf(edit: z.output<typeof EDIT>, index: number, model: ReadModel): readonly Edit[] {
  switch (edit.edit) {
    case 'remove-cluster':
    case 'remove-node':
    case 'drain-node':
    case 'remove-source':
    case 'rank':
      return [edit];
    case 'setting':
      return [{ edit: 'setting', settings: settingOf(edit.name, edit.value, index) }];
    case 'upsert': {
      const { key, identity, hostIP, encryptKey, namespace, podName } = edit;
      const isPod = namespace !== undefined || podName !== undefined;
      const k8s = isPod ? { namespace: namespace ?? '', podName: podName ?? '' } : undefined;
      return [{ edit: 'upsert', key, claim: { ...writerOf(edit), identity, hostIP, encryptKey, k8s } }];
    }
    case 'delete':
      return [{ edit: 'delete', key: edit.key, by: writerOf(edit) }];
    case 'manifest':
      return edit.objects.map((object, at): Edit => {
        const parsed = model.parseManifest?.(object);
        if (parsed !== undefined && 'service' in parsed) return { edit: 'service', service: parsed.service };
        if (parsed !== undefined && 'slice' in parsed) return { edit: 'slice', slice: parsed.slice };
        const { message, field, value } = parsed?.rejected ?? {
          message: 'This process reads no manifests.',
          field: 'objects',
          value: '',
        };
        throw new ProblemError('invalid-parameter', message, {
          field: `edits.${index}.objects.${at}.${field}`,
          value,
        });
      });
  }
}

/** Returns the lines of an answer as a stream, a part in each turn of the event loop. */
function lineStream(answer: WhatIfAnswer, model: ReadModel): ReadableStream<Uint8Array> {
  const lines = whatIfLines(answer, model);
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      await new Promise((resolve) => setImmediate(resolve));
      let text = '';
      for (let count = 0; count < LINES_PER_PART; count++) {
        const { done, value } = lines.next();
        if (done === true) {
          if (text !== '') controller.enqueue(encoder.encode(text));
          controller.close();
          return;
        }
        text += `${JSON.stringify(value)}\n`;
      }
      controller.enqueue(encoder.encode(text));
    },
  });
}
