import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TurnGate } from '../../src/base/turn-gate.ts';
import { createLog } from '../../src/process/log.ts';
import { FollowedManifests } from '../../src/recording/followed-manifests.ts';
import { ServiceCache } from '../../src/servicecache/service-cache.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { ManualClock } from '../base/support/manual-clock.ts';

function service(name: string): string {
  return `---\napiVersion: v1\nkind: Service\nmetadata: {name: ${name}}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n`;
}

const NEVER = new AbortController().signal;

/** Followed manifests of a folder, with the names of the services in the cache. */
function following(text: string): {
  readonly manifests: FollowedManifests;
  readonly services: () => readonly string[];
  readonly file: string;
  readonly logged: string[];
  readonly clock: ManualClock;
} {
  const clock = new ManualClock();
  const services = new ServiceCache({ clusterName: 'own' });
  services.markSynced();
  const logged: string[] = [];
  const log = createLog('warn', 'text', { write: (line) => logged.push(line.trimEnd()) });
  const gate = new TurnGate({ clock, nextTurn: setImmediate });
  const manifests = new FollowedManifests({ services, gate, clock, log, onReject: () => {} });
  const file = join(temporaryFolder({ 'a.yaml': text }), 'a.yaml');
  const names = (): readonly string[] =>
    Array.from(services.snapshot(), ([key]) => key.replace('default/', '')).sort();
  return { manifests, services: names, file, logged, clock };
}

/** Fires at the n-th object that is read or stored. */
function abortingAt(object: number): { readonly signal: AbortSignal; readonly onProgress: () => void } {
  const controller = new AbortController();
  let count = 0;
  return {
    signal: controller.signal,
    onProgress: () => {
      count++;
      if (count === object) controller.abort();
    },
  };
}

describe('a reading of manifests', () => {
  it('names the path that is read, until it has been applied or has failed', async () => {
    const { manifests, file } = following(service('one'));
    const seen: (readonly string[])[] = [];
    await manifests.read([file], NEVER, () => seen.push([...manifests.reading]));
    expect([seen, manifests.reading]).toEqual([[[file], []], []]);
    await expect(manifests.read([`${file}.gone`], NEVER)).rejects.toThrow();
    expect(manifests.reading).toEqual([]);
  });

  it('removes an object once: it is not missing at the next reading, and can come again', async () => {
    const { manifests, services, file, logged } = following(service('one') + service('two'));
    await manifests.read([file], NEVER);
    for (const [text, names] of [
      [service('one'), ['one']],
      [`${service('one')}---\nkind: [\n`, ['one']],
      [service('one') + service('two'), ['one', 'two']],
      [service('two'), ['two']],
    ] as const) {
      writeFileSync(file, text);
      await manifests.read([file], NEVER);
      expect(services()).toEqual(names);
    }
    expect(logged).toEqual([]);
  });

  it('that is interrupted changes nothing (regression: unread manifests were removed)', async () => {
    const { manifests, services, file, logged } = following(service('one') + service('two'));
    await manifests.read([file], NEVER);
    writeFileSync(file, service('three') + service('four'));
    for (const object of [1, 2]) {
      const { signal, onProgress } = abortingAt(object);
      await manifests.read([file], signal, onProgress);
      expect(services()).toEqual(['one', 'two']);
    }
    expect(manifests.reading).toEqual([]);
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['four', 'three']);
    expect(logged).toEqual([]);
  });

  it('that is interrupted while it stores removes nothing, and the next one removes missing objects', async () => {
    const { manifests, services, file } = following(service('one') + service('two'));
    await manifests.read([file], NEVER);
    writeFileSync(file, service('three') + service('four'));
    const { signal, onProgress } = abortingAt(3);
    await manifests.read([file], signal, onProgress);
    expect(services()).toEqual(['one', 'three', 'two']);
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['four', 'three']);
  });

  it('with one unreadable file changes nothing (regression: files before it were stored)', async () => {
    const { manifests, services, file } = following(service('one'));
    await manifests.read([file], NEVER);
    writeFileSync(file, service('two'));
    await expect(manifests.read([file, `${file}.missing`], NEVER)).rejects.toThrow('no such file');
    expect([services(), manifests.reading]).toEqual([['one'], []]);
  });

  it('with an invalid part is complete nevertheless, because all valid objects are stored', async () => {
    const { manifests, services, file } = following(
      `${service('one')}---\nkind: Service\nmetadata: {name: 7}\n`,
    );
    expect(manifests.isRead).toBe(false);
    await manifests.read([file], NEVER);
    expect([services(), manifests.isRead]).toEqual([['one'], true]);
  });

  it('with an invalid part removes nothing', async () => {
    const { manifests, services, file, logged } = following(service('one') + service('two'));
    await manifests.read([file], NEVER);
    writeFileSync(file, `${service('three')}---\nkind: Service\nmetadata: {`);
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['one', 'three', 'two']);
    expect(logged).toEqual(['warn  --manifests: kept 2 missing objects, because a part is invalid']);
    writeFileSync(file, `${service('three')}---\nkind: Service\nmetadata: {name: 7}\n`);
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['one', 'three', 'two']);
    writeFileSync(file, service('three'));
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['three']);
  });

  it('stores the last version of an object that occurs twice, and removes it once', async () => {
    const { manifests, services, file } = following(service('one') + service('one'));
    await manifests.read([file], NEVER);
    expect(services()).toEqual(['one']);
    rmSync(file);
    writeFileSync(file, '');
    await manifests.read([file], NEVER);
    expect(services()).toEqual([]);
  });

  it.each([
    ['never, if it takes less', 399, []],
    ['after two seconds', 400, [5]],
    ['every two seconds', 1_000, [2, 4]],
    ['at most once for each object', 2_000, [1, 2, 3, 4, 5]],
    ['two seconds after the last log line', 1_999, [2, 4]],
  ])('logs its progress %s: an object takes %i ms', async (_when, ms, counts) => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const { manifests, services, file, logged, clock } = following(names.map(service).join(''));
    await manifests.read([file], NEVER, () => clock.advance(ms));
    expect(services()).toEqual(names);
    expect(logged).toEqual(
      counts.map(
        (count) =>
          `warn  reading --manifests ${file}: ${count === 1 ? '1 object' : `${count} objects`} so far`,
      ),
    );
  });
});
