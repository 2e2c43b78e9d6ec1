import type { AgentOptions } from '../../agent/options.ts';
import type { CommandIO } from '../io.ts';
import { openLog } from '../mesh-options.ts';
import { type ApiAddress, serveOptions } from '../serve-options.ts';

/** Options of an agent with recorded input, which is not read from the files of options. */
export type RecordedOptions = Omit<AgentOptions, 'kvstore' | 'load' | 'manifests'>;

/** Options for recorded Kubernetes objects. */
export const RECORDED_KUBERNETES = {
  ifInCluster: false,
  load: [],
  hostIPs: false,
  dualStack: false,
} as const;

/** Runs an agent with recorded input and serves its page, until the signal fires. */
export async function serveRecorded(
  options: RecordedOptions,
  listen: ApiAddress,
  io: CommandIO,
): Promise<void> {
  const { followMesh } = await import('../../agent/run-agent.ts');
  const serve = await serveOptions({ socket: false, listen, ui: true }, io.env);
  const log = await openLog({ logLevel: 'warn', logFormat: 'text' }, io);
  const context = { log, output: io.stderr, env: io.env, signal: io.signal };
  const agent: AgentOptions = { ...options, kvstore: 'memory', load: [], manifests: [] };
  await followMesh(agent, { serve }, context);
}
