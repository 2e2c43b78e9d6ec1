import { type Logger, type LoggerOptions, pino, stdSerializers } from 'pino';
import type { LogFormat, LogLevel } from './log-options.ts';
import { printable } from './terminal.ts';

export type { Logger } from 'pino';

/** Receives finished lines: `process.stderr`, or a list in a test. */
export interface LineSink {
  write(text: string): unknown;
}

/** The fields of a pino record shown by the text form. */
interface LogRecord {
  readonly level: string;
  readonly msg?: string;
  readonly err?: { readonly message?: string };
}

function textLine(json: string): string {
  const { level, msg, err }: LogRecord = JSON.parse(json);
  const cause = err?.message === undefined ? '' : `: ${err.message}`;
  // One record is one line. It is escaped because the message of a parser may contain raw input.
  return `${level.padEnd(5)} ${printable(`${msg ?? ''}${cause}`)}\n`;
}

/**
 * Returns the fields of an error. Pino appends the messages of its causes to `message`; here, only `stack` has them.
 */
function serializeError(err: unknown): unknown {
  return err instanceof Error ? Object.assign(stdSerializers.err(err), { message: err.message }) : err;
}

/** Returns a logger that writes each record to `sink` immediately, so that no record is lost when the process ends. */
export function createLog(level: LogLevel, format: LogFormat, sink: LineSink): Logger {
  const options: LoggerOptions = {
    level,
    base: null,
    formatters: { level: (label) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: serializeError },
  };
  return pino(options, { write: (line) => sink.write(format === 'json' ? line : textLine(line)) });
}
