import type { VNode } from 'preact';
import type { BackendDocument, ServiceDocument } from '../../src/api/documents.ts';
import { useStatus } from '../agent/live.ts';
import { compareNames } from '../format.ts';

/** Returns ports by name as one line. */
export function portsText(ports: Readonly<Record<string, string>>): string {
  return Object.entries(ports)
    .map(([name, port]) => (name === '' ? port : `${name} ${port}`))
    .join(', ');
}

/** Returns the ports of a service, each with its node port if it has one. */
export function servicePortsText({
  ports,
  nodePorts = {},
}: Pick<ServiceDocument, 'ports' | 'nodePorts'>): string {
  const entries = Object.entries(ports).map(([name, port]): [string, string] => {
    return [name, Object.hasOwn(nodePorts, name) ? `${port} (node port ${nodePorts[name]})` : port];
  });
  return portsText(Object.fromEntries(entries));
}

/** Returns the backends of each cluster, the local cluster first. */
export function groupByCluster<B extends Pick<BackendDocument, 'cluster'>>(
  backends: readonly B[],
  local: string,
): readonly (readonly [cluster: string, backends: readonly B[]])[] {
  const groups = new Map<string, B[]>();
  for (const backend of backends) {
    const { cluster = local } = backend;
    const group = groups.get(cluster);
    if (group === undefined) groups.set(cluster, [backend]);
    else group.push(backend);
  }
  return [...groups].sort(([a], [b]) => Number(b === local) - Number(a === local) || compareNames(a, b));
}

/** Returns the number of backends of each cluster, the local cluster first. */
export function countByCluster(
  backends: readonly Pick<BackendDocument, 'cluster'>[],
  local: string,
): readonly (readonly [cluster: string, count: number])[] {
  return groupByCluster(backends, local).map(([cluster, { length }]) => [cluster, length]);
}

/** A bar of the backends of a service: those of the local cluster, and those of each remote one. */
export function BackendsBar({
  backends,
  hasText = true,
}: {
  backends: readonly Pick<BackendDocument, 'cluster'>[];
  /** False if the counts are shown elsewhere. */
  hasText?: boolean;
}): VNode {
  const local = useStatus()?.cluster ?? 'local';
  const counts = countByCluster(backends, local);
  const text = counts.map(([cluster, count]) => `${count} ${cluster}`).join(', ') || 'none';
  return (
    <div title={text}>
      <div class="bars" aria-hidden="true">
        {counts.map(([cluster, count]) => (
          <i key={cluster} class={cluster === local ? 'local' : undefined} style={{ flexGrow: count }} />
        ))}
      </div>
      {hasText && <span class="faint">{text}</span>}
    </div>
  );
}
