import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/process/input-error.ts';
import { parsePlayScript, readPlayScript } from '../../src/recording/play-script.ts';
import { temporaryFolder } from '../agent/support/temporary-folder.ts';
import { growthPerItem } from '../base/support/cpu-time.ts';

const SCRIPT = `
- after: 1.5
  say: something happens
  do:
    - { put: k, store: a, value: { IP: 10.1.2.3, Mask: null } }
    - { put: k, store: a, value: text }
    - { delete: k, store: a }
    - { patch: k, store: a, with: { x: null } }
    - { replace: x, with: y, under: p/, store: a }
    - leave: b
    - join: b
    - apply: { kind: Service }
    - remove: { kind: Node }
- say: nothing is done
`;

describe('a script', () => {
  it('is a list of steps with actions; a value that is not text is written as JSON', () => {
    expect(parsePlayScript(SCRIPT, 'script.yaml')).toEqual([
      {
        after: 1.5,
        text: 'something happens',
        actions: [
          { kind: 'put', store: 'a', key: 'k', value: '{"IP":"10.1.2.3","Mask":null}' },
          { kind: 'put', store: 'a', key: 'k', value: 'text' },
          { kind: 'delete', store: 'a', key: 'k' },
          { kind: 'patch', store: 'a', key: 'k', patch: { x: null } },
          { kind: 'replace', store: 'a', prefix: 'p/', text: 'x', replacement: 'y' },
          { kind: 'leave', cluster: 'b' },
          { kind: 'join', cluster: 'b' },
          { kind: 'apply', object: { kind: 'Service' } },
          { kind: 'remove', object: { kind: 'Node' } },
        ],
      },
      { after: 0, text: 'nothing is done', actions: [] },
    ]);
  });

  it('is part of the examples', async () => {
    const path = new URL('../../examples/changes.yaml', import.meta.url).pathname;
    const steps = await readPlayScript(path);
    expect(steps.length).toBeGreaterThan(5);
    expect(new Set(steps.flatMap(({ actions }) => actions.map(({ kind }) => kind)))).toEqual(
      new Set(['put', 'delete', 'patch', 'replace', 'leave', 'join']),
    );
  });

  it.each([
    ['{}', 'script {}: must be a list'],
    ['- 7', '[0] 7: must be an object'],
    ['- after: soon', '[0].after "soon": must be a number'],
    ['- after: -1', '[0].after -1: must be a number from 0 to 3600'],
    ['- say: 7', '[0].say 7: must be a string'],
    ['- do: 7', '[0].do 7: must be a list'],
    ['- { say: x, actions: [] }', '[0].actions []: must be after, say or do'],
    ['- do: [7]', '[0].do[0] 7: must be an object'],
    ['- do: [{ leave: 7 }]', '[0].do[0].leave 7: must be a string'],
    ['- do: [{ put: k }]', '[0].do[0].store is missing'],
    ['- do: [{ put: k, store: a }]', '[0].do[0].value is missing'],
    ['- do: [{ store: a }]', '[0].do[0].under is missing'],
    ['- [', 'line 1: Flow sequence'],
  ])('that is invalid (%s) is an error that names file and field', (text, message) => {
    expect(() => parsePlayScript(text, 'script.yaml')).toThrow(InputError);
    expect(() => parsePlayScript(text, 'script.yaml')).toThrow(`--play script.yaml: ${message}`);
  });

  it('costs time linear in its length, however many keys a map has', async () => {
    const growth = await growthPerItem(350, (count) => {
      const keys = Array.from({ length: count }, (_, i) => `k${i}: 1`).join(',');
      parsePlayScript(`- do: [{ put: k, store: a, value: {${keys}} }]`, 'script.yaml');
    });
    expect(growth).toBeLessThan(6);
  });

  it('with several documents, or a repeated key, is an error', () => {
    expect(() => parsePlayScript('[]\n---\n[]', 'x.yaml')).toThrow(
      '--play x.yaml: must be one YAML document',
    );
    expect(() => parsePlayScript('- { say: a, say: b }', 'x.yaml')).toThrow(
      '--play x.yaml: line 1: Map keys must be unique',
    );
  });

  it('that is missing is an error with the remedy', async () => {
    const path = join(temporaryFolder({}), 'missing.yaml');
    await expect(readPlayScript(path)).rejects.toThrow(`--play ${path}: no such file`);
  });
});
