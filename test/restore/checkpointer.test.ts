import { describe, expect, it } from 'vitest';
import type { Failure } from '../../src/base/failure.ts';
import { SECTION, type Section } from '../../src/restore/checkpoint-file.ts';
import { Checkpointer } from '../../src/restore/checkpointer.ts';
import { ManualClock } from '../base/support/manual-clock.ts';
import { advance, settle } from '../kvstore/support/settle.ts';
import { MemoryFolder } from './support/memory-folder.ts';

function rig(): {
  readonly checkpointer: Checkpointer;
  readonly clock: ManualClock;
  readonly folder: MemoryFolder;
  readonly told: (string | undefined)[];
  state: string;
} {
  const clock = new ManualClock();
  const folder = new MemoryFolder();
  const told: (string | undefined)[] = [];
  const world = { clock, folder, told, state: 'a' };
  const sections = (): Section[] => [{ kind: SECTION.end, payload: Buffer.from(world.state) }];
  const onChange = (failure: Failure | undefined): void => void told.push(failure?.message);
  const state = (): string => world.state;
  const checkpointer = new Checkpointer({
    folder,
    clock,
    sections,
    stateVersion: state,
    intervalMs: 1_000,
    onChange,
  });
  return Object.assign(world, { checkpointer });
}

function renames(folder: MemoryFolder): number {
  return folder.calls.filter((call) => call.startsWith('rename')).length;
}

describe('checkpoints', () => {
  it('are written after a delay, if something has changed, and at the end', async () => {
    const world = rig();
    const { checkpointer, clock, folder } = world;
    checkpointer.start();
    clock.advance(1_000);
    await checkpointer.write();
    expect(renames(folder)).toBe(0);
    world.state = 'b';
    await checkpointer.write();
    await checkpointer.write();
    expect(renames(folder)).toBe(1);
    world.state = 'c';
    await checkpointer.stop();
    expect(renames(folder)).toBe(2);
    expect(clock.pending).toBe(0);
    expect(checkpointer.status()).toMatchObject({ written: 2, failure: undefined });
  });

  it('continue after a failure, which is reported once and cleared', async () => {
    const world = rig();
    const { checkpointer, folder, told } = world;
    checkpointer.start();
    world.state = 'b';
    folder.room = 0;
    for (let i = 0; i < 3; i++) await checkpointer.write();
    expect(told).toEqual(['no space left on device']);
    expect(checkpointer.status().failure).toMatchObject({ code: 'ENOSPC' });
    folder.room = 1_000;
    await checkpointer.write();
    expect(told).toEqual(['no space left on device', undefined]);
    expect(checkpointer.status()).toMatchObject({ written: 1, failure: undefined });
    await checkpointer.stop();
  });

  it('are written again for a change during a write (regression: it was lost)', async () => {
    const world = rig();
    const { checkpointer, folder } = world;
    checkpointer.start();
    world.state = 'b';
    const create = folder.create.bind(folder);
    folder.create = (name) => {
      world.state = 'c'; // after the sections of `b` have been requested
      return create(name);
    };
    await checkpointer.write();
    folder.create = create;
    await checkpointer.write();
    expect(renames(folder)).toBe(2);
    await checkpointer.stop();
    expect(renames(folder)).toBe(2);
  });

  it('are written periodically', async () => {
    const world = rig();
    const { checkpointer, clock, folder } = world;
    checkpointer.start();
    for (const state of ['b', 'c']) {
      world.state = state;
      await advance(clock, 1_000);
    }
    expect(renames(folder)).toBe(2);
    await checkpointer.stop();
    expect(renames(folder)).toBe(2);
  });

  it('end, even during a write', async () => {
    const world = rig();
    const { checkpointer, clock, folder } = world;
    checkpointer.start();
    clock.advance(1_000);
    await checkpointer.stop();
    await settle();
    expect([clock.pending, renames(folder)]).toEqual([0, 0]);
    world.state = 'b';
    await checkpointer.stop();
    expect(renames(folder)).toBe(0);
  });

  it('have been written when any stop resolves (regression: a second stop did not wait)', async () => {
    const { checkpointer, folder } = rig();
    const stopping = checkpointer.stop();
    await checkpointer.stop();
    expect(renames(folder)).toBe(1);
    await stopping;
    expect(renames(folder)).toBe(1);
  });

  it('that never started are written once, at the end', async () => {
    const { checkpointer, folder } = rig();
    await checkpointer.stop();
    expect(renames(folder)).toBe(1);
  });

  it('continue after the state could not be read, and after a report has thrown (regression: none was written any more)', async () => {
    const folder = new MemoryFolder();
    const clock = new ManualClock();
    let state = 'a';
    const checkpointer = new Checkpointer({
      folder,
      clock,
      sections: () => [{ kind: SECTION.end, payload: Buffer.from(state) }],
      stateVersion: () => {
        if (state === 'broken') throw new Error('it is broken');
        return state;
      },
      onChange: () => {
        throw new Error('the log is full');
      },
    });
    checkpointer.start();
    state = 'broken';
    await checkpointer.write();
    expect(checkpointer.status().failure).toMatchObject({ message: 'it is broken' });
    state = 'b';
    await checkpointer.write();
    expect(checkpointer.status()).toMatchObject({ written: 1, failure: undefined });
    await checkpointer.stop();
  });
});
