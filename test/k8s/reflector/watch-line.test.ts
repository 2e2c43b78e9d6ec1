import { describe, expect, it } from 'vitest';
import { readWatchLine } from '../../../src/k8s/reflector/watch-line.ts';

const object = { metadata: { name: 'a', uid: 'u', resourceVersion: '1' } };
const status = { kind: 'Status', status: 'Failure', message: 'too old' };
const failing = (code: string): object => expect.objectContaining({ name: 'ApiError', code });

describe('a line of a watch', () => {
  it.each([
    ['ADDED', 'put'],
    ['MODIFIED', 'put'],
    ['DELETED', 'delete'],
  ])('%s is a %s', (type, read) => {
    expect(readWatchLine({ type, object })).toEqual({ type: read, object });
  });

  it('BOOKMARK is a version, and marks the end of a streaming list', () => {
    const bookmark = (annotations?: unknown): unknown =>
      readWatchLine({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '7', annotations } } });
    expect(bookmark()).toEqual({ type: 'bookmark', version: '7', isListed: false });
    for (const end of ['false', true, undefined])
      expect(bookmark({ 'k8s.io/initial-events-end': end })).toMatchObject({ isListed: false });
    expect(bookmark({ 'k8s.io/initial-events-end': 'true' })).toMatchObject({ isListed: true });
  });

  it('is rejected if it is unusable: of another type, an object without a name, a bookmark without a version', () => {
    const refused = { type: 'invalid' };
    for (const type of ['CHANGED', 'added', 7, null])
      expect(readWatchLine({ type, object })).toEqual(refused);
    for (const spoilt of [undefined, null, 7, {}, { metadata: { ...object.metadata, name: '' } }])
      expect(readWatchLine({ type: 'ADDED', object: spoilt })).toEqual(refused);
    for (const resourceVersion of [undefined, '', '0', 7])
      expect(readWatchLine({ type: 'BOOKMARK', object: { metadata: { resourceVersion } } })).toEqual(refused);
    for (const metadata of [undefined, null, 7])
      expect(readWatchLine({ type: 'BOOKMARK', object: { metadata } })).toEqual(refused);
    expect(readWatchLine({ type: 'BOOKMARK' })).toEqual(refused);
  });

  it('is thrown if it is an error, or a Status instead of an event, which a starting server sends', () => {
    const line = (value: unknown) => (): unknown => readWatchLine(value);
    expect(line({ type: 'ERROR', object: { ...status, code: 410 } })).toThrow(failing('expired'));
    expect(line({ type: 'ERROR' })).toThrow(failing('internal'));
    expect(line({ ...status, code: 503 })).toThrow(failing('unavailable'));
    expect(line({ ...status })).toThrow(failing('internal'));
    // A server may answer with a list if it does not know the query.
    for (const none of [undefined, null, 7, 'ADDED', { kind: 'PodList', items: [] }])
      expect(line(none)).toThrow(failing('garbled'));
  });
});
