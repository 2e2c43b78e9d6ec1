import { expect, it } from 'vitest';
import type { ObjectWriter, ObjectWriterOptions } from '../../../src/k8s/rest/object-writer.ts';
import type { WriteContext } from '../../../src/operator/elect/fenced-writer.ts';
import { objectWriter } from '../../../src/operator/mirrored-slices/slice-duties.ts';

const REMOVE = {
  verb: 'delete',
  place: { kind: { group: '', version: 'v1', plural: 'pods' }, name: 'a' },
  uid: 'u',
} as const;

it('slices are written at 20 a second without bursts, within the time of the leader, and only by the leader', async () => {
  const asked: ObjectWriterOptions[] = [];
  const writer: ObjectWriter = { write: () => Promise.resolve({ outcome: 'done', object: undefined }) };
  const kubernetes: WriteContext['kubernetes'] = {
    writer: (options: ObjectWriterOptions = {}) => {
      asked.push(options);
      return writer;
    },
  };
  let leads = true;
  const election = { mayWrite: () => leads, writeMs: 7_000 };
  expect(objectWriter({ kubernetes, election })).toBe(writer);
  expect(asked).toMatchObject([
    { perSecond: 20, burst: 1, fieldManager: expect.any(String), timeoutMs: 7_000 },
  ]);
  expect(asked[0]?.mayWrite?.()).toBe(true);
  leads = false;
  expect(asked[0]?.mayWrite?.()).toBe(false);

  const lines: string[] = [];
  const dry = objectWriter({ kubernetes, election, dryRun: (line) => void lines.push(line) });
  expect(await dry.write(REMOVE, 'it is gone', new AbortController().signal)).toMatchObject({
    outcome: 'dry-run',
  });
  expect([asked.length, lines.length]).toEqual([1, 1]);
});
