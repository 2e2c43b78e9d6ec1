import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deferred } from '../../../src/base/sleep.ts';
import { DeleteHold, type DependentTable } from '../../../src/datapath/linux/delete-hold.ts';
import { KeptTable, type KeptTableContext } from '../../../src/datapath/linux/kept-table.ts';
import type { TableChange } from '../../../src/datapath/linux/kernel-table.ts';
import type { SyscallError } from '../../../src/datapath/linux/syscall/syscall-error.ts';
import { ManualClock } from '../../base/support/manual-clock.ts';
import { advance } from '../../kvstore/support/settle.ts';
import { FakeTable, ManualTurns } from './support/fake-table.ts';

/**
 * A kernel in which a service leads to the node that it names. Shows what happens to a client if the path is
 * removed first.
 */
class Kernel {
  readonly turns = new ManualTurns();
  readonly services = new FakeTable();
  readonly paths = new FakeTable();
  readonly wanted = { services: new Map<string, string>(), paths: new Map<string, string>() };
  readonly hold = new DeleteHold(this.turns.clock, { [Symbol.iterator]: () => [this.keptServices].values() });
  readonly keptServices = this.#kept(this.services, this.wanted.services);
  readonly keptPaths = this.#kept(this.paths, this.wanted.paths, () => this.hold.deletesAllowed());
  /** Paths that were deleted while a service led to them. */
  readonly missed: string[] = [];

  constructor() {
    const apply = this.paths.apply.bind(this.paths);
    this.paths.apply = (changes): readonly (SyscallError | undefined)[] => {
      this.#look(changes);
      return apply(changes);
    };
  }

  async start(): Promise<void> {
    await this.turns.until(this.keptPaths.adopt());
    await this.turns.until(this.keptServices.adopt());
  }

  node(name: string, isThere: boolean): void {
    if (isThere) this.wanted.paths.set(name, 'path');
    else this.wanted.paths.delete(name);
    this.keptPaths.mark(name);
  }

  service(name: string, node: string | undefined): void {
    if (node !== undefined) this.wanted.services.set(name, node);
    else this.wanted.services.delete(name);
    this.keptServices.mark(name);
  }

  async later(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 100) {
      this.turns.clock.advance(Math.min(100, left));
      // Keys released by the clock request a turn.
      await this.turns.turn();
      await this.turns.settle();
    }
  }

  #kept(
    table: FakeTable,
    wanted: Map<string, string>,
    whenDeletesAllowed?: KeptTableContext['whenDeletesAllowed'],
  ) {
    const { clock, random, nextTurn } = this.turns;
    return new KeptTable(Object.assign(table, { chunk: 1 }), wanted, {
      clock,
      random,
      nextTurn,
      whenDeletesAllowed,
    });
  }

  #look(changes: readonly TableChange<string>[]): void {
    const led = new Set(this.services.there.values());
    for (const { key, item } of changes) if (item === undefined && led.has(key)) this.missed.push(key);
  }
}

async function expectPathGoneAfterTenSeconds(kernel: Kernel): Promise<void> {
  await kernel.later(9_900);
  expect([...kernel.paths.there.keys()]).toEqual(['a']);
  await kernel.later(600);
  expect([...kernel.paths.there.keys()]).toEqual([]);
}

describe('deletes of paths', () => {
  it('wait until no service uses them, and half a second longer', async () => {
    const kernel = new Kernel();
    await kernel.start();
    kernel.node('a', true);
    for (const name of ['s', 't']) kernel.service(name, 'a');
    await kernel.turns.settle();
    kernel.node('a', false);
    for (const name of ['s', 't']) kernel.service(name, undefined);
    await kernel.turns.settle();
    expect([...kernel.services.there.keys(), ...kernel.paths.there.keys()]).toEqual(['a']);
    expect(kernel.keptPaths.status()).toMatchObject({ pending: 1, waiting: 1 });
    await kernel.later(400);
    expect(kernel.paths.there.size).toBe(1);
    await kernel.later(100);
    expect(kernel.paths.there.size).toBe(0);
    expect(kernel.keptPaths.status()).toMatchObject({ pending: 0, waiting: 0, deletes: 1 });
    expect(kernel.missed).toEqual([]);
    expect(kernel.turns.clock.pending).toBe(0);
  });

  it('are never applied before the services that use them, in any sequence of nodes', async () => {
    const name = fc.constantFrom('a', 'b', 'c', 'd');
    const step = fc.oneof(
      fc.record({ do: fc.constant('add' as const), name }),
      fc.record({ do: fc.constant('remove' as const), name, first: fc.boolean() }),
      fc.record({ do: fc.constant('turn' as const), name }),
      fc.record({ do: fc.constant('later' as const), name, ms: fc.nat(700) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const kernel = new Kernel();
        await kernel.start();
        for (const one of steps) {
          const services = (node: string | undefined): void => {
            for (const each of ['1', '2', '3']) kernel.service(`${one.name}${each}`, node);
          };
          if (one.do === 'add') {
            kernel.node(one.name, true);
            services(one.name);
          } else if (one.do === 'remove') {
            if (one.first) kernel.node(one.name, false);
            services(undefined);
            if (!one.first) kernel.node(one.name, false);
          } else if (one.do === 'turn') await kernel.turns.turn();
          else kernel.turns.clock.advance(one.ms);
        }
        await kernel.later(2_000);
        expect(kernel.missed).toEqual([]);
        expect([...kernel.paths.there.keys()].sort()).toEqual([...kernel.wanted.paths.keys()].sort());
        expect(kernel.keptPaths.status()).toMatchObject({ pending: 0, waiting: 0 });
      }),
      { numRuns: 100 },
    );
  });

  it('are applied after ten seconds if services cannot be written', async () => {
    const kernel = new Kernel();
    await kernel.start();
    kernel.node('a', true);
    kernel.service('s', 'a');
    await kernel.turns.settle();
    kernel.services.broken.add('s');
    kernel.node('a', false);
    kernel.service('s', undefined);
    await expectPathGoneAfterTenSeconds(kernel);
  });

  it('are applied after ten seconds if services cannot be read', async () => {
    const kernel = new Kernel();
    await kernel.turns.until(kernel.keptPaths.adopt());
    kernel.node('a', true);
    await kernel.turns.settle();
    kernel.node('a', false);
    await kernel.turns.settle();
    await expectPathGoneAfterTenSeconds(kernel);
  });

  it('do not undo changes of others while they wait', async () => {
    const kernel = new Kernel();
    await kernel.start();
    kernel.node('a', true);
    await kernel.turns.settle();
    kernel.node('a', false);
    await kernel.turns.settle();
    const repaired = kernel.keptPaths.repair();
    await kernel.turns.settle();
    await kernel.later(1_000);
    expect(await repaired).toEqual([]);
    expect(kernel.paths.calls.at(-1)).toEqual(['- a']);
  });

  it('are dropped on dispose, and no timer remains', async () => {
    const kernel = new Kernel();
    await kernel.start();
    kernel.node('a', true);
    await kernel.turns.settle();
    kernel.node('a', false);
    await kernel.turns.settle();
    expect(kernel.turns.clock.pending).toBe(1);
    kernel.keptPaths[Symbol.dispose]();
    kernel.hold[Symbol.dispose]();
    await kernel.turns.settle();
    expect([...kernel.paths.there.keys()]).toEqual(['a']);
    expect(kernel.turns.clock.pending).toBe(0);
  });

  /**
   * A table in front whose writes end when the test releases them. `missing`: the values of consecutive
   * reads.
   */
  function table(...missing: number[]): { readonly flush: () => void; readonly before: DependentTable } {
    const { promise: flushed, resolve: flush } = deferred();
    return {
      flush: () => flush(),
      before: { flushed: () => flushed, missing: () => missing.shift() ?? 0 },
    };
  }

  it('wait for the writes in progress of a complete table', async () => {
    const clock = new ManualClock();
    const { flush, before } = table();
    let hasPassed = false;
    const passed = new DeleteHold(clock, [before]).deletesAllowed().then(() => {
      hasPassed = true;
    });
    await advance(clock, 5_000);
    expect(hasPassed).toBe(false);
    flush();
    await advance(clock, 499);
    expect(hasPassed).toBe(false);
    await advance(clock, 1);
    expect(hasPassed).toBe(true);
    await passed;
  });

  it('wait while one of several tables misses items', async () => {
    const clock = new ManualClock();
    const begun = clock.now();
    const tables: readonly DependentTable[] = [0, 1].map((missing) => ({
      flushed: () => Promise.resolve(),
      missing: () => (clock.now() - begun < 2_000 ? missing : 0),
    }));
    let passedAt = 0;
    const passed = new DeleteHold(clock, tables).deletesAllowed().then(() => {
      passedAt = clock.now();
    });
    await advance(clock, 5_000);
    await passed;
    expect(passedAt - begun).toBe(2_000);
  });

  it('wait at most ten seconds in total, however often the earlier tables are checked', async () => {
    const clock = new ManualClock();
    let looks = 0;
    // Its first writes end after 6 s and skip something; the next never end.
    const before: DependentTable = {
      flushed: () => new Promise((resolve) => void (++looks === 1 && clock.after(6_000, resolve))),
      missing: () => 1,
    };
    let passedAt = 0;
    const passed = new DeleteHold(clock, [before]).deletesAllowed().then(() => {
      passedAt = clock.now();
    });
    const begun = clock.now();
    await advance(clock, 30_000);
    await passed;
    expect(passedAt - begun).toBe(10_500);
  });

  it('pass on dispose, and leave no timer', async () => {
    const clock = new ManualClock();
    const hold = new DeleteHold(clock, [{ flushed: () => new Promise<void>(() => {}), missing: () => 1 }]);
    const passed = hold.deletesAllowed();
    await advance(clock, 100);
    hold[Symbol.dispose]();
    await passed;
    expect(clock.pending).toBe(0);
    await hold.deletesAllowed();
  });
});
