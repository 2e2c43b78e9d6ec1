// Writes docs/api: the exports of every entry of the package, from its declarations and their docstrings.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Declarations, type Declared, type Documented } from './declarations.ts';

/** The entries from small to large. A name is described on the page of the first entry that exports it. */
const ENTRIES = [
  'ipcache',
  'servicecache',
  'nodemanager',
  'etcd',
  'kubernetes',
  'formats',
  'linux',
  'sysdump',
  'testing',
  'shared',
  'index',
] as const;

/** A public name and the page that describes it. */
interface Described {
  readonly name: string;
  readonly entry: string;
  readonly kind: string;
  readonly anchor: string;
  readonly parts: readonly Documented[];
}

const KIND = /^export (?:declare )?(?:abstract )?(class|interface|type|const|function) /;
const KINDS = ['class', 'function', 'const', 'interface', 'type'];

function importName(entry: string): string {
  return entry === 'index' ? 'datapath-cache' : `datapath-cache/${entry}`;
}

/** Returns the text of a docstring without its marks. */
function proseOf(docstring: string): string {
  return docstring
    .replace(/^\/\*\*\s?|\s*\*\/$/g, '')
    .replace(/^ *\* ?/gm, '')
    .replace(/^@param /gm, '- ')
    .trim();
}

/** Returns the first sentence, as one line of a table. */
function summaryOf({ parts }: Described): string {
  const [first = ''] = proseOf(parts[0]?.docstring ?? '').split('\n\n');
  const [sentence = ''] = /^.*?[.:](?= |$)/.exec(first.replaceAll('\n', ' ')) ?? [
    first.replaceAll('\n', ' '),
  ];
  return sentence.replaceAll('|', '\\|').replace(/:$/, '.');
}

/** Pages by file name. */
class Reference {
  readonly #declarations = new Declarations();
  /** The description of each public name. */
  readonly #described = new Map<string, Described>();
  readonly #namesOf = new Map<string, readonly string[]>();
  readonly #intros = new Map<string, string>();

  constructor(folder: string) {
    for (const entry of ENTRIES) {
      const file = join(folder, `dist/${entry}.d.ts`);
      const [intro = ''] = /^\/\*\*[\s\S]*?\*\//.exec(readFileSync(file, 'utf8')) ?? [];
      this.#intros.set(entry, proseOf(intro));
      const exported = [...this.#declarations.exportsOf(file)].filter(([, { file: from }]) =>
        from.endsWith('.d.ts'),
      );
      this.#namesOf.set(entry, exported.map(([name]) => name).sort());
      for (const [name, declared] of exported) this.#describe(name, entry, declared);
    }
  }

  pages(): ReadonlyMap<string, string> {
    const pages = ENTRIES.map((entry) => [`${entry}.md`, this.#page(entry)] as const);
    return new Map([['README.md', this.#overview()], ...pages]);
  }

  #describe(name: string, entry: string, declared: Declared): void {
    if (this.#described.has(name)) return;
    const parts = this.#declarations.documentedOf(declared);
    const kind = KIND.exec(parts[0]?.text ?? '')?.[1] ?? 'type';
    this.#described.set(name, { name, entry, kind, anchor: `${kind}-${name.toLowerCase()}`, parts });
  }

  #of(entry: string): readonly Described[] {
    const own = [...this.#described.values()].filter((described) => described.entry === entry);
    const rank = ({ kind }: Described): number => KINDS.indexOf(kind);
    return own.sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  }

  #link(name: string, from: string): string {
    const described = this.#described.get(name);
    if (described === undefined) return `\`${name}\``;
    return `[\`${name}\`](${described.entry === from ? '' : `${described.entry}.md`}#${described.anchor})`;
  }

  /** Returns prose with links to the names in it. */
  #linked(prose: string, from: string): string {
    return prose.replace(/\{@link\s+([\w.]+)\}/g, (_, path: string) => {
      const [name = '', ...members] = path.split('.');
      const link = this.#link(name, from);
      return members.length === 0 ? link : link.replace(`\`${name}\``, `\`${path}\``);
    });
  }

  #section({ name, anchor, parts, kind, entry }: Described): string {
    const prose = parts.map(({ docstring }) => this.#linked(proseOf(docstring), entry));
    const code = parts
      .map(({ text }) => text.replace(KIND, '$1 ').replace(/\{@link ([\w.]+)\}/g, '`$1`'))
      .join('\n')
      .replace(/^(?: {4})+/gm, (indent) => ' '.repeat(indent.length / 2));
    const texts = prose.filter((text) => text !== '');
    return [`### <a id="${anchor}"></a>${kind} ${name}`, ...texts, `\`\`\`ts\n${code}\n\`\`\``].join('\n\n');
  }

  #page(entry: (typeof ENTRIES)[number]): string {
    const items = this.#of(entry);
    const others = (this.#namesOf.get(entry) ?? []).filter(
      (name) => this.#described.get(name)?.entry !== entry,
    );
    const rows = items.map((described) => {
      const summary = this.#linked(summaryOf(described), entry);
      return `| ${this.#link(described.name, entry)} | ${described.kind} | ${summary} |`;
    });
    const more =
      others.length === 0 ? [] : [`Also here: ${others.map((name) => this.#link(name, entry)).join(', ')}.`];
    return `${[
      `# ${importName(entry)}`,
      this.#linked(this.#intros.get(entry) ?? '', entry),
      ['| name | | |', '|---|---|---|', ...rows].join('\n'),
      ...more,
      ...items.map((described) => this.#section(described)),
    ].join('\n\n')}\n`;
  }

  #overview(): string {
    const entries = ENTRIES.map((entry) => {
      const names = this.#of(entry).filter(({ kind }) => kind === 'class' || kind === 'function');
      const links = names.map(({ name }) => this.#link(name, '')).join(', ');
      return `| [\`${importName(entry)}\`](${entry}.md) | ${this.#namesOf.get(entry)?.length ?? 0} | ${links} |`;
    });
    return `${[
      '# API reference',
      'What a program can import, made from the declarations of the package by `npm run docs:api`. Each name is described once, with the smallest entry that has it. Rules are in [SEMANTICS](../SEMANTICS.md), words in the [glossary](../GLOSSARY.md), programs to copy from in [`examples/library`](../../examples/library/README.md).',
      [
        '| import | names | classes and functions that are described there |',
        '|---|---:|---|',
        ...entries,
      ].join('\n'),
    ].join('\n\n')}\n`;
  }
}

/** Returns the pages of docs/api for a package that was built into `dist` of a folder: file name → text. */
export function apiReference(folder: string): ReadonlyMap<string, string> {
  return new Reference(folder).pages();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = fileURLToPath(new URL('..', import.meta.url));
  const to = join(root, 'docs/api');
  mkdirSync(to, { recursive: true });
  for (const [name, text] of apiReference(root)) writeFileSync(join(to, name), text);
}
