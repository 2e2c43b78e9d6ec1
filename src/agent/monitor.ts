import type { ApiClient } from '../api/api-client.ts';
import type { EntryDocument, NodeDocument, ServiceDocument } from '../api/documents.ts';
import type { ChangeDocument } from '../api/monitor-stream.ts';
import { identityCell } from './answer.ts';
import { backendsText } from './change-text.ts';
import { type ColourEnvironment, type Output, printable, Terminal, writeLines } from './terminal.ts';

/** What {@link monitor} shows. */
export interface MonitorOptions {
  /** Types with commas between; all of them without. */
  readonly types?: string | undefined;
  /** After which revision to begin; without it with what comes from now on. */
  readonly from?: string | undefined;
  /** `json`: an object a line. */
  readonly format: 'text' | 'json';
}

/** What monitoring takes from its process. */
export interface MonitorContext {
  readonly output: Output;
  readonly env: ColourEnvironment;
  readonly signal: AbortSignal;
}

/** An event as it was sent. */
export interface SentEvent {
  readonly name: string;
  readonly data: string;
}

/**
 * Shows every change of a running agent as a line, until the signal fires or the agent ends. Waits for a reader of the
 * output that is behind: what it misses meanwhile comes once for each key, or as a resync. Throws `ApiError`.
 */
export async function monitor(
  client: ApiClient,
  { types, from, format }: MonitorOptions,
  { output, env, signal }: MonitorContext,
): Promise<void> {
  const terminal = new Terminal(output, env);
  try {
    for await (const event of monitorEvents(client, { types, from })) {
      if (format === 'json') writeLines(output, `${jsonLine(event)}\n`);
      else showEvent(event, terminal);
      await output.drained?.(signal);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** The events of a running agent, the first of which says that it follows. Throws `ApiError`. */
export function monitorEvents(
  client: ApiClient,
  { types, from }: Pick<MonitorOptions, 'types' | 'from'>,
): AsyncGenerator<SentEvent, void, void> {
  const asked = new URLSearchParams();
  if (types !== undefined) asked.set('types', types);
  if (from !== undefined) asked.set('from', from);
  return events(client.lines(`/v1/monitor?${asked}`));
}

/** The events among the lines of a stream (WHATWG, "Server-sent events"), as far as the agent uses them. */
async function* events(lines: AsyncIterable<string>): AsyncGenerator<SentEvent, void, void> {
  let name = '';
  let data = '';
  for await (const line of lines) {
    if (line.startsWith('event: ')) name = line.slice('event: '.length);
    else if (line.startsWith('data: ')) data = line.slice('data: '.length);
    else if (line === '' && name !== '') {
      yield { name, data };
      name = '';
    }
  }
}

/** A change as it is; of the others their name and revision. */
function jsonLine({ name, data }: SentEvent): string {
  return name === 'change' ? data : JSON.stringify({ event: name, ...JSON.parse(data) });
}

function showEvent({ name, data }: SentEvent, terminal: Terminal): void {
  if (name === 'synced') {
    const { revision }: { revision: number } = JSON.parse(data);
    terminal.line(terminal.paint('faint', `Every change after revision ${revision}; Ctrl-C ends.`));
  } else if (name === 'resync') {
    const { revision }: { revision: number } = JSON.parse(data);
    terminal.line(
      terminal.paint(
        'changed',
        `Changes were missed: read the lists anew. It goes on after revision ${revision}.`,
      ),
    );
  } else {
    const { at, type, kind, key, value }: ChangeDocument = JSON.parse(data);
    const sign = kind === 'delete' ? '-' : '+';
    const time = new Date(at).toTimeString().slice(0, 8);
    const text =
      `${sign} ${type.padEnd(7)} ${printable(key)}  ${printable(valueText(type, value))}`.trimEnd();
    terminal.line(`${time} ${terminal.paint(kind === 'delete' ? 'removed' : 'added', text)}`);
  }
}

function valueText(type: ChangeDocument['type'], value: ChangeDocument['value']): string {
  if (value === undefined) return '';
  if (type === 'service') return backendsText((value as ServiceDocument).backends);
  if (type === 'node') return (value as NodeDocument).addresses.map(({ ip }) => ip).join(' ');
  const { identity, labels, hostIP, namespace, podName, source } = value as EntryDocument;
  return [
    ...(podName === undefined ? [] : [`pod ${namespace}/${podName}`]),
    `identity ${identityCell(identity, labels)}`,
    ...(hostIP === undefined ? [] : [`on ${hostIP}`]),
    `by ${source}`,
  ].join(', ');
}
