import fc from 'fast-check';
import { describe, it } from 'vitest';
import { fewerRuns } from '../base/support/fewer-runs.ts';
import { keepTape } from '../tape/support/keep-tape.ts';
import { type Happening, happenings, I9_reconnectIsColdStart, I10_noOrphans } from './support/mesh-laws.ts';

/** Cluster `b` loses everything, and then `writer` claims the address that `b` had claimed by `key`. */
function contested(writer: string, lose: 'die' | 'replace', key = '10.0.0.1'): readonly Happening[] {
  const say = (cluster: string, of: string, ID: number): Happening => ({
    do: 'write',
    cluster,
    key: `cilium/state/ip/v1/default/${of}`,
    value: { IP: '10.0.0.1', Mask: of.includes('/') ? '/////w==' : null, ID, HostIP: '' },
  });
  return [
    say('b', key, 0x2_0100),
    { do: lose, cluster: 'b' },
    say(writer, '10.0.0.1', 0x1_0100),
    { do: 'pass', ms: 0 },
    { do: 'pass', ms: 0 },
  ];
}

describe('a mesh under faults, and under edits of its configuration directory', () => {
  it('I9 reconnect = cold start: after any faults, writes and edits the engines equal those of a restarted agent', async () => {
    await fc.assert(
      fc.asyncProperty(happenings, (script) => keepTape(script, I9_reconnectIsColdStart)),
      fewerRuns(120),
    );
  });

  it.each([
    ['another cluster overrules', contested('a', 'die')],
    ['the local cluster overrules', contested('own', 'replace')],
    ['an endpoint of another cluster shadows', contested('a', 'die', '10.0.0.1/32')],
  ])('a claim that %s was considered lost, in a cluster that had lost everything', async (_by, script) => {
    await I9_reconnectIsColdStart(script);
    await I10_noOrphans(script);
  });

  it('I10 no orphans: a removed cluster leaves nothing behind', async () => {
    await fc.assert(
      fc.asyncProperty(happenings, (script) => keepTape(script, I10_noOrphans)),
      fewerRuns(80),
    );
  });
});
