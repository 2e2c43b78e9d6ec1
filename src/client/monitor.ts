import type { ApiClient } from '../api/api-client.ts';
import type { EntryDocument, NodeDocument, ServiceDocument } from '../api/documents.ts';
import type { ChangeDocument } from '../api/routes/monitor-stream.ts';
import { type ColourEnvironment, type Output, printable, Terminal, writeLines } from '../process/terminal.ts';
import { identityCell } from './answer.ts';
import { backendsText } from './change-text.ts';
import { withQuery } from './list.ts';

export interface MonitorOptions {
  /** Comma-separated types; default: all. */
  readonly types?: string | undefined;
  /** Last revision before the stream begins; default: the current one. */
  readonly from?: string | undefined;
  /** `json`: one object per line. */
  readonly format: 'text' | 'json';
}

/** The parts of the process that `dpcache monitor` uses. */
export interface MonitorContext {
  readonly output: Output;
  readonly env: ColourEnvironment;
  readonly signal: AbortSignal;
}

export interface SentEvent {
  readonly name: string;
  readonly data: string;
}

/**
 * Shows each change of a running agent as a line, until the signal fires or the agent ends. Waits for a slow reader of
 * the output. Changes during that time are merged by key, or replaced by a resync. Throws `AgentError`.
 */
export async function monitor(
  client: ApiClient,
  { types, from, format }: MonitorOptions,
  { output, env, signal }: MonitorContext,
): Promise<void> {
  const terminal = new Terminal(output, env);
  try {
    for await (const event of agentEvents(client, { types, from })) {
      if (format === 'json') writeLines(output, `${jsonLine(event)}\n`);
      else showEvent(event, terminal);
      await output.drained?.(signal);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/**
 * Returns the events of a running agent, without heartbeats. The first one confirms that the stream has begun. Throws
 * `AgentError`.
 */
export function agentEvents(
  client: Pick<ApiClient, 'lines'>,
  { types, from }: Pick<MonitorOptions, 'types' | 'from'>,
): AsyncGenerator<SentEvent, void, void> {
  return events(client.lines(withQuery('/v1/monitor', { types, from })));
}

/** Yields the events of a stream (WHATWG, "Server-sent events"). Parses only the fields in use. */
async function* events(lines: AsyncIterable<string>): AsyncGenerator<SentEvent, void, void> {
  let name = '';
  let data = '';
  for await (const line of lines) {
    if (line.startsWith('event: ')) name = line.slice('event: '.length);
    else if (line.startsWith('data: ')) data = line.slice('data: '.length);
    else if (line === '' && name !== '') {
      if (name !== 'heartbeat') yield { name, data };
      name = '';
    }
  }
}

/** Returns the document of a change, or the name and fields of another event. */
function jsonLine({ name, data }: SentEvent): string {
  return name === 'change' ? data : JSON.stringify({ event: name, ...JSON.parse(data) });
}

function showEvent({ name, data }: SentEvent, terminal: Terminal): void {
  if (name === 'synced') {
    const { revision }: { revision: number } = JSON.parse(data);
    terminal.line(terminal.paint('faint', `Changes after revision ${revision}; Ctrl-C stops.`));
  } else if (name === 'resync') {
    const { revision }: { revision: number } = JSON.parse(data);
    terminal.line(
      terminal.paint(
        'changed',
        `Changes were lost: read the lists again. Continuing after revision ${revision}.`,
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
