import { readdirSync } from 'node:fs';
import { expect, it, vi } from 'vitest';
import { FolderLock } from '../../src/agent/folder-lock.ts';
import { TapeKeeper } from '../../src/agent/tape-keeper.ts';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { IPCache } from '../../src/ipcache/ipcache.ts';
import { parseLabels } from '../../src/model/labels.ts';
import { createLog } from '../../src/process/log.ts';
import { version } from '../../src/process/version.ts';
import * as tape from '../../src/tape/tape.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { spyOnConstructor } from '../base/support/spy-on-constructor.ts';
import { NO_INPUTS } from './support/agent-under-test.ts';
import { temporaryFolder } from './support/temporary-folder.ts';

it('a tape has the parts of the agent, reports its failures, and its status names its folder', () => {
  const made = spyOnConstructor(tape, 'Tape');
  const clock = new ManualClock();
  const gate = new TurnGate({ clock, nextTurn: setImmediate });
  const ipcache = new IPCache();
  const logged: string[] = [];
  const log = createLog('info', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const labels = parseLabels('k8s:app=cart;');
  const keeper = new TapeKeeper(
    NO_INPUTS,
    { path: '/tape', maxBytes: 9 },
    {
      clock,
      gate,
      engines: { ipcache },
      log,
      labelsOf: (identity) => (identity === 300 ? labels : undefined),
    },
  );
  const given = made.mock.calls[0]?.[0] as tape.TapeOptions | undefined;
  expect([given?.clock === clock, given?.gate === gate, given?.ipcache === ipcache]).toEqual([
    true,
    true,
    true,
  ]);
  expect([given?.version, given?.maxBytes, given?.labelsOf?.(300), given?.labelsOf?.(301)]).toEqual([
    ...[version(), 9, 'k8s:app=cart;', ''],
  ]);
  given?.onFailure({ code: 'ENOSPC', message: 'no space', at: 0 });
  given?.onFailure(undefined);
  expect(logged).toEqual([
    'warn  --tape /tape: no space; the tape is incomplete until this works again',
    'warn  --tape /tape: recording again',
  ]);
  const status = vi
    .spyOn(keeper.tape, 'status')
    .mockReturnValue({ bytes: 1, lines: 2, lost: 3, failure: undefined });
  const document = { folder: '/tape', bytes: 1, maxBytes: 9, lines: 2, lost: 3 };
  expect(keeper.status()).toStrictEqual(document);
  status.mockReturnValue({
    bytes: 1,
    lines: 2,
    lost: 3,
    failure: { code: 'ENOSPC', message: 'no space', at: 0 },
  });
  expect(keeper.status()).toEqual({ ...document, failure: 'no space' });
});

it('the last step of the stop closes the tape', async () => {
  const clock = new ManualClock();
  const gate = new TurnGate({ clock, nextTurn: setImmediate });
  const log = createLog('info', 'text', { write: () => true });
  const context = { clock, gate, engines: { ipcache: new IPCache() }, log, labelsOf: () => undefined };
  const keeper = new TapeKeeper(NO_INPUTS, { path: '/tape', maxBytes: 9 }, context);
  const step = keeper.step();
  const stop = vi.spyOn(keeper.tape, 'stop').mockResolvedValue();
  await step.stop?.();
  expect([step.name, stop.mock.calls.length]).toEqual(['tape', 1]);
});

it('a folder to which an agent writes a tape rejects a second agent (regression: a tape of two agents)', async () => {
  const path = temporaryFolder({});
  const clock = new ManualClock();
  const gate = new TurnGate({ clock, nextTurn: setImmediate });
  const log = createLog('error', 'text', { write: () => true });
  const context = { clock, gate, engines: { ipcache: new IPCache() }, log, labelsOf: () => undefined };
  const [first, second] = [1, 2].map(() =>
    new TapeKeeper(NO_INPUTS, { path, maxBytes: 1 << 20 }, context).step(),
  );
  const signals = { signal: new AbortController().signal, progress: () => {} };
  await first?.start(signals);
  const used = `--tape ${path}: in use by the process with pid ${process.pid}: stop it, or set another folder`;
  await expect(second?.start(signals)).rejects.toThrow(used);
  await second?.stop?.();
  await expect.poll(() => readdirSync(path)).toEqual(['tape-000001.jsonl.gz', 'tape.lock']);
  await first?.stop?.();
  await second?.start(signals);
  await second?.stop?.();
  expect(readdirSync(path)).toEqual(['tape-000001.jsonl.gz', 'tape-000002.jsonl.gz']);
});

it('a tape may be in the folder of the state (regression: one lock for both, so the agent did not start)', async () => {
  const path = temporaryFolder({});
  const log = createLog('error', 'text', { write: () => true });
  const locks = (['--state-dir', '--tape'] as const).map((option) => new FolderLock(option, path, log));
  for (const lock of locks) await lock.acquire();
  for (const lock of locks) await lock.release();
  expect(readdirSync(path)).toEqual([]);
});
