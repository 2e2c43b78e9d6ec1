import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { parseBlockYaml, UnusualYamlError } from '../../src/recording/block-yaml.ts';

/** Returns the value, or undefined if the text is outside of the subset. */
function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: parseBlockYaml(text) };
  } catch (error) {
    if (error instanceof UnusualYamlError) return undefined;
    throw error;
  }
}

/** An object as the tools of Kubernetes print it. */
const ENDPOINT = `apiVersion: cilium.io/v2
kind: CiliumEndpoint
metadata:
  annotations:
    note: 'it''s "quoted": yes # no comment'
    empty: ""
  creationTimestamp: "2026-01-01T10:00:00Z"
  managedFields:
  - apiVersion: cilium.io/v2
    fieldsV1:
      f:metadata:
        f:labels:
          .: {}
          k:{"type":"Ready"}: {}
  name: cart-1
status:
  encryption: {}
  identity:
    id: 66536
    labels:
    - k8s:app=cart
  named-ports: []
  networking:
    addressing:
    - ipv4: 10.0.0.7
      ipv6: fd00::7
    -
      ipv4: 10.0.0.8
    node: 192.168.0.1
  policy:
    egress:
      enforcing: false
    ingress: null
    none:
`;

describe('block YAML', () => {
  it('parses an object as a complete parser does', () => {
    expect(JSON.stringify(parseBlockYaml(ENDPOINT))).toBe(JSON.stringify(parse(ENDPOINT)));
  });

  it('parses a long string in single quotes (regression: 20 MB exceeded the stack, so that the sysdump was not read)', () => {
    const long = 'a'.repeat(20_000_000);
    expect(parsed(`note: '${long}'`)).toEqual({ value: { note: long } });
    for (const text of [`'${long}`, `'${long}''`, "'", "'a'b'"])
      expect(parsed(`note: ${text}`)).toBeUndefined();
  });

  it('returns the value of a complete parser, or refuses the text, for printed values', () => {
    const key = fc.stringMatching(/^[a-z][a-zA-Z./-]{0,8}$/);
    const leaf = fc.oneof(
      fc.stringMatching(/^[a-zA-Z0-9 .:/_-]{0,12}$/),
      ...[fc.string(), fc.integer(), fc.boolean(), fc.constant(null), fc.double({ noNaN: true })],
    );
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        leaf,
        fc.dictionary(key, tie('value')),
        fc.array(tie('value'), { maxLength: 3 }),
      ),
    }));
    let accepted = 0;
    let all = 0;
    fc.assert(
      fc.property(fc.dictionary(key, value, { minKeys: 1 }), fc.boolean(), (object, indentSeq) => {
        const text = stringify(object, { indentSeq, lineWidth: 0 });
        const own = parsed(text);
        all++;
        if (own === undefined) return;
        accepted++;
        expect(JSON.stringify(own.value)).toBe(JSON.stringify(parse(text)));
      }),
    );
    expect(accepted).toBeGreaterThan(all / 10);
  });

  it('never returns another value than a complete parser for any text', () => {
    const piece = fc.constantFrom(
      ...[
        'a',
        '1',
        '0',
        ':',
        ' ',
        '-',
        '\n',
        '  ',
        "'",
        '"',
        '#',
        '{}',
        '[]',
        '.',
        'null',
        ': ',
        '- ',
        '&',
        '|',
        '\\',
        '?',
        'e',
        'x',
        '~',
        '\t',
        '\r',
        '\r\n',
        '\u00a0',
        '\ufeff',
      ],
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
        const text = pieces.join('');
        const own = parsed(text);
        if (own !== undefined) expect(JSON.stringify(own.value)).toBe(JSON.stringify(parse(text)));
      }),
      { numRuns: 5000 },
    );
  });

  it('gives no name a special meaning', () => {
    expect(Object.keys(parseBlockYaml('__proto__: 1\nconstructor: 2') as object)).toEqual([
      '__proto__',
      'constructor',
    ]);
  });

  it.each([
    ['dashes', `a:\n${'- '.repeat(100_000)}x`],
    ['maps', Array.from({ length: 3_000 }, (_, at) => `${' '.repeat(at)}a:`).join('\n')],
  ])('leaves 100,000 nested %s to a complete parser, without exhausting the stack', (_, text) => {
    expect(() => parseBlockYaml(text)).toThrow(UnusualYamlError);
  });
});
