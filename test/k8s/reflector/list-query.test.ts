import { describe, expect, it } from 'vitest';
import {
  lastPutPath,
  listPath,
  parseList,
  readListShell,
  streamPath,
  watchPath,
} from '../../../src/k8s/reflector/list-query.ts';
import type { ResourceKind } from '../../../src/k8s/resource.ts';

const NODES: ResourceKind = { group: '', version: 'v1', plural: 'nodes' };
const SELECTED: ResourceKind = { ...NODES, labelSelector: 'a=b,!c', fieldSelector: 'spec.x=1' };
const SELECTORS = { labelSelector: 'a=b,!c', fieldSelector: 'spec.x=1' };

/** Returns the query of a path, which must request all objects of the kind. */
function asked(path: string, pathname = '/api/v1/nodes'): Readonly<Record<string, string>> {
  const url = new URL(path, 'http://server');
  expect(url.pathname).toBe(pathname);
  return Object.fromEntries(url.searchParams);
}

describe('a list request', () => {
  it('from the memory of the server accepts any version at first, then none older than the last one (K 1)', () => {
    expect(asked(listPath(NODES, 'cache', ''))).toEqual({ resourceVersion: '0' });
    expect(asked(listPath(NODES, 'cache', '17'))).toEqual({ resourceVersion: '17' });
  });

  it('for the latest objects names no version, and is paged, or not (K 1)', () => {
    expect(asked(listPath(NODES, 'pages', '17'))).toEqual({ limit: '500' });
    expect(asked(listPath(NODES, 'pages', '17', 'next'))).toEqual({ limit: '500', continue: 'next' });
    expect(asked(listPath(NODES, 'whole', '17'))).toEqual({});
  });

  it('as a stream requests the bookmark at its end', () => {
    const stream = {
      watch: 'true',
      sendInitialEvents: 'true',
      resourceVersionMatch: 'NotOlderThan',
      allowWatchBookmarks: 'true',
      timeoutSeconds: '600',
    };
    expect(asked(streamPath(NODES, '', 600))).toEqual(stream);
    expect(asked(streamPath(NODES, '17', 600))).toEqual({ ...stream, resourceVersion: '17' });
  });

  it('for a watch starts after a version, with bookmarks (K 2)', () => {
    const watch = { watch: 'true', allowWatchBookmarks: 'true', timeoutSeconds: '300' };
    expect(asked(watchPath(NODES, '17', 300))).toEqual({ ...watch, resourceVersion: '17' });
  });

  it('has the selectors of the kind', () => {
    for (const path of [listPath(SELECTED, 'whole', ''), listPath(SELECTED, 'pages', '', 'next')])
      expect(asked(path)).toMatchObject(SELECTORS);
    for (const path of [streamPath(SELECTED, '', 1), watchPath(SELECTED, '1', 1)])
      expect(asked(path)).toMatchObject(SELECTORS);
  });

  it('for one object selects its name', () => {
    const lastPut = { name: 'own', namespace: undefined, uid: 'u', version: '17' };
    expect(asked(lastPutPath(NODES, lastPut))).toEqual({ fieldSelector: 'metadata.name=own' });
    expect(asked(lastPutPath(SELECTED, lastPut))).toEqual({
      ...SELECTORS,
      fieldSelector: 'spec.x=1,metadata.name=own',
    });
    const pods = { ...NODES, plural: 'pods' };
    const inNamespace = lastPutPath(pods, { ...lastPut, namespace: 'n' });
    expect(asked(inNamespace, '/api/v1/namespaces/n/pods')).toEqual({ fieldSelector: 'metadata.name=own' });
  });
});

describe('a list', () => {
  const shell = (metadata: unknown): ReturnType<typeof readListShell> =>
    readListShell(JSON.stringify({ metadata, items: [] }));

  it('returns its version, and its continue token', () => {
    expect(shell({ resourceVersion: '17', continue: 'next' })).toEqual({ version: '17', token: 'next' });
    for (const none of [undefined, '', 7, null])
      expect(shell({ resourceVersion: '17', continue: none })).toEqual({ version: '17', token: undefined });
  });

  it('without a usable version is garbled: a watch from 0 would repeat everything, in no order', () => {
    for (const metadata of [undefined, null, 7, {}])
      expect(() => shell(metadata)).toThrow(expect.objectContaining({ code: 'garbled' }));
    for (const resourceVersion of ['', '0', 7, null])
      expect(() => shell({ resourceVersion })).toThrow(expect.objectContaining({ code: 'garbled' }));
  });

  it('without items is garbled: it would delete all objects (regression: an empty list)', () => {
    const metadata = { resourceVersion: '7' };
    for (const other of [
      { kind: 'Node', metadata },
      { kind: 'Table', metadata, rows: [] },
      { metadata, items: {} },
    ])
      expect(() => readListShell(JSON.stringify(other))).toThrow(
        expect.objectContaining({ code: 'garbled' }),
      );
    for (const items of [[], null]) // Go writes an empty list as null, too
      expect(readListShell(JSON.stringify({ metadata, items })).version).toBe('7');
  });

  it('that is not a JSON object is garbled, and reported with its beginning', () => {
    for (const text of ['', '7', 'null', '"items"', `<html>${' '.repeat(10_000)}`]) {
      const garbled = expect.objectContaining({
        code: 'garbled',
        message: `the response is not a list: ${text.slice(0, 100)}`,
      });
      expect(() => parseList(text)).toThrow(garbled);
    }
    expect(parseList('{"items":[]}')).toEqual({ items: [] });
  });
});
