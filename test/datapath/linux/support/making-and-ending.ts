import { Scratch } from './scratch.ts';

// A process that makes one item of each kind, reports it, and then ends in the requested way, like failing
// tests.
const scratch = new Scratch();
const namespace = scratch.namespace('pod');
scratch.bpffs();
scratch.cgroup();
scratch.folder();
process.stdout.write(`${namespace.name}\n`);
const [how] = process.argv.slice(2);
if (how === 'throw') throw new Error('as a test does that fails');
if (how === 'exit') process.exit(1);
if (how === 'kill') process.kill(process.pid, 'SIGKILL');
scratch[Symbol.dispose]();
