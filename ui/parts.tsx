import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { RestoredDocument } from '../src/api/read-model.ts';
import { reservedIdentityName } from '../src/model/numeric-identity.ts';
import { addressOf } from './address.ts';

/** A section with a heading. */
export function Section({ title, children }: { title: string; children: ComponentChildren }): VNode {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Shows a problem, or a text in place of missing content. */
export function Empty({
  problem,
  children,
}: {
  problem?: string | undefined;
  children?: ComponentChildren;
}): VNode {
  return problem === undefined ? (
    <p class="empty">{children ?? 'Loading…'}</p>
  ) : (
    <p class="problem" role="alert">
      {problem}
    </p>
  );
}

/** A table that scrolls by itself on a narrow screen. */
export function Table({
  label,
  head,
  children,
}: {
  label: string;
  head: readonly string[];
  children: ComponentChildren;
}): VNode {
  return (
    <section class="scroll" tabIndex={0} aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}

/** A word with a colour. The word alone is sufficient for readers who cannot see the colour. */
export function Mark({ good, children }: { good: boolean; children: ComponentChildren }): VNode {
  return <span class={good ? 'mark good' : 'mark bad'}>{children}</span>;
}

/** Shows the age of restored state; nothing for other state. */
export function Restored({ restored }: { restored: RestoredDocument | undefined }): VNode | null {
  if (restored === undefined) return null;
  return <span class="restored">restored, as of {new Date(restored.knownAt).toLocaleString()}</span>;
}

/** An identity with its reserved name or its most specific label. */
export function Identity({
  identity,
  labels = [],
}: {
  identity: number;
  labels?: readonly string[] | undefined;
}): VNode {
  const reserved = reservedIdentityName(identity);
  const app = labels.find((label) => /[:.](app|name|k8s-app)=/.test(label) || label.includes('/name='));
  const name = reserved ?? app?.replace(/^[^:]*:/, '') ?? '';
  return (
    <a href={addressOf('prefixes', { identity: String(identity) })} title={labels.join('\n')}>
      {identity} {name !== '' && <span class="faint">{name}</span>}
    </a>
  );
}

const WIDTH = 180;
const HEIGHT = 36;

/** A curve of the last minute. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }): VNode {
  const most = Math.max(1, ...values);
  const step = WIDTH / (values.length - 1);
  const points = values.map(
    (value, at) => `${(at * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`,
  );
  const total = values.reduce((a, b) => a + b, 0);
  return (
    <figure class="spark">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${label}: ${total} in the last minute`}>
        <polyline points={points.join(' ')} />
      </svg>
      <figcaption>
        {label} <strong>{total}</strong> <span class="faint">in the last minute</span>
      </figcaption>
    </figure>
  );
}

const ROW = 30;
const BEYOND = 10;

/** Options of a {@link VirtualList}. */
export interface VirtualListOptions {
  readonly label: string;
  /** Number of loaded rows. */
  readonly count: number;
  readonly row: (index: number) => VNode;
  /** Called near the end of the list, to load more rows. */
  readonly onEnd: () => void;
}

/** A list of any length. Only visible rows are in the page. All rows have the same height. */
export function VirtualList({ label, count, row, onEnd }: VirtualListOptions): VNode {
  const box = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [height, setHeight] = useState(480);
  const shown = Math.ceil(height / ROW) + 2 * BEYOND;
  useEffect(() => {
    if (box.current !== null) setHeight(box.current.clientHeight);
  }, []);
  useEffect(() => {
    if (first + shown >= count) onEnd();
  }, [first, count, shown]);
  const scrolled = (): void =>
    setFirst(Math.max(0, Math.floor((box.current?.scrollTop ?? 0) / ROW) - BEYOND));
  const rows: VNode[] = [];
  for (let index = first; index < Math.min(count, first + shown); index++) rows.push(row(index));
  return (
    <section class="virtual" ref={box} onScroll={scrolled} tabIndex={0} aria-label={label}>
      <div style={{ height: `${count * ROW}px` }}>
        <ul style={{ transform: `translateY(${first * ROW}px)` }}>{rows}</ul>
      </div>
    </section>
  );
}
