import { expect, it } from 'vitest';
import { etcdError } from '../../src/kvstore/etcd/etcd-errors.ts';
import { createLog } from '../../src/process/log.ts';

it('writes the message of an error without those of its causes, which the stack has (regression: Resolution note)', () => {
  const grpcText = 'No connection established. Last error: connect ECONNREFUSED. Resolution note: ';
  const err = etcdError(Object.assign(new Error(grpcText), { code: 14 }), '10.0.0.1:2379');
  const lines: string[] = [];
  for (const format of ['json', 'text'] as const)
    createLog('warn', format, { write: (line) => lines.push(line) }).warn({ err }, 'failed');
  const [json = '', text] = lines;
  expect(JSON.parse(json).err).toMatchObject({
    type: 'KvstoreError',
    message: err.message,
    code: 'unavailable',
    stack: expect.stringContaining(grpcText),
  });
  expect(text).toBe(`warn  failed: ${err.message}\n`);
});

it.each(['text', undefined, { code: 7 }])(
  'writes %j, which was thrown instead of an error, as it is',
  (err) => {
    const lines: string[] = [];
    createLog('warn', 'json', { write: (line) => lines.push(line) }).warn({ err }, 'failed');
    expect(JSON.parse(lines.join('')).err).toEqual(err);
  },
);
