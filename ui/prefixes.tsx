import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ClaimDocument, EntryDocument, ExplanationDocument } from '../src/api/documents.ts';
import { addressOfPrefix, go } from './address.ts';
import { ask, useAnswer, withQuery } from './ask.ts';
import { Empty, Identity, Restored, Section, VirtualList } from './parts.tsx';

const RULES: Readonly<Record<ExplanationDocument['decidedBy'], string>> = {
  'only-claim': 'It is the only claim.',
  'source-precedence': 'Its source is stronger than the source of the next claim.',
  'owner-name': 'The sources are equal and the name of its owner sorts first.',
  'endpoint-over-cidr': 'An endpoint IP hides the CIDR of the same single address.',
};

function Rung({ claim, first }: { claim: ClaimDocument; first: boolean }): VNode {
  const { key, source, owner, identity, labels, hostIP, namespace, podName, shadowed, restored } = claim;
  return (
    <li class={first ? 'rung wins' : 'rung'}>
      <span class="who">
        {source}
        {owner !== undefined && ` (${owner})`}
      </span>
      <span>
        claims <code>{key}</code> as <Identity identity={identity} labels={labels} />
        {podName !== undefined && `, pod ${namespace}/${podName}`}
        {hostIP !== undefined && `, on ${hostIP}`} <Restored restored={restored} />
      </span>
      <span class="verdict">{first ? 'effective' : shadowed ? 'hidden' : 'overruled'}</span>
    </li>
  );
}

function Ladder({ ip, second }: { ip: string; second: number }): VNode {
  const path = ip.split('/').map(encodeURIComponent).join('/');
  const { document, problem } = useAnswer<ExplanationDocument>(
    `/v1/ipcache/explain/${path}`,
    Math.floor(second / 2),
  );
  if (document === undefined) return <Empty problem={problem} />;
  return (
    <Section title={`Claims on ${document.prefix}`}>
      <ol class="ladder">
        {document.claims.map((claim, at) => (
          <Rung key={`${claim.key} ${claim.source} ${claim.owner ?? ''}`} claim={claim} first={at === 0} />
        ))}
      </ol>
      <p class="why">{RULES[document.decidedBy]}</p>
    </Section>
  );
}

interface Loaded {
  readonly path: string;
  readonly entries: readonly EntryDocument[];
  readonly next: string | undefined;
  readonly problem?: string;
}

/** Returns the loaded pages of a list. If `epoch` changes, reads the list again from its beginning. */
function usePages(path: string, epoch: number): Loaded & { readonly more: () => void } {
  const [loaded, setLoaded] = useState<Loaded>({ path, entries: [], next: undefined });
  const loading = useRef('');
  const load = (before: Loaded, from: string): void => {
    if (loading.current === from) return;
    loading.current = from;
    ask<{ items: readonly EntryDocument[]; continue?: string }>(from).then(
      ({ items, continue: token }) => {
        if (loading.current !== from) return;
        const next =
          token === undefined ? undefined : withQuery('/v1/ipcache', { continue: token, limit: '500' });
        setLoaded({ path: before.path, entries: [...before.entries, ...items], next });
      },
      (error: Error) => setLoaded({ ...before, next: undefined, problem: error.message }),
    );
  };
  useEffect(() => {
    loading.current = '';
    load({ path, entries: [], next: undefined }, path);
  }, [path, epoch]);
  const more = (): void => {
    if (loaded.next !== undefined) load(loaded, loaded.next);
  };
  return { ...(loaded.path === path ? loaded : { path, entries: [], next: path }), more };
}

/** Returns the parameters for a search text: an IP, a CIDR, an identity number, or a pod. */
function parametersOf(text: string): Readonly<Record<string, string>> {
  const asked = text.trim();
  if (asked === '') return {};
  if (/^\d{1,10}$/.test(asked)) return { identity: asked };
  if (/^[0-9a-f.:]+$/i.test(asked)) return { ip: asked };
  if (/^[0-9a-f.:]+\/\d{1,3}$/i.test(asked)) return { within: asked };
  return { pod: asked };
}

function Row({ entry }: { entry: EntryDocument }): VNode {
  const { prefix, identity, labels, hostIP, namespace, podName, source, owner, restored } = entry;
  return (
    <li class="row" key={prefix}>
      <a href={addressOfPrefix(prefix)}>{prefix}</a>
      <Identity identity={identity} labels={labels} />
      <span>{podName === undefined ? '' : `${namespace}/${podName}`}</span>
      <span>{hostIP ?? ''}</span>
      <span class="faint">
        {restored === undefined ? (
          `${source}${owner === undefined ? '' : ` (${owner})`}`
        ) : (
          <Restored restored={restored} />
        )}
      </span>
    </li>
  );
}

/** Searches prefixes, and shows the claims on one of them. */
export function Prefixes({
  parameters,
  second,
  epoch,
}: {
  parameters: URLSearchParams;
  second: number;
  epoch: number;
}): VNode {
  const filters = {
    within: '',
    identity: '',
    pod: '',
    node: '',
    source: '',
    cluster: '',
    ...Object.fromEntries(parameters),
  };
  const { ip, ...rest } = filters as Record<string, string>;
  const [text, setText] = useState(ip ?? filters.within + filters.identity + filters.pod);
  const pages = usePages(withQuery('/v1/ipcache', { ...rest, limit: '500' }), epoch);
  const submit = (event: Event): void => {
    event.preventDefault();
    go('prefixes', parametersOf(text));
  };
  return (
    <>
      <search>
        <form class="search" onSubmit={submit}>
          <label for="asked">IP, CIDR, identity or pod</label>
          <input
            id="asked"
            type="search"
            value={text}
            placeholder="10.10.0.12, 10.10.0.0/24, 66536, shop/checkout-00000"
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
          <button type="submit">Look up</button>
        </form>
      </search>
      {ip !== undefined && <Ladder ip={ip} second={second} />}
      <Section
        title={`${pages.entries.length.toLocaleString()}${pages.next === undefined ? '' : '+'} ${pages.entries.length === 1 && pages.next === undefined ? 'prefix' : 'prefixes'}`}
      >
        {pages.problem !== undefined && <Empty problem={pages.problem} />}
        <VirtualList
          label="List of prefixes"
          count={pages.entries.length}
          onEnd={pages.more}
          row={(index) => {
            const entry = pages.entries[index];
            return entry === undefined ? <li class="row" /> : <Row key={entry.prefix} entry={entry} />;
          }}
        />
      </Section>
    </>
  );
}
