import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import type { TurnGate } from '../../base/turn-gate.ts';
import { ClaimDigest } from '../../compare/claim-digest.ts';
import { BUCKETS, DIGEST_VERSION, PLACES } from '../../compare/digest-sums.ts';
import { DocumentDigest, weightOf } from '../../compare/document-digest.ts';
import type { CompleteClaim } from '../../ipcache/row-reader.ts';
import { formatLabels } from '../../model/labels.ts';
import { nodeFullName } from '../../nodemanager/node-spec.ts';
import type { ApiApp, RouteContext } from '../api-context.ts';
import { comparedDocuments, isDocumentGroup } from '../compared-documents.ts';
import type { DigestClaim, DigestDocument, DigestItem, GroupDigestDocument } from '../digest-documents.ts';
import { podDetails } from '../documents.ts';
import { ProblemError } from '../problem.ts';
import { DIGEST, GROUP_DIGEST } from '../schemas/digest-schemas.ts';
import { limitConcurrency } from '../server/request-limits.ts';
import { answerJSON, answerPieces } from './answer.ts';
import { answers, runWhileConnected } from './route-parts.ts';

/** Maximum number of claims in a response. */
const MAX_CLAIMS = 10_000;

/** Maximum number of concurrent pages over TCP, and as many over the unix socket. Each takes up to 15 MB. */
const MAX_PAGES = 8;

/** Maximum number of texts in the services or nodes of a response. */
const MAX_TEXTS = 100_000;

const GET_DIGEST = createRoute({
  method: 'get',
  path: '/v1/digest',
  summary:
    'Returns sums of the claims of each source and cluster, and of the services and nodes of each cluster, to compare two agents. The first request reads all claims, later ones those that changed since',
  responses: answers(DIGEST, 'The digests'),
});

const LIST_OF_NUMBERS = z.string().regex(/^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?){0,255}$/, {
  error: 'must be at most 256 numbers or ranges such as 0-17, separated by commas',
});

const GET_GROUP = createRoute({
  method: 'get',
  path: '/v1/digest/{writer}',
  summary:
    'Returns the sums of all buckets of a group. With `bucket`: the sums of all places in these buckets. With `place`: the claims, services or nodes at these places',
  request: {
    params: z.object({ writer: z.string().min(1).max(512).openapi({ example: 'clustermesh baltic' }) }),
    query: z.strictObject({
      bucket: LIST_OF_NUMBERS.optional().describe('Buckets for which the sums of all places are returned'),
      place: LIST_OF_NUMBERS.optional().describe('Places whose claims, services or nodes are returned'),
    }),
  },
  responses: answers(GROUP_DIGEST, 'The sums, claims, services or nodes'),
});

/** Runs the steps of a generator through the gate and resolves to its return value. */
async function resultOf<T>(c: Context, gate: TurnGate, steps: Generator<unknown, T, void>): Promise<T> {
  const values: T[] = [];
  const run = function* (): Generator<unknown, void, void> {
    values.push(yield* steps);
  };
  await runWhileConnected(c, gate, run());
  const [value] = values;
  return value as T; // all steps ran, or it threw
}

/** Returns the numbers of a parameter, with 1 at the index of each number. Throws if one of them is not below `max`. */
function parseSelection(field: 'bucket' | 'place', value: string, max: number): Uint8Array {
  const selected = new Uint8Array(max);
  for (const range of value.split(',')) {
    const [first = max, last = first] = range.split('-').map(Number);
    if (first > last || last >= max)
      throw new ProblemError('invalid-parameter', `Numbers must be below ${max}, and ranges ascending.`, {
        field,
        value,
      });
    selected.fill(1, first, last + 1);
  }
  return selected;
}

/**
 * Collects the items of the selected places up to a maximum total weight. If their weight exceeds the maximum, the
 * places with the highest numbers are left out.
 */
class PlacePage<T> {
  readonly #byPlace = new Map<number, T[]>();
  readonly #limit: number;
  readonly #weightOf: (item: T) => number;
  readonly #weights = new Map<number, number>();
  readonly #selected: Uint8Array;
  /** The selected places, ascending, without those left out. */
  readonly #places: number[] = [];
  #next: number | undefined;
  #weight = 0;
  /** Number of items added at these places, stored or not. */
  #count = 0;

  constructor(selected: Uint8Array, limit: number, weightOf: (item: T) => number) {
    this.#limit = limit;
    this.#weightOf = weightOf;
    this.#selected = selected;
    for (let at = selected.indexOf(1); at >= 0; at = selected.indexOf(1, at + 1)) this.#places.push(at);
  }

  /** Returns true if a place is selected and not left out. */
  readonly isWanted = (place: number): boolean =>
    this.#selected[place] === 1 && place <= (this.#places.at(-1) ?? 0);

  /** Adds an item, unless its place is left out. */
  add(place: number, item: T): void {
    if (!this.isWanted(place)) return;
    const weight = this.#weightOf(item);
    this.#weights.set(place, (this.#weights.get(place) ?? 0) + weight);
    this.#weight += weight;
    this.#count++;
    const items = this.#byPlace.get(place) ?? [];
    this.#byPlace.set(place, items);
    // If the items of a single place exceed the limit, they are not returned but only counted.
    if (this.#weight <= this.#limit || this.#places.length > 1) items.push(item);
    while (this.#weight > this.#limit && this.#places.length > 1) this.#leaveOut(this.#places.pop() ?? 0);
  }

  /** Removes the items of a place. All were stored, because items are stored while several places are left. */
  #leaveOut(place: number): void {
    this.#weight -= this.#weights.get(place) ?? 0;
    this.#count -= this.#byPlace.get(place)?.length ?? 0;
    this.#byPlace.delete(place);
    this.#next = place;
  }

  /** Returns the items, and the fields of the response that describe the places left out. */
  finish(): { readonly items: readonly T[]; readonly rest: Pick<GroupDigestDocument, 'next' | 'tooMany'> } {
    const [place = 0] = this.#places;
    const isTooMany = this.#weight > this.#limit;
    return {
      items: isTooMany ? [] : [...this.#byPlace.values()].flat(),
      rest: {
        ...(this.#next !== undefined && { next: this.#next }),
        ...(isTooMany && { tooMany: { place, claims: this.#count } }),
      },
    };
  }
}

/** Returns the JSON text of a `GroupDigestDocument` in pieces. */
type ItemsAt = (c: Context, writer: string, places: Uint8Array) => Promise<Iterable<string>>;

/** Yields the JSON text of a page in pieces, because that of 10,000 claims would take 50 ms in one turn. */
function* pageJSON<T>(
  writer: string,
  field: 'claims' | 'documents',
  page: PlacePage<T>,
): Generator<string, void, void> {
  const { items, rest } = page.finish();
  yield `${JSON.stringify({ writer, ...rest }).slice(0, -1)},"${field}":[`;
  for (const [at, item] of items.entries()) yield (at === 0 ? '' : ',') + JSON.stringify(item);
  yield ']}';
}

/** Adds the routes for the comparison of two agents. */
export function addDigestRoutes(app: ApiApp, { model, instance, gate }: RouteContext): void {
  const labelsOf = (identity: number): string => {
    const labels = model.labelsOf(identity);
    return labels === undefined ? '' : formatLabels(labels);
  };
  const claims = new ClaimDigest({ ipcache: model.ipcache, labelsOf });
  const documents = new DocumentDigest({
    documents: () => comparedDocuments(model),
    revision: () => `${model.services.revision} ${model.nodes.revision}`,
  });
  const limitPages = limitConcurrency(MAX_PAGES, 'pages of a digest');
  /** Returns the claims of a group at the selected places. */
  const claimsAt: ItemsAt = async (c, writer, places) => {
    const page = new PlacePage<DigestClaim>(places, MAX_CLAIMS, () => 1);
    const steps = claims.claimsIn(writer, page.isWanted, (claim, key, place) =>
      page.add(place, claimDocument(claim, key, place, labelsOf)),
    );
    await runWhileConnected(c, gate, steps);
    return pageJSON(writer, 'claims', page);
  };
  /** Returns the services or nodes of a group at the selected places. */
  const documentsAt: ItemsAt = async (c, writer, places) => {
    const page = new PlacePage<DigestItem>(places, MAX_TEXTS, ({ fields }) => weightOf(fields));
    const steps = documents.documentsIn(writer, page.isWanted, ({ key, fields }, place) =>
      page.add(place, { key, place, fields }),
    );
    await runWhileConnected(c, gate, steps);
    return pageJSON(writer, 'documents', page);
  };

  app.openapi(GET_DIGEST, async (c) => {
    await runWhileConnected(c, gate, documents.read());
    await runWhileConnected(c, gate, claims.read());
    const document: DigestDocument = {
      version: DIGEST_VERSION,
      cluster: model.nodes.localNode.cluster,
      node: nodeFullName(model.nodes.localNode),
      instance,
      settings: model.nodes.configuration,
      revision: model.ipcache.revision,
      writers: [...claims.groups(), ...documents.groups()],
    };
    return answerJSON(c, document);
  });

  app.openapi(GET_GROUP, async (c) => {
    const { writer } = c.req.valid('param');
    const { bucket, place } = c.req.valid('query');
    const isOfDocuments = isDocumentGroup(writer);
    const digest = isOfDocuments ? documents : claims;
    await runWhileConnected(c, gate, digest.read());
    const buckets = digest.buckets(writer);
    if (buckets === undefined)
      throw new ProblemError('not-found', 'No such group: see /v1/digest.', {
        field: 'writer',
        value: writer,
      });
    if (place !== undefined) {
      const selected = parseSelection('place', place, PLACES);
      const itemsAt = isOfDocuments ? documentsAt : claimsAt;
      return limitPages(c, async () =>
        answerPieces<GroupDigestDocument>(c, gate, await itemsAt(c, writer, selected)),
      );
    }
    if (bucket === undefined) return answerJSON(c, { writer, buckets });
    const selected = parseSelection('bucket', bucket, BUCKETS);
    // The upper 8 bits of a place are its bucket.
    const isWanted = (place: number): boolean => selected[place >>> 8] === 1;
    const sums = isOfDocuments
      ? documents.placeSums(writer, isWanted)
      : await resultOf(c, gate, claims.placeSums(writer, isWanted));
    return answerJSON(c, { writer, places: Object.fromEntries(sums) });
  });
}

function claimDocument(
  { owner, identity, hostIP, encryptKey, k8s }: CompleteClaim,
  key: string,
  place: number,
  labelsOf: (identity: number) => string,
): DigestClaim {
  const labels = labelsOf(identity);
  return {
    key,
    place,
    identity,
    encryptKey,
    ...(owner !== '' && { owner }),
    ...(labels !== '' && { labels }),
    ...(hostIP !== undefined && { hostIP }),
    ...(k8s !== undefined && { namespace: k8s.namespace, podName: k8s.podName }),
    ...podDetails(k8s),
  };
}
