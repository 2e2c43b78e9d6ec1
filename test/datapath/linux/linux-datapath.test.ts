import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { unsubscribeOnce } from '../../../src/base/subscription.ts';
import type { DatapathEngines } from '../../../src/datapath/datapath.ts';
import { keptItems } from '../../../src/datapath/linux/kept-items.ts';
import { KeptTable } from '../../../src/datapath/linux/kept-table.ts';
import { NOTHING_KNOWN } from '../../../src/datapath/linux/known-inputs.ts';
import {
  LinuxDatapath,
  type LinuxPart,
  type LinuxPartName,
  type WantedPart,
} from '../../../src/datapath/linux/linux-datapath.ts';
import { PartLockedError } from '../../../src/datapath/linux/part-locks.ts';
import type { ProbeAnswer } from '../../../src/datapath/linux/probe.ts';
import { FakeTable, ManualTurns } from './support/fake-table.ts';

/** Engines that announce texts under keys when a test calls `say`, and their subscribers, in order. */
class FakeEngines {
  readonly said: Map<string, string> = new Map();
  readonly subscribed: LinuxPartName[] = [];
  readonly #listeners: ((key: string) => void)[] = [];

  say(key: string, text: string | undefined): void {
    if (text === undefined) this.said.delete(key);
    else this.said.set(key, text);
    for (const listener of this.#listeners) listener(key);
  }

  follow(name: LinuxPartName, listener: (key: string) => void): void {
    this.subscribed.push(name);
    this.#listeners.push(listener);
    for (const key of this.said.keys()) listener(key);
  }
}

/** A datapath whose parts each keep a table equal to everything announced. */
class Rig {
  readonly turns: ManualTurns = new ManualTurns();
  readonly engines: FakeEngines = new FakeEngines();
  readonly tables: Record<LinuxPartName, FakeTable> = {
    nodes: new FakeTable(),
    ipcache: new FakeTable(),
    services: new FakeTable(),
  };

  /** Services whose inputs are complete. */
  readonly complete: Set<string> = new Set();
  readonly #marks: Map<LinuxPartName, (key: string) => void> = new Map();

  part(name: LinuxPartName): LinuxPart {
    const table = Object.assign(this.tables[name], { name });
    const desired = new Map<string, string>();
    const { clock, random, nextTurn } = this.turns;
    const isComplete = name === 'services' ? (key: string) => this.complete.has(key) : undefined;
    const kept = new KeptTable(table, desired, { clock, random, nextTurn, isComplete });
    this.#marks.set(name, (key) => {
      const text = this.engines.said.get(key);
      if (text === undefined) desired.delete(key);
      else desired.set(key, text);
      kept.mark(key);
    });
    return {
      tables: [keptItems({ name, print: (item: string) => item }, kept)],
      datapath: { [name]: { onChanges: () => {}, onEvents: () => {} } },
      [Symbol.dispose]: () => {},
    };
  }

  open(
    others: Partial<Record<LinuxPartName, () => LinuxPart>> = {},
    probe: ProbeAnswer = ABLE,
    extended: (part: LinuxPart, name: LinuxPartName) => LinuxPart = (part) => part,
  ): LinuxDatapath {
    const wanted: WantedPart[] = (['nodes', 'ipcache', 'services'] as const).map((name) => ({
      name,
      needs: name === 'nodes' ? ['routes'] : ['maps'],
      open: others[name] ?? (() => extended(this.part(name), name)),
    }));
    const datapath = new LinuxDatapath(probe, wanted);
    onTestFinished(() => datapath[Symbol.dispose]());
    return datapath;
  }

  /** The used ports of engines: a subscriber receives each announced key. */
  get ports(): DatapathEngines {
    const follow = (name: LinuxPartName) => {
      this.engines.follow(name, (key) => this.#marks.get(name)?.(key));
      return unsubscribeOnce(() => {});
    };
    const isPart = (listener: object): boolean => 'onEnded' in listener;
    return {
      nodes: { subscribe: () => follow('nodes'), sweep: async () => 'swept' },
      ipcache: { subscribe: () => follow('ipcache') },
      services: {
        subscribe: (listener) => (isPart(listener) ? follow('services') : unsubscribeOnce(() => {})),
      },
    };
  }
}

const ABLE: ProbeAnswer = { kernel: '6.18', pinFolder: '/pins', cgroup: '/cgroup', pieces: [] };

describe('a Linux datapath', () => {
  it('runs the parts that are available, and reports the missing requirements of the others', async () => {
    const rig = new Rig();
    const failing = (): never => {
      throw new Error('another map is pinned there');
    };
    const probe: ProbeAnswer = {
      ...ABLE,
      pieces: [{ piece: 'routes', missing: ['CAP_NET_ADMIN is missing'] }],
    };
    const datapath = rig.open({ services: failing }, probe);
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    rig.engines.say('10.0.0.1', 'a');
    await rig.turns.settle();
    expect(datapath.status().parts).toEqual([
      { name: 'nodes', state: 'unavailable', missing: ['CAP_NET_ADMIN is missing'] },
      { name: 'ipcache', state: 'running', missing: [] },
      { name: 'services', state: 'unavailable', missing: ['another map is pinned there'] },
    ]);
    expect([...rig.tables.ipcache.there]).toEqual([['10.0.0.1', 'a']]);
  });

  it('keeps found items until the caches are complete: a naive reconciler would have deleted them', async () => {
    const rig = new Rig();
    const found = ['of-this-cluster', 'of-one-that-is-not-reached-yet', 'gone-meanwhile'];
    for (const key of found) rig.tables.ipcache.there.set(key, 'old');
    rig.engines.say('of-this-cluster', 'new');
    const naive = found.filter((key) => !rig.engines.said.has(key));
    expect(naive).toEqual(['of-one-that-is-not-reached-yet', 'gone-meanwhile']);

    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    await rig.turns.settle();
    expect(Object.fromEntries(rig.tables.ipcache.there)).toEqual({
      'of-this-cluster': 'new',
      'of-one-that-is-not-reached-yet': 'old',
      'gone-meanwhile': 'old',
    });

    rig.engines.say('of-one-that-is-not-reached-yet', 'old');
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(Object.fromEntries(rig.tables.ipcache.there)).toEqual({
      'of-this-cluster': 'new',
      'of-one-that-is-not-reached-yet': 'old',
    });
    expect(rig.tables.ipcache.calls.flat()).toEqual(['+ of-this-cluster new', '- gone-meanwhile']);
  });

  it('does not change a found service before all of its backends are known', async () => {
    const rig = new Rig();
    rig.tables.services.there.set('shop/checkout', 'backends of two clusters');
    rig.engines.say('shop/checkout', 'backends of this cluster');
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    await rig.turns.settle();
    expect(rig.tables.services.there.get('shop/checkout')).toBe('backends of two clusters');
    rig.engines.say('shop/checkout', 'backends of both clusters');
    await rig.turns.settle();
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(rig.tables.services.calls.flat()).toEqual(['+ shop/checkout backends of both clusters']);
  });

  it('releases each service once its own inputs are complete (regression: one unreachable cluster froze all)', async () => {
    const rig = new Rig();
    for (const key of ['local', 'global', 'gone', 'unknown']) rig.tables.services.there.set(key, 'old');
    for (const key of ['local', 'global', 'added']) rig.engines.say(key, 'new');
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    await rig.turns.settle();
    const { services } = rig.tables;
    expect(services.calls.flat()).toEqual(['+ added new']);
    rig.complete.add('local').add('gone');
    datapath.setInputs({ ...NOTHING_KNOWN, isLocalComplete: true });
    await rig.turns.settle();
    expect(services.calls.flat()).toEqual(['+ added new', '+ local new', '- gone']);
    // Neither a change nor a repair touches an unconfirmed key.
    rig.engines.say('global', 'newer');
    rig.engines.say('local', 'newer');
    expect(await rig.turns.until(datapath.repair())).toEqual([]);
    expect(Object.fromEntries(services.there)).toEqual({
      added: 'new',
      local: 'newer',
      global: 'old',
      unknown: 'old',
    });
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(Object.fromEntries(services.there)).toEqual({ added: 'new', local: 'newer', global: 'newer' });
  });

  it('follows nodes first, then prefixes and services', async () => {
    const rig = new Rig();
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    expect(rig.engines.subscribed).toEqual(['nodes', 'ipcache', 'services']);
  });

  it('reports differences and repairs them, including changes of others', async () => {
    const rig = new Rig();
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    datapath.allowDeletes();
    rig.engines.say('a', '1');
    rig.engines.say('b', '2');
    await rig.turns.settle();
    rig.tables.ipcache.there.delete('a');
    rig.tables.ipcache.there.set('b', 'x').set('c', '3');
    expect(Object.fromEntries(rig.tables.services.there)).toEqual({ a: '1', b: '2' });
    const steps = [
      { table: 'ipcache', key: 'a', kernel: undefined, cache: '1' },
      { table: 'ipcache', key: 'b', kernel: 'x', cache: '2' },
      { table: 'ipcache', key: 'c', kernel: '3', cache: undefined },
    ];
    expect(await rig.turns.until(datapath.plan())).toEqual(steps);
    expect(await rig.turns.until(datapath.repair())).toEqual(steps);
    expect(Object.fromEntries(rig.tables.ipcache.there)).toEqual({ a: '1', b: '2' });
    expect(await rig.turns.until(datapath.plan())).toEqual([]);
    expect(datapath.status().tables.map(({ name, repairs }) => [name, repairs])).toEqual([
      ['nodes', 0],
      ['ipcache', 3],
      ['services', 0],
    ]);
  });

  it('names a table that cannot be read, continues with the others, and retries at the next repair', async () => {
    const rig = new Rig();
    const { ipcache } = rig.tables;
    ipcache.there.set('found', 'old');
    const dump = ipcache.dump.bind(ipcache);
    ipcache.dump = () => {
      throw new Error('bpf(MAP_LOOKUP_BATCH): EPERM');
    };
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    datapath.allowDeletes();
    rig.engines.say('a', '1');
    await rig.turns.settle();
    expect(datapath.status().failures).toEqual(['ipcache: bpf(MAP_LOOKUP_BATCH): EPERM']);
    expect([ipcache.calls, rig.tables.nodes.there.get('a')]).toEqual([[], '1']);
    ipcache.dump = dump;
    await rig.turns.until(datapath.repair());
    await rig.turns.settle();
    expect(datapath.status().failures).toEqual([]);
    expect(Object.fromEntries(ipcache.there)).toEqual({ a: '1' });
  });

  it('does not change services that it could not read at the start before all of their backends are known', async () => {
    const rig = new Rig();
    const { services } = rig.tables;
    services.there.set('service', 'backends 1 2');
    const dump = services.dump.bind(services);
    services.dump = () => {
      throw new Error('no memory');
    };
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    rig.engines.say('service', 'backends 1');
    services.dump = dump;
    await rig.turns.until(datapath.repair());
    await rig.turns.settle();
    expect(Object.fromEntries(services.there)).toEqual({ service: 'backends 1 2' });
    rig.engines.say('service', 'backends 1 2 3');
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(Object.fromEntries(services.there)).toEqual({ service: 'backends 1 2 3' });
  });

  describe('a datapath with a part that another process manages', () => {
    const refusing = (rig: Rig, name: LinuxPartName) => {
      const other = { isRunning: true };
      const datapath = rig.open({}, ABLE, (part, opened) => {
        if (opened === name && other.isRunning) throw new PartLockedError('another agent manages it');
        return part;
      });
      return { other, datapath };
    };
    const stateOf = (datapath: LinuxDatapath, name: LinuxPartName): string | undefined =>
      datapath.status().parts.find((part) => part.name === name)?.state;

    it('takes the part over by a repair once that process has ended, with its items (regression: only after a restart)', async () => {
      const rig = new Rig();
      const { other, datapath } = refusing(rig, 'ipcache');
      await rig.turns.until(datapath.adopt());
      datapath.connect(rig.ports);
      datapath.allowDeletes();
      for (const key of ['same', 'gone']) rig.tables.ipcache.there.set(key, 'old');
      rig.engines.say('same', 'old');
      rig.engines.say('added', 'new');
      await rig.turns.until(datapath.repair());
      expect([stateOf(datapath, 'ipcache'), rig.tables.ipcache.calls]).toEqual(['unavailable', []]);
      other.isRunning = false;
      await rig.turns.until(datapath.repair());
      expect([stateOf(datapath, 'ipcache'), rig.tables.ipcache.calls.flat()]).toEqual([
        'running',
        ['+ added new', '- gone'],
      ]);
    });

    it('keeps the items that it finds until the caches are complete', async () => {
      const rig = new Rig();
      const { other, datapath } = refusing(rig, 'services');
      await rig.turns.until(datapath.adopt());
      datapath.connect(rig.ports);
      rig.tables.services.there.set('shop/web', 'backends of two clusters');
      other.isRunning = false;
      await rig.turns.until(datapath.repair());
      expect(rig.tables.services.calls).toEqual([]);
      datapath.allowDeletes();
      await rig.turns.settle();
      expect(rig.tables.services.calls.flat()).toEqual(['- shop/web']);
    });
  });

  it('reports 130,000 differences of a table (regression: passed all of them as arguments of one call, and threw)', async () => {
    const rig = new Rig();
    const step = { table: 'ipcache', key: 'a', kernel: undefined, cache: '1' };
    const steps = Array.from({ length: 130_000 }, () => step);
    const datapath = rig.open({}, ABLE, (part, name) =>
      name !== 'ipcache'
        ? part
        : {
            ...part,
            tables: part.tables.map((table) => ({
              ...table,
              plan: async () => steps,
              repair: async () => steps,
            })),
          },
    );
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    await rig.turns.settle();
    expect((await rig.turns.until(datapath.plan())).length).toBe(130_000);
    expect((await rig.turns.until(datapath.repair())).length).toBe(130_000);
  });

  it('gives a part that it opens late the inputs of services that are known by then', async () => {
    const rig = new Rig();
    const inputs = { ...NOTHING_KNOWN, isLocalComplete: true };
    const given: unknown[] = [];
    let isOwned = true;
    const datapath = rig.open({
      services: () => {
        if (isOwned) throw new PartLockedError('another process owns it');
        return { ...rig.part('services'), setInputs: (known) => void given.push(known) };
      },
    });
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    datapath.setInputs(inputs);
    isOwned = false;
    await rig.turns.until(datapath.repair());
    expect(given).toEqual([inputs]);
  });

  it('follows no engine after its end', async () => {
    const rig = new Rig();
    const left: string[] = [];
    const { nodes, ipcache, services } = rig.ports;
    const leaving = (name: string) => () => unsubscribeOnce(() => void left.push(name));
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    datapath.connect({
      nodes: { ...nodes, subscribe: leaving('nodes') },
      ipcache: { ...ipcache, subscribe: leaving('ipcache') },
      services: { ...services, subscribe: leaving('services') },
    });
    expect(left).toEqual([]);
    datapath[Symbol.dispose]();
    expect([...new Set(left)]).toEqual(['services', 'ipcache', 'nodes']);
  });

  it('removes no items of an earlier part after its end, even if it waited for a table', async () => {
    const rig = new Rig();
    const retired: LinuxPartName[] = [];
    const datapath = rig.open({}, ABLE, (part, name) => ({ ...part, retire: () => void retired.push(name) }));
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    rig.engines.say('a', '1');
    datapath.allowDeletes();
    datapath[Symbol.dispose]();
    await rig.turns.settle();
    expect([retired, datapath.status().failures]).toEqual([[], []]);
  });

  it('reads no table after its end, even if a request is in progress', async () => {
    const rig = new Rig();
    const datapath = rig.open();
    await rig.turns.until(datapath.adopt());
    const asked = Promise.all([datapath.plan(), datapath.repair(), datapath.adopt()]);
    datapath[Symbol.dispose]();
    for (const table of Object.values(rig.tables)) {
      table.dump = () => {
        throw new Error('its memory is given back');
      };
    }
    await rig.turns.until(asked);
    datapath.connect(rig.ports);
    expect(datapath.status().failures).toEqual([]);
    expect(rig.engines.subscribed).toEqual([]);
  });

  it('keeps items of an earlier part while an item is not written, and deletes them by a later repair', async () => {
    const rig = new Rig();
    const retired: LinuxPartName[] = [];
    const datapath = rig.open({}, ABLE, (part, name) => ({ ...part, retire: () => void retired.push(name) }));
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    rig.tables.services.broken.add('a');
    rig.engines.say('a', '1');
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(retired).toEqual(['nodes', 'ipcache']);
    expect(datapath.status().failures).toEqual([
      'services: items of the previous agent were not removed: 1 item of services not written',
    ]);
    rig.tables.services.broken.clear();
    await rig.turns.until(datapath.repair());
    await rig.turns.settle();
    expect([retired, datapath.status().failures]).toEqual([['nodes', 'ipcache', 'services'], []]);
  });

  it('reports a part that cannot follow the engines, and repairs continue (regression: a repair rejected)', async () => {
    const rig = new Rig();
    let isOwned = true;
    const datapath = rig.open({
      ipcache: () => {
        if (isOwned) throw new PartLockedError('another process owns it');
        return rig.part('ipcache');
      },
    });
    await rig.turns.until(datapath.adopt());
    const subscribe = (): never => {
      throw new Error('the engine is closed');
    };
    datapath.connect({ ...rig.ports, ipcache: { subscribe } });
    isOwned = false;
    await rig.turns.until(datapath.repair());
    expect(datapath.status().failures).toEqual([
      'ipcache: cannot subscribe to the engines: the engine is closed',
    ]);
  });

  it('deletes items of an earlier part even if the table of another part cannot be read', async () => {
    const rig = new Rig();
    rig.tables.nodes.dump = () => {
      throw new Error('no memory');
    };
    const retired: LinuxPartName[] = [];
    const datapath = rig.open({}, ABLE, (part, name) => ({ ...part, retire: () => void retired.push(name) }));
    await rig.turns.until(datapath.adopt());
    datapath.connect(rig.ports);
    datapath.allowDeletes();
    await rig.turns.settle();
    expect(retired).toEqual(['ipcache', 'services']);
  });

  it('tries once per repair to remove the items of a part that is off (regression: a repair never returned)', async () => {
    let attempts = 0;
    const retire = (): void => {
      attempts++;
      // Without the limit, the error would block this test for ever.
      if (attempts < 10) throw new Error('not permitted');
    };
    using datapath = new LinuxDatapath(ABLE, [{ name: 'nodes', needs: [], open: undefined, retire }]);
    datapath.allowDeletes();
    await datapath.repair();
    expect([attempts, datapath.status().failures]).toEqual([
      2,
      ['nodes: items of the previous agent were not removed: not permitted'],
    ]);
  });

  it('asks no part for problems after dispose (regression: parts read memory that was released)', () => {
    const rig = new Rig();
    const problems = vi.fn(() => ['a pin is missing']);
    const datapath = rig.open({}, ABLE, (part) => ({ ...part, problems }));
    expect(datapath.status().parts.map(({ missing }) => missing)).toEqual(
      Array(3).fill(['a pin is missing']),
    );
    datapath[Symbol.dispose]();
    problems.mockClear();
    expect(datapath.status().parts.map(({ missing }) => missing)).toEqual([[], [], []]);
    expect(problems).not.toHaveBeenCalled();
  });
});
