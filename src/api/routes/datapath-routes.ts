import { createRoute, z } from '@hono/zod-openapi';
import type { ApiApp, ApiContext } from '../api-context.ts';
import type { DatapathDiffDocument, DatapathStepDocument } from '../datapath-document.ts';
import { ProblemError } from '../problem.ts';
import type { DatapathModel, ReadModel } from '../read-model.ts';
import { answerJSON } from './answer.ts';
import { answers } from './route-parts.ts';

/** Maximum number of differences in a document. Further ones are only counted. */
const MAX_STEPS = 1_000;

const DIFF: z.ZodType<DatapathDiffDocument> = z
  .object({
    total: z.int().describe('Number of differences; the first 1,000 are returned'),
    steps: z.array(
      z.object({
        table: z.string(),
        key: z.string(),
        kernel: z.string().optional().describe('Absent if the kernel has no such item'),
        cache: z.string().optional().describe('Absent if the cache has no such item'),
      }),
    ),
  })
  .openapi('DatapathDiff');

const GET_DIFF = createRoute({
  method: 'get',
  path: '/v1/datapath/diff',
  summary: 'Returns the differences between the kernel and the caches, in write order. Unix socket only',
  responses: answers(DIFF, 'The differences'),
});

const REPAIR = createRoute({
  method: 'post',
  path: '/v1/datapath/repair',
  summary: 'Makes the kernel equal to the caches. Unix socket only',
  request: { body: { content: { 'application/json': { schema: z.strictObject({}) } } } },
  responses: answers(DIFF, 'The repaired differences'),
});

/** Paths that the base app refuses over TCP before it reads a body. */
export const SOCKET_ONLY_PATHS: readonly string[] = [GET_DIFF.path, REPAIR.path];

/**
 * Adds the routes of the datapath. Requests read the kernel one after the other. Diff requests that wait for the same
 * read share its result.
 */
export function addDatapathRoutes(app: ApiApp, { model }: ApiContext): void {
  /** Resolves when the last requested read has ended. */
  let lastRead: Promise<unknown> = Promise.resolve();
  /** The requested diff, before it begins. */
  let waitingDiff: Promise<DatapathDiffDocument> | undefined;
  const readInTurn = async (
    read: () => Promise<readonly DatapathStepDocument[]>,
  ): Promise<DatapathDiffDocument> => {
    const steps = lastRead.then(read);
    lastRead = steps.catch(() => {});
    const all = await steps;
    return { total: all.length, steps: all.slice(0, MAX_STEPS) };
  };
  app.openapi(GET_DIFF, async (c) => {
    const datapath = datapathOf(model);
    waitingDiff ??= readInTurn(() => {
      waitingDiff = undefined;
      return datapath.diff();
    });
    return answerJSON(c, await waitingDiff);
  });
  app.openapi(REPAIR, async (c) => {
    const datapath = datapathOf(model);
    return answerJSON(c, await readInTurn(() => datapath.repair()));
  });
}

/** Returns the datapath. Throws `ProblemError` if none is configured. */
function datapathOf({ datapath }: ReadModel): DatapathModel {
  if (datapath !== undefined) return datapath;
  throw new ProblemError('not-found', 'No datapath is configured: start the agent with --datapath linux.');
}
