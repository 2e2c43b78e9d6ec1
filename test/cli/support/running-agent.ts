import { deferred } from '../../../src/base/sleep.ts';
import { runCommand } from '../../../src/cli/program.ts';
import { nothing } from './run.ts';

/** An agent that runs in this process until its signal fires. */
export interface RunningAgent {
  /** Its output. */
  readonly shown: () => string;
  /** Its exit status. */
  readonly ended: Promise<number>;
}

/** Resolves when the agent shows every change; rejects with its output if it has ended before. */
export async function startAgent(words: readonly string[], signal: AbortSignal): Promise<RunningAgent> {
  let shown = '';
  const { promise: started, resolve: ready } = deferred();
  const stdout = {
    write: (text: string) => {
      shown += text;
      if (shown.includes('Changes follow')) ready();
    },
  };
  const output = { stdout, stderr: stdout, stdin: nothing() };
  const ended = runCommand(['agent', ...words], { ...output, env: {}, signal });
  const endedBefore = ended.then((status) => {
    throw new Error(`the agent ended with status ${status} before it showed changes:\n${shown}`);
  });
  await Promise.race([started, endedBefore]);
  return { shown: () => shown, ended };
}

/** Expects the same answer from the running agent as from an agent that is started for the question. */
export const QUESTIONS: readonly (readonly string[])[] = [
  ['ipcache', 'list'],
  ['ipcache', 'list', '--within', '10.10.0.0/24', '-o', 'json'],
  ['ipcache', 'list', '--pod', 'shop/checkout-00000'],
  ['ipcache', 'list', '--of-cluster', 'baltic', '-o', 'json'],
  ['ipcache', 'get', '172.20.7.7', '-o', 'json'],
  ['ipcache', 'get', '10.10.0.0/16'],
  ['ipcache', 'get', '9.9.9.9'],
  ['ipcache', 'explain', '10.10.0.12'],
  ['ipcache', 'explain', '10.10.0.12/32', '-o', 'json'],
  ['service', 'list', '-o', 'json'],
  ['service', 'get', 'shop/checkout'],
  ['service', 'explain', 'shop/checkout', '-o', 'json'],
  ['service', 'get', 'shop/nothing'],
  ['node', 'list'],
  ['node', 'list', '--of-cluster', 'baltic', '-o', 'json'],
  ['node', 'get', 'baltic/baltic-node-1', '-o', 'json'],
  ['identity', 'list'],
  ['identity', 'list', '--label', 'k8s:app=checkout', '-o', 'json'],
  ['identity', 'get', '66536'],
  ['identity', 'get', '5'],
];
