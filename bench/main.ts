import { runBench } from './bench-process.ts';
import { parseCommandLine, usage } from './command-line.ts';

const command = parseCommandLine(process.argv.slice(2));
if (command.kind === 'help') {
  process.stdout.write(usage());
} else if (command.kind === 'wrong') {
  process.stderr.write(`bench: ${command.reason}\n\n${usage()}`);
  process.exitCode = 2;
} else {
  for (const name of command.names) {
    const { status } = await runBench(name, command.options, 'inherit');
    if (status !== 0) process.exitCode = 1;
  }
}
