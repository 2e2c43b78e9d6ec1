import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { cleanHost } from '../../../src/datapath/linux/clean-host.ts';
import * as probe from '../../../src/datapath/linux/probe.ts';
import { temporaryFolder } from '../../agent/support/temporary-folder.ts';

it.each<[string, readonly string[], string]>([
  ['one', ['CAP_NET_ADMIN'], 'CAP_NET_ADMIN'],
  ['several', ['CAP_NET_ADMIN', 'Linux 5.10'], 'CAP_NET_ADMIN; Linux 5.10'],
])('a host that lacks %s of what its routes need reports once that they remain', (_count, missing, text) => {
  const missingFor = vi.spyOn(probe, 'missingFor').mockReturnValue(missing);
  const folder = join(temporaryFolder({}), 'no-pins');
  expect(cleanHost(folder)).toEqual({ removed: [], remaining: [`routes, tunnels and rules: ${text}`] });
  expect(missingFor.mock.calls.map(([, part]) => part)).toEqual(['routes']);
});
