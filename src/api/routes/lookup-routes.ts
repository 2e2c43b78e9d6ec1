import { createRoute, z } from '@hono/zod-openapi';
import { forEachInSteps } from '../../base/turn-gate.ts';
import type { PrefixMoment } from '../../history/types.ts';
import type { IPCacheSnapshot } from '../../ipcache/snapshot.ts';
import { canonicalEndpoint } from '../../net/prefix.ts';
import type { ApiApp, ApiContext, RouteContext } from '../api-context.ts';
import { type EntryDocument, entryDocument } from '../documents.ts';
import { historyOf, whenParameter } from '../history-documents.ts';
import { ProblemError } from '../problem.ts';
import { ENTRY } from '../schemas/engine-schemas.ts';
import { effectiveMoment, pastEntry } from './past-entries.ts';
import { answers, checkConnected, listOf, runWhileConnected } from './route-parts.ts';

/** Maximum number of IPs of one lookup request. */
const MAX_IPS = 10_000;

/** Number of IPs looked up per step: less than a millisecond. */
const ADDRESSES_PER_SLICE = 512;

const LOOKUP_MANY = createRoute({
  method: 'post',
  path: '/v1/lookup',
  summary: 'Returns the entries of many IPs',
  request: {
    body: {
      required: true,
      content: {
        'application/json': {
          schema: z.strictObject({
            ips: listOf(
              z.union([
                z.string().max(64),
                z.strictObject({ address: z.string().max(64), at: z.string().max(64) }),
              ]),
              MAX_IPS,
            ).describe('IPs; with `at`: the entry of that moment'),
          }),
        },
      },
    },
  },
  responses: answers(
    z.object({
      revision: z.int(),
      entries: z.array(ENTRY.nullable()),
      errors: z
        .array(z.object({ index: z.int(), ip: z.string(), detail: z.string() }))
        .describe('Invalid items; their entries are null'),
    }),
    'The entry of each IP, in order; null if the IP is unknown or invalid',
  ),
});

/** Adds the route that looks up many IPs. */
export function addLookupRoutes(app: ApiApp, context: RouteContext): void {
  const { model, feed, gate } = context;
  app.openapi(LOOKUP_MANY, async (c) => {
    const { ips } = c.req.valid('json');
    const { revision } = feed;
    const view = ips.length > ADDRESSES_PER_SLICE ? model.ipcache.snapshot() : model.ipcache;
    const lookup = new Lookup(context, view);
    await runWhileConnected(c, gate, lookup.steps(ips));
    for (const read of lookup.diskReads) {
      checkConnected(c);
      await read();
    }
    return c.json({ revision, ...lookup.answer() }, 200);
  });
}

/** An IP of a request, or the IP of an earlier moment. */
type LookupItem = string | { readonly address: string; readonly at: string };

/** A problem of an item of a request. */
interface LookupError {
  readonly index: number;
  readonly ip: string;
  readonly detail: string;
}

/** The lookup of one request. */
class Lookup {
  readonly #context: Pick<ApiContext, 'model' | 'clock'>;
  readonly #view: Pick<IPCacheSnapshot, 'lookup'>;
  readonly #entries: (EntryDocument | null)[] = [];
  readonly #errors: LookupError[] = [];
  /** Functions that answer the items whose moments are only on disk. Complete after the steps. */
  readonly diskReads: (() => Promise<void>)[] = [];

  constructor(context: Pick<ApiContext, 'model' | 'clock'>, view: Pick<IPCacheSnapshot, 'lookup'>) {
    this.#context = context;
    this.#view = view;
  }

  /** Looks up the items, {@link ADDRESSES_PER_SLICE} per step. */
  steps(items: readonly LookupItem[]): Iterable<unknown> {
    return forEachInSteps(items.entries(), ADDRESSES_PER_SLICE, ([index, item]) => {
      const ip = typeof item === 'string' ? item : item.address;
      const address = canonicalEndpoint(ip);
      this.#entries.push(null);
      if (address === undefined) this.#errors.push({ index, ip, detail: 'not a valid IP address' });
      else if (typeof item === 'string') this.#addCurrent(index, address);
      else this.#addPast(index, ip, address, item.at);
    });
  }

  /** Returns the entry of each item, in order; null if the IP is unknown or invalid. */
  answer(): { readonly entries: (EntryDocument | null)[]; readonly errors: LookupError[] } {
    return { entries: this.#entries, errors: this.#errors.sort((a, b) => a.index - b.index) };
  }

  #addCurrent(index: number, address: string): void {
    const entry = this.#view.lookup(address);
    if (entry !== undefined) this.#entries[index] = entryDocument(entry, this.#context.model);
  }

  #addPast(index: number, ip: string, address: string, at: string): void {
    const { model, clock } = this.#context;
    const add = (moment: PrefixMoment | undefined): void => {
      this.#entries[index] = pastEntry(effectiveMoment(ip, at, moment), model);
    };
    this.#addProblemOf(index, ip, () => {
      const history = historyOf(model);
      const when = whenParameter(history, 'at', at, clock.wallTime());
      const moment = history.lookup(address, when);
      if (moment?.reason !== 'not-retained') return add(moment);
      this.diskReads.push(async () => {
        const read = await history.past.lookup(address, when);
        this.#addProblemOf(index, ip, () => add(read));
      });
    });
  }

  /** Calls `work`. If it throws a problem, adds the problem to the errors, unless the IP was certainly unknown. */
  #addProblemOf(index: number, ip: string, work: () => void): void {
    try {
      work();
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      const { status, reason, detail } = error.document;
      if (status !== 404 || reason !== undefined) this.#errors.push({ index, ip, detail });
    }
  }
}
