import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useErrorBoundary } from 'preact/hooks';
import { printable } from '../../src/process/terminal.ts';
import { isAgent, processName, useShared } from '../agent/live.ts';

/** A part of a view with a heading. */
export function Panel({
  title,
  side,
  className = '',
  flush = false,
  children,
}: {
  title: string;
  /** Content beside the heading. */
  side?: ComponentChildren;
  /** Width in a grid: `half`, `third`, `two-thirds`. */
  className?: string | undefined;
  /** True if the content reaches the borders, as a table does. */
  flush?: boolean;
  children: ComponentChildren;
}): VNode {
  return (
    <section class={`panel ${className}`} aria-label={title} tabIndex={-1}>
      <header>
        <h2>{title}</h2>
        {side}
      </header>
      <div class={flush ? 'body flush' : 'body'}>{children}</div>
    </section>
  );
}

/** Scrolls to the panel with a title, and moves the focus there. */
export function showPanel(title: string): void {
  const panel = document.querySelector<HTMLElement>(`.panel[aria-label="${title}"]`);
  panel?.focus();
  panel?.scrollIntoView({ block: 'start' });
}

/** The title of a view: its heading, and the title of the document. */
export function Title({
  children,
  kind,
  mono = false,
  side,
}: {
  children: string;
  /** The kind of the object, shown before its name. */
  kind?: string;
  /** True for a monospaced title, such as an address. */
  mono?: boolean;
  side?: ComponentChildren;
}): VNode {
  const { document: status } = useShared().status;
  const process = status === undefined || isAgent(status) ? undefined : processName(status);
  const cluster = status?.cluster;
  useEffect(() => {
    const name = kind === undefined ? children : `${children} (${kind})`;
    document.title = printable([name, process, cluster, 'dpcache'].filter(Boolean).join(' · '));
  }, [children, kind, process, cluster]);
  return (
    <div class="title">
      <h1 class={mono ? 'mono' : undefined}>{children}</h1>
      {kind !== undefined && <span class="chip">{kind}</span>}
      {side}
    </div>
  );
}

/** Placeholder for content that is being loaded. */
export function Skeleton(): VNode {
  return (
    <div class="skeleton" role="status">
      <i />
      <i />
      <i />
      <span class="hidden">Loading…</span>
    </div>
  );
}

/** Shows the problem of a request. */
export function Problem({ children }: { children: ComponentChildren }): VNode {
  return (
    <p class="problem" role="alert">
      {children}
    </p>
  );
}

/**
 * Shows its content, or that it failed. An agent of another version than the page may send documents without fields
 * that the page needs. Otherwise the last content would stay, as if it were current.
 */
export function Guard({ children }: { children: ComponentChildren }): VNode {
  const [error] = useErrorBoundary((failure) => reportError(failure));
  if (error === undefined) return <>{children}</>;
  return (
    <div class="problem" role="alert">
      <p>This page cannot show the answers of the agent: {printable(error.message)}.</p>
      <p>
        The agent may have been replaced by another version. <ReloadButton />
      </p>
    </div>
  );
}

/** A button that loads the page again. */
export function ReloadButton(): VNode {
  return (
    <button type="button" onClick={() => location.reload()}>
      Reload the page
    </button>
  );
}

/** Placeholder for missing content: the problem if there is one, else a skeleton. */
export function Pending({ problem }: { problem: string | undefined }): VNode {
  return problem === undefined ? <Skeleton /> : <Problem>{problem}</Problem>;
}

/** Text for empty content: a title, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): VNode {
  return (
    <div class="empty">
      <p>{title}</p>
      {children !== undefined && <p>{children}</p>}
    </div>
  );
}

/** A list of names with their values. Undefined and false values are omitted. */
export function Facts({ of }: { of: readonly (readonly [name: string, value: ComponentChildren])[] }): VNode {
  return (
    <dl class="facts">
      {of.map(([name, value]) =>
        value === undefined || value === null || value === '' || value === false ? null : (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ),
      )}
    </dl>
  );
}
