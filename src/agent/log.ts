import { type Logger, type LoggerOptions, pino } from 'pino';
import type { LogFormat, LogLevel } from './log-options.ts';
import { printable } from './terminal.ts';

/** What the agent writes its log with. */
export type { Logger } from 'pino';

/** Where finished lines go: `process.stderr`, or a list in a test. */
export interface LineSink {
  write(text: string): unknown;
}

/** What pino writes for each record, as far as the text form shows it. */
interface LogRecord {
  readonly level: string;
  readonly msg?: string;
  readonly err?: { readonly message?: string };
}

function textLine(json: string): string {
  const { level, msg, err }: LogRecord = JSON.parse(json);
  const cause = err?.message === undefined ? '' : `: ${err.message}`;
  // One record is one line, whatever is quoted in it: a parser's message holds what it has stumbled over, raw.
  return `${level.padEnd(5)} ${printable(`${msg ?? ''}${cause}`)}\n`;
}

/** A logger that writes each record to `sink` as soon as it is made; nothing is lost when the process ends. */
export function createLog(level: LogLevel, format: LogFormat, sink: LineSink): Logger {
  const options: LoggerOptions = {
    level,
    base: null,
    formatters: { level: (label) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
  };
  return pino(options, { write: (line) => sink.write(format === 'json' ? line : textLine(line)) });
}
