import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { RestoredDocument } from '../src/api/read-model.ts';
import { reservedIdentityName } from '../src/model/numeric-identity.ts';
import { addressOf } from './address.ts';

/** A heading with what belongs under it. */
export function Section({ title, children }: { title: string; children: ComponentChildren }): VNode {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** What is shown where there is nothing, or nothing yet. */
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

/** A mark with a colour and, for whoever does not see it, a word. */
export function Mark({ good, children }: { good: boolean; children: ComponentChildren }): VNode {
  return <span class={good ? 'mark good' : 'mark bad'}>{children}</span>;
}

/** Of what only a checkpoint says: of when it is. Nothing of all else. */
export function Restored({ restored }: { restored: RestoredDocument | undefined }): VNode | null {
  if (restored === undefined) return null;
  return <span class="restored">restored, as of {new Date(restored.knownAt).toLocaleString()}</span>;
}

/** What stands behind an identity: its reserved name, or the label that says most. */
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

/** How something went over the last minute. */
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

/** What a {@link VirtualList} shows. */
export interface VirtualListOptions {
  readonly label: string;
  /** Rows that are there. */
  readonly count: number;
  readonly row: (index: number) => VNode;
  /** The end is near: more may be loaded. */
  readonly onEnd: () => void;
}

/** A list of any length: only the rows in sight are in the page. All rows are of one height. */
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
