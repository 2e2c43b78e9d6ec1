import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EntryDocument } from '../../src/api/documents.ts';
import type { WhatIfLine } from '../../src/api/whatif-documents.ts';
import { addressOf } from '../address.ts';
import { askLines } from '../agent/ask.ts';
import { agentNow } from '../agent/clock.ts';
import { useMoment } from '../agent/live.ts';
import { counted, countText, timeText } from '../format.ts';
import { IdentityLink, NodeLink, PrefixLink, ServiceLink } from './links.tsx';
import { Mark, SourceText } from './marks.tsx';
import { Facts, Panel, Problem, Skeleton } from './panel.tsx';
import { type Column, numberColumn, Table } from './table.tsx';

/** Maximum number of rows of each kind. */
const MAX_ROWS = 50;

type LineOf<T extends WhatIfLine['type']> = Extract<WhatIfLine, { readonly type: T }>;

/** The kinds of each type with their headings, those with losses first. */
const SERVICES = {
  empty: 'Services without backends',
  gone: 'Deleted services',
  fewer: 'Services with fewer backends',
  changed: 'Changed services',
  created: 'New services',
} as const satisfies Record<LineOf<'service'>['kind'], string>;

const PREFIXES = {
  gone: 'Deleted prefixes',
  changed: 'Prefixes with another effective claim',
  revealed: 'Prefixes that become visible',
  created: 'New prefixes',
} as const satisfies Record<LineOf<'prefix'>['kind'], string>;

/** The questions, which are the labels of the buttons. */
const LEFT = 'What if it left?';
const DRAINED = 'What if it was drained?';

const NODES = { gone: 'Deleted nodes', changed: 'Changed nodes' } as const satisfies Record<
  LineOf<'node'>['kind'],
  string
>;

function EntryText({ entry }: { entry: EntryDocument | undefined }): VNode {
  if (entry === undefined) return <span class="faint">none</span>;
  const { identity, labels, source, owner } = entry;
  return (
    <span class="nowrap">
      <IdentityLink identity={identity} labels={labels} /> <SourceText source={source} owner={owner} />
    </span>
  );
}

const PREFIX_COLUMNS: readonly Column<LineOf<'prefix'>>[] = [
  { name: 'prefix', by: ({ prefix }) => prefix, cell: ({ prefix }) => <PrefixLink prefix={prefix} /> },
  { name: 'now', by: ({ old }) => old?.identity ?? 0, cell: ({ old }) => <EntryText entry={old} /> },
  {
    name: 'then',
    cell: ({ new: next, coveredBy }) =>
      coveredBy === undefined ? (
        <EntryText entry={next} />
      ) : (
        <span class="nowrap">
          covered by <PrefixLink prefix={coveredBy.prefix} /> <EntryText entry={coveredBy} />
        </span>
      ),
  },
];

const SERVICE_COLUMNS: readonly Column<LineOf<'service'>>[] = [
  { name: 'service', by: ({ service }) => service, cell: ({ service }) => <ServiceLink name={service} /> },
  numberColumn('backends now', ({ before }) => before),
  numberColumn('then', ({ after }) => after),
  numberColumn('lost', ({ lost }) => lost),
];

const NODE_COLUMNS: readonly Column<LineOf<'node'>>[] = [
  { name: 'node', by: ({ node }) => node, cell: ({ node }) => <NodeLink name={node} /> },
  { name: 'source now', cell: ({ oldSource }) => oldSource },
  { name: 'then', cell: ({ newSource }) => newSource ?? <span class="faint">none</span> },
  numberColumn('addresses', ({ addresses }) => addresses),
  numberColumn('pod CIDRs', ({ podCIDRs }) => podCIDRs),
];

/** Returns counts with their words, without zeros. */
function countsText(of: readonly (readonly [count: number, word: string])[]): string {
  const named = of.flatMap(([count, word]) => (count > 0 ? `${countText(count)} ${word}` : []));
  return named.join(', ') || 'no changes';
}

function Summary({
  of,
  question,
  cluster,
  at,
}: {
  of: LineOf<'summary'>;
  question: string;
  cluster?: string;
  at: number;
}): VNode {
  const { prefixes, services, nodes, identities, loses } = of;
  const unknown = counted(identities.unknown, 'identity', 'identities');
  const nodeText = countsText([
    [nodes.gone, 'deleted'],
    [nodes.changed, 'changed'],
  ]);
  const lost = `${counted(nodes.addresses, 'address', 'addresses')}, ${counted(nodes.podCIDRs, 'pod CIDR')}`;
  return (
    <Facts
      of={[
        ['question', question],
        [
          'result',
          <Mark key="result" tone={loses ? 'bad' : 'idle'}>
            {loses ? 'prefixes or services would be lost' : 'no prefix and no service would be lost'}
          </Mark>,
        ],
        [
          'services',
          countsText([
            [services.empty + services.fewer, 'lose backends'],
            [services.empty, 'without backends'],
            [services.gone, 'deleted'],
            [services.changed, 'changed'],
            [services.created, 'new'],
          ]),
        ],
        [
          'prefixes',
          countsText([
            [prefixes.gone, 'deleted'],
            [prefixes.changed, 'with another effective claim'],
            [prefixes.revealed, 'become visible'],
            [prefixes.created, 'new'],
          ]),
        ],
        ['nodes', nodes.gone === 0 ? nodeText : `${nodeText}: ${lost}`],
        [
          'identities',
          identities.unknown === 0 ? (
            'no changes'
          ) : cluster === undefined ? (
            `${unknown} no longer known`
          ) : (
            <>
              <a href={addressOf('identities', '', { cluster })}>{unknown}</a> no longer known
            </>
          ),
        ],
        ['evaluated', timeText(at)],
      ]}
    />
  );
}

/** A table for each kind of difference with at least one line. */
function Groups<T extends LineOf<'prefix' | 'service' | 'node'>>({
  lines,
  titles,
  counts,
  columns,
  keyOf,
}: {
  lines: readonly T[];
  titles: Readonly<Record<string, string>>;
  /** Number of all differences of each kind; the agent sends the first ones. */
  counts: Readonly<Record<string, number>>;
  columns: readonly Column<T>[];
  keyOf: (line: T) => string;
}): VNode {
  return (
    <>
      {Object.entries(titles).map(([kind, title]) => {
        const rows = lines.filter((line) => line.kind === kind).slice(0, MAX_ROWS);
        const { [kind]: count = 0 } = counts;
        if (rows.length === 0) return null;
        return (
          <section key={kind} class="difference" aria-label={title}>
            <h3>
              {title}{' '}
              <span class="soft">
                {count > rows.length ? `the first ${rows.length} of ${countText(count)}` : countText(count)}
              </span>
            </h3>
            <Table label={`Table: ${title}`} columns={columns} rows={rows} keyOf={keyOf} />
          </section>
        );
      })}
    </>
  );
}

/** An answer, its question, and its time by the clock of the agent. */
interface Evaluated {
  readonly question: string;
  readonly lines: readonly WhatIfLine[];
  readonly summary: LineOf<'summary'>;
  readonly at: number;
}

/** The last evaluation. */
interface State {
  readonly isLoading?: boolean;
  readonly answer?: Evaluated;
  readonly problem?: string;
}

/** Evaluates an edit. Throws an error with one sentence. */
async function evaluate(question: string, edit: object, signal: AbortSignal): Promise<Evaluated> {
  const lines = await askLines<WhatIfLine>('/v1/whatif', { edits: [edit] }, signal);
  const summary = lines.find((line) => line.type === 'summary');
  if (summary === undefined) throw new Error('The answer is incomplete: try again.');
  return { question, lines, summary, at: agentNow() };
}

/**
 * Shows a button, and after a click what would change if a remote cluster or a node (`cluster/name`) left the mesh. A
 * node has a second button: what would change if it was drained. Not shown for earlier moments, because the agent
 * evaluates its current state. Use it with a `key` per object, so that it does not show the answer of another object.
 */
export function WhatIfItLeft(of: { cluster: string } | { node: string }): VNode | null {
  const isNow = useMoment() === undefined;
  const [{ isLoading = false, answer, problem }, setState] = useState<State>({});
  const running = useRef<AbortController>();
  useEffect(() => () => running.current?.abort(), []);
  const ask = (question: string, edit: object): void => {
    if (isLoading) return;
    const request = new AbortController();
    running.current = request;
    setState({ isLoading: true });
    evaluate(question, edit, request.signal).then(
      (next) => setState({ answer: next }),
      (error: Error) => request.signal.aborted || setState({ problem: error.message }),
    );
  };
  if (!isNow) return null;
  const linesOf = <T extends WhatIfLine['type']>(type: T): readonly LineOf<T>[] =>
    answer?.lines.filter((line): line is LineOf<T> => line.type === type) ?? [];
  return (
    <Panel
      title={'node' in of ? 'Without this node' : 'Without this cluster'}
      side={
        <>
          {'node' in of && (
            <button
              type="button"
              aria-disabled={isLoading}
              onClick={() => ask(DRAINED, { edit: 'drain-node', ...of })}
            >
              {DRAINED}
            </button>
          )}
          <button
            type="button"
            aria-disabled={isLoading}
            onClick={() => ask(LEFT, { edit: 'node' in of ? 'remove-node' : 'remove-cluster', ...of })}
          >
            {LEFT}
          </button>
        </>
      }
    >
      {problem !== undefined ? (
        <Problem>{problem}</Problem>
      ) : isLoading ? (
        <Skeleton />
      ) : answer === undefined ? (
        <p class="soft">
          Shows which prefixes, services and nodes would change. Nothing is written.
          {'node' in of && ' If it left, its pods stay; if it was drained, only its pods are deleted.'}
        </p>
      ) : (
        <>
          <Summary
            of={answer.summary}
            question={answer.question}
            at={answer.at}
            {...('cluster' in of && of)}
          />
          <Groups
            lines={linesOf('service')}
            titles={SERVICES}
            counts={answer.summary.services}
            columns={SERVICE_COLUMNS}
            keyOf={({ service }) => service}
          />
          <Groups
            lines={linesOf('prefix')}
            titles={PREFIXES}
            counts={answer.summary.prefixes}
            columns={PREFIX_COLUMNS}
            keyOf={({ prefix }) => prefix}
          />
          <Groups
            lines={linesOf('node')}
            titles={NODES}
            counts={answer.summary.nodes}
            columns={NODE_COLUMNS}
            keyOf={({ node }) => node}
          />
        </>
      )}
    </Panel>
  );
}
