import { createRoute, z } from '@hono/zod-openapi';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { invalidParameter } from '../problem.ts';
import { search } from '../search/search.ts';
import { SEARCH_KINDS, SEARCH_MATCHES, type SearchDocument } from '../search/search-document.ts';
import { answerJSON } from './answer.ts';
import { answers, limitParameter, runWhileConnected } from './route-parts.ts';

/** Maximum number of results of each kind. */
const MAX_RESULTS = 50;

const SEARCH: z.ZodType<SearchDocument> = z
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

const SEARCH_ALL = createRoute({
  method: 'get',
  path: '/v1/search',
  summary: 'Returns what matches a text, grouped by kind, the best results first',
  request: {
    query: z.strictObject({
      q: z.string().min(1).max(253).openapi({
        description:
          'An IP, also with a port, a CIDR, the start of an IPv4 address, an identity, a label (`app=web`, `k8s:app=web`), the DNS name of a service, or a part of a name',
        example: 'checkout',
      }),
      limit: limitParameter(MAX_RESULTS, 8).describe('Maximum number of results of each kind'),
    }),
  },
  responses: answers(SEARCH, 'The results'),
});

export function addSearchRoutes(app: ApiApp, { model, gate }: RouteContext): void {
  app.openapi(SEARCH_ALL, async (c) => {
    const { q, limit } = c.req.valid('query');
    const query = q.trim();
    const run = (steps: Iterable<unknown>): Promise<void> => runWhileConnected(c, gate, steps);
    if (query !== '') return answerJSON(c, await search(model, run, query, limit));
    throw invalidParameter('q', q, 'is empty: set it to an IP, a number or a part of a name');
  });
}
