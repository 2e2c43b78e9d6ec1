#!/usr/bin/env node
import { unsubscribeOnce } from '../base/subscription.ts';
import { PROCESS_STOP_MS } from '../process/start-step.ts';
import { EXIT, OUTPUT_CLOSED } from './io.ts';
import { exitSoon, LogOutput, ProcessOutput } from './process-output.ts';
import { runCommand } from './program.ts';

// When grpc-js is loaded, it reads its log level. By default, it writes header values of a server to stderr, unescaped
// and without a limit.
process.env['GRPC_NODE_VERBOSITY'] ??= process.env['GRPC_VERBOSITY'] ?? 'NONE';

/** Commands that run until a signal, except with `--once`. Their subcommand `status` does not. */
const DAEMONS = new Set(['agent', 'operator', 'kvstoremesh']);
const [, , name = '', ...words] = process.argv;
const isDaemon = DAEMONS.has(name) && !words.includes('--once') && !words.includes('status');

// A supervisor may send SIGHUP while the process still loads its modules. The signal is kept until the first listener.
let isHangupKept = false;
const keepHangup = (): void => {
  isHangupKept = true;
};
if (isDaemon) process.on('SIGHUP', keepHangup);

/** A signal repeated within this time counts as one, because timeout(1) signals the process and then its group. */
const SAME_SIGNAL_MS = 100;

const stop = new AbortController();
/** True if the command has read `signal`, so that it can stop its steps. */
let isStoppable = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  const onSignal = (): void => {
    // A later signal ends the process immediately, by default.
    setTimeout(() => process.removeListener(signal, onSignal), SAME_SIGNAL_MS).unref();
    stop.abort();
    // The command may never settle, for example because a disk does not answer.
    if (isStoppable) setTimeout(() => exitSoon(EXIT.failed), PROCESS_STOP_MS).unref();
    // A daemon that is still loading has nothing to stop.
    else exitSoon(isDaemon ? EXIT.ok : EXIT.failed);
  };
  process.on(signal, onSignal);
}

const stderr = new ProcessOutput(process.stderr, { onClosed: () => {}, onFailed: () => {} });
const stdout = new ProcessOutput(process.stdout, {
  onClosed: () => stop.abort(OUTPUT_CLOSED),
  onFailed: (reason) => {
    process.exitCode = EXIT.failed;
    stderr.write(`dpcache: cannot write to standard output: ${reason}\n`);
    stop.abort(OUTPUT_CLOSED);
  },
});

const status = await runCommand(process.argv.slice(2), {
  stdout,
  stderr: new LogOutput(stderr),
  // A getter, because an open stdin keeps the process alive and most commands do not read it.
  get stdin() {
    return process.stdin;
  },
  env: process.env,
  get signal() {
    isStoppable = true;
    return stop.signal;
  },
  onHangup: (listener) => {
    process.on('SIGHUP', listener);
    process.off('SIGHUP', keepHangup);
    if (isHangupKept) listener();
    return unsubscribeOnce(() => process.off('SIGHUP', listener));
  },
});
await stdout.drained(stop.signal);
process.exitCode ??= status; // keeps the status of a failed output
exitSoon();
