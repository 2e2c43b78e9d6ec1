import type { VNode } from 'preact';
import { reservedIdentityName } from '../../src/model/numeric-identity.ts';
import { addressOf, shortPrefix } from '../address.ts';

/** A link to the card of an IP or a CIDR. */
export function PrefixLink({ prefix }: { prefix: string }): VNode {
  const short = shortPrefix(prefix);
  return (
    <a class="mono" href={addressOf('ip', short)}>
      {short}
    </a>
  );
}

/** Returns a short name of an identity: its reserved name, or its most specific label. */
export function identityName(identity: number, labels: readonly string[] = []): string {
  const reserved = reservedIdentityName(identity);
  if (reserved !== undefined) return reserved;
  const label =
    labels.find((text) => /[:.](app|name|k8s-app)=/.test(text) || text.includes('/name=')) ??
    labels.find((text) => !text.includes('io.cilium.') && !text.includes('io.kubernetes.'));
  return label?.replace(/^[^:]*:/, '').replace(/^(app|name|k8s-app|app\.kubernetes\.io\/name)=/, '') ?? '';
}

/** A link to the card of an identity, with its name. */
export function IdentityLink({
  identity,
  labels = [],
}: {
  identity: number;
  labels?: readonly string[] | undefined;
}): VNode {
  const name = identityName(identity, labels);
  return (
    <a href={addressOf('identity', String(identity))} title={labels.join('\n')}>
      {identity}
      {name !== '' && <span class="soft"> {name}</span>}
    </a>
  );
}

/** A link to the card of a service, `namespace/name`. */
export function ServiceLink({ name }: { name: string }): VNode {
  return <a href={addressOf('service', name)}>{name}</a>;
}

/** A link to the card of a node, `cluster/name`. */
export function NodeLink({ name, short = false }: { name: string; short?: boolean }): VNode {
  return <a href={addressOf('node', name)}>{short ? name.slice(name.indexOf('/') + 1) : name}</a>;
}

/** A link to the card of a cluster. */
export function ClusterLink({ name }: { name: string }): VNode {
  return <a href={addressOf('cluster', name)}>{name}</a>;
}

/** A link to the prefixes of a pod, `namespace/name`. */
export function PodLink({ name }: { name: string }): VNode {
  return <a href={addressOf('prefixes', '', { pod: name })}>{name}</a>;
}

/** Labels, each with a link to its prefixes. Lines may break between the parts of a label. */
export function LabelLinks({ labels }: { labels: readonly string[] }): VNode {
  return (
    <span class="chips">
      {labels.map((label) => (
        <a key={label} class="chip" href={addressOf('prefixes', '', { label })}>
          {label.split(/(?<=[.=/])/).map((part, at) => (
            <span key={`${at} ${part}`}>
              {part}
              <wbr />
            </span>
          ))}
        </a>
      ))}
    </span>
  );
}
