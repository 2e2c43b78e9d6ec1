#!/usr/bin/env node
import { runCommand } from './program.ts';

const stop = new AbortController();
// Once each: a second signal ends the process at once, as everybody expects.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());

// A reader that has seen enough (`| head`) closes the pipe; that is no failure of ours.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    stop.abort();
  });
}

process.exitCode = await runCommand(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  signal: stop.signal,
});
