import { isObject, parseJson } from '../../net/fields.ts';
import type { ResourceKind } from '../resource.ts';
import { ApiError, withoutSecret } from './api-error.ts';
import { Exchange, type ExchangeOptions } from './exchange.ts';
import { groupPath } from './resource-path.ts';

/** Timeout of a request. */
const DISCOVERY_MS = 30_000;

/** Returns the plurals that a server serves in a group and version; an empty set if the version is unknown. */
async function servedPlurals(kind: ResourceKind, options: ExchangeOptions): Promise<ReadonlySet<unknown>> {
  using exchange = new Exchange(options);
  exchange.allowTime(DISCOVERY_MS);
  try {
    return new Set(namesIn(await exchange.text({ path: groupPath(kind) }), exchange.secret));
  } catch (error) {
    if (error instanceof ApiError && error.code === 'missing') return new Set();
    throw error;
  }
}

function namesIn(text: string, secret: string | undefined): readonly unknown[] {
  const document = parseJson(text);
  const resources = isObject(document) ? document['resources'] : undefined;
  if (!Array.isArray(resources))
    throw new ApiError(
      'garbled',
      `the response is not a list of resources: ${withoutSecret(text, secret).slice(0, 100)}`,
    );
  return resources.map((resource: unknown) => (isObject(resource) ? resource['name'] : undefined));
}

/** Returns the first of the kinds that the server serves (KUBERNETES 13). Each version is requested once. */
export async function firstServed(
  kinds: readonly ResourceKind[],
  options: ExchangeOptions,
): Promise<ResourceKind | undefined> {
  const known = new Map<string, ReadonlySet<unknown>>();
  for (const kind of kinds) {
    const path = groupPath(kind);
    const plurals = known.get(path) ?? (await servedPlurals(kind, options));
    known.set(path, plurals);
    if (plurals.has(kind.plural)) return kind;
  }
  return undefined;
}
