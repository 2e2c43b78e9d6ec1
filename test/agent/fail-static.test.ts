import { expect, it } from 'vitest';
import { until } from '../base/support/until.ts';
import { startAgent, type TestKey } from './support/agent-under-test.ts';

const CONFIG = 'cilium/cluster-config/own';
const GONE = 'cilium/state/ip/v1/default/10.0.0.1';
const KEYS: readonly TestKey[] = [
  ['own', CONFIG, { id: 9 }],
  ['own', GONE, { IP: '10.0.0.1', ID: 0x9_0200 }],
];

it.each([
  { failStatic: true, kept: ['10.0.0.1/32', '10.0.0.2/32'] },
  { failStatic: undefined, kept: ['10.0.0.1/32', '10.0.0.2/32'] },
  { failStatic: false, kept: ['10.0.0.2/32'] },
])(
  'with failStatic $failStatic, if the local kvstore is lost with its configuration, $kept remains',
  async ({ failStatic, kept }) => {
    const { agent, state } = await startAgent(KEYS, '', { failStatic });
    const backend = agent.kvstore('own') ?? expect.fail('no kvstore');
    await backend.delete(CONFIG);
    await backend.delete(GONE);
    const later = 'cilium/state/ip/v1/default/10.0.0.2';
    await until('the next write has arrived', async () => {
      await backend.update(later, Buffer.from(JSON.stringify({ IP: '10.0.0.2', ID: 0x9_0200 })));
      return '10.0.0.2/32' in state().ipcache;
    });
    // The sweep of a new list may follow it.
    await until(`it holds ${kept}`, () => Object.keys(state().ipcache).join() === kept.join());
  },
);
