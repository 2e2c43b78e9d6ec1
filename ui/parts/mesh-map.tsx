import type { VNode } from 'preact';
import type { ClusterDocument, KindDocument } from '../../src/api/status-document.ts';
import { addressOf } from '../address.ts';
import { useWidth } from '../agent/width.ts';
import { compareNames, counted, countText } from '../format.ts';
import { boundText, clusterText, clusterTone, lagText, stateText, WORST_FIRST } from './cluster-parts.tsx';
import type { Tone } from './marks.tsx';

/** Size of the box of a cluster. */
const BOX = { width: 200, height: 105 };

/** Maximum length of a name in the usual size. */
const NAME_LENGTH = 20;
/** Maximum length of a name in the small size: that of cluster names of Cilium. */
const MAX_NAME_LENGTH = 32;

/** Vertical space between two boxes, if the clusters are on both sides. */
const GAP = 22;
/** Vertical space between two boxes in one column, where the links need more of it. */
const COLUMN_GAP: number = 1.6 * GAP;

/** Sum of the spaces above and below the boxes, if the clusters are on both sides. */
const MARGIN = 40;

/** Horizontal space for the links at the left of a column. */
const LINKS_WIDTH = 28;

/** Width below which the clusters are in one column. */
const NARROW_WIDTH = 640;

/** Maximum number of clusters drawn as boxes. The others have a small mark. */
const MAX_BOXES = 8;
const MAX_BOXES_NARROW = 4;

/** Distance of the local cluster from a single remote one. */
const LINK_LENGTH = 120;

/** The top left corner of a box. */
interface Corner {
  readonly x: number;
  readonly y: number;
}

interface Place extends Corner {
  readonly cluster: ClusterDocument;
}

/** The places of the boxes, and the height of the map. */
interface Layout {
  readonly local: Corner;
  readonly remote: readonly Place[];
  readonly height: number;
}

const SHAPES: Readonly<Record<Tone, string>> = { good: '●', warn: '■', bad: '▲', idle: '▲' };

/** Returns a name that fits into a box in the small size. Keeps both ends, because names often begin equally. */
function shortName(name: string): string {
  return name.length > MAX_NAME_LENGTH ? `${name.slice(0, 15)}…${name.slice(-16)}` : name;
}

/** A cluster as a box, which is a link to its card. `text`: replaces the counts of its objects. */
function Box({ place: { cluster, x, y }, text }: { place: Place; text?: string | undefined }): VNode {
  const { name, local, keys, revision, p99Ms } = cluster;
  const tone = clusterTone(cluster);
  const idText = cluster.id === 0 ? '' : `id ${cluster.id}`;
  const nodes = counted(keys.nodes ?? 0, 'node');
  const services = keys.services === undefined ? '' : ` · ${counted(keys.services, 'service')}`;
  return (
    <a href={addressOf('cluster', name)} class={`node ${local ? 'local' : ''} ${tone}`}>
      <rect x={x} y={y} width={BOX.width} height={BOX.height} rx="8" />
      <text class={name.length > NAME_LENGTH ? 'name long' : 'name'} x={x + 11} y={y + 23}>
        {shortName(name)}
      </text>
      {shortName(name) !== name && <title>{name}</title>}
      <text class={`small ${tone}`} x={x + 11} y={y + 42}>
        {SHAPES[tone]} {stateText(cluster)}
      </text>
      <text class="small" x={x + BOX.width - 11} y={y + 42} text-anchor="end">
        {lagText(cluster)}
      </text>
      <text class="small" x={x + 11} y={y + 59}>
        {text ?? nodes + services}
      </text>
      <text class="small" x={x + 11} y={y + 76}>
        {text === undefined && `${countText(keys.ip ?? 0)} IPs`}
      </text>
      <text class="small" x={x + BOX.width - 11} y={y + 76} text-anchor="end">
        {local ? 'local cluster' : idText}
      </text>
      <text class="small" x={x + 11} y={y + 93}>
        {revision !== undefined && `revision ${countText(revision)}`}
      </text>
      <text class="small" x={x + BOX.width - 11} y={y + 93} text-anchor="end">
        {p99Ms !== undefined && `p99 ${boundText(p99Ms)}`}
      </text>
    </a>
  );
}

/** Returns the remote clusters, those with problems first. */
function worstFirst(clusters: readonly ClusterDocument[]): readonly ClusterDocument[] {
  const rank = (cluster: ClusterDocument): number => WORST_FIRST.indexOf(clusterTone(cluster));
  return clusters
    .filter(({ local }) => !local)
    .sort((a, b) => rank(a) - rank(b) || compareNames(a.name, b.name));
}

/** Places the remote clusters below the local one, in one column. */
function columnLayout(clusters: readonly ClusterDocument[], width: number): Layout {
  const step = BOX.height + COLUMN_GAP;
  const x = Math.max(LINKS_WIDTH, width - BOX.width - 1);
  return {
    local: { x: 1, y: 1 },
    remote: clusters.map((cluster, at) => ({ cluster, x, y: (at + 1) * step })),
    height: (clusters.length + 1) * step - GAP,
  };
}

/** Places the remote clusters on both sides of the local one. A single one is beside it, and both are centered. */
function sidesLayout(clusters: readonly ClusterDocument[], width: number): Layout {
  const step = BOX.height + GAP;
  const left = Math.ceil(clusters.length / 2);
  const height = Math.max(1, left) * step - GAP + MARGIN;
  const pairX = (width - 2 * BOX.width - LINK_LENGTH) / 2;
  const isPair = clusters.length === 1;
  const remote = clusters.map((cluster, at) => {
    const isLeft = at < left;
    const rows = isLeft ? left : clusters.length - left;
    const row = isLeft ? at : at - left;
    const leftX = isPair ? pairX : 1;
    return {
      cluster,
      x: isLeft ? leftX : width - BOX.width - 1,
      y: (height - rows * step + GAP) / 2 + row * step,
    };
  });
  const x = isPair ? pairX + BOX.width + LINK_LENGTH : (width - BOX.width) / 2;
  return { local: { x, y: (height - BOX.height) / 2 }, remote, height };
}

/** Returns the number of followed Kubernetes objects as text. */
function localText(kinds: readonly KindDocument[]): string {
  return `Kubernetes · ${counted(
    kinds.reduce((sum, { objects }) => sum + objects, 0),
    'object',
  )}`;
}

/** A map of the mesh as this agent sees it: the clusters, and the link to each. */
export function MeshMap({
  clusters,
  kinds,
}: {
  clusters: readonly ClusterDocument[];
  /** The followed Kubernetes objects of the local cluster, if a kvstore does not provide them. */
  kinds?: readonly KindDocument[] | undefined;
}): VNode {
  const { ref, width } = useWidth<HTMLDivElement>();
  const isNarrow = width < NARROW_WIDTH;
  const all = worstFirst(clusters);
  const remote = all.slice(0, isNarrow ? MAX_BOXES_NARROW : MAX_BOXES);
  const others = all.slice(remote.length);
  const local = clusters.find((cluster) => cluster.local);
  const layout = isNarrow ? columnLayout(remote, width) : sidesLayout(remote, width);
  return (
    <div ref={ref}>
      {width > 0 && (
        <svg class="mesh" viewBox={`0 0 ${width} ${layout.height}`} role="group" aria-label="Map of the mesh">
          {layout.remote.map((place) => (
            <Link key={place.cluster.name} place={place} local={layout.local} isNarrow={isNarrow} />
          ))}
          {local !== undefined && (
            <Box place={{ cluster: local, ...layout.local }} text={kinds && localText(kinds)} />
          )}
          {layout.remote.map((place) => (
            <Box key={place.cluster.name} place={place} />
          ))}
        </svg>
      )}
      {others.length > 0 && <Others clusters={others} />}
    </div>
  );
}

/** The clusters without a box, each as a mark of its state, with a link to its card. */
function Others({ clusters }: { clusters: readonly ClusterDocument[] }): VNode {
  return (
    <>
      <p class="faint">
        {counted(clusters.length, 'more cluster')}: see <a href={addressOf('clusters')}>all clusters</a>
      </p>
      <div class="dots">
        {clusters.map((cluster) => (
          <a
            key={cluster.name}
            tabIndex={-1}
            class={`mark ${clusterTone(cluster)}`}
            title={`${cluster.name}: ${clusterText(cluster)}`}
            href={addressOf('cluster', cluster.name)}
          >
            <span class="hidden">{cluster.name}</span>
          </a>
        ))}
      </div>
    </>
  );
}

/** The line from a cluster to the local one. It is dashed if no changes are received. */
function Link({
  place: { cluster, x, y },
  local,
  isNarrow,
}: {
  place: Place;
  local: Corner;
  isNarrow: boolean;
}): VNode {
  const tone = clusterTone(cluster);
  const middle = y + BOX.height / 2;
  const isLeft = x < local.x;
  const [from, to] = isLeft ? [x + BOX.width, local.x] : [x, local.x + BOX.width];
  const end = local.y + BOX.height / 2;
  const path = isNarrow
    ? `M ${x} ${middle} H 22 Q 14 ${middle} 14 ${middle - 8} V ${local.y + BOX.height}`
    : `M ${from} ${middle} C ${(from + to) / 2} ${middle}, ${(from + to) / 2} ${end}, ${to} ${end}`;
  return (
    <g>
      <path class={`link ${tone}`} d={path} />
      {tone === 'good' && <path class="flow" d={path} />}
    </g>
  );
}
