#!/usr/bin/env node
import { unsubscribeOnce } from '../base/subscription.ts';
import { EXIT } from './io.ts';
import { exitSoon, LogOutput, ProcessOutput } from './process-output.ts';
import { runCommand } from './program.ts';

const stop = new AbortController();
// Once each: a second signal ends the process at once, as everybody expects.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

const stderr = new ProcessOutput(process.stderr, { onClosed: () => {}, onFailed: () => {} });
const stdout = new ProcessOutput(process.stdout, {
  onClosed: () => stop.abort(),
  onFailed: (why) => {
    process.exitCode = EXIT.failed;
    stderr.write(`dpcache: standard output cannot be written: ${why}\n`);
    stop.abort();
  },
});

const status = await runCommand(process.argv.slice(2), {
  stdout,
  stderr: new LogOutput(stderr),
  // Only a command that reads it opens it: an open one would keep the process.
  get stdin() {
    return process.stdin;
  },
  env: process.env,
  signal: stop.signal,
  onHangup: (listener) => {
    process.on('SIGHUP', listener);
    return unsubscribeOnce(() => process.off('SIGHUP', listener));
  },
});
await stdout.drained(stop.signal);
process.exitCode ??= status;
exitSoon();
