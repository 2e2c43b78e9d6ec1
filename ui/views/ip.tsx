import type { VNode } from 'preact';
import type { AddressRoleDocument } from '../../src/api/address-roles.ts';
import type { ClaimDocument, ExplanationDocument, ServiceDocument } from '../../src/api/documents.ts';
import { namePath } from '../../src/api/name-path.ts';
import { addressOf } from '../address.ts';
import { useAnswer, withQuery } from '../agent/ask.ts';
import { useMoment, useStatus, useVersion } from '../agent/live.ts';
import { counted, timeText } from '../format.ts';
import { Changes } from '../parts/changes.tsx';
import {
  ClusterLink,
  IdentityLink,
  LabelLinks,
  NodeLink,
  PodLink,
  PrefixLink,
  ServiceLink,
} from '../parts/links.tsx';
import { Chip, Mark, Restored } from '../parts/marks.tsx';
import { Certainty } from '../parts/moment.tsx';
import { Facts, Panel, Pending, Title } from '../parts/panel.tsx';
import { groupByCluster, portsText } from '../parts/service-parts.tsx';

const RULES: Readonly<Record<NonNullable<ExplanationDocument['decidedBy']>, string>> = {
  'only-claim': 'It is the only claim.',
  'source-precedence': 'Its source is stronger than the source of the next claim.',
  'owner-name': 'The sources are equal and the name of its owner sorts first.',
  'endpoint-over-cidr': 'The endpoint shadows the CIDR of the same address.',
};

/** Maximum number of listed backends of a cluster. */
const MAX_BACKENDS = 4;

/** One claim: its writer, its attributes, and whether it is effective. */
function Claim({ claim, isFirst }: { claim: ClaimDocument; isFirst: boolean }): VNode {
  const { key, source, owner, identity, labels, hostIP, namespace, podName, shadowed, restored } = claim;
  const { origin, since, until } = claim;
  const verdict = isFirst ? 'effective' : shadowed ? 'shadowed' : 'overruled';
  return (
    <li class={isFirst ? 'claim wins' : 'claim'}>
      <span class="who">
        {source}
        {owner !== undefined && <span class="soft"> {owner}</span>}
      </span>
      <span>
        <code>{key}</code> is <IdentityLink identity={identity} labels={labels} />
        {podName !== undefined && (
          <>
            , pod <PodLink name={`${namespace}/${podName}`} />
          </>
        )}
        {hostIP !== undefined && (
          <>
            , on <PrefixLink prefix={hostIP} />
          </>
        )}{' '}
        <Restored restored={restored} />
      </span>
      <span class="verdict">
        <Chip tone={isFirst ? 'accent' : ''}>{verdict}</Chip>
      </span>
      {(origin !== undefined || since !== undefined || until !== undefined) && (
        <span class="origin">
          {origin?.text}
          {since !== undefined && ` since ${timeText(since)}`}
          {until !== undefined && ` until ${timeText(until)}`}
        </span>
      )}
    </li>
  );
}

/** The role of an address in a service or a node. */
function RoleText({ role }: { role: AddressRoleDocument }): VNode {
  return (
    <div>
      {role.kind === 'service' ? <ServiceLink name={role.name} /> : <NodeLink name={role.name} />}{' '}
      <span class="faint">
        {role.as === 'pod-cidr' ? 'pod CIDR' : role.as} {role.ports?.join(', ')}
      </span>
    </div>
  );
}

/** Returns the name of the current node with this address; undefined if there is none or it is not known yet. */
function useNodeOf(ip: string | undefined): string | undefined {
  const { document } = useAnswer<ExplanationDocument>(
    ip === undefined ? undefined : `/v1/ipcache/explain/${namePath(ip)}`,
  );
  return document?.roles?.find(({ kind, as }) => kind === 'node' && as !== 'pod-cidr')?.name;
}

/** Returns the service with the address; undefined if there is none. */
function serviceOf({ roles = [] }: ExplanationDocument): string | undefined {
  return roles.find(({ kind }) => kind === 'service')?.name;
}

/** The backends of the service with the address. */
function Backends({ name }: { name: string }): VNode {
  const local = useStatus()?.cluster ?? 'local';
  const { document, problem } = useAnswer<ServiceDocument>(
    `/v1/services/${namePath(name)}`,
    useVersion('service'),
  );
  return (
    <Panel title="Address of a service" className="wide" side={<ServiceLink name={name} />}>
      {document === undefined ? (
        <Pending problem={problem} />
      ) : (
        <>
          <p class="soft">
            No prefix contains it. Connections to it go to {counted(document.backends.length, 'backend')}.
          </p>
          <ul class="lines spread-list">
            {groupByCluster(document.backends, local).map(([cluster, backends]) => (
              <li key={cluster}>
                <ClusterLink name={cluster} /> <span class="soft">{counted(backends.length, 'backend')}</span>{' '}
                {backends.slice(0, MAX_BACKENDS).map(({ address }) => (
                  <span key={address}>
                    <PrefixLink prefix={address} />{' '}
                  </span>
                ))}
                {backends.length > MAX_BACKENDS && '…'}
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}

/** The entry of the kernel, and the entry of the cache if they differ. */
function KernelText({ entry }: { entry: NonNullable<ExplanationDocument['kernel']> }): VNode {
  const { kernel = 'no entry', cache = 'no entry', failure } = entry;
  if (failure !== undefined) return <Mark tone="bad">{failure}</Mark>;
  if (kernel === cache)
    return (
      <>
        {kernel} <Mark tone="good">same as the cache</Mark>
      </>
    );
  return (
    <>
      <div>
        {kernel} <Mark tone="bad">differs</Mark>
      </div>
      <div class="soft">the cache has: {cache}</div>
    </>
  );
}

function CardOf({ document }: { document: ExplanationDocument }): VNode {
  const { prefix, claims, decidedBy, roles = [] } = document;
  const [first] = claims;
  // The agent has no node by address for earlier moments.
  const node = useNodeOf(document.past === undefined ? first?.hostIP : undefined);
  const service = serviceOf(document);
  const reason = first !== undefined && decidedBy !== undefined ? RULES[decidedBy] : undefined;
  return (
    <div class="grid">
      {first === undefined && service !== undefined ? (
        <Backends name={service} />
      ) : (
        <Panel title="Claims" className="wide" flush side={<span class="soft">{claims.length}</span>}>
          <ol class="claims">
            {claims.map((claim, at) => (
              <Claim
                key={`${claim.key} ${claim.source} ${claim.owner ?? ''}`}
                claim={claim}
                isFirst={at === 0}
              />
            ))}
          </ol>
          {first === undefined && <p class="why">No source claims it, and no prefix contains it.</p>}
          {reason !== undefined && <p class="why">Why the first one is effective: {reason}</p>}
        </Panel>
      )}
      <Panel title="Attributes" className="narrow">
        <Facts
          of={[
            ['prefix', <code key="prefix">{prefix}</code>],
            ['identity', first && <IdentityLink identity={first.identity} labels={first.labels} />],
            ['labels', first?.labels && <LabelLinks key="labels" labels={first.labels} />],
            ['pod', first?.podName && <PodLink name={`${first.namespace}/${first.podName}`} />],
            ['service account', first?.serviceAccount],
            ['ports', first?.namedPorts && portsText(first.namedPorts)],
            [
              'host',
              first?.hostIP && (
                <>
                  <PrefixLink prefix={first.hostIP} />
                  {node !== undefined && (
                    <>
                      {' '}
                      <NodeLink name={node} />
                    </>
                  )}
                </>
              ),
            ],
            ['encryption key', first !== undefined && first.encryptKey !== 0 && String(first.encryptKey)],
            ['kernel', document.kernel && <KernelText key="kernel" entry={document.kernel} />],
            ['belongs to', roles.length > 0 && roles.map((role) => <RoleText key={role.text} role={role} />)],
          ]}
        />
      </Panel>
    </div>
  );
}

/** Shows one IP or CIDR: its claims, its service or node, and its last changes. */
export function IP({ name }: { name: string }): VNode {
  const at = useMoment();
  const { document, problem } = useAnswer<ExplanationDocument>(
    withQuery(`/v1/ipcache/explain/${namePath(name)}`, { at }),
    useVersion('ip'),
  );
  const service = document && serviceOf(document);
  const isCovered =
    document !== undefined &&
    document.claims.length > 0 &&
    !name.includes('/') &&
    document.prefix.split('/')[0] !== name;
  return (
    <>
      <Title
        kind={name.includes('/') ? 'CIDR' : 'IP'}
        mono
        side={name.includes('/') && <a href={addressOf('prefixes', '', { within: name })}>Prefixes within</a>}
      >
        {name}
      </Title>
      <Certainty past={document?.past} />
      {isCovered && (
        <p class="soft">
          No entry of its own. The longest prefix that contains it is <PrefixLink prefix={document.prefix} />.
        </p>
      )}
      {document === undefined ? (
        <>
          <Pending problem={problem} />
          {problem !== undefined && (
            <p class="soft">
              <a href={addressOf('prefixes')}>All prefixes</a>, or press / to search for a part of a name.
            </p>
          )}
        </>
      ) : (
        <CardOf document={document} />
      )}
      {service !== undefined && document?.claims.length === 0 ? (
        <Changes of={service} type="service" />
      ) : (
        <Changes of={name} type="ip" />
      )}
    </>
  );
}
