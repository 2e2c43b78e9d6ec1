import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { Agent } from '../../../src/agent/agent.ts';
import type { AgentOptions } from '../../../src/agent/options.ts';
import type { Clock } from '../../../src/base/clock.ts';
import { systemClock } from '../../../src/base/system-clock.ts';
import { type StateDocument, stateDocument } from '../../../src/client/state-document.ts';
import { createLog } from '../../../src/process/log.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** A key of a recording; a value that is neither text nor bytes is written as JSON. */
export type TestKey = readonly [store: string, key: string, value: unknown];

/** An agent of cluster `own` in a mesh of these keys and manifests, synced; stopped when the test ends. */
export interface AgentUnderTest {
  readonly agent: Agent;
  /** Incomplete inputs after the first sync. */
  readonly missing: readonly string[];
  /** Lines of the log. */
  readonly logged: readonly string[];
  readonly state: () => StateDocument;
}

/** Options of an agent without inputs. */
export const NO_INPUTS: AgentOptions = {
  kvstore: 'memory',
  clusterName: 'own',
  clusterID: undefined,
  maxConnectedClusters: 255,
  nodeName: 'here',
  network: {
    remoteNodeIdentities: true,
    encryption: false,
    nodeEncryption: false,
    hostFirewall: false,
    underlay: 'ipv4',
  },
  load: [],
  manifests: [],
};

/** Creates one and waits for its first sync. */
export async function startAgent(
  keys: readonly TestKey[],
  manifests = '',
  options: Partial<AgentOptions> = {},
  clock: Clock = systemClock,
): Promise<AgentUnderTest> {
  const recorded = (value: unknown): object =>
    value instanceof Uint8Array
      ? { value64: Buffer.from(value).toString('base64') }
      : { value: typeof value === 'string' ? value : JSON.stringify(value) };
  const lines = keys.map(([store, key, value]) => JSON.stringify({ store, key, ...recorded(value) }));
  const folder = temporaryFolder({ 'mesh.jsonl': lines.join('\n'), 'all.yaml': manifests });
  const inputs = { load: [join(folder, 'mesh.jsonl')], manifests: [join(folder, 'all.yaml')] };
  const logged: string[] = [];
  const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const agent = new Agent({ ...NO_INPUTS, ...inputs, ...options }, { log, clock, random: () => 0.5 });
  onTestFinished(() => agent.stop());
  const missing = await agent.start(new AbortController().signal);
  return { agent, missing, logged, state: () => stateDocument(agent.contents()) };
}
