import { describe, expect, it } from 'vitest';
import { baseChains } from '../../../../src/datapath/linux/nftables/nft-layout.ts';
import { HOOK } from '../../../../src/datapath/linux/nftables/nft-message.ts';

describe.each([4, 6] as const)('the chains of family %i', (family) => {
  it('translate destinations before and sources after routing, and refuse in between, at the priorities of netfilter', () => {
    const bases = baseChains(family).map(({ name, base }) => [name, base]);
    expect(Object.fromEntries(bases)).toEqual({
      sources: { type: 'filter', priority: -300, hook: HOOK.prerouting }, // NF_IP_PRI_RAW
      prerouting: { type: 'nat', priority: -100, hook: HOOK.prerouting }, // NF_IP_PRI_NAT_DST
      output: { type: 'nat', priority: -100, hook: HOOK.output },
      postrouting: { type: 'nat', priority: 100, hook: HOOK.postrouting }, // NF_IP_PRI_NAT_SRC
      'refuse-input': { type: 'filter', priority: 0, hook: HOOK.input }, // NF_IP_PRI_FILTER
      'refuse-forward': { type: 'filter', priority: 0, hook: HOOK.forward },
      'refuse-output': { type: 'filter', priority: 0, hook: HOOK.output },
      [String(bases.at(-1)?.[0])]: undefined, // marks the layout
    });
  });
});
