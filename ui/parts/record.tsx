import type { ComponentChildren, VNode } from 'preact';
import type { HistoryRecordDocument } from '../../src/api/history-documents.ts';
import type { MarkKind } from '../../src/history/types.ts';
import { addressOf } from '../address.ts';
import { useLabels } from '../agent/identity-labels.ts';
import { counted } from '../format.ts';
import { IdentityLink, NodeLink, PrefixLink, ServiceLink } from './links.tsx';

/** The kind of a change. */
export type Sign = 'added' | 'changed' | 'removed' | 'event';

/** A word for a change, with its own mark. */
export function SignMark({ sign }: { sign: Sign }): VNode {
  return <span class={`sign ${sign}`}>{sign}</span>;
}

/** Returns the kind of change of a record. */
export function signOf({ kind, before, after }: HistoryRecordDocument): Sign {
  if (kind === 'mark') return 'event';
  if (before === undefined) return 'added';
  return after === undefined ? 'removed' : 'changed';
}

/** The fields of a claim, a service or a node. If a service has changed, only the fields and backends that differ. */
interface Recorded {
  readonly identity?: number;
  readonly namespace?: string;
  readonly podName?: string;
  readonly hostIP?: string;
  readonly encryptKey?: number;
  readonly backends?: readonly { readonly address: string; readonly state?: string }[];
  readonly addresses?: readonly { readonly ip: string }[];
  readonly [field: string]: unknown;
}

/** Returns the fields of `before` or `after` of a record; undefined if it is absent. */
function fieldsOf(value: unknown): Recorded | undefined {
  if (value === undefined) return undefined;
  return typeof value === 'object' && value !== null ? (value as Recorded) : {};
}

/** A link to an identity of which only the number is known. Its labels are requested from the agent. */
export function NamedIdentity({ identity }: { identity: number }): VNode {
  return <IdentityLink identity={identity} labels={useLabels(identity)} />;
}

/** An old and a new value, of which one may be missing. */
function Change({ from, to }: { from: ComponentChildren; to: ComponentChildren }): VNode {
  return (
    <span>
      {from !== undefined && <del>{from}</del>}
      {from !== undefined && to !== undefined && <span class="arrow">→</span>}
      {to !== undefined && <ins>{to}</ins>}
    </span>
  );
}

/** The old and the new values of the fields of a prefix. Equal ones are shown once. */
function PrefixChange({ from, to }: { from: Recorded | undefined; to: Recorded | undefined }): VNode {
  const podOf = (of: Recorded | undefined): string | undefined =>
    of?.podName === undefined ? undefined : `${of.namespace}/${of.podName}`;
  const fields: readonly (readonly [name: string, from: string | undefined, to: string | undefined])[] = [
    ['', podOf(from), podOf(to)],
    ['on', from?.hostIP, to?.hostIP],
    ['key', from?.encryptKey?.toString(), to?.encryptKey?.toString()],
  ];
  const identity = to?.identity ?? from?.identity;
  const replaced = from?.identity === identity ? undefined : from?.identity;
  return (
    <span class="fields">
      {replaced !== undefined && (
        <>
          <del>
            <NamedIdentity identity={replaced} />
          </del>
          <span class="arrow">→</span>
        </>
      )}
      {identity !== undefined && <NamedIdentity identity={identity} />}{' '}
      {fields.map(([name, old, now]) =>
        old === undefined && now === undefined ? null : (
          <span key={name}>
            {name !== '' && <span class="faint">{name} </span>}
            {from === undefined || to === undefined || old === now ? (
              (now ?? old)
            ) : (
              <Change from={old ?? 'none'} to={now ?? 'none'} />
            )}{' '}
          </span>
        ),
      )}
    </span>
  );
}

/** The added, changed and removed backends of a service, and the names of its other changed fields. */
function ServiceChange({ from, to }: { from: Recorded; to: Recorded }): VNode {
  const [before, after] = [from.backends ?? [], to.backends ?? []];
  const [addressesBefore, addressesAfter] = [before, after].map(
    (backends) => new Set(backends.map(({ address }) => address)),
  );
  const added = after.filter(({ address }) => addressesBefore?.has(address) !== true);
  const removed = before.filter(({ address }) => addressesAfter?.has(address) !== true);
  const changed = after.filter(({ address }) => addressesBefore?.has(address));
  const others = Object.keys({ ...from, ...to }).filter((field) => field !== 'backends');
  const parts: readonly (readonly [sign: Sign, list: typeof before])[] = [
    ['added', added],
    ['changed', changed],
    ['removed', removed],
  ];
  return (
    <span class="fields">
      {parts.map(([sign, list]) =>
        list.length === 0 ? null : (
          <span key={sign} title={list.map(({ address }) => address).join(' ')}>
            {counted(list.length, 'backend')} {sign}{' '}
            <span class="faint mono">
              {list
                .slice(0, 2)
                .map(({ address }) => address)
                .join(' ')}
              {list.length > 2 && ' …'}
            </span>{' '}
          </span>
        ),
      )}
      {others.length > 0 && <span class="soft">{others.join(', ')}</span>}
    </span>
  );
}

/** Shows the old and the new value of a record. */
export function RecordText({ record }: { record: HistoryRecordDocument }): VNode {
  const { kind, before, after, mark, detail } = record;
  if (mark !== undefined)
    return (
      <span>
        {mark} <span class="faint">{detail}</span>
      </span>
    );
  const [from, to] = [fieldsOf(before), fieldsOf(after)];
  if (kind === 'prefix') return <PrefixChange from={from} to={to} />;
  if (kind === 'service') return <ServiceChange from={from ?? {}} to={to ?? {}} />;
  return <NodeChange from={from} to={to} />;
}

/** The old and the new addresses of a node. If they are equal, the names of the fields that have changed. */
function NodeChange({ from, to }: { from: Recorded | undefined; to: Recorded | undefined }): VNode {
  const text = (of: Recorded | undefined): string | undefined => of?.addresses?.map(({ ip }) => ip).join(' ');
  const [old, now] = [text(from), text(to)];
  if (from === undefined || to === undefined || old === now) {
    const fields = Object.keys(to ?? {}).filter(
      (field) => from !== undefined && JSON.stringify(from[field]) !== JSON.stringify(to?.[field]),
    );
    return (
      <span>
        <span class="soft mono">{now ?? old}</span> {fields.length > 0 && `changed: ${fields.join(', ')}`}
      </span>
    );
  }
  return <Change from={old} to={now} />;
}

/** The marks whose subject is a cluster. */
const CLUSTER_MARKS: ReadonlySet<string> = new Set<MarkKind>([
  'joined',
  'left',
  'complete',
  'unreachable',
  'reachable',
  'withdrawing',
  'withdrawn',
]);

/** A link to the object of a record. */
export function RecordLink({ record }: { record: HistoryRecordDocument }): VNode {
  const { kind, key = '', subject = 'agent', mark = '' } = record;
  if (kind === 'prefix') return <PrefixLink prefix={key} />;
  if (kind === 'service') return <ServiceLink name={key} />;
  if (kind === 'node') return <NodeLink name={key} />;
  return CLUSTER_MARKS.has(mark) ? (
    <a href={addressOf('cluster', subject)}>{subject}</a>
  ) : (
    <span>{subject}</span>
  );
}

/** Returns where a record came from: the store and its revision, or the source of the claim. */
export function causeText({ cause, source, owner }: HistoryRecordDocument): string {
  if (cause !== undefined && cause.revision !== '') return `${cause.store} revision ${cause.revision}`;
  return [source, owner].filter(Boolean).join(' ');
}
