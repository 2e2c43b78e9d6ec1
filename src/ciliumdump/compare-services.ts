import type { ListedService } from './service-list.ts';
import type { SourceState } from './source-state.ts';

/**
 * A difference between the sources and the services of a node. `no-backends`: the sources have backends for new
 * connections, the node has none. `backends`: the node has other backends. `missing`: the node lacks the frontend.
 * `stale`: no source has the frontend. `undecidable`: a part of the sources that may have the frontend or the backends
 * cannot be read.
 */
export interface ListedServiceDifference {
  readonly kind: 'no-backends' | 'backends' | 'missing' | 'stale' | 'undecidable';
  readonly frontend: string;
  /** `namespace/name`; empty if unknown. */
  readonly service: string;
  /** `lacking`: backends that only the sources have. `surplus`: those that only the node has. */
  readonly lacking: readonly string[];
  readonly surplus: readonly string[];
}

/**
 * Yields the differences of the frontends of a node from the cluster IPs of the sources. Frontends of other types (node
 * ports, external addresses) are not compared, nor are the backends of a frontend with a local traffic policy, because
 * a node may have none. With topology hints, the only checked fault is a frontend without backends. Linear.
 */
export function* compareServices(
  sources: SourceState,
  listed: readonly ListedService[],
): Generator<ListedServiceDifference, void, void> {
  const actual = new Map<string, ListedService>();
  // A frontend may be listed with two scopes. `internal` selects backends of the node, so `external` is compared.
  for (const entry of listed)
    if (entry.scope !== 'internal' || !actual.has(entry.frontend)) actual.set(entry.frontend, entry);
  for (const known of sources.frontends.values()) {
    const { frontend, service, active, perNode, restricted } = known;
    const found = actual.get(frontend);
    if (found === undefined) {
      if (!restricted) yield { kind: 'missing', frontend, service, lacking: active, surplus: [] };
      continue;
    }
    if (found.isLocal) continue;
    const foundActive = new Set(found.active);
    const lacking = active.filter((backend) => !foundActive.has(backend));
    if (found.active.length === 0 && active.length > 0) {
      // The node may have terminating backends, which serve while there are no others.
      yield { kind: 'no-backends', frontend, service, lacking, surplus: [] };
      continue;
    }
    const expected = new Set(active);
    // The surplus of a global service may be backends of other clusters.
    const surplus = known.global ? [] : found.active.filter((backend) => !expected.has(backend));
    if (perNode || (lacking.length === 0 && surplus.length === 0)) continue;
    // Unreadable sources may have the surplus backends, but do not explain why the node lacks others.
    if (!sources.incomplete.has('backends')) yield { kind: 'backends', frontend, service, lacking, surplus };
    else if (lacking.length > 0) yield { kind: 'backends', frontend, service, lacking, surplus: [] };
    else yield { kind: 'undecidable', frontend, service, lacking, surplus };
  }
  const stale = sources.incomplete.has('services') ? 'undecidable' : 'stale';
  for (const { frontend, service, type, cluster } of actual.values()) {
    const isCompared = type === 'ClusterIP' && cluster === '' && service !== '';
    if (isCompared && !sources.frontends.has(frontend))
      yield { kind: stale, frontend, service, lacking: [], surplus: [] };
  }
}
