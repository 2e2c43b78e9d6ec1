import { expect, it } from 'vitest';
import { Attributes } from '../../../../src/datapath/linux/netlink/message-reader.ts';
import { MessageWriter } from '../../../../src/datapath/linux/netlink/message-writer.ts';
import { matchesExpression } from '../../../../src/datapath/linux/nftables/nft-message.ts';

it('a lookup in another set differs from the desired one, so that the rule is repaired', () => {
  const attributes = new Attributes(new MessageWriter().attributeText(1, 'services').written());
  const found = { name: 'lookup', attributes };
  expect(matchesExpression(found, { name: 'lookup', set: 'services' })).toBe(true);
  expect(matchesExpression(found, { name: 'lookup', set: 'affinity' })).toBe(false);
  expect(matchesExpression(found, { name: 'immediate', set: 'services' })).toBe(false);
});
